//! Starts the programs of a control plane.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;

use super::options::Options;
use super::programs::{controller_manager_program, programs};
use crate::patience::Patience;
use crate::ports::free_port;
use crate::process::Supervised;

/// How long a program may do nothing before it is ready. It is ready after 2 s on a machine that is
/// not busy.
const STALL_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a program that does something may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_mins(10);

/// The soft memory limit of kube-apiserver, from which on it collects garbage more often. It needs
/// 8 GiB for 300,000 objects; without a limit its heap doubles, and a machine with 24 GiB runs out
/// of memory.
const MEMORY_LIMIT: (&str, &str) = ("GOMEMLIMIT", "13GiB");

/// Fewer garbage collections of kube-apiserver and etcd: a test needs little of their memory, and
/// shares the processor.
const RARE_COLLECTIONS: (&str, &str) = ("GOGC", "400");

/// The names under which kube-apiserver finds its certificate and key in its folder.
const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";
const PUBLIC_KEY: &str = "apiserver.pub";

/// A program exited because another one took its port between the choice of the port and the start.
pub(super) struct PortTaken;

/// What a launch of kube-apiserver depends on.
#[derive(Debug)]
pub(super) struct ApiServer<'a> {
    pub(super) options: Options,
    /// The folder of the control plane.
    pub(super) folder: &'a Path,
    pub(super) port: u16,
    pub(super) etcd_url: &'a str,
    /// The user name of the provider.
    pub(super) provider: &'a str,
}

/// The URL of a port of etcd.
pub(super) fn etcd_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// The data folder of etcd in the folder of a control plane.
pub(super) fn etcd_data(folder: &Path) -> PathBuf {
    folder.join("etcd")
}

/// The folder with the certificate and the key of the API server.
fn certificates(folder: &Path) -> PathBuf {
    folder.join("certificates")
}

/// The certificate of the API server, with the authority that signed it.
pub(super) fn certificate(folder: &Path) -> PathBuf {
    certificates(folder).join(CERTIFICATE)
}

/// Writes a certificate with an ECDSA key. kube-apiserver would create an RSA key, and spend a
/// tenth of its processor time in tests on the signatures of TLS handshakes.
fn write_certificate(folder: &Path) -> io::Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let new_key = || KeyPair::generate().expect("keys can be created");
    let authority = CertifiedIssuer::self_signed(authority, new_key()).expect("it can be signed");
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let server = CertificateParams::new(names).expect("these are names");
    let key = new_key();
    let certificate = server
        .signed_by(&key, &authority)
        .expect("it can be signed");
    fs::create_dir_all(folder)?;
    let chain = format!("{}{}", certificate.pem(), authority.pem());
    fs::write(folder.join(CERTIFICATE), chain)?;
    fs::write(folder.join(KEY), key.serialize_pem())?;
    fs::write(folder.join(PUBLIC_KEY), key.public_key_pem())
}

/// Starts etcd with its client and peer ports, and waits until it is healthy.
pub(super) fn etcd(folder: &Path, [client, peer]: [u16; 2]) -> Result<Supervised, PortTaken> {
    let client_url = etcd_url(client);
    let peer_url = etcd_url(peer);
    let arguments = [
        format!("--data-dir={}", etcd_data(folder).display()),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=default={peer_url}"),
        // Durability is not needed in tests.
        "--unsafe-no-fsync".into(),
        // 5,000 claims of 256 KiB, each written three times, exceed the default of 2 GiB.
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ];
    let etcd = Supervised::spawn(
        &programs().join("etcd"),
        &arguments,
        &[RARE_COLLECTIONS],
        &folder.join("etcd.log"),
    );
    wait_until_ready("etcd", etcd, || is_healthy(client))
}

