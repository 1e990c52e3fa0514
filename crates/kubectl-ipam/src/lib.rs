//! `kubectl ipam`: shows pools, addresses, claims and their holders, and writes reservations, with
//! the permissions of the caller.
//!
//! - [`cli`]: the command line; [`error`]: errors and exit codes; `input`: parsers of what users
//!   write;
//! - `commands`: one file for each command;
//! - `cluster`: requests to the API server; `objects`: one table for each kind, with the fields that
//!   are kept and the permissions that the caller lacks; `load`: the reads of a command, which fill
//!   the tables; `registry`: registries of blocks and their records;
//! - [`model`]: reports, computed by pure functions from the objects;
//! - `spelling`: misspelt names; `user_reservation`: reservations of users;
//!   `convert`: tables as manifests; `manifests`: manifests as text;
//! - `render`: a report as text; `output`: formats, warnings and terminal;
//! - `complete`: tab completion after `kubectl ipam`;
//! - `web`: what the web page of the crate `kubectl-ipam-web` shows, with its watches.
//!
//! # Invariants
//! - Only `reserve` and `unreserve` write objects: reservations of users; and `registry return` marks an
//!   IPSlice. Only `registry release`, `registry adopt` and `registry
//!   create-network` write records of a registry. Each request has a deadline.
//! - Lists are read in pages. An object that cannot be decoded is skipped and reported.
//! - A command and the page have the same tables: a report is one function of `Objects`.
//! - The allocation order and the parsing of pools are those of the manager: the crates `capi-ipam`
//!   and `capi-ipam-ip`.

#![cfg_attr(
    not(feature = "web"),
    allow(dead_code, unused_imports, reason = "reports of the page")
)]

pub mod cli;
pub mod error;
pub mod model;

mod cluster;
mod commands;
mod complete;
mod convert;
mod first_names;
mod input;
mod load;
mod manifests;
mod objects;
mod output;
mod registry;
mod render;
mod spelling;
mod user_reservation;
#[cfg(feature = "web")]
mod web;

#[doc(hidden)]
pub use crate::convert::{Converted, Problem, convert};

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::error::Code;

/// Runs the program with the command line of the process.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: cannot start: {error}");
            return Code::Failed.into();
        }
    };
    // The words that follow are no arguments of this program, but a line that is being typed.
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(complete::ARGUMENT) {
        let words: Vec<String> = arguments.collect();
        let answer = runtime.block_on(complete::answer(&words));
        return end(output::print(&answer).map(|()| Code::Ok));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() {
                Code::Usage
            } else {
                Code::Ok
            };
            let _ = error.print();
            return code.into();
        }
    };
    log(cli.global.verbosity);
    end(runtime.block_on(commands::run(&cli)))
}

/// Prints the error of a command, and returns the exit code.
fn end(result: Result<Code, error::Error>) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            error.code().into()
        }
    }
}

/// Logs requests to the standard error, as kubectl does from level 6 on.
fn log(level: u8) {
    let filter = match level {
        0..=5 => return,
        6..=7 => "warn,kube_client=debug",
        _ => "debug,hyper_util=trace",
    };
    // The text is constant. A second subscriber, which cannot exist, would be no reason to stop.
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::new(filter));
    let _ = subscriber
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
