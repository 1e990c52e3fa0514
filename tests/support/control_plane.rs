//! A real etcd and kube-apiserver for tests, the demo and benchmarks.
//!
//! [`ControlPlane::start`] starts a separate one for each caller, with the CRDs of Cluster API and of this product.
//! `hack/control-plane/ensure.sh` finds or builds the programs; the first build takes minutes. All functions block. They
//! need no async runtime and can be called inside of one.

mod definitions;
mod https;
mod requests;
mod template;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::https::Endpoint;
#[allow(unused_imports, reason = "not every binary counts requests")]
pub use self::requests::{AccessRequest, ProviderRequest, RequestKey};
use super::ports::free_port;
use super::process::{Supervised, TemporaryFolder};

/// How long a program may take until it is ready. It takes 2 s on a free machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The soft memory limit of kube-apiserver, from which on it collects garbage more often. It needs 8 GiB for 300,000
/// objects; without a limit its heap doubles, and a machine with 24 GiB runs out of memory.
const MEMORY_LIMIT: (&str, &str) = ("GOMEMLIMIT", "13GiB");

/// Fewer garbage collections of kube-apiserver: a test needs little of its memory, and shares the processor.
const RARE_COLLECTIONS: (&str, &str) = ("GOGC", "400");

/// Options of a control plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Run kube-controller-manager for garbage collection and the deletion of namespaces. It takes up to 30 s until it
    /// notices a kind whose CRD is installed after the start. No other controller runs: pods and service accounts are
    /// not created, and the aggregated roles `admin`, `edit` and `view` stay empty.
    pub controller_manager: bool,
    /// Run kube-controller-manager for the endpoints of services.
    pub endpoint_slices: bool,
    /// Write an audit log of the requests of the provider, see [`ControlPlane::requested_access`].
    pub audit: bool,
    /// Install neither the CRDs nor the service account of the provider.
    pub bare: bool,
    /// Run the API server as in production, for measurements: with its default garbage collection, but without the
    /// consistency check of the watch cache, which it runs every 5 minutes. With 100,000 objects the check takes 10 s
    /// and would disturb measurements. This needs Kubernetes 1.34 or later.
    pub steady: bool,
    /// Disable streaming lists in the API server, as in Kubernetes 1.31 and 1.33.
    pub in_pages: bool,
}

/// The namespace of the provider.
pub const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// The service account of the provider.
pub const ACCOUNT: &str = "capi-ipam-in-cluster-controller-manager";

/// A running control plane. It is stopped when this value is dropped and when this process exits for any reason.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: clients before their servers.
    controller_manager: Option<Supervised>,
    api_server: Option<Supervised>,
    etcd: Option<Supervised>,
    etcd_ports: [u16; 2],
    options: Options,
    programs: &'static Path,
    port: u16,
    /// The token of the administrator.
    token: String,
    server: String,
    kubeconfig: PathBuf,
    provider_kubeconfig: PathBuf,
    folder: TemporaryFolder,
}

impl ControlPlane {
    /// Starts a control plane with the CRDs (those of Cluster API, and those in `config/crd`), and the service account of
    /// the provider with the roles of `config/rbac`.
    ///
    /// A client that sets `blockOwnerDeletion` needs the permission to update the finalizers of the owner, as in
    /// clusters with the admission plugin `OwnerReferencesPermissionEnforcement`.
    ///
    /// # Panics
    /// When a program does not start; the message contains the end of its log.
    pub fn start(options: Options) -> Self {
        let folder = TemporaryFolder::new("capi-ipam-control-plane-");
        if !options.bare {
            template::copy_template(folder.path());
        }
        let mut plane = Self::launch(options, folder);
        if !options.bare {
            plane.wait_for_kinds();
            plane.provider_kubeconfig = plane.kubeconfig_of_account(NAMESPACE, ACCOUNT);
        }
        if options.controller_manager || options.endpoint_slices {
            plane.controller_manager = Some(plane.launch_controller_manager());
        }
        plane
    }

    /// Starts etcd and the API server with the data in the folder.
    fn launch(options: Options, folder: TemporaryFolder) -> Self {
        let token = random_token();
        let tokens = format!("{token},administrator,administrator,system:masters\n");
        write_file(&folder.path().join("tokens.csv"), tokens.as_bytes());
        let mut plane = Self {
            controller_manager: None,
            api_server: None,
            etcd: None,
            etcd_ports: [0; 2],
            options,
            programs: programs(),
            port: 0,
            token,
            server: String::new(),
            kubeconfig: PathBuf::new(),
            provider_kubeconfig: PathBuf::new(),
            folder,
        };
        let etcd = with_retries("etcd", || {
            plane.etcd_ports = free_ports();
            plane.launch_etcd()
        });
        plane.etcd = Some(etcd);
        let api_server = with_retries("kube-apiserver", || {
            [plane.port] = free_ports();
            plane.server = format!("https://127.0.0.1:{}", plane.port);
            plane.kubeconfig = plane.kubeconfig_in("default", "administrator", &plane.token);
            plane.launch_api_server()
        });
        plane.api_server = Some(api_server);
        plane
    }

