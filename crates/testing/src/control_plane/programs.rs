//! The programs of a control plane, which `hack/control-plane/ensure.sh` of this repository finds
//! or builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The folder of etcd, kube-apiserver and kubectl, found or built once per process.
pub(super) fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| PathBuf::from(ensure(&["server"])))
}

/// kube-controller-manager, found or built once per process.
pub(super) fn controller_manager_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| PathBuf::from(ensure(&[])).join("kube-controller-manager"))
}

/// The standard output of `ensure.sh`: the folder that the arguments select.
///
/// # Panics
/// When the script fails; its output is on standard error.
pub fn ensure(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane/ensure.sh");
    let output = Command::new("bash")
        .arg(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
    assert!(
        output.status.success(),
        "{} {arguments:?} failed, see its output above",
        script.display()
    );
    String::from_utf8(output.stdout)
        .expect("the output is a path in UTF-8")
        .trim_end()
        .to_owned()
}

/// The output of `kubectl kustomize` for a folder.
///
/// # Panics
/// When kubectl cannot build it.
pub fn kustomize(folder: &Path) -> String {
    let output = Command::new(programs().join("kubectl"))
        .arg("kustomize")
        .arg(folder)
        .output();
    let output = output.expect("kubectl can be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
}
