//! Prints a generated file.

use std::io::Write;
use std::process::ExitCode;

use capi_ipam_controller::client::error_chain;
use clap::Parser;
use xtask::generate::{Generated, text};

/// Prints a generated file.
#[derive(Parser)]
struct Arguments {
    /// The file to print.
    file: Generated,
}

fn main() -> ExitCode {
    let Arguments { file } = Arguments::parse();
    let text = match text(file) {
        Ok(text) => text,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", error_chain(&error));
            return ExitCode::FAILURE;
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
