//! A real etcd and kube-apiserver for tests, demos and benchmarks.
//!
//! [`ControlPlane::start`] starts a separate one for each caller, with the CRDs of Cluster API and
//! the objects of an [`Installation`]. `hack/control-plane/ensure.sh` finds or builds the programs;
//! the first build takes minutes. All functions block. They need no async runtime and can be called
//! inside of one.

mod definitions;
mod etcd;
mod https;
mod kubectl;
mod launch;
mod options;
mod processes;
mod programs;
mod requests;
mod reuse;
mod template;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

pub use self::definitions::definitions_in;
use self::definitions::{ALL_KINDS, cluster_api_crds, hash_installed, installed_kinds};
use self::https::Endpoint;
use self::kubectl::Kubectl;
use self::launch::{ApiServer, free_ports, with_retries};
pub use self::options::{Installation, Options, ServiceAccount};
pub(crate) use self::processes::Restarts;
use self::programs::programs;
pub use self::programs::{ensure, kustomize};
pub use self::requests::{AccessRequest, ProviderRequest, RequestKey};
use self::reuse::FirstState;
use crate::patience::Patience;
use crate::process::{Supervised, TemporaryFolder};

/// The time between two checks whether the API server has created the identity of the cluster.
const IDENTITY_INTERVAL: Duration = Duration::from_millis(20);

/// The name of the user as which a provider without a service account sends its requests.
const PROVIDER: &str = "provider";

/// The files in the folder of a control plane that its programs and its administrator use.
const FILES: [&str; 7] = [
    "certificates",
    "etcd",
    "etcd.log",
    "kube-apiserver.log",
    "kubeconfig-administrator.json",
    "kubeconfig-provider.json",
    "tokens.csv",
];

/// Dropped control planes that can be used again, see [`reuse`].
static UNUSED: Mutex<Vec<ControlPlane>> = Mutex::new(Vec::new());

/// A running control plane. When this value is dropped, it is stopped, or kept for the next start
/// with the default options in this process. It is stopped when this process exits for any reason.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: clients before their servers.
    controller_manager: Option<Supervised>,
    api_server: Option<Supervised>,
    etcd: Option<Supervised>,
    etcd_ports: [u16; 2],
    options: Options,
    namespace: String,
    /// The user name of the provider.
    provider: String,
    port: u16,
    /// The token of the administrator.
    token: String,
    server: String,
    kubectl: Kubectl,
    provider_kubeconfig: PathBuf,
    folder: Arc<TemporaryFolder>,
    /// A hash of the installation.
    installed: u64,
    /// None when this control plane cannot be used again.
    first_state: Option<FirstState>,
    /// How often the API server was started again.
    restarts: Arc<AtomicU32>,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let Some(first_state) = self.first_state.take().filter(|_| !thread::panicking()) else {
            return;
        };
        let plane = Self {
            controller_manager: None,
            api_server: self.api_server.take(),
            etcd: self.etcd.take(),
            namespace: std::mem::take(&mut self.namespace),
            provider: std::mem::take(&mut self.provider),
            token: std::mem::take(&mut self.token),
            server: std::mem::take(&mut self.server),
            kubectl: self.kubectl.clone(),
            provider_kubeconfig: std::mem::take(&mut self.provider_kubeconfig),
            folder: Arc::clone(&self.folder),
            first_state: Some(first_state),
            restarts: Arc::clone(&self.restarts),
            ..*self
        };
        UNUSED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(plane);
    }
}

