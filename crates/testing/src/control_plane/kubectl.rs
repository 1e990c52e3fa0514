//! Runs kubectl.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// kubectl with the kubeconfig of the administrator.
#[derive(Clone, Debug)]
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) cache: PathBuf,
}

impl Kubectl {
    /// Runs kubectl and returns its output, or its error output when it fails.
    pub(super) fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(arguments)
            .env("KUBECTL_KUBERC", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl can be started");
        let mut stdin = kubectl.stdin.take().expect("kubectl's standard input is a pipe");
        let output = thread::scope(|scope| {
            // A kubectl that exits early closes the pipe; its exit code is more specific than this error.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            kubectl.wait_with_output().expect("kubectl is a child of this process")
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("kubectl {}: {}", arguments.join(" "), text(&output.stderr)))
        }
    }
}
