use std::collections::BTreeMap;
use std::fmt;

use capi_ipam_contract::{IPAddressClaim, PoolReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ObjectMeta, Selector};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::access::{SelectorProblem, parse_selector};
use super::conditions::{self, Condition};
use super::field_problem::FieldProblem;
use super::{InClusterKind, PoolSetKind, is_dns_label, names};

/// Addresses of Clusters: which IPAddressClaims each selected Cluster gets, and where their
/// addresses are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAddressing {
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
    /// The Clusters, and their addresses.
    #[serde(default)]
    pub spec: ClusterAddressingSpec,
    /// Which Clusters have their addresses.
    #[serde(
        default,
        deserialize_with = "conditions::written_status",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<ClusterAddressingStatus>,
}

super::resource::resource!(
    ClusterAddressing,
    "clusteraddressings",
    NamespaceResourceScope
);

/// The specification of a [`ClusterAddressing`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The Clusters, and their addresses.")]
pub struct ClusterAddressingSpec {
    /// Selects Clusters of the namespace by their labels. An empty selector selects all.
    #[schemars(schema_with = "super::access::selector_schema")]
    pub cluster_selector: LabelSelector,
    /// The addresses of each Cluster. A change does not affect Clusters that have their addresses.
    pub items: Vec<AddressingItem>,
}

/// An address or a prefix of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressingItem {
    /// Name of the item, a DNS label. The IPAddressClaim has the name of the Cluster, a dash, and
    /// this name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The pool of the IPAddressClaim: an InClusterIPPool or InClusterPrefixPool of the namespace,
    /// a GlobalInClusterIPPool or GlobalInClusterPrefixPool, or a set of pools, IPPoolSet or
    /// GlobalIPPoolSet.
    #[schemars(schema_with = "pool_reference_schema")]
    pub pool_ref: PoolReference,
    /// Where the address is written.
    pub to: Vec<AddressTarget>,
}

/// A place where an address is written. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressTarget {
    /// The field spec.controlPlaneEndpoint of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<EndpointTarget>,
    /// A variable of the ClusterClass, in spec.topology.variables of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<VariableTarget>,
    /// The network of the Pods or of the Services in spec.clusterNetwork of the Cluster. It needs a
    /// pool of prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<ClusterNetworkKind>,
    /// A ConfigMap with a manifest for the Cluster, which a ClusterResourceSet applies. Its name is
    /// that of the IPAddressClaim, a dash, and the kind in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<AddressResource>,
}

/// The endpoint of an API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointTarget {
    /// Port of the API server; only if the Cluster has no port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A variable of a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VariableTarget {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Field of a variable that is an object, such as network.vip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub path: Option<String>,
    /// Address by default, the first one of a prefix; CIDR for the address with its prefix length;
    /// Range for the first and the last address; DNSServers and SearchDomains for the lists of the
    /// pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AddressFormat>,
}

/// How an address is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AddressFormat {
    /// The address, or the first one of a prefix.
    #[default]
    Address,
    /// The address with the prefix length.
    #[serde(rename = "CIDR")]
    Cidr,
    /// The first and the last address.
    Range,
    /// The name servers of the pool, as a list.
    #[serde(rename = "DNSServers")]
    DnsServers,
    /// The search domains of the pool, as a list.
    SearchDomains,
}

/// A network of a Cluster.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ClusterNetworkKind {
    /// The network of the pods.
    Pods,
    /// The network of the Services.
    Services,
}

/// The manifest in a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AddressResource {
    /// An IPAddressPool of MetalLB.
    #[serde(rename = "MetalLB")]
    MetalLb,
    /// A CiliumLoadBalancerIPPool.
    CiliumLoadBalancerIPPool,
    /// The ConfigMap of the cloud provider of kube-vip.
    KubeVipConfigMap,
    /// A ConfigMap with the addresses of all items.
    Values,
}

impl AddressResource {
    /// The name as in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MetalLb => "MetalLB",
            Self::CiliumLoadBalancerIPPool => "CiliumLoadBalancerIPPool",
            Self::KubeVipConfigMap => "KubeVipConfigMap",
            Self::Values => "Values",
        }
    }
}

