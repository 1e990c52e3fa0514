//! A real etcd and kube-apiserver for tests, the demo and benchmarks.
//!
//! [`ControlPlane::start`] starts one of its own for each caller, with Cluster API's CRDs and this product's in it.
//! `hack/control-plane/ensure.sh` finds or builds the programs; the first build takes minutes. Everything here blocks;
//! it needs no async runtime and can be called inside of one.

mod definitions;
mod requests;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::json;

#[allow(unused_imports, reason = "not every binary counts requests")]
pub use self::requests::{Asked, ProviderRequest, RequestKey};
use super::ports::free_port;
use super::process::{Supervised, TemporaryFolder};

/// How long a program may take until it answers. It takes 2 s on a free machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// From there on kube-apiserver collects its garbage sooner. It holds 8 GiB for 300,000 objects and would let that double,
/// until a machine of 24 GiB stands still.
const MEMORY_LIMIT: (&str, &str) = ("GOMEMLIMIT", "13GiB");

/// What a control plane has beyond etcd and kube-apiserver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Run kube-controller-manager for garbage collection and the deletion of namespaces. It takes up to 30 s until it
    /// notices a kind whose CRD is installed after the start. No other controller runs: pods and service accounts are
    /// not made, and the roles `admin`, `edit` and `view`, which are gathered from others, stay empty.
    pub controller_manager: bool,
    /// Run kube-controller-manager for the endpoints of services.
    pub endpoint_slices: bool,
    /// Write down what the provider asks for, see [`ControlPlane::asked`].
    pub audit: bool,
    /// Leave out everything that is installed after the start: definitions, and the account of the provider.
    pub bare: bool,
    /// Have the API server not compare its caches with etcd every 5 minutes. With 100,000 objects that takes it 10 s, which
    /// whatever is measured then would pay for. It has to be of Kubernetes 1.34 or later.
    pub steady: bool,
    /// Have the API server refuse to tell of all objects as one stream, as that of Kubernetes 1.31 and 1.33 does.
    pub in_pages: bool,
}

/// Where the provider is installed.
pub const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Whom it runs as.
pub const ACCOUNT: &str = "capi-ipam-in-cluster-controller-manager";

/// A running control plane. It ends when this is dropped, and when this process ends for whatever reason.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: who writes goes before where it writes to.
    controller_manager: Option<Supervised>,
    api_server: Option<Supervised>,
    etcd: Option<Supervised>,
    etcd_ports: [u16; 2],
    options: Options,
    programs: &'static Path,
    port: u16,
    server: String,
    kubeconfig: PathBuf,
    provider_kubeconfig: PathBuf,
    folder: TemporaryFolder,
}

