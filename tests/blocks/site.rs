//! A registry and the management clusters that use it.

use std::path::PathBuf;

use capi_ipam_api::names::SKIP_VALIDATE_DELETE;
use capi_ipam_api::{BlockRecord, IPNetwork, IPRegistry, conditions};
use capi_ipam_registry::{Entry, Record};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use support::prelude::*;
pub(crate) use support::registry::{Hub, REGISTRY};
use support::snapshot::take_snapshot;
use support::wait::MESSAGE_TIMEOUT;

/// The name of the network in every management cluster.
pub(crate) const NETWORK: &str = "backbone";
/// Empty blocks are returned after two seconds.
pub(crate) const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// A registry and two management clusters.
pub(crate) struct Site {
    pub(crate) hub: Hub,
    pub(crate) west: ManagementCluster,
    pub(crate) east: ManagementCluster,
}

/// A management cluster.
pub(crate) struct ManagementCluster {
    pub(crate) id: &'static str,
    // Dropped before its control plane, whose end would fill the end of its log.
    manager: Mutex<Manager>,
    pub(crate) control_plane: ControlPlane,
    /// The kubeconfig of the manager.
    kubeconfig: PathBuf,
    pub(crate) consumer: Consumer,
}

impl Site {
    /// Two management clusters with a registry, and the network with these shared blocks.
    pub(crate) fn start(hub: Hub, blocks: Value) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            hub.create_bucket().await;
            let west = ManagementCluster::start("west", &hub, &blocks);
            let east = ManagementCluster::start("east", &hub, &blocks);
            let (west, east) = futures::join!(west, east);
            Self { hub, west, east }
        })
    }
}

impl ManagementCluster {
    pub(crate) async fn start(id: &'static str, hub: &Hub, blocks: &Value) -> Self {
        let control_plane = ControlPlane::start(Options::default());
        let kubeconfig = control_plane.provider_kubeconfig().to_owned();
        let cluster = Self::with_kubeconfig(id, control_plane, kubeconfig).await;
        cluster
            .create_registry(hub.registry(id), hub.secret())
            .await;
        cluster.create_network(NETWORK, blocks.clone()).await;
        cluster
    }

    /// A management cluster without a registry, whose manager uses this kubeconfig.
    pub(crate) async fn with_kubeconfig(
        id: &'static str,
        control_plane: ControlPlane,
        kubeconfig: PathBuf,
    ) -> Self {
        let consumer = Consumer::new(&control_plane).await;
        let manager = Manager::launch(&control_plane, &kubeconfig, &FLAGS);
        manager.wait_until_ready();
        Self {
            id,
            control_plane,
            consumer,
            kubeconfig,
            manager: Mutex::new(manager),
        }
    }

    /// Creates a network with these shared blocks.
    pub(crate) async fn create_network(&self, name: &str, blocks: Value) {
        // Other clusters take a block at once after its return, unless the test says otherwise.
        let mut shared = blocks;
        if shared["quarantineSeconds"].is_null() {
            shared["quarantineSeconds"] = json!(0);
        }
        let spec = json!({"namespaces": {"from": "All"}, "blocks": shared});
        self.consumer.create_network(name, spec).await;
    }

    /// Changes the size of the blocks of a network.
    ///
    /// # Errors
    /// The message of the API server.
    pub(crate) fn set_block_size(&self, name: &str, size: u64) -> Result<(), String> {
        self.change_blocks(name, &json!({ "size": size }))
    }

    /// Changes fields of `spec.blocks` of a network.
    ///
    /// # Errors
    /// The message of the API server.
    pub(crate) fn change_blocks(&self, name: &str, blocks: &Value) -> Result<(), String> {
        let patch = json!({"spec": {"blocks": blocks}}).to_string();
        let arguments = [
            "patch",
            "ipnetworks",
            name,
            "--type=merge",
            "--patch",
            &patch,
        ];
        self.control_plane.try_kubectl(&arguments).map(drop)
    }