/// A field of a Cluster that holds an address. Its text is the key in the record of what was
/// written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterField {
    /// `spec.controlPlaneEndpoint.host`.
    Endpoint,
    /// The blocks of a network in `spec.clusterNetwork`.
    Network(ClusterNetworkKind),
    /// A variable in `spec.topology.variables`, or a field of it.
    Variable {
        /// Name of the variable.
        name: String,
        /// The names of the field and of those around it; empty for the whole value.
        path: Vec<String>,
    },
}

impl ClusterField {
    /// The field with this text, see [`fmt::Display`]. `None` if there is no such field.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "spec.controlPlaneEndpoint" => Some(Self::Endpoint),
            "spec.clusterNetwork.pods" => Some(Self::Network(ClusterNetworkKind::Pods)),
            "spec.clusterNetwork.services" => Some(Self::Network(ClusterNetworkKind::Services)),
            _ => {
                let (name, path) = text
                    .strip_prefix("spec.topology.variables[")?
                    .split_once(']')?;
                let path = path.split('.').filter(|part| !part.is_empty());
                Some(Self::Variable {
                    name: name.to_owned(),
                    path: path.map(str::to_owned).collect(),
                })
            }
        }
    }

    /// Whether one of the fields is a part of the other one.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Variable { name, path },
                Self::Variable {
                    name: other_name,
                    path: other_path,
                },
            ) => {
                name == other_name && (path.starts_with(other_path) || other_path.starts_with(path))
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for ClusterField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint => formatter.write_str("spec.controlPlaneEndpoint"),
            Self::Network(ClusterNetworkKind::Pods) => {
                formatter.write_str("spec.clusterNetwork.pods")
            }
            Self::Network(ClusterNetworkKind::Services) => {
                formatter.write_str("spec.clusterNetwork.services")
            }
            Self::Variable { name, path } => {
                write!(formatter, "spec.topology.variables[{name}]")?;
                path.iter()
                    .try_for_each(|part| write!(formatter, ".{part}"))
            }
        }
    }
}

/// Where an address is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A field of the Cluster, and how the address is written there. The port is that of an
    /// endpoint.
    Field {
        /// The field.
        field: ClusterField,
        /// How the address is written.
        format: AddressFormat,
        /// The port of an endpoint.
        port: Option<i32>,
    },
    /// A ConfigMap.
    Resource(AddressResource),
}

impl Destination {
    /// Why what a pool allocates, prefixes or single addresses, cannot be written there.
    pub fn mismatch(&self, has_prefixes: bool) -> Option<&'static str> {
        let Self::Field { field, .. } = self else {
            return None;
        };
        match (field, has_prefixes) {
            (ClusterField::Endpoint, true) => Some(ENDPOINT_POOL),
            (ClusterField::Network(_), false) => Some(NETWORK_POOL),
            _ => None,
        }
    }
}

impl AddressTarget {
    /// Where the address is written; `None` unless exactly one of the fields is set.
    pub fn destination(&self) -> Option<Destination> {
        match (
            self.control_plane_endpoint,
            &self.variable,
            self.cluster_network,
            self.resource,
        ) {
            (Some(endpoint), None, None, None) => Some(Destination::Field {
                field: ClusterField::Endpoint,
                format: AddressFormat::Address,
                port: Some(endpoint.port),
            }),
            (None, Some(variable), None, None) => Some(Destination::Field {
                field: variable.field(),
                format: variable.format.unwrap_or_default(),
                port: None,
            }),
            (None, None, Some(network), None) => Some(Destination::Field {
                field: ClusterField::Network(network),
                format: AddressFormat::Cidr,
                port: None,
            }),
            (None, None, None, Some(resource)) => Some(Destination::Resource(resource)),
            _ => None,
        }
    }
}

impl AddressTarget {
    /// What is wrong with the fields of the target: path, value and text.
    fn problems(&self) -> Vec<(&'static str, serde_json::Value, &'static str)> {
        let mut problems = Vec::new();
        if let Some(endpoint) = self.control_plane_endpoint
            && !(1..=65535).contains(&endpoint.port)
        {
            let value = json!(endpoint.port);
            problems.push((
                "controlPlaneEndpoint.port",
                value,
                "must be from 1 to 65535",
            ));
        }
        if let Some(variable) = &self.variable {
            if !is_variable_name(&variable.name) {
                problems.push(("variable.name", json!(variable.name), VARIABLE_NAME));
            }
            let path = variable.path.as_deref();
            if path.is_some_and(|path| !path.split('.').all(is_variable_name)) {
                problems.push(("variable.path", json!(path), VARIABLE_PATH));
            }
        }
        problems
    }
}

