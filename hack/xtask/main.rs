//! Prints a generated file, or writes those of the plugin of kubectl.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use capi_ipam_controller::client::error_chain;
use clap::Parser;
use xtask::generate::{Generated, text};
use xtask::plugin;

/// Prints a generated file.
#[derive(Parser)]
struct Arguments {
    /// The file to print.
    #[arg(required_unless_present = "plugin")]
    file: Option<Generated>,
    /// Write the files of the plugin of kubectl to this folder.
    #[arg(long, value_name = "FOLDER")]
    plugin: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = &arguments.plugin {
        plugin::write(folder)?;
    }
    if let Some(file) = arguments.file {
        std::io::stdout().write_all(text(file)?.as_bytes())?;
    }
    Ok(())
}
