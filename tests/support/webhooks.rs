//! Configures the API server to call the webhooks of a manager under test, with certificates
//! generated for the test.

pub mod direct;
pub mod junk;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, NAMESPACE};
use super::patience::Patience;
use super::ports::free_port;
use super::repository::in_repository;

/// The kinds with two versions, and their plurals.
const CONVERTED: [(&str, &str); 2] = [
    ("InClusterIPPool", "inclusterippools"),
    ("GlobalInClusterIPPool", "globalinclusterippools"),
];

/// A CA, and a folder with a certificate of it, in the layout of a mounted Secret: the files are
/// symbolic links into a folder that is replaced atomically.
pub struct Webhooks {
    authority: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    port: u16,
    made: AtomicU32,
}

impl Webhooks {
    /// A certificate for webhooks on a free port.
    pub fn new(plane: &ControlPlane) -> Self {
        let webhooks = Self::without_certificate(plane);
        webhooks.renew();
        webhooks
    }

    /// A free port, and an empty certificate folder.
    pub fn without_certificate(plane: &ControlPlane) -> Self {
        let port = free_port();
        let folder = plane.folder().join(format!("certificates-{port}"));
        fs::create_dir_all(&folder).expect("a folder can be created");
        Self {
            authority: authority(),
            folder,
            port,
            made: AtomicU32::new(0),
        }
    }