/// Starts kube-apiserver and waits until it is `ready`.
pub(super) fn api_server(
    server: &ApiServer<'_>,
    ready: impl Fn() -> bool,
) -> Result<Supervised, PortTaken> {
    let ApiServer {
        options,
        folder,
        port,
        etcd_url,
        provider,
    } = *server;
    let certificates = certificates(folder);
    if !certificates.join(PUBLIC_KEY).exists() {
        write_certificate(&certificates).expect("the folder of the control plane is writable");
    }
    let tokens = folder.join("tokens.csv");
    // The key signs tokens too.
    let key = certificates.join(KEY);
    let public_key = certificates.join(PUBLIC_KEY);
    let mut arguments = vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", certificates.display()),
        format!("--token-auth-file={}", tokens.display()),
        format!("--service-account-key-file={}", public_key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--endpoint-reconciler-type=none".into(),
        "--authorization-mode=RBAC".into(),
        "--disable-admission-plugins=ServiceAccount".into(),
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
    ];
    let gates = [
        (options.steady, "DetectCacheInconsistency"),
        (options.in_pages, "WatchList"),
        (options.in_pages, "WatchListClient"),
    ];
    let off: Vec<_> = gates
        .iter()
        .filter(|(off, _)| *off)
        .map(|(_, gate)| format!("{gate}=false"))
        .collect();
    if !off.is_empty() {
        arguments.push(format!("--feature-gates={}", off.join(",")));
    }
    if options.audit {
        let policy = folder.join("audit-policy.json");
        let rules = json!([{ "level": "Metadata", "users": [provider] }, { "level": "None" }]);
        let content = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
        });
        fs::write(&policy, content.to_string())
            .expect("the folder of the control plane is writable");
        arguments.push(format!("--audit-policy-file={}", policy.display()));
        arguments.push(format!(
            "--audit-log-path={}",
            folder.join("audit.log").display()
        ));
    }
    let log = folder.join("kube-apiserver.log");
    let steady = [MEMORY_LIMIT];
    let shared = [MEMORY_LIMIT, RARE_COLLECTIONS];
    let environment: &[_] = if options.steady { &steady } else { &shared };
    let server = Supervised::spawn(
        &programs().join("kube-apiserver"),
        &arguments,
        environment,
        &log,
    );
    wait_until_ready("kube-apiserver", server, ready)
}

/// Starts kube-controller-manager with the controllers that the options select.
pub(super) fn controller_manager(options: Options, folder: &Path, kubeconfig: &Path) -> Supervised {
    let wanted = [
        (
            options.controller_manager,
            "clusterrole-aggregation-controller,garbage-collector-controller,namespace-controller",
        ),
        (options.endpoint_slices, "endpointslice-controller"),
    ];
    let controllers: Vec<_> = wanted
        .iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, names)| *names)
        .collect();
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--profiling=false".into(),
    ];
    let log = folder.join("kube-controller-manager.log");
    Supervised::spawn(controller_manager_program(), &arguments, &[], &log)
}

/// Retries while the chosen port is taken.
pub(super) fn with_retries<T>(what: &str, mut launch: impl FnMut() -> Result<T, PortTaken>) -> T {
    for _ in 0..20 {
        if let Ok(launched) = launch() {
            return launched;
        }
        sleep(Duration::from_millis(250));
    }
    panic!("{what} finds its port taken again and again")
}

/// Free ports, all different.
pub(super) fn free_ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}

/// Waits until the program is ready, as long as it lives and does something.
fn wait_until_ready(
    what: &str,
    mut program: Supervised,
    ready: impl Fn() -> bool,
) -> Result<Supervised, PortTaken> {
    let start = Instant::now();
    let (mut patience, mut activity) = (Patience::new(STALL_TIMEOUT), program.activity());
    loop {
        let is_ready = ready();
        if let Some(status) = program.exit_status() {
            if program.output().contains("address already in use") {
                return Err(PortTaken);
            }
            panic!(
                "{what} ended while it started, {status}; the end of its log:\n{}",
                program.output_tail()
            );
        }
        if is_ready {
            return Ok(program);
        }
        if patience.is_over() {
            let now = program.activity();
            assert!(
                now != activity && start.elapsed() < START_TIMEOUT,
                "{what} is not ready after {:?}; the end of its log:\n{}",
                start.elapsed(),
                program.output_tail()
            );
            (patience, activity) = (Patience::new(STALL_TIMEOUT), now);
        }
        sleep(Duration::from_millis(50));
    }
}

/// Whether the health check of etcd succeeds.
fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}
