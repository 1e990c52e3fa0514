//! What happens after the last step: the programs are stopped at once, or keep running for the
//! reader to try them.

use std::io::{self, IsTerminal};

use support::control_plane::ControlPlane;
use support::manager::built;

use crate::output::{print, say};

/// How long the programs keep running after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Until Ctrl-C: the demo was started with `--stay`.
    UntilInterrupted,
    /// Until Enter is pressed: the demo runs in a terminal.
    UntilEnter,
    /// Not at all: in a script nobody would press a key.
    No,
}

impl Stay {
    /// What the arguments and the standard input of this process ask for.
    pub fn of_process() -> Self {
        if std::env::args().any(|argument| argument == "--stay") {
            Self::UntilInterrupted
        } else if io::stdin().is_terminal() {
            Self::UntilEnter
        } else {
            Self::No
        }
    }

    /// Says until when the programs keep running, before what there is to try.
    ///
    /// # Errors
    /// When nobody reads the output.
    pub fn announce(self) -> io::Result<()> {
        let end = match self {
            Self::UntilInterrupted => "Ctrl-C",
            Self::UntilEnter => "you press Enter",
            Self::No => return Ok(()),
        };
        say(&format!(
            "The programs keep running until {end}. Try, in another terminal:"
        ))
    }

    /// Waits for the end. Does not return until Ctrl-C, which ends the process.
    pub fn wait(self) {
        match self {
            Self::UntilInterrupted => loop {
                std::thread::park();
            },
            Self::UntilEnter => {
                let mut line = String::new();
                io::stdin()
                    .read_line(&mut line)
                    .expect("the terminal can be read");
            }
            Self::No => {}
        }
    }
}

/// Prints what makes kubectl and its plugin use an API server.
///
/// # Errors
/// When nobody reads the output.
pub fn print_environment(control_plane: &ControlPlane) -> io::Result<()> {
    let kubeconfig = control_plane.kubeconfig().display();
    print(&format!("  export KUBECONFIG={kubeconfig}"))?;
    let programs = [control_plane.kubectl_program(), built("kubectl-ipam")];
    let mut folders = Vec::new();
    for program in &programs {
        if let Some(folder) = program.parent() {
            folders.push(folder.display().to_string());
        }
    }
    print(&format!("  export PATH={}:$PATH", folders.join(":")))
}
