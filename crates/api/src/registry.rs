use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition};

/// The precision of [`RegistryCluster::last_seen`], in seconds, which is rounded down: more would
/// be a write of the status each minute for each management cluster.
pub const LAST_SEEN_PRECISION: i64 = 600;

/// A registry: where management clusters record which blocks of their networks they have taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPRegistry {
    /// API group and version; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard object metadata, without `managedFields`.
    #[serde(
        default,
        deserialize_with = "capi_ipam_contract::without_managed_fields"
    )]
    pub metadata: ObjectMeta,
    /// Where the registry is, and who this management cluster is.
    #[serde(default)]
    pub spec: IPRegistrySpec,
    /// The observed state of the registry.
    #[serde(
        default,
        deserialize_with = "conditions::written_status",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<IPRegistryStatus>,
}

super::resource::cluster_resource!(IPRegistry, "ipregistries");

/// The specification of an [`IPRegistry`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "Where the registry is, and who this management cluster is.")]
pub struct IPRegistrySpec {
    /// Identity of this management cluster: a DNS label that no other management cluster has. The
    /// default is the UID of the namespace kube-system. Immutable.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cluster_id: Option<String>,
    /// The registry is a bucket of NATS JetStream. Exactly one of nats and kubernetes is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nats: Option<NatsRegistry>,
    /// The registry is another API server with the kind IPBlock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesRegistry>,
}

/// A registry in NATS JetStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NatsRegistry {
    /// URLs of the servers, such as nats://nats-0.nats:4222, without a user name and a password.
    pub servers: Vec<String>,
    /// Name of the bucket.
    #[schemars(length(min = 1, max = 63))]
    pub bucket: String,
    /// Name of a Secret in the namespace of the manager with the keys user.creds, or token, or
    /// username and password; and ca.crt, tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Accepts a bucket with fewer than three replicas: the loss of one disk can lose everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
}

/// A registry in another API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesRegistry {
    /// Name of a Secret in the namespace of the manager with the key kubeconfig.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// The observed state of a registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPRegistryStatus {
    /// Generation of the registry that the conditions describe. It is -1 if no provider has
    /// processed the registry.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Identity of this management cluster.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Identity of the registry, see the record registry.
    #[serde(
        default,
        rename = "registryID",
        skip_serializing_if = "Option::is_none"
    )]
    pub registry_id: Option<String>,
    /// Number of writes of the record of this management cluster, as of the last write of this
    /// status. A registry that shows fewer has lost some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub writes: Option<u64>,
    /// Whether another cluster uses the identity of this one, as far as is known: no address of the
    /// blocks of this one is allocated, also after a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub identity_in_use: bool,
    /// The management clusters of the registry, at most 50, in order of their identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<RegistryCluster>,
    /// Conditions of the registry. Ready is False if the registry cannot be reached, or if the
    /// specification is invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

impl IPRegistryStatus {
    /// Whether another cluster uses the identity of this one. Earlier releases report it by the
    /// condition alone.
    pub fn shows_identity_in_use(&self) -> bool {
        let ready = conditions::find(&self.conditions, conditions::READY);
        let reason = ready.and_then(|ready| ready.reason.as_deref());
        self.identity_in_use || reason == Some(conditions::CLUSTER_ID_IN_USE)
    }
}

/// A management cluster of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryCluster {
    /// Identity of the management cluster.
    pub id: String,
    /// Number of its blocks.
    pub blocks: i64,
    /// Time at which it was last seen, rounded down to 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub last_seen: Option<Time>,
}
