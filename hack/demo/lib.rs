//! What the demonstrations have in common: commands with their output.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a failure ends the demo with a message"
)]

pub mod output;
pub mod stay;

use std::io;
use std::process::Command;
use std::time::Instant;

use support::control_plane::ControlPlane;
use support::manager::built;

use crate::output::{print, print_command, print_indented};

/// Prints how long a step took.
///
/// # Errors
/// When nobody reads the output.
pub fn done(started: Instant) -> io::Result<()> {
    print(&format!("  took {:.1} s", started.elapsed().as_secs_f64()))
}

/// Runs kubectl, and prints the command with its output.
///
/// # Errors
/// When nobody reads the output.
pub fn show(control_plane: &ControlPlane, arguments: &[&str]) -> io::Result<()> {
    print_command("kubectl", arguments)?;
    print_indented(&control_plane.kubectl(arguments))
}

/// Runs the plugin of kubectl, and prints the command with its output.
///
/// # Errors
/// When nobody reads the output.
pub fn show_plugin(control_plane: &ControlPlane, arguments: &[&str]) -> io::Result<()> {
    print_command("kubectl ipam", arguments)?;
    let output = Command::new(built("kubectl-ipam"))
        .arg("--kubeconfig")
        .arg(control_plane.kubeconfig())
        .args(arguments)
        .output()
        .expect("kubectl-ipam can be started");
    print_indented(&String::from_utf8_lossy(
        &[output.stdout, output.stderr].concat(),
    ))
}