    /// Removes the shared blocks from the network.
    pub(crate) fn stop_sharing(&self) {
        let patch = r#"[{"op": "remove", "path": "/spec/blocks"}]"#;
        let arguments = [
            "patch",
            "ipnetworks",
            NETWORK,
            "--type=json",
            "--patch",
            patch,
        ];
        self.control_plane.kubectl(&arguments);
    }

    /// Shares the blocks of the network through a registry of this name.
    pub(crate) fn share_through(&self, registry: &str) {
        let blocks = json!({"registry": registry, "size": 4, "spare": 0, "keepSeconds": 0, "quarantineSeconds": 0});
        let changed = self.change_blocks(NETWORK, &blocks);
        changed.expect("the network can be changed");
    }

    /// Waits until a network is not ready for this reason, with this text in the message.
    pub(crate) async fn wait_for_network_message(&self, name: &str, reason: &str, part: &str) {
        let networks = self.consumer.networks();
        eventually(
            &format!("{name} of {}: {reason} {part}", self.id),
            || async {
                let status = networks.get(name).await.ok()??.status?;
                let ready = conditions::find(&status.conditions, "Ready")?;
                let has_text = ready.message.as_deref()?.contains(part);
                (ready.reason.as_deref() == Some(reason) && has_text).then_some(())
            },
        )
        .await;
    }

    /// Creates the IPRegistry, with the Secret that it needs.
    pub(crate) async fn create_registry(&self, registry: Value, secret: Option<Value>) {
        if let Some(secret) = secret {
            create(&self.secrets(), &object(secret))
                .await
                .expect("the Secret is valid");
        }
        create(&self.registries(), &object(registry))
            .await
            .expect("the registry is valid");
        self.wait_for_registry("True", "RegistryReady").await;
    }

    /// Changes where the registry is: its servers, or the kubeconfig in the Secret.
    pub(crate) fn use_servers_of(&self, hub: &Hub) {
        match hub.secret() {
            Some(secret) => drop(self.control_plane.kubectl_apply(&secret.to_string())),
            None => self.use_servers(&hub.registry(self.id)["spec"]["nats"]["servers"]),
        }
    }

    /// Changes the URLs of the servers of the registry.
    pub(crate) fn use_servers(&self, urls: &Value) {
        self.patch_registry(&json!({"nats": {"servers": urls}}));
    }

    /// Changes the specification of the registry.
    fn patch_registry(&self, spec: &Value) {
        let patch = json!({ "spec": spec }).to_string();
        let arguments = [
            "patch",
            "ipregistries",
            REGISTRY,
            "--type=merge",
            "--patch",
            &patch,
        ];
        self.control_plane.kubectl(&arguments);
    }

    /// Changes the settings of the registry, but not where it is: the manager opens it again.
    pub(crate) async fn reopen_registry(&self) {
        let registries = self.registries();
        let found = retry_unanswered(|| registries.get(REGISTRY)).await;
        let found = found.expect("the registry can be read");
        let spec = found.expect("the registry exists").spec;
        let spec = match (spec.nats, spec.kubernetes) {
            (Some(nats), _) => {
                let servers: Vec<String> = nats.servers.iter().map(|url| other_host(url)).collect();
                json!({"nats": {"servers": servers}})
            }
            (None, Some(kubernetes)) => {
                let name = self.other_secret(&kubernetes.secret_name).await;
                json!({"kubernetes": {"secretName": name}})
            }
            (None, None) => panic!("the registry is somewhere"),
        };
        self.patch_registry(&spec);
    }