    /// The URL of the API server, `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The client URL of etcd, `http://127.0.0.1:<port>`.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_ports[0])
    }

    /// The kubeconfig of an administrator with all permissions.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A temporary folder for logs and other files; it is removed with the control plane.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kubeconfig of the provider in its namespace, with the permissions of `config/rbac` only.
    pub fn provider_kubeconfig(&self) -> &Path {
        &self.provider_kubeconfig
    }

    /// Writes a kubeconfig for a service account; its token is valid for an hour.
    ///
    /// # Panics
    /// When there is no such account.
    pub fn kubeconfig_of_account(&self, namespace: &str, account: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let response = self.endpoint().create(&path, &request.to_string()).unwrap_or_else(|error| panic!("{error}"));
        let response: Value = serde_json::from_str(&response).expect("the API server returns JSON");
        let token = response["status"]["token"].as_str().expect("the response contains a token");
        self.kubeconfig_in(namespace, &format!("{namespace}/{account}"), token)
    }

    /// Writes a kubeconfig; a second one for the same name replaces the first.
    fn kubeconfig_in(&self, namespace: &str, user_name: &str, token: &str) -> PathBuf {
        let cluster = json!({
            "server": self.server,
            // The API server writes this file: its certificate, and the CA that signed it.
            "certificate-authority": self.certificate(),
        });
        let context = json!({ "cluster": "test", "user": user_name, "namespace": namespace });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": user_name, "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": context }],
            "current-context": "test",
        });
        let name = user_name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let path = self.folder().join(format!("kubeconfig-{name}.json"));
        write_file(&path, format!("{kubeconfig:#}\n").as_bytes());
        path
    }

    /// The path of kubectl.
    pub fn kubectl_program(&self) -> PathBuf {
        self.programs.join("kubectl")
    }

    /// Runs kubectl as the administrator, or with another `--kubeconfig` among the arguments, and returns its output.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with_input(arguments, "").unwrap_or_else(|error| panic!("{error}"))
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
        self.kubectl_with_input(&["apply", "-f", "-"], yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
    }

    /// Creates an object without storing it, as the administrator. Much faster than kubectl.
    ///
    /// # Errors
    /// The causes of a rejection, each in a line with its field, or the whole response.
    pub fn dry_create(&self, object: &Value) -> Result<(), String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
        let namespace = object["metadata"]["namespace"].as_str();
        let folder = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        let path = format!("/apis/{version}/{folder}{kind}s?dryRun=All&fieldValidation=Strict");
        let response = self.endpoint().create(&path, &object.to_string()).map(drop);
        response.map_err(|response| https::causes(&response).unwrap_or(response))
    }

    /// `kubectl replace` of one or more objects.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl_replace(&self, json: &str) -> String {
        self.kubectl_with_input(&["replace", "-f", "-"], json).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Kills the API server, as a crash. The other programs keep running.
    pub fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts the API server again at its old address and waits until it is ready; does nothing when it runs.
    ///
    /// # Panics
    /// When it does not start; the message contains the end of its log.
    pub fn start_api_server(&mut self) {
        if !self.api_server.as_mut().is_some_and(Supervised::is_running) {
            self.api_server = Some(with_retries("kube-apiserver", || self.launch_api_server()));
        }
    }

    /// Kills etcd, as a crash. The other programs keep running.
    pub fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    /// Starts etcd again with its data at its old address, and waits until it is healthy; does nothing when it runs.
    ///
    /// # Panics
    /// When it does not start; the message contains the end of its log.
    pub fn start_etcd(&mut self) {
        if !self.etcd.as_mut().is_some_and(Supervised::is_running) {
            self.etcd = Some(with_retries("etcd", || self.launch_etcd()));
        }
    }

    /// Sends etcd a signal, such as `STOP` or `CONT`.
    pub fn signal_etcd(&mut self, signal: &str) {
        self.etcd.as_mut().expect("etcd runs").signal(signal);
    }

    /// The data folder of etcd. Copy or replace it only while etcd is stopped.
    pub fn etcd_data(&self) -> PathBuf {
        self.folder().join("etcd")
    }

    /// The process ids of all programs of this control plane.
    pub fn pids(&self) -> Vec<u32> {
        [&self.api_server, &self.controller_manager, &self.etcd].into_iter().flatten().map(Supervised::pid).collect()
    }

    fn certificates(&self) -> PathBuf {
        self.folder().join("certificates")
    }

    fn certificate(&self) -> PathBuf {
        self.certificates().join("apiserver.crt")
    }

    /// The API server, as the administrator uses it.
    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint { port: self.port, certificate: self.certificate(), token: &self.token }
    }

    fn launch_etcd(&self) -> Result<Supervised, PortTaken> {
        let [client, peer] = self.etcd_ports;
        let client_url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let arguments = [
            format!("--data-dir={}", self.etcd_data().display()),
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
        let etcd = Supervised::spawn(&self.programs.join("etcd"), &arguments, &[], &self.folder().join("etcd.log"));
        wait_until_ready("etcd", etcd, || is_healthy(client))
    }

    fn launch_api_server(&self) -> Result<Supervised, PortTaken> {
        let certificates = self.certificates();
        let tokens = self.folder().join("tokens.csv");
        // The API server writes its certificate and key before it reads this file, so the key can sign tokens too.
        let key = certificates.join("apiserver.key");
        let mut arguments = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", certificates.display()),
            format!("--token-auth-file={}", tokens.display()),
            format!("--service-account-key-file={}", key.display()),
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
            (self.options.steady, "DetectCacheInconsistency"),
            (self.options.in_pages, "WatchList"),
            (self.options.in_pages, "WatchListClient"),
        ];
        let off: Vec<_> = gates.iter().filter(|(off, _)| *off).map(|(_, gate)| format!("{gate}=false")).collect();
        if !off.is_empty() {
            arguments.push(format!("--feature-gates={}", off.join(",")));
        }
        if self.options.audit {
            let policy = self.folder().join("audit-policy.json");
            let provider = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
            let rules = json!([{ "level": "Metadata", "users": [provider] }, { "level": "None" }]);
            let content = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules });
            write_file(&policy, content.to_string().as_bytes());
            arguments.push(format!("--audit-policy-file={}", policy.display()));
            arguments.push(format!("--audit-log-path={}", self.folder().join("audit.log").display()));
        }
        let log = self.folder().join("kube-apiserver.log");
        let steady = [MEMORY_LIMIT];
        let shared = [MEMORY_LIMIT, RARE_COLLECTIONS];
        let environment: &[_] = if self.options.steady { &steady } else { &shared };
        let server = Supervised::spawn(&self.programs.join("kube-apiserver"), &arguments, environment, &log);
        // It creates the namespace in the background, after it reports readiness.
        wait_until_ready("kube-apiserver", server, || {
            ["/readyz", "/api/v1/namespaces/default"].iter().all(|path| self.endpoint().get(path, "*/*").is_ok())
        })
    }

    fn launch_controller_manager(&self) -> Supervised {
        let wanted = [
            (
                self.options.controller_manager,
                "clusterrole-aggregation-controller,garbage-collector-controller,namespace-controller",
            ),
            (self.options.endpoint_slices, "endpointslice-controller"),
        ];
        let controllers: Vec<_> = wanted.iter().filter(|(wanted, _)| *wanted).map(|(_, names)| *names).collect();
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--controllers={}", controllers.join(",")),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            "--profiling=false".into(),
        ];
        let log = self.folder().join("kube-controller-manager.log");
        Supervised::spawn(&self.programs.join("kube-controller-manager"), &arguments, &[], &log)
    }

    fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.programs.join("kubectl"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.folder().join("kubectl-cache"))
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

