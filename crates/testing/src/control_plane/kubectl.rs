//! Runs kubectl.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use super::{ControlPlane, https};

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
        let mut stdin = kubectl
            .stdin
            .take()
            .expect("kubectl's standard input is a pipe");
        let output = thread::scope(|scope| {
            // A kubectl that exits early closes the pipe; its exit code is more specific than this
            // error.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            kubectl
                .wait_with_output()
                .expect("kubectl is a child of this process")
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!(
                "kubectl {}: {}",
                arguments.join(" "),
                text(&output.stderr)
            ))
        }
    }
}

/// kubectl, and the creation of objects without it.
impl ControlPlane {
    /// The path of kubectl.
    pub fn kubectl_program(&self) -> PathBuf {
        self.kubectl.program.clone()
    }

    /// Runs kubectl as the administrator, or with another `--kubeconfig` among the arguments, and
    /// returns its output.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with_input(arguments, "")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Self::kubectl`], and returns the error output of kubectl when it fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_with_input(arguments, "")
    }

    /// `kubectl apply` of one or more objects.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl_apply(&self, yaml: &str) -> String {
        self.kubectl_with_input(&["apply", "-f", "-"], yaml)
            .unwrap_or_else(|error| panic!("{error}\n{yaml}"))
    }

    /// Creates an object without storing it, as the administrator. Much faster than kubectl.
    ///
    /// # Errors
    /// The causes of a rejection, each in a line with its field, or the whole response.
    pub fn dry_create(&self, object: &Value) -> Result<(), String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (
            text(&object["apiVersion"]),
            text(&object["kind"]).to_lowercase(),
        );
        let namespace = object["metadata"]["namespace"].as_str();
        let folder = namespace
            .map(|namespace| format!("namespaces/{namespace}/"))
            .unwrap_or_default();
        let plural = kind
            .strip_suffix('y')
            .map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        let path = format!("/apis/{version}/{folder}{plural}?dryRun=All&fieldValidation=Strict");
        let response = self.endpoint().create(&path, &object.to_string()).map(drop);
        response.map_err(|response| https::causes(&response).unwrap_or(response))
    }

    /// `kubectl replace` of one or more objects.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl_replace(&self, json: &str) -> String {
        self.kubectl_with_input(&["replace", "-f", "-"], json)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn kubectl_with_input(
        &self,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, String> {
        self.kubectl.run(arguments, input)
    }
}
