//! The archive and the manifest for krew.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

use std::path::Path;
use std::process::Command;

use capi_ipam_testing::control_plane::ensure;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[test]
fn kubectl_runs_the_program_of_the_archive() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packed = Command::new(root.join("hack/krew.sh"))
        .args([
            env!("CARGO_BIN_EXE_kubectl-ipam"),
            "https://releases.example.com/capi-ipam/download",
        ])
        .status();
    assert!(packed.expect("the script can be started").success());
    let folder = root.join("target/krew");
    let text = std::fs::read_to_string(folder.join("ipam.yaml")).expect("there is a manifest");
    let manifest: Value = serde_saphyr::from_str(&text).expect("the manifest is YAML");
    assert_eq!(
        (
            &manifest["apiVersion"],
            &manifest["kind"],
            &manifest["metadata"]["name"]
        ),
        (
            &json!("krew.googlecontainertools.github.com/v1alpha2"),
            &json!("Plugin"),
            &json!("ipam")
        )
    );
    assert_eq!(
        manifest["spec"]["version"],
        concat!("v", env!("CARGO_PKG_VERSION"))
    );
    let platform = &manifest["spec"]["platforms"][0];
    let uri = platform["uri"]
        .as_str()
        .expect("the platform has an archive");
    let prefix = concat!(
        "https://releases.example.com/capi-ipam/download/v",
        env!("CARGO_PKG_VERSION"),
        "/"
    );
    let name = uri.strip_prefix(prefix).unwrap_or_else(|| panic!("{uri}"));
    let archive = std::fs::read(folder.join(name)).expect("there is an archive");
    assert_eq!(
        platform["sha256"],
        format!("{:x}", Sha256::digest(&archive))
    );

    let installed = tempfile::tempdir().expect("a folder can be created");
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(folder.join(name))
        .current_dir(installed.path())
        .status();
    assert!(unpacked.expect("tar can be started").success());
    for file in platform["files"].as_array().expect("a list of files") {
        let file = file["from"].as_str().expect("a path");
        assert!(installed.path().join(file).is_file(), "{file}");
    }
    assert_eq!(platform["bin"], "kubectl-ipam");
    let kubectl = Path::new(&ensure(&[])).join("kubectl");
    let output = Command::new(kubectl)
        .args(["ipam", "--version"])
        .env("PATH", installed.path())
        .output();
    let output = output.expect("kubectl can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text,
        concat!("kubectl-ipam ", env!("CARGO_PKG_VERSION"), "\n"),
        "{output:?}"
    );

    // kubectl completes the words after `ipam` with the script of the archive.
    let output = Command::new(Path::new(&ensure(&[])).join("kubectl"))
        .args(["__complete", "ipam", "cla"])
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", installed.path().display()),
        )
        .output();
    let output = output.expect("kubectl can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("claims\t"), "{output:?}");
}