/// Whether a text can be the name of a variable, or of a field of one.
fn is_variable_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=256).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl VariableTarget {
    fn field(&self) -> ClusterField {
        let path = self.path.as_deref().unwrap_or_default().split('.');
        ClusterField::Variable {
            name: self.name.clone(),
            path: path
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }
}

impl AddressingItem {
    /// Where the address is written.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.to.iter().filter_map(AddressTarget::destination)
    }

    /// The manifests that contain the address.
    pub fn resources(&self) -> impl Iterator<Item = AddressResource> {
        self.destinations()
            .filter_map(|destination| match destination {
                Destination::Resource(resource) => Some(resource),
                Destination::Field { .. } => None,
            })
    }

    /// The name of the IPAddressClaim of a Cluster for an item.
    pub fn claim_name(cluster: &str, item: &str) -> String {
        format!("{cluster}-{item}")
    }

    /// The name of the item for which a claim was created; none for any other claim.
    pub fn of_claim(claim: &IPAddressClaim) -> Option<&str> {
        let labels = claim.metadata.labels.as_ref()?;
        if !labels.contains_key(names::CLUSTER_ADDRESSING_LABEL) {
            return None;
        }
        let name = claim.metadata.name.as_deref()?;
        name.strip_prefix(claim.cluster_name()?)?.strip_prefix('-')
    }
}

/// The observed state: which Clusters have their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAddressingStatus {
    /// Generation that counts and conditions describe. It is -1 if no provider has processed the
    /// object.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Number of selected Clusters, and of those that have a part of their addresses.
    #[serde(default)]
    pub clusters: i64,
    /// Number of these Clusters that have all their addresses.
    #[serde(default)]
    pub ready: i64,
    /// Clusters with a problem, at most 50: those without addresses, and those in which somebody
    /// changed an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ClusterProblem>,
    /// Conditions. Ready is False if the specification is invalid, or if a selected Cluster does
    /// not have its addresses. Drifted is True if somebody changed an address in a Cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// A problem of one Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterProblem {
    /// Name of the Cluster.
    pub cluster: String,
    /// Machine-readable reason.
    pub reason: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl ClusterAddressing {
    /// What is wrong with the name and the items, with the path of each field.
    pub fn problems(&self) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if !is_dns_label(name) {
            let field = "metadata.name";
            problems.push(FieldProblem::new(field, name, "must be a DNS label"));
        }
        problems.extend(self.spec.problems());
        problems
    }
}

impl ClusterAddressingSpec {
    /// The selector of Clusters.
    ///
    /// # Errors
    /// If an operator is not valid.
    pub fn selector(&self) -> Result<Selector, SelectorProblem> {
        parse_selector(&self.cluster_selector, "spec.clusterSelector")
    }

    /// What is wrong with the items, with the path of each field.
    pub fn problems(&self) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        if self.items.is_empty() {
            problems.push(FieldProblem::new(
                "spec.items",
                json!([]),
                "an item is required",
            ));
        }
        let mut item_names = BTreeMap::new();
        for (index, item) in self.items.iter().enumerate() {
            let path = format!("spec.items[{index}]");
            if let Some(first) = item_names.insert(&item.name, index) {
                let text = format!("spec.items[{first}] has this name, too");
                problems.push(FieldProblem::new(format!("{path}.name"), &*item.name, text));
            }
            item.add_problems(&path, &mut problems);
        }
        self.add_conflicts(&mut problems);
        problems
    }

    /// Adds each target that is the same as an earlier one, or a part of it.
    fn add_conflicts(&self, problems: &mut Vec<FieldProblem>) {
        let mut earlier: Vec<(String, ClusterField)> = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            for (position, target) in item.to.iter().enumerate() {
                let Some(Destination::Field { field, .. }) = target.destination() else {
                    continue;
                };
                let path = format!("spec.items[{index}].to[{position}]");
                let same = earlier.iter().find(|(_, other)| other.overlaps(&field));
                if let Some((other, _)) = same {
                    let text = format!("{other} writes {field}, too; write it once");
                    problems.push(FieldProblem::new(path, json!(target), text));
                } else {
                    earlier.push((path, field));
                }
            }
        }
    }
}

