//! A system as it is installed: the manager with the permissions of its service account, elected,
//! and with webhooks that the API server calls.

use std::fs;
use std::path::{Path, PathBuf};

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, ServiceAccount};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::wait::eventually_within;
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;

use crate::{create, definitions, manager, reference, run};

pub(crate) const NAMESPACE: &str = "capi-ipam-in-cluster-system";
pub(crate) const ACCOUNT: &str = "capi-ipam-in-cluster-controller-manager";

/// How long doctor may take to find a fault: it reads everything twice, and caches can be late.
const TIMEOUT: Duration = Duration::from_mins(2);

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A cluster with a running manager.
pub(crate) struct System {
    pub(crate) plane: ControlPlane,
    pub(crate) manager: Manager,
    pub(crate) consumer: Consumer,
    authority: Authority,
    folder: PathBuf,
    port: u16,
}

impl System {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A system whose manager has more flags, until it is restarted.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let plane = ControlPlane::start(
            Options {
                controller_manager: true,
                ..Options::default()
            },
            &installation(),
        );
        let folder = plane.folder().join("certificates");
        fs::create_dir_all(&folder).expect("a folder can be created");
        let (authority, port) = (authority(), free_port());
        write_certificate(&authority, &folder, 2100);
        let manager = start(&plane, &folder, port, flags);
        manager.wait_until_ready();
        let consumer = Consumer::new(&plane).await;
        let system = Self {
            plane,
            manager,
            consumer,
            authority,
            folder,
            port,
        };
        system.register(&system.authority.pem());
        system.deploy(2);
        system.is_healthy().await;
        system
    }

    pub(crate) fn admin(&self) -> &Path {
        self.plane.kubeconfig()
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.consumer.namespace
    }

    /// Starts the manager again.
    pub(crate) fn restart(&mut self) {
        self.manager.kill();
        self.manager = start(&self.plane, &self.folder, self.port, &[]);
    }

    /// A second manager, without leader election.
    pub(crate) fn second_manager(&self) -> Manager {
        let flags = ["--webhook-port=0"];
        Manager::start_program(&self.plane, &manager(), self.admin(), &flags)
    }

    /// Uses a certificate that is valid until the beginning of a year, after a restart.
    pub(crate) fn renew(&self, until: i32) {
        write_certificate(&self.authority, &self.folder, until);
    }

    /// Configures the API server to call the webhooks with another authority.
    pub(crate) fn trust_another(&self) {
        self.register(&authority().pem());
    }

    /// Configures the API server to call the webhooks.
    pub(crate) fn trust(&self) {
        self.register(&self.authority.pem());
    }

    fn register(&self, bundle: &str) {
        let text = include_str!("../../../../../config/webhook/manifests.yaml");
        let mut configuration: Value =
            serde_saphyr::from_str(text).expect("the manifests are YAML");
        let webhooks = configuration["webhooks"].as_array_mut();
        for webhook in webhooks.expect("there are webhooks") {
            let path = webhook["clientConfig"]["service"]["path"].as_str();
            let path = path.expect("each has a path");
            let url = format!("https://127.0.0.1:{}{path}", self.port);
            let bundle = ByteString(bundle.as_bytes().to_vec());
            webhook["clientConfig"] = json!({ "url": url, "caBundle": bundle });
        }
        self.plane.kubectl_apply(&configuration.to_string());
    }

    /// Lets the API server convert pools with the webhook of the manager.
    pub(crate) fn convert(&self) {
        self.convert_by(&self.authority.pem());
    }

    /// The same with another authority.
    pub(crate) fn convert_with_another(&self) {
        self.convert_by(&authority().pem());
    }

    fn convert_by(&self, bundle: &str) {
        let config = json!({
            "url": format!("https://127.0.0.1:{}/convert", self.port),
            "caBundle": ByteString(bundle.as_bytes().to_vec()),
        });
        let webhook = json!({ "conversionReviewVersions": ["v1"], "clientConfig": config });
        let conversion = json!({ "strategy": "Webhook", "webhook": webhook });
        let patch = json!({ "spec": { "conversion": conversion } }).to_string();
        for plural in ["inclusterippools", "globalinclusterippools"] {
            let name = format!("{plural}.ipam.cluster.x-k8s.io");
            self.plane
                .kubectl(&["patch", "crd", &name, "--type=merge", "--patch", &patch]);
        }
    }

    /// Writes the Deployment of the manifest with this number of ready replicas. No kubelet runs
    /// it.
    pub(crate) fn deploy(&self, ready: u32) {
        let labels = json!({ "cluster.x-k8s.io/provider": "ipam-in-cluster" });
        let container = json!({ "name": "manager", "image": "localhost/capi-ipam:test", "args": ["--leader-elect"] });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": ACCOUNT, "namespace": NAMESPACE, "labels": labels },
            "spec": {
                "replicas": 2, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "serviceAccountName": ACCOUNT, "containers": [container] },
                },
            },
        });
        self.plane.kubectl_apply(&deployment.to_string());
        let status = json!({ "status": { "replicas": 2, "readyReplicas": ready } }).to_string();
        self.plane.kubectl(&[
            "patch",
            "deployment",
            ACCOUNT,
            "--namespace",
            NAMESPACE,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status,
        ]);
    }

    /// Creates a pool in the namespace of the consumer.
    pub(crate) fn pool(&self, name: &str, spec: &Value) {
        create(
            &self.plane,
            "InClusterIPPool",
            Some(self.namespace()),
            name,
            spec,
        );
    }

    /// Creates a claim for a pool of the namespace.
    pub(crate) async fn claim(&self, name: &str, pool: &str, metadata: Value) {
        self.consumer
            .create_claim_for(name, reference("InClusterIPPool", pool), metadata)
            .await;
    }

    /// Waits until doctor finds nothing wrong.
    pub(crate) async fn is_healthy(&self) {
        eventually_within(TIMEOUT, "the system is healthy", async || {
            let (code, output, _) = run(self.admin(), &["doctor"]);
            if code != 0 {
                return None;
            }
            assert!(output.starts_with("The provider works.\n"), "{output}");
            assert!(output.contains(" checks, no problem"), "{output}");
            assert!(
                !output.contains(" error ") && !output.contains(" warning "),
                "{output}"
            );
            Some(())
        })
        .await;
    }

    /// Waits until doctor finds something with this severity about an object whose name ends so,
    /// and the part has an error or a warning. Returns the problem.
    pub(crate) async fn finds(
        &self,
        severity: &str,
        check: &str,
        object: &str,
        part: &str,
    ) -> String {
        let what = format!("doctor finds {check} of {object}");
        let problem = eventually_within(TIMEOUT, &what, async || {
            let (_, output, _) = run(self.admin(), &["doctor", "-o", "json"]);
            let report: Value = serde_json::from_str(&output).ok()?;
            let findings = report["items"].as_array()?;
            let is_it = |finding: &&Value| {
                let ends = finding["object"]
                    .as_str()
                    .is_some_and(|it| it.ends_with(object));
                finding["check"] == check && finding["severity"] == severity && ends
            };
            let finding = findings.iter().find(is_it)?;
            let repair = finding["repair"].as_str().unwrap_or_default();
            let has_command = repair.contains("kubectl")
                || repair.contains("clusterctl")
                || finding["commands"].is_array();
            assert!(has_command, "{finding}");
            Some(finding["problem"].as_str()?.to_owned())
        })
        .await;
        let what = format!("doctor shows {check} in {part}");
        eventually_within(TIMEOUT, &what, async || {
            let state = self.state(part)?;
            ["Error", "Warning"].contains(&state.as_str()).then_some(())
        })
        .await;
        problem
    }

    /// The state of a part in the output of doctor.
    pub(crate) fn state(&self, part: &str) -> Option<String> {
        let (_, output, _) = run(self.admin(), &["doctor", "-o", "json"]);
        let report: Value = serde_json::from_str(&output).ok()?;
        let parts = report["parts"].as_array()?;
        let line = parts.iter().find(|line| line["part"] == part)?;
        Some(line["state"].as_str()?.to_owned())
    }
}