    /// The name of another Secret with the same content.
    async fn other_secret(&self, name: &str) -> String {
        const COPY: &str = "-copy";
        if let Some(original) = name.strip_suffix(COPY) {
            return original.to_owned();
        }
        let secrets = self.secrets();
        let found = retry_unanswered(|| secrets.get(name)).await;
        let original = found.expect("the Secret can be read");
        let other = format!("{name}{COPY}");
        let copy = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": other, "namespace": NAMESPACE},
            "data": original.expect("the Secret exists").data,
        });
        self.control_plane.kubectl_apply(&copy.to_string());
        other
    }

    fn secrets(&self) -> ResourceClient<Secret> {
        let api = Api::namespaced(self.consumer.client.clone(), NAMESPACE);
        ResourceClient::new(api, &())
    }

    pub(crate) fn registries(&self) -> ResourceClient<IPRegistry> {
        ResourceClient::new(Api::all(self.consumer.client.clone()), &())
    }

    /// Deletes the registry, although networks use it.
    pub(crate) async fn delete_registry(&self) {
        let annotation = format!("{SKIP_VALIDATE_DELETE}=");
        let kubectl = |arguments: &[&str]| self.control_plane.kubectl(arguments);
        kubectl(&["annotate", "ipregistries", REGISTRY, &annotation]);
        kubectl(&[
            "delete",
            "ipregistries",
            REGISTRY,
            "--wait=false",
            "--ignore-not-found",
        ]);
        eventually("the registry is gone", || async {
            let found = self.registries().get(REGISTRY).await.ok()?;
            found.is_none().then_some(())
        })
        .await;
    }

    /// Waits until the condition Ready of the registry has this status and reason. Returns its
    /// message.
    pub(crate) async fn wait_for_registry(&self, status: &str, reason: &str) -> String {
        self.wait_for_registry_named(REGISTRY, status, reason).await
    }

    /// The same for a registry of this name.
    pub(crate) async fn wait_for_registry_named(
        &self,
        name: &str,
        status: &str,
        reason: &str,
    ) -> String {
        let what = format!("registry {name} of {}: {status} {reason}", self.id);
        // Two processes with one identity notice each other after two signs of life.
        eventually_within(MESSAGE_TIMEOUT, &what, || async {
            let registry = self.registries().get(name).await.ok()??;
            let status_of = registry.status?;
            let found = conditions::find(&status_of.conditions, "Ready")?;
            let is_wanted = found.status == status && found.reason.as_deref() == Some(reason);
            is_wanted.then(|| found.message.clone().unwrap_or_default())
        })
        .await
    }

    /// The number of writes of the sign of life that a registry shows.
    pub(crate) async fn writes(&self, hub: &Hub) -> u64 {
        let registry = hub.open().await;
        let key = format!("cluster.{}", self.id);
        eventually(&format!("{key} is written"), || async {
            match registry.read(&key).await.ok()??.record() {
                Some(Record::Cluster(record)) => record.writes,
                _ => None,
            }
        })
        .await
    }

    /// Waits until the sign of life was written more often than `before`, and the status of the IPRegistry
    /// shows this. It does some minutes later by itself.
    pub(crate) async fn wait_for_later_writes(&self, hub: &Hub, before: u64) {
        let what = format!("a sign of life of {} after {before}", self.id);
        eventually_within(MESSAGE_TIMEOUT, &what, || async {
            (self.writes(hub).await > before).then_some(())
        })
        .await;
        let patch = r#"{"status": {"writes": null}}"#;
        let arguments = [
            "patch",
            "ipregistries",
            REGISTRY,
            "--subresource=status",
            "--type=merge",
            "--patch",
            patch,
        ];
        self.control_plane.kubectl(&arguments);
        eventually(&format!("the status of {} shows it", self.id), || async {
            let status = self.registries().get(REGISTRY).await.ok()??.status?;
            status.writes.filter(|writes| *writes > before)
        })
        .await;
    }

    /// Creates a pool of the network.
    pub(crate) async fn create_pool(&self, name: &str, addresses: &str) {
        self.create_pool_in(NETWORK, name, addresses).await;
    }

    /// Creates a pool of a network.
    pub(crate) async fn create_pool_in(&self, network: &str, name: &str, addresses: &str) {
        let spec = json!({"addresses": [addresses], "prefix": 16, "network": network, "allocation": {"requests": true}});
        self.consumer.create_pool(name, spec).await;
        self.consumer.wait_until_pool_ready(name).await;
    }

    /// Creates claims and returns their addresses, by claim.
    pub(crate) async fn bind(&self, pool: &str, names: &[String]) -> BTreeMap<String, String> {
        self.consumer.create_claims(names, pool).await;
        self.consumer.wait_for_addresses(names).await
    }

    /// The network as it is.
    pub(crate) async fn network(&self) -> IPNetwork {
        self.network_named(NETWORK).await
    }

    async fn network_named(&self, name: &str) -> IPNetwork {
        let networks = self.consumer.networks();
        let found = retry_unanswered(|| networks.get(name)).await;
        found
            .expect("the network can be read")
            .expect("the network exists")
    }

    /// The blocks of the network for which this cluster has an IPSlice, in order.
    pub(crate) async fn blocks(&self) -> Vec<String> {
        self.blocks_of(NETWORK).await
    }

    /// The blocks of a network for which this cluster has an IPSlice, in order.
    pub(crate) async fn blocks_of(&self, network: &str) -> Vec<String> {
        let slices = self.consumer.slices();
        let all = retry_unanswered(|| slices.list())
            .await
            .expect("slices can be listed");
        let scope = format!("n.{network}");
        let mut blocks = Vec::new();
        for slice in all {
            if slice.spec.scope == scope {
                blocks.push(slice.spec.block);
            }
        }
        blocks.sort_unstable();
        blocks
    }

    /// Waits until this cluster has exactly these blocks.
    pub(crate) async fn wait_for_blocks(&self, expected: &[&str]) {
        let what = format!("{} has the blocks {expected:?}", self.id);
        eventually(&what, || async {
            (self.blocks().await == expected).then_some(())
        })
        .await;
    }

    /// Waits until the condition BlockConflict of the network has this status. Returns its message.
    pub(crate) async fn wait_for_conflict(&self, status: &str) -> String {
        self.wait_for_conflict_in(NETWORK, status).await
    }

    /// Waits until the condition BlockConflict of a network has this status. Returns its message.
    pub(crate) async fn wait_for_conflict_in(&self, network: &str, status: &str) -> String {
        self.wait_for_condition(network, "BlockConflict", status)
            .await
    }

    /// Waits until a condition of a network has this status. Returns its message.
    pub(crate) async fn wait_for_condition(
        &self,
        network: &str,
        type_: &str,
        status: &str,
    ) -> String {
        eventually(&format!("{type_} of {}: {status}", self.id), || async {
            let conditions = self.network_named(network).await.status?.conditions;
            let found = conditions::find(&conditions, type_)?;
            (found.status == status).then(|| found.message.clone().unwrap_or_default())
        })
        .await
    }

    /// Waits until an event about the network or the registry has a type, a reason and this text in
    /// its note.
    pub(crate) async fn wait_for_event(&self, name: &str, type_: &str, reason: &str, part: &str) {
        let of_cluster_scoped = self.consumer.in_namespace("default");
        of_cluster_scoped
            .wait_for_event(name, type_, reason, part)
            .await;
    }

    /// Waits until the IPSlice of a block is marked as empty, or no longer.
    pub(crate) async fn wait_for_mark(&self, block: &str, is_marked: bool) {
        let slices = self.consumer.slices();
        let name = format!("n.{NETWORK}.{}", block.replace('/', "-"));
        eventually(&format!("mark of {name}: {is_marked}"), || async {
            let slice = slices.get(&name).await.ok()??;
            (slice.spec.empty_since.is_some() == is_marked).then_some(())
        })
        .await;
    }

    /// Ends the manager with SIGKILL.
    pub(crate) fn kill(&self) {
        self.manager.lock().kill();
    }

    /// Sends the manager a signal, such as `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        self.manager.lock().signal(signal);
    }

    /// Starts another process with the identity of this cluster, beside the manager.
    pub(crate) fn start_another(&self) -> Manager {
        let manager = Manager::launch(&self.control_plane, &self.kubeconfig, &FLAGS);
        manager.wait_until_ready();
        manager
    }

    /// Ends the manager with SIGKILL, if it runs, and starts another one.
    pub(crate) fn restart(&self) {
        let mut manager = self.manager.lock();
        manager.kill();
        *manager = Manager::launch(&self.control_plane, &self.kubeconfig, &FLAGS);
    }
}

