//! A manager that allocates addresses for Clusters, and Clusters without machines.

use std::ops::Deref;

use capi_ipam_api::{ClusterAddressing, ClusterAddressingStatus, conditions};
use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;

/// The annotation on a Cluster with addresses of the ClusterAddressing `bonn`.
pub(crate) const ANNOTATION: &str = "addressing.ipam.cluster.x-k8s.io/bonn";

/// The flags of a manager that releases the claims of a Cluster as soon as it is gone.
pub(crate) const AT_ONCE: [&str; 3] = [
    "--cluster-addressing",
    "--sweep-grace=1s",
    "--sweep-interval=1s",
];

/// The flags of a manager that keeps the claims of a Cluster that is gone.
pub(crate) const NEVER: [&str; 2] = ["--cluster-addressing", "--sweep-grace=1h"];

/// A control plane with garbage collection, a manager, and a user.
pub(crate) struct Scene {
    pub(crate) plane: ControlPlane,
    pub(crate) manager: Manager,
    pub(crate) consumer: Consumer,
    pub(crate) webhooks: Option<Webhooks>,
}

impl Deref for Scene {
    type Target = Consumer;

    fn deref(&self) -> &Consumer {
        &self.consumer
    }
}

impl Scene {
    /// A scene with the pools `vips` and `pods`.
    pub(crate) async fn start() -> Self {
        Self::with_flags(&AT_ONCE).await
    }

    /// Like [`Self::start`], with other flags of the manager.
    pub(crate) async fn with_flags(flags: &[&str]) -> Self {
        let options = Options {
            controller_manager: true,
            ..Options::default()
        };
        Self::with_options(options, flags).await
    }

    pub(crate) async fn with_options(options: Options, flags: &[&str]) -> Self {
        let plane = ControlPlane::start(options);
        Self::on(plane, None, flags).await
    }

    /// Like [`Self::with_flags`]. The manager also serves the webhook of Clusters, which the API
    /// server does not call yet.
    pub(crate) async fn with_webhooks(flags: &[&str]) -> Self {
        let options = Options {
            controller_manager: true,
            ..Options::default()
        };
        let plane = ControlPlane::start(options);
        let webhooks = Webhooks::new(&plane);
        Self::on(plane, Some(webhooks), flags).await
    }

    async fn on(plane: ControlPlane, webhooks: Option<Webhooks>, flags: &[&str]) -> Self {
        plane.permit("cluster-addressing");
        let own = webhooks.as_ref().map(Webhooks::flags);
        let own = own.iter().flatten().map(String::as_str);
        let flags: Vec<&str> = own.chain(flags.iter().copied()).collect();
        let manager = Manager::start(&plane, &flags);
        let consumer = Consumer::new(&plane).await;
        consumer.create_pool("vips", "10.0.0.10-10.0.0.99").await;
        let pods = json!({"prefixes": ["10.128.0.0/16"], "allocationPrefixLength": 20});
        let kind = InClusterKind::PrefixPool;
        consumer.create_pool_of(kind, "pods", pods).await;
        Self {
            plane,
            manager,
            consumer,
            webhooks,
        }
    }

    /// Creates the ClusterAddressing `bonn`, and has the API server call the webhook.
    pub(crate) async fn register(&self, items: Value) {
        self.create_addressing(items).await;
        let webhooks = self.webhooks.as_ref().expect("there are webhooks");
        let labels = json!({"site": "bonn"});
        webhooks.register_of_clusters(&self.plane, &self.consumer.namespace, &labels);
    }

    pub(crate) fn addressings(&self) -> ResourceClient<ClusterAddressing> {
        let api = Api::namespaced(self.consumer.client.clone(), &self.consumer.namespace);
        ResourceClient::new(api, &())
    }

    /// Creates the ClusterAddressing `bonn` for Clusters with the label `site: bonn`.
    pub(crate) async fn create_addressing(&self, items: Value) {
        let addressing = json!({
            "metadata": {"name": "bonn", "namespace": self.consumer.namespace},
            "spec": {"clusterSelector": {"matchLabels": {"site": "bonn"}}, "items": items},
        });
        create(&self.addressings(), &object(addressing))
            .await
            .expect("the ClusterAddressing can be created");
    }

    /// Creates a pool with a single prefix, which the claim `taken` has. Returns the item
    /// `services` of this pool.
    pub(crate) async fn create_exhausted_item(&self) -> Value {
        let one = json!({"prefixes": ["10.64.0.0/20"], "allocationPrefixLength": 20});
        let kind = InClusterKind::PrefixPool;
        self.consumer.create_pool_of(kind, "few", one).await;
        self.consumer.bind_of(kind, "taken", "few").await;
        let to = json!([{"clusterNetwork": "Services"}]);
        item("services", "InClusterPrefixPool", "few", to)
    }