impl AddressingItem {
    fn add_problems(&self, path: &str, problems: &mut Vec<FieldProblem>) {
        let mut add = |field: &str, value: serde_json::Value, text: &str| {
            problems.push(FieldProblem::new(format!("{path}.{field}"), value, text));
        };
        if !is_dns_label(&self.name) {
            add("name", json!(self.name), "must be a DNS label");
        }
        if self.pool_ref.api_group != names::GROUP {
            let text = "must be ipam.cluster.x-k8s.io";
            add("poolRef.apiGroup", json!(self.pool_ref.api_group), text);
        }
        let kind = InClusterKind::of(&self.pool_ref.kind);
        if kind.is_none() && PoolSetKind::of(&self.pool_ref.kind).is_none() {
            add("poolRef.kind", json!(self.pool_ref.kind), POOL_KINDS);
        }
        if self.pool_ref.name.is_empty() {
            add("poolRef.name", json!(""), "the name of a pool is required");
        }
        if self.to.is_empty() {
            add("to", json!([]), "a target is required");
        }
        for (position, target) in self.to.iter().enumerate() {
            for (field, value, text) in target.problems() {
                add(&format!("to[{position}].{field}"), value, text);
            }
            let text = match target.destination() {
                None => ONE_TARGET,
                // What the pools of a set allocate is checked when the claim is bound.
                Some(destination) => {
                    match kind.and_then(|kind| destination.mismatch(kind.has_prefixes())) {
                        Some(text) => text,
                        None if self
                            .to
                            .iter()
                            .take(position)
                            .any(|earlier| earlier == target) =>
                        {
                            "the item has this target already"
                        }
                        None => continue,
                    }
                }
            };
            add(&format!("to[{position}]"), json!(target), text);
        }
    }
}

pub(super) const POOL_KINDS: &str = "must be InClusterIPPool, GlobalInClusterIPPool, InClusterPrefixPool, \
                                     GlobalInClusterPrefixPool, IPPoolSet or GlobalIPPoolSet";
pub(super) const ONE_TARGET: &str =
    "exactly one of controlPlaneEndpoint, variable, clusterNetwork and resource is required";
pub(super) const ENDPOINT_POOL: &str = "controlPlaneEndpoint needs a pool of single addresses, InClusterIPPool or GlobalInClusterIPPool";
pub(super) const VARIABLE_NAME: &str = "must consist of letters, digits, dashes and underscores";
pub(super) const VARIABLE_PATH: &str = "must be the names of fields, separated by dots";
pub(super) const NETWORK_POOL: &str =
    "clusterNetwork needs a pool of prefixes, InClusterPrefixPool or GlobalInClusterPrefixPool";

