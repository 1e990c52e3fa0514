//! Tests of missing, changing and mismatched certificates, and of TLS versions.

use std::fs::{create_dir, remove_file, rename};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::support::{Pair, Request, Server, things, tls};
use crate::https::Limits;
use crate::https::tls::{TlsOptions, TlsVersion};

/// Waits until the server presents the certificate.
async fn wait_until_presented(server: &Server, pair: &Pair) {
    let presented = async {
        while server.presented().await.unwrap() != pair.der {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), presented)
        .await
        .expect("the certificate is presented");
}

/// Writes a pair as the kubelet updates a mounted Secret: into a new directory, to which a symlink
/// is switched.
fn mount(folder: &Path, name: &str, pair: &Pair) {
    create_dir(folder.join(name)).unwrap();
    pair.write(&folder.join(name));
    symlink(name, folder.join("..data_tmp")).unwrap();
    rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        let _ = symlink(format!("..data/{file}"), folder.join(file));
    }
}

#[tokio::test]
async fn missing_certificate_is_loaded_later() {
    let server = Server::start_without_certificate(things, Limits::default(), tls()).await;
    let missing = |file: &str| {
        let path = server.folder.path().join(file);
        format!(
            "certificate for webhooks: cannot read {}: No such file",
            path.display()
        )
    };
    let names_the_secret = format!(
        "; check the Secret that is mounted at {}, and",
        server.folder.path().display()
    );
    let pair = server.authority.issue();
    for file in ["tls.crt", "tls.key"] {
        while !server.health.pending().concat().starts_with(&missing(file)) {
            sleep(Duration::from_millis(20)).await;
        }
        let pending = server.health.pending().concat();
        assert!(pending.contains(&names_the_secret), "{pending}");
        assert!(server.ask(Request::review(1)).await.is_err());
        if file == "tls.crt" {
            std::fs::write(server.folder.path().join(file), &pair.certificate).unwrap();
        }
    }
    pair.write(server.folder.path());
    server.ready().await;
    assert_eq!(server.ask(Request::review(1)).await.unwrap().0, 200);
    server.stop().await;
}

#[tokio::test]
async fn no_request_fails_while_certificates_change() {
    let server = Server::start_without_certificate(things, Limits::default(), tls()).await;
    let folder = server.folder.path().to_owned();
    let pairs: Vec<_> = (0..3).map(|_| server.authority.issue()).collect();
    mount(&folder, "..0", &pairs[0]);
    server.ready().await;

    let (server, done) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
    let asking: Vec<_> = (0..4)
        .map(|asker| {
            let (server, done) = (server.clone(), done.clone());
            tokio::spawn(async move {
                let mut persistent = server.client(asker % 2 == 0).await.unwrap();
                let mut requests = 0;
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(server.ask(Request::review(1)).await.unwrap().0, 200);
                    assert_eq!(persistent.send(Request::review(2)).await.unwrap().0, 200);
                    requests += 1;
                }
                requests
            })
        })
        .collect();
    for (index, pair) in pairs.iter().enumerate().skip(1) {
        mount(&folder, &format!("..{index}"), pair);
        wait_until_presented(&server, pair).await;
    }
    done.store(true, Ordering::Relaxed);
    for asker in asking {
        assert!(asker.await.unwrap() > 5);
    }
    let text = server.metrics.encode().unwrap();
    assert!(text.contains("webhook_certificate_loads_total 3"), "{text}");
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn mismatched_pair_is_ignored() {
    let server = Server::start(things).await;
    let (folder, presented) = (
        server.folder.path().to_owned(),
        server.presented().await.unwrap(),
    );
    let refusals = || {
        let text = server.metrics.encode().unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("webhook_certificate_refusals_total "));
        line.unwrap().parse::<u32>().unwrap()
    };
    let refused = async |certificate: &[u8]| {
        let before = refusals();
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        while refusals() == before {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(server.presented().await.unwrap(), presented);
    };
    let pair = server.authority.issue();
    refused(pair.certificate.as_bytes()).await;
    refused(&pair.certificate.as_bytes()[..pair.certificate.len() / 2]).await;
    refused(b"").await;
    pair.write(&folder);
    wait_until_presented(&server, &pair).await;
    // A missing file is ignored too.
    remove_file(folder.join("tls.key")).unwrap();
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(server.presented().await.unwrap(), pair.der);
    server.stop().await;
}

#[tokio::test]
async fn old_tls_versions_are_rejected() {
    let server = Server::start(things).await;
    assert!(
        server
            .connect_with(&[&rustls::version::TLS12], false)
            .await
            .is_ok()
    );
    // The ClientHello of a client that supports TLS 1.1 at most.
    let suites = [0, 2, 0xc0, 0x13];
    // Without signature algorithms the server would not check the version.
    let extensions = [0, 8, 0, 13, 0, 4, 0, 2, 4, 3];
    let hello: Vec<u8> = [&[3, 2][..], &[7; 32], &[0], &suites, &[1, 0], &extensions].concat();
    let length = u8::try_from(hello.len()).unwrap();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(
            &[
                &[22, 3, 1, 0, length + 4, 1, 0, 0, length],
                hello.as_slice(),
            ]
            .concat(),
        )
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // A fatal alert: protocol_version.
    assert_eq!(
        (answer.first(), answer.get(5..)),
        (Some(&21), Some(&[2, 70][..])),
        "{answer:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn minimum_tls_version_can_be_set() {
    let options = TlsOptions {
        tls_min_version: TlsVersion::Tls13,
        ..tls()
    };
    let server = Server::start_with(things, Limits::default(), options).await;
    assert!(
        server
            .connect_with(&[&rustls::version::TLS12], false)
            .await
            .is_err()
    );
    assert!(
        server
            .connect_with(&[&rustls::version::TLS13], false)
            .await
            .is_ok()
    );
    server.stop().await;
}

#[tokio::test]
async fn cipher_suites_can_be_set() {
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let options = TlsOptions {
        tls_cipher_suites: vec![suite.to_owned()],
        ..tls()
    };
    let server = Server::start_with(things, Limits::default(), options).await;
    let stream = server
        .connect_with(&[&rustls::version::TLS12], false)
        .await
        .unwrap();
    let used = stream.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(used.suite().as_str(), Some(suite));
    server.stop().await;
}