impl ControlPlane {
    /// Starts a control plane and installs the CRDs (Cluster API's, and those in this package's `config/crd`), and the
    /// account of the provider with the roles of `config/rbac`.
    ///
    /// Who sets `blockOwnerDeletion` needs the right to update the owner's finalizers there, as in clusters that have
    /// the admission plugin `OwnerReferencesPermissionEnforcement`.
    ///
    /// # Panics
    /// When something does not start; the text has the end of its log.
    pub fn start(options: Options) -> Self {
        let programs = programs();
        let folder = TemporaryFolder::new("capi-ipam-control-plane-");
        let token = random_token();
        let tokens = format!("{token},administrator,administrator,system:masters\n");
        write_file(&folder.path().join("tokens.csv"), tokens.as_bytes());
        let mut plane = Self {
            controller_manager: None,
            api_server: None,
            etcd: None,
            etcd_ports: [0; 2],
            options,
            programs,
            port: 0,
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
            plane.kubeconfig = plane.kubeconfig_in("default", "administrator", &token);
            plane.launch_api_server()
        });
        plane.api_server = Some(api_server);
        if !options.bare {
            plane.install_crds();
            plane.install_account();
        }
        if options.controller_manager || options.endpoint_slices {
            plane.controller_manager = Some(plane.launch_controller_manager());
        }
        plane
    }

    /// The API server's address, `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Where etcd answers, `http://127.0.0.1:<port>`.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_ports[0])
    }

    /// The kubeconfig of an administrator whom no permission stops.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A temporary folder for logs and the like; it goes when the control plane goes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kubeconfig of the provider, in its namespace, with the roles of `config/rbac` and no more.
    pub fn provider_kubeconfig(&self) -> &Path {
        &self.provider_kubeconfig
    }

    /// Writes a kubeconfig for a service account; its token is good for an hour.
    ///
    /// # Panics
    /// When there is no such account.
    pub fn kubeconfig_of_account(&self, namespace: &str, account: &str) -> PathBuf {
        let token = self.kubectl(&["--namespace", namespace, "create", "token", account]);
        self.kubeconfig_in(namespace, &format!("{namespace}/{account}"), token.trim())
    }

    /// Writes a kubeconfig; a second one for the same name replaces the first.
    fn kubeconfig_in(&self, namespace: &str, user_name: &str, token: &str) -> PathBuf {
        let cluster = json!({
            "server": self.server,
            // The API server makes this file: its certificate, and the authority that signed it.
            "certificate-authority": self.certificates().join("apiserver.crt"),
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

    /// The program kubectl.
    pub fn kubectl_program(&self) -> PathBuf {
        self.programs.join("kubectl")
    }

    /// Runs kubectl as the administrator, or with another `--kubeconfig` among the arguments; its output.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with_input(arguments, "").unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Self::kubectl`], for what may fail: then the answer is what kubectl says about it.
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

    /// `kubectl replace` of one or more objects.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn kubectl_replace(&self, json: &str) -> String {
        self.kubectl_with_input(&["replace", "-f", "-"], json).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Kills the API server as a crash would. The rest goes on.
    pub fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts the API server again at its old address and waits until it is ready; nothing when it runs.
    ///
    /// # Panics
    /// When it does not start; the text has the end of its log.
    pub fn start_api_server(&mut self) {
        if !self.api_server.as_mut().is_some_and(Supervised::is_running) {
            self.api_server = Some(with_retries("kube-apiserver", || self.launch_api_server()));
        }
    }

    /// Kills etcd as a crash would. The rest goes on.
    pub fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    /// Starts etcd again with its data, at its old address, and waits until it is healthy; nothing when it runs.
    ///
    /// # Panics
    /// When it does not start; the text has the end of its log.
    pub fn start_etcd(&mut self) {
        if !self.etcd.as_mut().is_some_and(Supervised::is_running) {
            self.etcd = Some(with_retries("etcd", || self.launch_etcd()));
        }
    }

    /// Sends etcd a signal, such as `STOP` or `CONT`.
    pub fn signal_etcd(&mut self, signal: &str) {
        self.etcd.as_mut().expect("etcd runs").signal(signal);
    }

    /// Where etcd keeps its data. To be copied and replaced only while it is stopped.
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
            // What is lost with the machine is not missed.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ];
        let etcd = Supervised::spawn(&self.programs.join("etcd"), &arguments, &[], &self.folder().join("etcd.log"));
        wait_until_ready("etcd", etcd, || is_healthy(client))
    }

    fn launch_api_server(&self) -> Result<Supervised, PortTaken> {
        let certificates = self.certificates();
        let tokens = self.folder().join("tokens.csv");
        // The API server makes its certificate and key before it reads this file, so it can sign tokens with it, too.
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
        let server = Supervised::spawn(&self.programs.join("kube-apiserver"), &arguments, &[MEMORY_LIMIT], &log);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let answers = |path| self.try_kubectl(&["get", "--raw", path]).is_ok();
        wait_until_ready("kube-apiserver", server, || {
            // Asking for a connection first is cheap, and leaves the processor to the server that starts.
            // It makes the namespace in the background, and does not count that in.
            TcpStream::connect(address).is_ok() && answers("/readyz") && answers("/api/v1/namespaces/default")
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
            // A kubectl that ends early closes the pipe; its exit code tells more than the error here.
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

/// A program ended because another one took its port between our asking for a free one and its start.
struct PortTaken;

/// Launches until the port is free.
fn with_retries<T>(what: &str, mut launch: impl FnMut() -> Result<T, PortTaken>) -> T {
    for _ in 0..20 {
        if let Ok(launched) = launch() {
            return launched;
        }
        sleep(Duration::from_millis(250));
    }
    panic!("{what} finds its port taken again and again")
}

/// Waits until the program answers.
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
            start.elapsed() < PATIENCE,
            "{what} is not ready after {PATIENCE:?}; the end of its log:\n{}",
            program.output_tail()
        );
        sleep(Duration::from_millis(100));
    }
}

/// Asks etcd for its health.
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

/// Ports that nobody listens at now, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}

/// The folder of the programs, found or built once a process.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| PathBuf::from(ensure(&[])))
}

/// What `ensure.sh` answers; what it says meanwhile goes to standard error.
pub fn ensure(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane/ensure.sh");
    let output = Command::new("bash")
        .arg(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
    assert!(output.status.success(), "{} {arguments:?} failed, see what it said above", script.display());
    String::from_utf8(output.stdout).expect("the answer is a path in UTF-8").trim_end().to_owned()
}

/// What a kustomization amounts to.
///
/// # Panics
/// When kubectl cannot build it.
pub fn kustomize(folder: &Path) -> String {
    let output = Command::new(programs().join("kubectl")).arg("kustomize").arg(folder).output();
    let output = output.expect("kubectl can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
}

/// A token that other users of this machine cannot guess.
fn random_token() -> String {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.expect("/dev/urandom can be read");
    bytes.iter().fold(String::new(), |mut token, byte| {
        write!(token, "{byte:02x}").expect("a string takes all that is written to it");
        token
    })
}

fn write_file(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
