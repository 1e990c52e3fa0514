//! How clusterctl finds the versions of the provider if no version is named: it asks the Go module
//! proxy for the repository, and downloads the files of the release from GitHub. A small server
//! stands in for both.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use support::{
    clusterctl::{CLUSTER_API, CORE, Releases, VERSION, install_cert_manager_stub, manifest},
    prelude::*,
};

/// The repository of the provider in this test.
const REPOSITORY: &str = "github.com/team/capi-ipam";

/// The Go module proxy, and GitHub behind an HTTP proxy.
struct Server {
    port: u16,
    /// The paths of all requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts to serve, and writes the certificate of the CA of `github.com` to `authority`.
    fn start(authority: &Path) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let tls = github_certificate(authority);
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tls, seen) = (Arc::clone(&tls), Arc::clone(&seen));
                // A client may close the connection at any time.
                std::thread::spawn(move || serve(stream, tls, &seen));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no thread panics").clone()
    }
}

/// A configuration with a certificate for `github.com`, of a new CA.
fn github_certificate(authority: &Path) -> Arc<ServerConfig> {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key"))
        .expect("a CA");
    fs::write(authority, issuer.pem()).expect("the folder is writable");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(["github.com".to_owned()]).expect("a valid name");
    let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("the defaults are valid")
        .with_no_client_auth();
    Arc::new(
        builder
            .with_single_cert(vec![leaf.der().clone()], key)
            .expect("the certificate has this key"),
    )
}

/// Responds to one request; after `CONNECT` to one request inside of TLS.
fn serve(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let (method, target) = read_request(&mut stream)?;
    if method != "CONNECT" {
        return respond(&mut stream, &target, seen, proxy_file(&target));
    }
    write!(stream, "HTTP/1.1 200 OK\r\n\r\n")?;
    if target != "github.com:443" {
        return Ok(());
    }
    let connection = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let (_, target) = read_request(&mut stream)?;
    respond(&mut stream, &target, seen, release_file(&target))?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// The method and the target of a request.
fn read_request(stream: &mut impl Read) -> std::io::Result<(String, String)> {
    // One byte at a time: what follows the head belongs to TLS.
    let mut head = BufReader::with_capacity(1, stream);
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = request.split(' ').map(str::to_owned);
    Ok((
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    ))
}

fn respond(
    stream: &mut impl Write,
    target: &str,
    seen: &Mutex<Vec<String>>,
    file: Option<String>,
) -> std::io::Result<()> {
    seen.lock()
        .expect("no thread panics")
        .push(target.to_owned());
    let (status, text) = file.map_or(("404 Not Found", String::new()), |text| ("200 OK", text));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )?;
    stream.flush()
}

/// The response of the Go module proxy. It lists a tag of major version 2 or later under the path
/// of that major version if `go.mod` names it, and otherwise as incompatible under the path without
/// one.
fn proxy_file(target: &str) -> Option<String> {
    let (path, _) = target.strip_prefix('/')?.split_once("/@v/list")?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("go.mod");
    let module = fs::read_to_string(file).unwrap_or_default();
    let module = module
        .lines()
        .find_map(|line| line.strip_prefix("module "))
        .unwrap_or_default();
    let major = VERSION.split('.').next().unwrap_or_default();
    let names_major = module.ends_with(&format!("/{major}"));
    if path == REPOSITORY {
        return Some(if names_major {
            String::new()
        } else {
            format!("{VERSION}+incompatible\n")
        });
    }
    (names_major && path == format!("{REPOSITORY}/{major}")).then(|| format!("{VERSION}\n"))
}

/// A file of the release on GitHub.
fn release_file(target: &str) -> Option<String> {
    let name = target.strip_prefix(&format!("/team/capi-ipam/releases/download/{VERSION}/"))?;
    ["ipam-components.yaml", "metadata.yaml"]
        .contains(&name)
        .then(|| manifest(name))
}

#[test]
fn clusterctl_installs_the_latest_version() {
    let plane = ControlPlane::start(Options {
        bare: true,
        ..Options::default()
    });
    install_cert_manager_stub(&plane);
    let (releases, authority) = (Releases::write(), plane.folder().join("github-ca.pem"));
    let server = Server::start(&authority);
    let url = format!("https://{REPOSITORY}/releases/latest/ipam-components.yaml");
    let configuration = plane.folder().join("github.json");
    let own = json!({"providers": [{"name": "in-cluster", "type": "IPAMProvider", "url": url}]});
    fs::write(&configuration, own.to_string()).expect("the folder is writable");
    let configuration = releases.with_core_beside(&configuration);

    let core = format!("{CORE}:{CLUSTER_API}");
    let flags = [
        "init",
        "--core",
        &core,
        "--bootstrap",
        "-",
        "--control-plane",
        "-",
        "--ipam",
        "in-cluster",
    ];
    let proxy = format!("http://127.0.0.1:{}", server.port);
    let output = releases
        .command(&flags)
        // The last value of a flag applies.
        .arg("--config")
        .arg(configuration)
        .env("KUBECONFIG", plane.kubeconfig())
        .env("GOPROXY", &proxy)
        .env("HTTPS_PROXY", &proxy)
        .env("NO_PROXY", "127.0.0.1,localhost")
        .env("SSL_CERT_FILE", &authority)
        .env_remove("GITHUB_TOKEN")
        .output()
        .expect("clusterctl can be started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}\n{:#?}", server.requests());
    let installed = format!("Installing provider=\"ipam-in-cluster\" version=\"{VERSION}\"");
    assert!(
        text.contains(&installed),
        "{text}\n{:#?}",
        server.requests()
    );
    let major = VERSION.split('.').next().unwrap_or_default();
    assert!(
        server
            .requests()
            .contains(&format!("/{REPOSITORY}/{major}/@v/list")),
        "{:#?}",
        server.requests()
    );
}
