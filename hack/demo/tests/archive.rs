//! The control plane of the demo comes from the archive of envtest where that can be downloaded.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The version of an archive that is published nowhere.
const VERSION: &str = "v0.0.1";

/// A new folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("archive-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder can be created");
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is a text")
}

/// Runs `ensure.sh server` with an empty cache and without Go.
fn ensure(folder: &Path, index: &str) -> Output {
    let programs = folder.join("bin");
    fs::create_dir_all(&programs).expect("a folder can be created");
    let go_program = programs.join("go");
    fs::write(&go_program, "#!/bin/sh\necho 'no Go here' >&2\nexit 1\n")
        .expect("it can be written");
    run(Command::new("chmod").arg("+x").arg(&go_program));
    let path = std::env::var("PATH").expect("PATH is set");
    Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane/ensure.sh"))
        .arg("server")
        .env_remove("KUBEBUILDER_ASSETS")
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("ENVTEST_VERSION", VERSION)
        .env("ENVTEST_INDEX", index)
        .output()
        .expect("bash can be started")
}

/// Serves an index and its archive on a port of 127.0.0.1. Returns the URL of the index.
fn serve(folder: &Path, hash_of_other: bool) -> String {
    let content = folder.join("controller-tools/envtest");
    fs::create_dir_all(&content).expect("a folder can be created");
    for program in ["etcd", "kube-apiserver", "kubectl"] {
        let path = content.join(program);
        fs::write(&path, program).expect("a file can be written");
        run(Command::new("chmod").arg("+x").arg(path));
    }
    let archive = folder.join("archive.tar.gz");
    let mut tar = Command::new("tar");
    run(tar
        .current_dir(folder)
        .arg("-czf")
        .arg(&archive)
        .arg("controller-tools"));
    let hashed = if hash_of_other {
        content.join("etcd")
    } else {
        archive.clone()
    };
    let hash = run(Command::new("sha512sum").arg(hashed));
    let hash = hash.split(' ').next().expect("a hash").to_owned();

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let base = format!(
        "http://{}",
        listener.local_addr().expect("it has an address")
    );
    let mut index = format!("releases:\n  {VERSION}:\n");
    for platform in ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"] {
        let entry = format!(
            "    envtest-{VERSION}-{platform}.tar.gz:\n      hash: {hash}\n      selfLink: {base}/archive\n"
        );
        index.push_str(&entry);
    }
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &index, &archive);
        }
    });
    format!("{base}/index")
}

fn answer(mut stream: TcpStream, index: &str, archive: &Path) {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().expect("it can be cloned"));
    reader.read_line(&mut line).expect("a request");
    let is_index = line.starts_with("GET /index ");
    // The rest of the head: a connection that is closed before is reset.
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).expect("a header");
    }
    let body = if is_index {
        index.as_bytes().to_vec()
    } else {
        fs::read(archive).expect("the archive can be read")
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
}

#[test]
fn published_archive_is_used_and_kept() {
    let folder = folder("used");
    let index = serve(&folder, false);
    let output = ensure(&folder, &index);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let programs = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    let etcd = fs::read_to_string(Path::new(&programs).join("etcd"));
    assert_eq!(etcd.expect("it was extracted"), "etcd");
    // The second time, it is not downloaded.
    let again = ensure(&folder, "http://127.0.0.1:1/index");
    assert_eq!(String::from_utf8_lossy(&again.stdout).trim_end(), programs);
}

#[test]
fn archive_with_another_hash_is_refused() {
    let folder = folder("hash");
    let index = serve(&folder, true);
    let output = ensure(&folder, &index);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("does not have the SHA-512"), "{errors}");
    assert!(errors.contains("no Go here"), "they are built: {errors}");
}

#[test]
fn programs_are_built_without_the_archive() {
    let folder = folder("none");
    let output = ensure(&folder, "http://127.0.0.1:1/index");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(
        errors.contains("the programs are built instead"),
        "{errors}"
    );
    assert!(errors.contains("no Go here"), "{errors}");
}