    /// Creates the set `racks` of pools of the namespace, and waits until it is ready. Returns the
    /// item `endpoint` of this set.
    pub(crate) async fn create_set(&self, pools: &[&str]) -> Value {
        let pool = |name: &&str| json!({"kind": "InClusterIPPool", "name": name});
        let pools: Vec<Value> = pools.iter().map(pool).collect();
        let namespace = self.consumer.namespace.as_str();
        let set = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPPoolSet",
            "metadata": {"name": "racks", "namespace": namespace}, "spec": {"pools": pools},
        });
        self.plane.kubectl_apply(&set.to_string());
        let namespace = format!("--namespace={namespace}");
        let read = ["get", "ippoolset", "racks", &namespace, "--output=json"];
        until("the set is ready", async || {
            let set: Value = serde_json::from_str(&self.plane.try_kubectl(&read).ok()?).ok()?;
            Some(set["status"]["conditions"][0]["status"] == "True")
        })
        .await;
        let to = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
        item("endpoint", "IPPoolSet", "racks", to)
    }

    /// Creates a Cluster with the label `site: bonn`. `spec` is merged into its specification.
    pub(crate) async fn create_selected_cluster(&self, name: &str, spec: Value) {
        let created = create(&self.clusters(), &self.selected_cluster(name, spec)).await;
        created.expect("the Cluster can be created");
    }

    /// A Cluster with the label `site: bonn`. `spec` is merged into its specification.
    pub(crate) fn selected_cluster<K: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        spec: Value,
    ) -> K {
        let mut cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": self.consumer.namespace, "labels": {"site": "bonn"}},
            "spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name}},
        });
        let fields = cluster["spec"].as_object_mut().expect("it is an object");
        fields.extend(spec.as_object().cloned().unwrap_or_default());
        object(cluster)
    }

    /// Creates a Cluster of a file in the same way. Returns the Cluster, or the error message.
    pub(crate) fn try_create_cluster(&self, name: &str, spec: Value) -> Result<Value, String> {
        self.kubectl_create(name, spec, &[])
    }

    /// A dry run of [`Self::try_create_cluster`].
    pub(crate) fn dry_run_of_cluster(&self, name: &str) -> Result<Value, String> {
        self.kubectl_create(name, json!({}), &["--dry-run=server"])
    }

    fn kubectl_create(&self, name: &str, spec: Value, flags: &[&str]) -> Result<Value, String> {
        let cluster: Value = self.selected_cluster(name, spec);
        let file = self.plane.folder().join(format!("{name}.json"));
        std::fs::write(&file, cluster.to_string()).expect("a file can be written");
        let file = format!("--filename={}", file.display());
        let arguments = [&["create", &file, "--output=json"], flags].concat();
        let created = self.plane.try_kubectl(&arguments)?;
        Ok(serde_json::from_str(&created).expect("kubectl writes JSON"))
    }

    pub(crate) async fn cluster(&self, name: &str) -> Value {
        let clusters = self.clusters();
        let found = retry_unanswered(|| clusters.get(name)).await;
        let found = found.expect("Clusters can be read");
        serde_json::to_value(found.expect("the Cluster exists")).expect("it is JSON")
    }

    /// Waits until a Cluster has its addresses.
    pub(crate) async fn wait_for_cluster(&self, name: &str) -> Value {
        eventually(&format!("{name} has addresses"), async || {
            let found = self.cluster(name).await;
            found["metadata"]["annotations"][ANNOTATION]
                .is_string()
                .then_some(found)
        })
        .await
    }

    /// Waits until a ConfigMap exists.
    pub(crate) async fn wait_for_config_map(&self, name: &str) {
        let api = Api::namespaced(self.client.clone(), &self.namespace);
        let config_maps = ResourceClient::<ConfigMap>::new(api, &());
        until("the ConfigMap exists", async || {
            Some(answered(config_maps.get(name).await)?.is_some())
        })
        .await;
    }

    /// Waits until the status meets a condition.
    pub(crate) async fn wait_for_status(
        &self,
        what: &str,
        is_met: impl Fn(&ClusterAddressingStatus) -> bool,
    ) -> ClusterAddressingStatus {
        let addressings = self.addressings();
        eventually_ok(what, async || {
            let found = addressings.get("bonn").await;
            let found = found.map_err(|error| error.to_string())?;
            let status = found.and_then(|found| found.status).unwrap_or_default();
            if is_met(&status) {
                Ok(status)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await
    }

    /// Waits until the only problem of a Cluster has this reason. Returns its message.
    pub(crate) async fn wait_for_problem(&self, reason: &str) -> String {
        let has_reason = |status: &ClusterAddressingStatus| matches!(&*status.problems, [problem] if problem.reason == reason);
        let status = self.wait_for_status(reason, has_reason).await;
        status
            .problems
            .into_iter()
            .next()
            .map(|problem| problem.message)
            .unwrap_or_default()
    }

    pub(crate) fn patch_cluster(&self, name: &str, patch: Value) {
        let namespace = format!("--namespace={}", self.consumer.namespace);
        let patch = format!("--patch={patch}");
        self.plane
            .kubectl(&["patch", "cluster", name, "--type=merge", &patch, &namespace]);
    }

    /// Deletes an object, and does not wait until it is gone.
    pub(crate) fn delete(&self, kind: &str, name: &str) {
        let namespace = format!("--namespace={}", self.consumer.namespace);
        self.plane
            .kubectl(&["delete", kind, name, "--wait=false", &namespace]);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || !self.manager.was_forbidden(),
            "the manager lacks a permission:\n{}",
            self.manager.log()
        );
    }
}

/// The status and the reason of a condition.
pub(crate) fn condition(status: &ClusterAddressingStatus, type_: &str) -> (String, String) {
    let found = conditions::find(&status.conditions, type_)
        .cloned()
        .unwrap_or_default();
    (
        found.status.into_owned(),
        found.reason.unwrap_or_default().into_owned(),
    )
}

/// An item with a pool of the namespace.
pub(crate) fn item(name: &str, kind: &str, pool: &str, to: Value) -> Value {
    json!({"name": name, "to": to,
        "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": pool}})
}

/// The item `endpoint` of the pool `vips`.
pub(crate) fn endpoint() -> Value {
    let to = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    item("endpoint", "InClusterIPPool", "vips", to)
}

/// The item `pods` of the pool of prefixes `pods`.
pub(crate) fn pods() -> Value {
    let to = json!([{"clusterNetwork": "Pods"}]);
    item("pods", "InClusterPrefixPool", "pods", to)
}