/// A program exited because another one took its port between the choice of the port and the start.
struct PortTaken;

/// Retries while the chosen port is taken.
fn with_retries<T>(what: &str, mut launch: impl FnMut() -> Result<T, PortTaken>) -> T {
    for _ in 0..20 {
        if let Ok(launched) = launch() {
            return launched;
        }
        sleep(Duration::from_millis(250));
    }
    panic!("{what} finds its port taken again and again")
}

/// Waits until the program is ready.
fn wait_until_ready(what: &str, mut program: Supervised, ready: impl Fn() -> bool) -> Result<Supervised, PortTaken> {
    let start = Instant::now();
    loop {
        let is_ready = ready();
        if let Some(status) = program.exit_status() {
            if program.output().contains("address already in use") {
                return Err(PortTaken);
            }
            panic!("{what} ended while it started, {status}; the end of its log:\n{}", program.output_tail());
        }
        if is_ready {
            return Ok(program);
        }
        assert!(
            start.elapsed() < TIMEOUT,
            "{what} is not ready after {TIMEOUT:?}; the end of its log:\n{}",
            program.output_tail()
        );
        sleep(Duration::from_millis(50));
    }
}

/// Whether the health check of etcd succeeds.
fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}

/// Free ports, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}

/// The folder of the programs, found or built once per process.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| PathBuf::from(ensure(&[])))
}

/// The standard output of `ensure.sh`.
pub fn ensure(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane/ensure.sh");
    let output = Command::new("bash")
        .arg(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
    assert!(output.status.success(), "{} {arguments:?} failed, see its output above", script.display());
    String::from_utf8(output.stdout).expect("the output is a path in UTF-8").trim_end().to_owned()
}

/// The output of `kubectl kustomize` for a folder.
///
/// # Panics
/// When kubectl cannot build it.
pub fn kustomize(folder: &Path) -> String {
    let output = Command::new(programs().join("kubectl")).arg("kustomize").arg(folder).output();
    let output = output.expect("kubectl can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
}

/// A random token that other users of this machine cannot guess.
fn random_token() -> String {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.expect("/dev/urandom can be read");
    bytes.iter().fold(String::new(), |mut token, byte| {
        write!(token, "{byte:02x}").expect("writing to a string does not fail");
        token
    })
}

fn write_file(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