impl Site {
    /// Starts the registry again. An API server does not know all roles immediately after its start.
    pub(crate) fn start_hub(&mut self) {
        self.hub.start();
        for cluster in [&self.west, &self.east] {
            cluster.manager.lock().accept_missing_permissions();
        }
    }

    /// West takes the first block. A snapshot of its etcd is taken, and then it returns the block.
    pub(crate) async fn return_block_after_snapshot(&mut self) {
        self.west.bind("p", &numbered("w-", 2)).await;
        self.west.kill();
        take_snapshot(&mut self.west.control_plane);
        self.west.restart();
        for name in numbered("w-", 2) {
            self.west.consumer.release(&name).await;
        }
        self.wait_for_holder("10.0.1.0/30", None).await;
    }

    /// The management cluster with an identity.
    pub(crate) fn cluster(&self, id: &str) -> &ManagementCluster {
        if self.west.id == id {
            &self.west
        } else {
            &self.east
        }
    }

    /// Creates the record of a block of any management cluster.
    pub(crate) async fn create_record(&self, block: &str, cluster: &str) {
        let record = Record::Block(BlockRecord {
            network: NETWORK.to_owned(),
            block: block.to_owned(),
            cluster: cluster.to_owned(),
            since: None,
            returned_at: None,
            contenders: Vec::new(),
            used: None,
        });
        let registry = self.hub.open().await;
        let created = registry.create(&key_of(NETWORK, block), &record).await;
        created.expect("the record can be created");
    }