fn start(plane: &ControlPlane, folder: &Path, port: u16, more: &[&str]) -> Manager {
    let own = [
        format!("--webhook-port={port}"),
        format!("--webhook-cert-dir={}", folder.display()),
        "--leader-elect".to_owned(),
        format!("--leader-election-namespace={NAMESPACE}"),
        "--restored-claim-timeout=1s".to_owned(),
    ];
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    Manager::start_program(plane, &manager(), plane.provider_kubeconfig(), &flags)
}

/// The definitions, and the service account with its roles.
fn installation() -> Installation {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let objects = [
        definitions(),
        namespace.to_string(),
        include_str!("../../../../../config/rbac/service_account.yaml").to_owned(),
        include_str!("../../../../../config/rbac/role.yaml").to_owned(),
        include_str!("../../../../../config/rbac/role_binding.yaml").to_owned(),
    ];
    Installation {
        account: Some(ServiceAccount {
            namespace: NAMESPACE.to_owned(),
            name: ACCOUNT.to_owned(),
        }),
        ..Installation::of(objects.join("\n---\n"))
    }
}

fn authority() -> Authority {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("keys can be created");
    CertifiedIssuer::self_signed(parameters, key).expect("it signs itself")
}

/// Writes a certificate that is valid until the beginning of a year.
fn write_certificate(authority: &Authority, folder: &Path, until: i32) {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut parameters = CertificateParams::new(names).expect("these are names");
    parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().expect("keys can be created");
    let certificate = parameters.signed_by(&key, authority);
    let certificate = certificate.expect("the authority signs");
    fs::write(folder.join("tls.crt"), certificate.pem()).expect("a file can be written");
    fs::write(folder.join("tls.key"), key.serialize_pem()).expect("a file can be written");
}
