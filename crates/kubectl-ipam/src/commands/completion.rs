//! `completion`: the completion script of a shell.

use clap_complete::Shell;

use crate::error::{Code, Error};
use crate::{generate, output};

pub(super) fn run(shell: Shell) -> Result<Code, Error> {
    let script = generate::completion(shell);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Ok)
}