    /// Deletes the record of a block.
    pub(crate) async fn lose_record(&self, block: &str) {
        self.lose_record_of(NETWORK, block).await;
    }

    /// Deletes the record of a block of a network.
    pub(crate) async fn lose_record_of(&self, network: &str, block: &str) {
        let registry = self.hub.open().await;
        let key = key_of(network, block);
        eventually(&format!("record {key} is deleted"), || async {
            let found = registry.read(&key).await.ok()??;
            registry.delete(&found).await.ok()
        })
        .await;
    }

    /// Waits until the registry has a record of this name.
    pub(crate) async fn wait_for_record(&self, key: &str) {
        let registry = self.hub.open().await;
        eventually(&format!("record {key} exists"), || async {
            registry.read(key).await.ok()?.map(drop)
        })
        .await;
    }

    /// Waits until the registry says that this cluster has a block, or that it is returned.
    pub(crate) async fn wait_for_holder(&self, block: &str, holder: Option<&str>) {
        let registry = self.hub.open().await;
        let key = key_of(NETWORK, block);
        eventually(&format!("{holder:?} has {block}"), || async {
            let found = registry.read(&key).await.ok()?;
            let record = found.as_ref().and_then(Entry::record);
            let cluster = match record {
                Some(Record::Block(record)) if record.returned_at.is_none() => {
                    Some(record.cluster.as_str())
                }
                _ => None,
            };
            (cluster == holder).then_some(())
        })
        .await;
    }

    /// Waits until the record of a block names a cluster that uses addresses of it.
    pub(crate) async fn wait_for_contender(&self, block: &str, contender: &str) {
        let registry = self.hub.open().await;
        let key = key_of(NETWORK, block);
        eventually(&format!("{contender} contends for {block}"), || async {
            let found = registry.read(&key).await.ok()?;
            match found.as_ref().and_then(Entry::record) {
                Some(Record::Block(record)) => {
                    let mut contenders = record.contenders.iter();
                    contenders.any(|id| id == contender).then_some(())
                }
                _ => None,
            }
        })
        .await;
    }
}

/// Another name of the same server on this machine.
fn other_host(url: &str) -> String {
    let (address, name) = ("127.0.0.1", "localhost");
    if url.contains(name) {
        url.replace(name, address)
    } else {
        url.replace(address, name)
    }
}

/// The name of the record of an IPv4 block of a network.
pub(crate) fn key_of(network: &str, block: &str) -> String {
    format!("block.{network}.{}", block.replace('/', "-"))
}