    /// The flags with which a manager serves with this certificate.
    pub fn flags(&self) -> [String; 2] {
        [
            format!("--webhook-port={}", self.port),
            format!("--webhook-cert-dir={}", self.folder.display()),
        ]
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of the CA, in PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// Configures the API server to call these webhooks for validation and conversion, and waits
    /// until it does.
    ///
    /// # Panics
    /// When the webhooks do not respond.
    pub fn register(&self, plane: &ControlPlane) {
        self.register_with_ca(plane, &self.authority());
        CONVERTED
            .iter()
            .for_each(|(kind, _)| Self::wait_until_called(plane, kind));
    }

    /// Waits until the creation of a pool in the old version returns a warning of the webhook.
    fn wait_until_called(plane: &ControlPlane, kind: &str) {
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind, "metadata": { "name": "probe" },
            "spec": { "subnet": "198.18.0.0/24", "gateway": "198.18.1.1" },
        });
        wait_until("the webhooks are called", || {
            match try_create(plane, &pool) {
                Err(output) if output.contains("outside of the subnet") => Ok(()),
                output => Err(output),
            }
        });
    }

    /// Configures the API server to call these webhooks with a CA bundle, and does not wait until
    /// it does. An empty bundle is left out.
    pub fn register_with_ca(&self, plane: &ControlPlane, authority: &str) {
        let bundle = ByteString(authority.as_bytes().to_vec());
        let at = |path: &str| {
            let url = format!("https://127.0.0.1:{}{path}", self.port);
            if authority.is_empty() {
                json!({ "url": url })
            } else {
                json!({ "url": url, "caBundle": bundle })
            }
        };
        let manifests = in_repository("config/webhook/manifests.yaml");
        let text = fs::read_to_string(manifests).expect("the manifests can be read");
        let mut configuration: Value =
            serde_saphyr::from_str(&text).expect("the manifests are YAML");
        for webhook in configuration["webhooks"]
            .as_array_mut()
            .expect("there are webhooks")
        {
            let path = webhook["clientConfig"]["service"]["path"]
                .as_str()
                .expect("each has a path")
                .to_owned();
            webhook["clientConfig"] = at(&path);
        }
        plane.kubectl_apply(&configuration.to_string());
        let webhook = json!({ "clientConfig": at("/convert"), "conversionReviewVersions": ["v1"] });
        let patch =
            json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": webhook } } });
        for (_, plural) in CONVERTED {
            let definition = format!("{plural}.ipam.cluster.x-k8s.io");
            // The committed CRD names a service, which must not stay beside the URL.
            let clean =
                json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } })
                    .to_string();
            plane.kubectl(&["patch", "crd", &definition, "--type=merge", "-p", &clean]);
            plane.kubectl(&[
                "patch",
                "crd",
                &definition,
                "--type=merge",
                "-p",
                &patch.to_string(),
            ]);
        }
    }

    /// Configures the API server to call the webhook for the creation of Clusters, and waits until it
    /// does. A ClusterAddressing for Clusters of this namespace with these labels exists.
    ///
    /// # Panics
    /// When the webhook does not respond.
    pub fn register_of_clusters(&self, plane: &ControlPlane, namespace: &str, labels: &Value) {
        let manifests = in_repository("config/cluster-addressing-webhook/manifests.yaml");
        let text = fs::read_to_string(manifests).expect("the manifests can be read");
        let mut configuration: Value =
            serde_saphyr::from_str(&text).expect("the manifests are YAML");
        let client = &mut configuration["webhooks"][0]["clientConfig"];
        let path = client["service"]["path"].as_str().expect("it has a path");
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        let bundle = ByteString(self.authority().into_bytes());
        *client = json!({ "url": url, "caBundle": bundle });
        plane.kubectl_apply(&configuration.to_string());
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "probe", "namespace": namespace, "labels": labels },
            "spec": { "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "probe" } },
        });
        wait_until("the webhook of Clusters is called", || {
            match try_create(plane, &cluster) {
                Err(output) if output.contains("a dry run allocates no addresses") => Ok(()),
                output => Err(output),
            }
        });
    }

    /// Removes the webhook for the creation of Clusters.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn unregister_of_clusters(plane: &ControlPlane) {
        plane.kubectl(&["delete", "mutatingwebhookconfiguration", "--all"]);
    }

    /// Replaces the services in the installed webhook configurations and CRDs of a provider with
    /// the URL of these webhooks, since no service exists. Sets the CA bundle if `trusted`.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn redirect_installed(&self, plane: &ControlPlane, provider: &str, trusted: bool) {
        let selector = format!("--selector=cluster.x-k8s.io/provider={provider}");
        let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions";
        let found = plane.kubectl(&["get", kinds, &selector, "--output=json"]);
        let mut found: Value = serde_json::from_str(&found).expect("kubectl writes JSON");
        let bundle = ByteString(self.authority().into_bytes());
        for object in found["items"].as_array_mut().expect("a list has items") {
            // Concurrent changes of other clients do not concern these fields.
            object["metadata"]["resourceVersion"].take();
            let mut clients: Vec<&mut Value> = Vec::new();
            let conversion = object.pointer("/spec/conversion/webhook").is_some();
            if conversion {
                clients.push(&mut object["spec"]["conversion"]["webhook"]["clientConfig"]);
            } else if let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut)
            {
                clients.extend(
                    webhooks
                        .iter_mut()
                        .map(|webhook| &mut webhook["clientConfig"]),
                );
            }
            for client in clients {
                let path = client["service"]["path"]
                    .as_str()
                    .expect("a service has a path")
                    .to_owned();
                *client = json!({ "url": format!("https://127.0.0.1:{}{path}", self.port) });
                if trusted {
                    client["caBundle"] = json!(bundle);
                }
            }
        }
        plane.kubectl_replace(&found.to_string());
    }

    /// Restores the services in the CRDs.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn restore_services(plane: &ControlPlane) {
        let service = json!({ "namespace": NAMESPACE, "name": "capi-ipam-in-cluster-webhook-service", "path": "/convert" });
        let path = "/spec/conversion/webhook/clientConfig";
        let change =
            json!([{ "op": "replace", "path": path, "value": { "service": service } }]).to_string();
        for (_, plural) in CONVERTED {
            let definition = format!("{plural}.ipam.cluster.x-k8s.io");
            plane.kubectl(&[
                "patch",
                "crd",
                &definition,
                "--type=json",
                "--patch",
                &change,
            ]);
        }
    }

    /// Removes the validating webhooks and waits until the API server calls none.
    ///
    /// # Panics
    /// When it still calls one.
    pub fn unregister(plane: &ControlPlane) {
        plane.kubectl(&["delete", "validatingwebhookconfiguration", "--all"]);
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
            "metadata": { "name": "probe" },
            "spec": { "addresses": ["198.18.0.0/24"], "prefix": 24, "gateway": "198.18.1.1" },
        });
        wait_until("no webhook is called", || {
            try_create(plane, &pool).map(drop).map_err(Err)
        });
    }

    /// Replaces the certificate with a new one of the same CA.
    pub fn renew(&self) {
        self.swap(|_| {});
    }

    /// Replaces the certificate with an expired one.
    pub fn expire(&self) {
        self.swap(|parameters| {
            parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
        });
    }

    fn swap(&self, change: impl FnOnce(&mut CertificateParams)) {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("these are names");
        change(&mut parameters);
        let key = KeyPair::generate().expect("keys can be created");
        let certificate = parameters
            .signed_by(&key, &self.authority)
            .expect("the authority signs");
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let data = self.folder.join(format!("..data-{number}"));
        fs::create_dir(&data).expect("a folder can be created");
        fs::write(data.join("tls.crt"), certificate.pem()).expect("a file can be written");
        fs::write(data.join("tls.key"), key.serialize_pem()).expect("a file can be written");
        let next = self.folder.join("..next");
        symlink(&data, &next).expect("a link can be created");
        fs::rename(&next, self.folder.join("..data")).expect("a link can be swapped");
        for file in ["tls.crt", "tls.key"] {
            // They exist after the first call.
            let _ = symlink(Path::new("..data").join(file), self.folder.join(file));
        }
    }
}

/// The result of a dry run of a creation; a warning is an error.
fn try_create(plane: &ControlPlane, object: &Value) -> Result<String, String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let file = plane.folder().join(format!("probe-{kind}.json"));
    fs::write(&file, object.to_string()).expect("a file can be written");
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    let namespace = format!("--namespace={namespace}");
    let file = file.display().to_string();
    let arguments = [
        "create",
        &namespace,
        "--dry-run=server",
        "--warnings-as-errors",
        "-f",
        &file,
    ];
    plane.try_kubectl(&arguments)
}

fn wait_until(what: &str, mut look: impl FnMut() -> Result<(), Result<String, String>>) {
    let patience = Patience::new(Duration::from_mins(2));
    while let Err(output) = look() {
        assert!(!patience.is_over(), "did not happen: {what}: {output:?}");
        sleep(Duration::from_millis(20));
    }
}

/// A new CA.
pub fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names are fine");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("keys can be created");
    CertifiedIssuer::self_signed(parameters, key).expect("it signs itself")
}