impl ControlPlane {
    /// Starts a control plane with the CRDs of Cluster API and the objects of an installation.
    ///
    /// A client that sets `blockOwnerDeletion` needs the permission to update the finalizers of the
    /// owner, as in clusters with the admission plugin `OwnerReferencesPermissionEnforcement`.
    ///
    /// # Panics
    /// When a program does not start; the message contains the end of its log. When an object of
    /// the installation is invalid.
    pub fn start(options: Options, installation: &Installation) -> Self {
        if options == Options::default()
            && let Some(mut plane) = Self::take_unused(installation)
        {
            plane.renew_token(installation);
            return plane;
        }
        let folder = TemporaryFolder::new("capi-ipam-control-plane-");
        if !options.bare {
            template::copy_template(installation, folder.path(), || Self::install(installation));
        }
        let mut plane = Self::launch(options, installation, folder);
        if !options.bare {
            plane.wait_for_kinds(installation);
            plane.renew_token(installation);
        }
        if options.controller_manager || options.endpoint_slices {
            let manager = launch::controller_manager(options, plane.folder(), plane.kubeconfig());
            plane.controller_manager = Some(manager);
        }
        if options == Options::default() {
            let first_state =
                FirstState::record(plane.etcd_ports[0], installed_kinds(installation));
            plane.first_state = Some(first_state.expect("etcd lists its keys"));
        }
        plane
    }

    /// The last dropped control plane with this installation, without the objects that were created
    /// in it.
    #[allow(clippy::print_stdout, reason = "it is shown when the test fails")]
    fn take_unused(installation: &Installation) -> Option<Self> {
        let installed = hash_of(installation);
        loop {
            let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
            let mut plane = unused
                .iter()
                .rposition(|plane| plane.installed == installed)
                .map(|at| unused.remove(at))?;
            drop(unused);
            match plane.clear() {
                Ok(()) => return Some(plane),
                // Without a first state it is stopped.
                Err(reason) => {
                    plane.first_state = None;
                    println!("a control plane is not used again: {reason}");
                }
            }
        }
    }

    /// Deletes everything that was created since the start.
    fn clear(&mut self) -> Result<(), String> {
        for program in [&mut self.etcd, &mut self.api_server] {
            if !program.as_mut().is_some_and(Supervised::is_running) {
                return Err("a program has exited".to_owned());
            }
        }
        let first_state = self
            .first_state
            .as_ref()
            .ok_or("its programs were stopped")?;
        first_state.restore(&self.endpoint())?;
        reuse::remove_files(self.folder(), &FILES).map_err(|error| error.to_string())
    }

    /// Writes the kubeconfig of the service account.
    fn renew_token(&mut self, installation: &Installation) {
        if let Some(ServiceAccount { namespace, name }) = &installation.account {
            self.provider_kubeconfig = self.kubeconfig_of_account(namespace, name);
        }
    }

    /// Starts etcd and the API server with the data in the folder.
    fn launch(options: Options, installation: &Installation, folder: TemporaryFolder) -> Self {
        let [token, provider_token] = [random_token(), random_token()];
        let tokens = format!(
            "{token},administrator,administrator,system:masters\n{provider_token},{PROVIDER},{PROVIDER},system:masters\n"
        );
        write_file(&folder.path().join("tokens.csv"), tokens.as_bytes());
        let account = |account: &ServiceAccount| {
            format!(
                "system:serviceaccount:{}:{}",
                account.namespace, account.name
            )
        };
        let kubectl = Kubectl {
            program: programs().join("kubectl"),
            kubeconfig: PathBuf::new(),
            cache: folder.path().join("kubectl-cache"),
        };
        let mut plane = Self {
            controller_manager: None,
            api_server: None,
            etcd: None,
            etcd_ports: [0; 2],
            options,
            namespace: installation.namespace().to_owned(),
            provider: installation
                .account
                .as_ref()
                .map_or_else(|| PROVIDER.to_owned(), account),
            port: 0,
            token,
            server: String::new(),
            kubectl,
            provider_kubeconfig: PathBuf::new(),
            folder: Arc::new(folder),
            installed: hash_of(installation),
            first_state: None,
            restarts: Arc::default(),
        };
        let etcd = with_retries("etcd", || {
            plane.etcd_ports = free_ports();
            launch::etcd(plane.folder(), plane.etcd_ports)
        });
        plane.etcd = Some(etcd);
        let port = plane.etcd_ports[0];
        etcd::remove_identity(port).expect("etcd deletes a key");
        let api_server = with_retries("kube-apiserver", || {
            [plane.port] = free_ports();
            plane.server = format!("https://127.0.0.1:{}", plane.port);
            plane.kubectl.kubeconfig =
                plane.kubeconfig_in("default", "administrator", &plane.token);
            plane.provider_kubeconfig =
                plane.kubeconfig_in(&plane.namespace, PROVIDER, &provider_token);
            plane.launch_api_server()
        });
        plane.api_server = Some(api_server);
        while !etcd::has_identity(port).expect("etcd lists a key") {
            sleep(IDENTITY_INTERVAL);
        }
        plane
    }