fn pool_reference_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["apiGroup", "kind", "name"],
        "properties": {
            "apiGroup": { "type": "string", "maxLength": 253, "description": "API group of the pool, ipam.cluster.x-k8s.io." },
            "kind": { "type": "string", "maxLength": 63, "description": "Kind of the pool." },
            "name": { "type": "string", "minLength": 1, "maxLength": 253, "description": "Name of the pool." },
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn spec(items: &Value) -> ClusterAddressingSpec {
        serde_json::from_value(json!({"clusterSelector": {}, "items": items})).unwrap()
    }

    fn item(name: &str, kind: &str, to: &Value) -> Value {
        json!({"name": name, "poolRef": {"apiGroup": names::GROUP, "kind": kind, "name": "p"}, "to": to})
    }

    #[test]
    fn valid_items_have_no_problem() {
        let endpoint = json!([{"controlPlaneEndpoint": {"port": 6443}}, {"variable": {"name": "vip"}},
            {"variable": {"name": "network", "path": "vip.address", "format": "CIDR"}}]);
        let pods =
            json!([{"clusterNetwork": "Pods"}, {"variable": {"name": "network", "path": "pods"}}]);
        let items = json!([
            item("endpoint", "InClusterIPPool", &endpoint),
            item("pods", "GlobalInClusterPrefixPool", &pods),
            item(
                "lb",
                "InClusterPrefixPool",
                &json!([{"resource": "MetalLB"}, {"resource": "Values"}])
            ),
            item("vip", "IPPoolSet", &json!([{"resource": "Values"}])),
            item(
                "services",
                "GlobalIPPoolSet",
                &json!([{"clusterNetwork": "Services"}])
            ),
        ]);
        assert_eq!(spec(&items).problems(), []);
    }

    #[test]
    fn each_problem_names_its_field() {
        let endpoint = json!([{"controlPlaneEndpoint": {"port": 1}}]);
        let variable = |path: &str| json!([{"variable": {"name": "v", "path": path}}]);
        let cases = [
            (json!([]), "spec.items"),
            (
                json!([item("A", "InClusterIPPool", &endpoint)]),
                "spec.items[0].name",
            ),
            (
                json!([item("a", "Pool", &endpoint)]),
                "spec.items[0].poolRef.kind",
            ),
            (
                json!([item("a", "InClusterIPPool", &json!([]))]),
                "spec.items[0].to",
            ),
            (
                json!([item("a", "InClusterIPPool", &json!([{}]))]),
                "spec.items[0].to[0]",
            ),
            (
                json!([item(
                    "a",
                    "InClusterIPPool",
                    &json!([{"resource": "Values", "clusterNetwork": "Pods"}])
                )]),
                "spec.items[0].to[0]",
            ),
            (
                json!([item("a", "InClusterPrefixPool", &endpoint)]),
                "spec.items[0].to[0]",
            ),
            (
                json!([item(
                    "a",
                    "InClusterIPPool",
                    &json!([{"clusterNetwork": "Pods"}])
                )]),
                "spec.items[0].to[0]",
            ),
            (
                json!([item(
                    "a",
                    "InClusterIPPool",
                    &json!([{"resource": "Values"}, {"resource": "Values"}])
                )]),
                "spec.items[0].to[1]",
            ),
            (
                json!([item(
                    "a",
                    "InClusterIPPool",
                    &json!([{"controlPlaneEndpoint": {"port": 65536}}])
                )]),
                "spec.items[0].to[0].controlPlaneEndpoint.port",
            ),
            (
                json!([item(
                    "a",
                    "InClusterIPPool",
                    &json!([{"variable": {"name": "a]"}}])
                )]),
                "spec.items[0].to[0].variable.name",
            ),
            (
                json!([item("a", "InClusterIPPool", &variable("x..y"))]),
                "spec.items[0].to[0].variable.path",
            ),
            (
                json!([
                    item("a", "InClusterIPPool", &endpoint),
                    item("b", "InClusterIPPool", &endpoint)
                ]),
                "spec.items[1].to[0]",
            ),
            (
                json!([
                    item("a", "InClusterIPPool", &variable("x")),
                    item("b", "InClusterIPPool", &variable("x.y"))
                ]),
                "spec.items[1].to[0]",
            ),
            (
                json!([
                    item("a", "InClusterIPPool", &variable("x")),
                    item("a", "InClusterIPPool", &variable("y"))
                ]),
                "spec.items[1].name",
            ),
        ];
        for (items, field) in cases {
            let problems = spec(&items).problems();
            let fields: Vec<&str> = problems.iter().map(|problem| &*problem.field).collect();
            assert_eq!(fields, [field], "{items}");
        }
    }

    #[test]
    fn name_must_fit_into_a_label() {
        let endpoint = json!([{"controlPlaneEndpoint": {"port": 1}}]);
        let items = json!([item("a", "InClusterIPPool", &endpoint)]);
        let named = |name: &str| ClusterAddressing {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: spec(&items),
            ..ClusterAddressing::default()
        };
        assert_eq!(named("bonn").problems(), []);
        for name in ["bonn.west", &"a".repeat(64)] {
            let problems = named(name).problems();
            let fields: Vec<&str> = problems.iter().map(|problem| &*problem.field).collect();
            assert_eq!(fields, ["metadata.name"], "{name}");
        }
    }

    #[test]
    fn field_is_read_back_from_its_text() {
        let variable = |path: &[&str]| ClusterField::Variable {
            name: "network".to_owned(),
            path: path.iter().map(|&part| part.to_owned()).collect(),
        };
        for field in [
            ClusterField::Endpoint,
            ClusterField::Network(ClusterNetworkKind::Pods),
            ClusterField::Network(ClusterNetworkKind::Services),
            variable(&[]),
            variable(&["vip", "address"]),
        ] {
            assert_eq!(ClusterField::parse(&field.to_string()), Some(field));
        }
        assert_eq!(ClusterField::parse("spec.paused"), None);
    }
}
