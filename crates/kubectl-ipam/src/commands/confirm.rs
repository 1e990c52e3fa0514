//! Asks before a change with consequences.

use std::io::{BufRead, IsTerminal, Write};

use crate::error::Error;

/// Asks on the terminal. Without one, `--yes` is necessary.
pub(super) fn confirm(warning: &str, yes: bool) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    let refused = || Error::Argument(format!("{warning}; confirm it with --yes"));
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let _ = write!(std::io::stderr(), "{warning}. Continue? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let is_read = std::io::stdin().lock().read_line(&mut answer).is_ok();
    if is_read && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        Ok(())
    } else {
        Err(refused())
    }
}