    /// Installs the objects in a new control plane, and stops it. Its state is in the folder.
    fn install(installation: &Installation) -> Arc<TemporaryFolder> {
        let folder = TemporaryFolder::new("capi-ipam-control-plane-");
        let mut plane = Self::launch(Options::default(), installation, folder);
        let files: Vec<_> = cluster_api_crds()
            .iter()
            .map(|file| format!("--filename={}", file.display()))
            .collect();
        plane.kubectl(
            &[
                &["apply", "--server-side"],
                &files.iter().map(String::as_str).collect::<Vec<_>>()[..],
            ]
            .concat(),
        );
        if !installation.objects.trim().is_empty() {
            plane
                .kubectl_with_input(
                    &["apply", "--server-side", "--filename=-"],
                    &installation.objects,
                )
                .unwrap_or_else(|error| panic!("the objects cannot be installed: {error}"));
        }
        plane.kubectl_until_done(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ]);
        for folder in &installation.kustomizations {
            plane.kubectl(&[
                "apply",
                "--server-side",
                "--kustomize",
                &folder.display().to_string(),
            ]);
        }
        plane.stop_api_server();
        plane.etcd.as_mut().expect("etcd runs").stop();
        Arc::clone(&plane.folder)
    }

    /// Waits until the API server serves all kinds of the installed CRDs. After a start it takes a
    /// moment.
    fn wait_for_kinds(&self, installation: &Installation) {
        let kinds = installed_kinds(installation);
        let is_served = || {
            let listed = self.endpoint().get("/apis", ALL_KINDS)?;
            for kind in &kinds {
                self.endpoint()
                    .get(&format!("{}?limit=1", kind.path), "application/json")?;
                if !listed.contains(&format!("\"resource\":\"{}\"", kind.plural)) {
                    return Err(format!("{} is not listed: {listed}", kind.plural));
                }
            }
            Ok(())
        };
        let patience = Patience::new(Duration::from_mins(1));
        while let Err(error) = is_served() {
            assert!(!patience.is_over(), "{error}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the API server serves the kind of a CRD, for example
    /// `machines.cluster.x-k8s.io`. It does so shortly after it reports the CRD as established.
    ///
    /// # Panics
    /// When it is not served within a minute.
    pub fn wait_until_served(&self, definition: &str) {
        let established = "--for=condition=Established";
        self.kubectl_until_done(&[
            "wait",
            established,
            "--timeout=60s",
            &format!("crd/{definition}"),
        ]);
        self.kubectl_until_done(&["get", definition, "--all-namespaces"]);
    }

    /// Runs kubectl until it succeeds. A single `kubectl wait` is not enough for a CRD: it fails
    /// for one without conditions.
    fn kubectl_until_done(&self, arguments: &[&str]) {
        let patience = Patience::new(Duration::from_mins(1));
        while let Err(error) = self.try_kubectl(arguments) {
            assert!(!patience.is_over(), "{error}");
            sleep(Duration::from_millis(50));
        }
    }

    /// The URL of the API server, `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The client URL of etcd, `http://127.0.0.1:<port>`.
    pub fn etcd_url(&self) -> String {
        launch::etcd_url(self.etcd_ports[0])
    }

    /// Calls the JSON API of etcd, for example `/v3/kv/range`.
    ///
    /// # Errors
    /// When etcd does not respond, or rejects the request.
    pub fn call_etcd(&self, path: &str, request: &Value) -> io::Result<Value> {
        etcd::call_etcd(self.etcd_ports[0], path, request)
    }

    /// The kubeconfig of an administrator with all permissions.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// A temporary folder for logs and other files; it is removed with the control plane and its
    /// managers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn shared_folder(&self) -> Arc<TemporaryFolder> {
        Arc::clone(&self.folder)
    }

    /// The namespace of the provider.
    pub fn provider_namespace(&self) -> &str {
        &self.namespace
    }

    /// The kubeconfig of the provider in its namespace: that of its service account, or that of an
    /// administrator.
    pub fn provider_kubeconfig(&self) -> &Path {
        &self.provider_kubeconfig
    }

    /// Writes a kubeconfig for a service account; its token is valid for an hour.
    ///
    /// # Panics
    /// When there is no such account.
    pub fn kubeconfig_of_account(&self, namespace: &str, account: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let response = self
            .endpoint()
            .create(&path, &request.to_string())
            .unwrap_or_else(|error| panic!("{error}"));
        let response: Value = serde_json::from_str(&response).expect("the API server returns JSON");
        let token = response["status"]["token"]
            .as_str()
            .expect("the response contains a token");
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

    fn certificate(&self) -> PathBuf {
        launch::certificate(self.folder())
    }

    /// The API server, as the administrator uses it.
    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            port: self.port,
            certificate: self.certificate(),
            token: &self.token,
        }
    }

    /// How many requests the API server has finished since its start, from all clients, including
    /// kubectl, the controller manager and the API server itself.
    ///
    /// # Panics
    /// When the API server does not respond.
    pub fn request_count(&self) -> BTreeMap<RequestKey, u64> {
        requests::counts_in(&self.kubectl(&["get", "--raw", "/metrics"]))
    }

    /// The permissions that the provider needed since the start. Requires [`Options::audit`].
    ///
    /// # Panics
    /// When the audit log is invalid.
    pub fn requested_access(&self) -> BTreeSet<AccessRequest> {
        requests::access_in(&self.folder().join("audit.log"))
    }

    /// All requests of the provider since the start, in the order in which they ended. A watch is
    /// listed when it begins and when it ends. Requires [`Options::audit`].
    ///
    /// # Panics
    /// When the audit log is invalid.
    pub fn provider_requests(&self) -> Vec<ProviderRequest> {
        requests::requests_in(&self.folder().join("audit.log"))
    }

    fn launch_api_server(&self) -> Result<Supervised, launch::PortTaken> {
        let server = ApiServer {
            options: self.options,
            folder: self.folder(),
            port: self.port,
            etcd_url: &self.etcd_url(),
            provider: &self.provider,
        };
        // It creates the namespace in the background, after it reports readiness.
        launch::api_server(&server, || {
            ["/readyz", "/api/v1/namespaces/default"]
                .iter()
                .all(|path| self.endpoint().get(path, "*/*").is_ok())
        })
    }
}

fn hash_of(installation: &Installation) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_installed(installation, &mut hasher);
    let account = installation
        .account
        .as_ref()
        .map(|account| (&account.namespace, &account.name));
    (installation.namespace(), account).hash(&mut hasher);
    hasher.finish()
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
    fs::write(path, content)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// The content of a kubeconfig with its certificate in place of the name of a file, as another
/// machine can use it.
///
/// # Panics
/// When the file or the certificate cannot be read.
pub fn embedded_kubeconfig(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("the kubeconfig can be read");
    let mut content: Value = serde_json::from_str(&text).expect("the kubeconfig is JSON");
    for cluster in content["clusters"].as_array_mut().into_iter().flatten() {
        let Some(cluster) = cluster["cluster"].as_object_mut() else {
            continue;
        };
        if let Some(file) = cluster.remove("certificate-authority") {
            let file = file.as_str().expect("it is a path");
            let pem = fs::read(file).expect("the certificate can be read");
            let data = serde_json::to_value(ByteString(pem)).expect("bytes are JSON");
            cluster.insert("certificate-authority-data".to_owned(), data);
        }
    }
    content.to_string()
}
