//! A registry of blocks for management clusters: a bucket of a NATS server, or another API server.

use std::sync::Arc;

use capi_ipam_registry::{BucketOptions, KubernetesRegistry, NatsRegistry, NatsSettings, Registry};
use capi_ipam_testing::control_plane::{self as generic, Installation, embedded_kubeconfig};
use capi_ipam_testing::nats;
use capi_ipam_testing::process::TemporaryFolder;
use capi_ipam_testing::wait::eventually;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::control_plane::{NAMESPACE, Options};
use crate::repository::in_repository;
use crate::snapshot::{restore_snapshot, take_snapshot};

/// The name of the IPRegistry in every management cluster.
pub const REGISTRY: &str = "site";
/// The name of the bucket.
const BUCKET: &str = "ipam";
/// The name of the Secret with the kubeconfig of the other API server.
const SECRET: &str = "hub";

/// Where the registry is.
pub enum Hub {
    Nats(Arc<Mutex<nats::Node>>),
    NatsCluster(Box<nats::Cluster>),
    Kubernetes(Box<generic::ControlPlane>),
}

/// The Secret of an IPRegistry at another API server, in the namespace of the manager.
pub fn secret_with(kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "stringData": {"kubeconfig": kubeconfig},
    })
}

impl Hub {
    /// A NATS server, without the bucket.
    pub fn nats() -> Self {
        Self::nats_with(nats::Options::default())
    }

    /// A NATS server that is like this, without the bucket.
    pub fn nats_with(options: nats::Options) -> Self {
        Self::Nats(Arc::new(Mutex::new(nats::Node::start(options))))
    }

    /// Three NATS servers, without the bucket.
    pub fn nats_cluster() -> Self {
        let options = nats::Options {
            sync_always: true,
            ..nats::Options::default()
        };
        Self::NatsCluster(Box::new(nats::Cluster::start(&options)))
    }

    /// The URLs of the NATS servers; `None` at another API server.
    fn urls(&self) -> Option<Vec<String>> {
        match self {
            Self::Nats(node) => Some(vec![node.lock().url()]),
            Self::NatsCluster(cluster) => Some(cluster.urls()),
            Self::Kubernetes(_) => None,
        }
    }

    /// Whether the registry is a single NATS server.
    fn is_single(&self) -> bool {
        matches!(self, Self::Nats(_))
    }

    /// An API server with what the manifest of registries contains.
    pub fn kubernetes() -> Self {
        let manifest = std::fs::read_to_string(in_repository("manifests/registry.yaml"))
            .expect("the manifest can be read");
        // The process ends soon.
        let installation: &'static Installation = Box::leak(Box::new(Installation::of(&manifest)));
        let hub = generic::ControlPlane::start(Options::default(), installation);
        Self::Kubernetes(Box::new(hub))
    }

    /// Creates the bucket, as an administrator does with the program `nats`.
    pub async fn create_bucket(&self) {
        use capi_ipam_nats::{Bucket, Connection, Settings};

        let Some(urls) = self.urls() else {
            return;
        };
        let settings = Settings::new(urls);
        let connection = Connection::open(&settings).await.expect("NATS answers");
        let options = BucketOptions {
            single: self.is_single(),
            ..BucketOptions::creating()
        };
        // Servers that have just found each other cannot store a bucket yet.
        eventually("the bucket is created", || async {
            let bucket = Bucket::<Value>::open(&connection, BUCKET, &options).await;
            bucket.ok()
        })
        .await;
    }

    /// The IPRegistry of a management cluster.
    pub fn registry(&self, cluster: &str) -> Value {
        self.registry_at(cluster, self.urls())
    }

    /// The IPRegistry of a management cluster that reaches the servers of NATS at other URLs.
    pub fn registry_at(&self, cluster: &str, urls: Option<Vec<String>>) -> Value {
        let mut spec = match urls {
            Some(urls) => {
                json!({"nats": {"servers": urls, "bucket": BUCKET, "single": self.is_single()}})
            }
            None => json!({"kubernetes": {"secretName": SECRET}}),
        };
        spec["clusterID"] = json!(cluster);
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPRegistry",
            "metadata": {"name": REGISTRY}, "spec": spec,
        })
    }

    /// The Secret of the IPRegistry, in the namespace of the manager; `None` if it needs none.
    pub fn secret(&self) -> Option<Value> {
        let Self::Kubernetes(control_plane) = self else {
            return None;
        };
        let kubeconfig = embedded_kubeconfig(control_plane.kubeconfig());
        Some(secret_with(&kubeconfig))
    }

    /// Makes the registry unavailable.
    pub fn stop(&mut self) {
        match self {
            Self::Nats(node) => node.lock().kill(),
            Self::NatsCluster(cluster) => (0..3).for_each(|index| cluster.node(index).kill()),
            Self::Kubernetes(control_plane) => control_plane.stop_api_server(),
        }
    }

    /// Makes the registry available again.
    pub fn start(&mut self) {
        match self {
            Self::Nats(node) => node.lock().start_again(),
            Self::NatsCluster(cluster) => {
                (0..3).for_each(|index| cluster.node(index).start_again());
            }
            Self::Kubernetes(control_plane) => control_plane.start_api_server(),
        }
    }

    /// The registry, as this process reads and changes it. Waits until it can be opened.
    pub async fn open(&self) -> Registry {
        eventually("the registry can be opened", || self.try_open()).await
    }

    async fn try_open(&self) -> Option<Registry> {
        match self {
            Self::Nats(_) | Self::NatsCluster(_) => {
                let settings = NatsSettings::new(self.urls().unwrap_or_default());
                let options = BucketOptions {
                    single: self.is_single(),
                    ..BucketOptions::default()
                };
                let opened = NatsRegistry::open(&settings, BUCKET, &options).await;
                Some(Arc::new(opened.ok()?))
            }
            Self::Kubernetes(control_plane) => {
                let kubeconfig = embedded_kubeconfig(control_plane.kubeconfig());
                let opened = KubernetesRegistry::open(&kubeconfig, "test/1").await;
                Some(Arc::new(opened.ok()?))
            }
        }
    }
}

/// The data of a registry at one moment.
pub enum Backup {
    Nats(TemporaryFolder),
    /// The snapshot is in the folder of the control plane.
    Kubernetes,
}

impl Backup {
    pub fn take(hub: &mut Hub) -> Self {
        match hub {
            Hub::Nats(server) => {
                let mut server = server.lock();
                server.kill();
                let backup = server.back_up();
                server.start_again();
                server.wait_until_healthy();
                Self::Nats(backup)
            }
            Hub::Kubernetes(control_plane) => {
                take_snapshot(control_plane);
                Self::Kubernetes
            }
            Hub::NatsCluster(_) => panic!("the registry is one server"),
        }
    }

    pub fn restore(&self, hub: &mut Hub) {
        match (self, hub) {
            (Self::Nats(backup), Hub::Nats(server)) => {
                let mut server = server.lock();
                server.kill();
                server.restore(backup);
                server.start_again();
                server.wait_until_healthy();
            }
            (Self::Kubernetes, Hub::Kubernetes(control_plane)) => restore_snapshot(control_plane),
            _ => panic!("the backup is one of another registry"),
        }
    }
}
