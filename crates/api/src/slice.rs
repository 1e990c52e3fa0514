use std::fmt;

use capi_ipam_ip::{Block, Entry, parse_address, parse_entry};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PoolKey, ProblemStatus, Scope, names, reservation_name};

/// Assigns a slice of a pool to an owner: the pool allocates its addresses only to claims of this
/// owner. Or assigns a block of a network to this management cluster: the pools of the network
/// allocate only addresses of such blocks.
///
/// Its name is derived from the pool or the network and the block, so the API server lets only one
/// client create it: a slice has one owner. The fields of the specification that identify it are
/// immutable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPSlice {
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
    /// The block, its pool and its owner.
    pub spec: IPSliceSpec,
    /// The problem of a slice that has no effect; `None` for one that never had a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProblemStatus>,
}

super::resource::cluster_resource!(IPSlice, "ipslices");

/// The specification of an [`IPSlice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The block, its pool and its owner.")]
pub struct IPSliceSpec {
    /// Pool of the slice, in the notation of spec.scope of an IPReservation: p.NAMESPACE.POOL for
    /// an InClusterIPPool, g.POOL for a GlobalInClusterIPPool, pp.NAMESPACE.POOL and gp.POOL for
    /// pools of prefixes. It is that of the pool also if the pool belongs to a network. Or
    /// n.NETWORK for a block of a network that a ManagementCluster owns.
    #[schemars(length(min = 1, max = 512))]
    pub scope: String,
    /// Addresses of the slice in CIDR notation, such as 10.8.0.64/26.
    #[schemars(length(min = 4, max = 43))]
    pub block: String,
    /// Owner of the slice: only its claims get addresses of the slice.
    pub owner: SliceOwner,
    /// Name of the IPRegistry that has the record of the block. Set by the provider for a block of
    /// a network. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub registry: Option<String>,
    /// Time at which the registry confirmed that the management cluster has the block. Until then
    /// no address of it is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub confirmed_at: Option<Time>,
    /// Another management cluster uses the block as well. No address of it is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<SliceConflict>,
    /// Time at which the provider assigned the slice. Without it, the slice was created by hand,
    /// and stays assigned until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub assigned_at: Option<Time>,
    /// Time since which no address of the slice is in use. Set by the provider, which deletes the
    /// slice when the owner is deleted, or after spec.slices.keepSeconds of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub empty_since: Option<Time>,
}

/// Another management cluster that uses a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceConflict {
    /// Identity of the other management cluster, or `unknown` if the record of the block cannot be
    /// decoded.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Time since which the conflict is known.
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub since: Time,
}

/// The owner of a slice.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct SliceOwner {
    /// Kind of the owner: Cluster, Namespace, Label for claims with the same value of a label, or
    /// ManagementCluster for a block of a network.
    pub kind: SliceOwnerKind,
    /// Namespace of the Cluster; omitted for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the Cluster or Namespace, value of the label, or identity of the management cluster
    /// (spec.clusterID of the IPRegistry).
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The kind of the owner of a slice.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum SliceOwnerKind {
    /// A Cluster: the claims of its machines.
    #[default]
    Cluster,
    /// A namespace.
    Namespace,
    /// All claims with the same value of a label.
    Label,
    /// A management cluster: all claims of the network.
    ManagementCluster,
}

impl fmt::Display for SliceOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SliceOwnerKind::Cluster => "Cluster",
            SliceOwnerKind::Namespace => "namespace",
            SliceOwnerKind::Label => "label value",
            SliceOwnerKind::ManagementCluster => "management cluster",
        };
        match &self.namespace {
            Some(namespace) => write!(formatter, "{kind} {namespace}/{}", self.name),
            None => write!(formatter, "{kind} {}", self.name),
        }
    }
}

/// Why an [`IPSlice`] has no effect. Displayed with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceProblem {
    /// The scope is neither that of a pool nor that of a network.
    #[error(
        "spec.scope: {scope} is not a pool; write p.NAMESPACE.POOL, g.POOL, pp.NAMESPACE.POOL or gp.POOL, or n.NETWORK \
         for a block of a network"
    )]
    Scope {
        /// The scope in the specification.
        scope: String,
    },
    /// The owner cannot have a slice of this scope.
    #[error(
        "spec.owner.kind: {kind:?} cannot own {scope}; a ManagementCluster owns blocks of networks, other owners own \
         slices of pools"
    )]
    Owner {
        /// The scope in the specification.
        scope: String,
        /// The kind of the owner in the specification.
        kind: SliceOwnerKind,
    },
    /// The block is not an address or a network.
    #[error(
        "spec.block: {block} is not a network in CIDR notation without host bits, such as 10.8.0.64/26"
    )]
    Block {
        /// The block in the specification.
        block: String,
    },
    /// The name does not match scope and block.
    #[error("metadata.name: {name} does not match scope and block; it must be {expected}")]
    Name {
        /// The name in the metadata.
        name: String,
        /// The name that scope and block require.
        expected: String,
    },
}

impl IPSlice {
    /// Creates a slice that the provider assigns to an owner.
    pub fn assigned(scope: &Scope, block: Block, owner: SliceOwner, now: Time) -> Self {
        Self {
            api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
            kind: Some("IPSlice".to_owned()),
            metadata: ObjectMeta {
                name: Some(reservation_name(scope, block)),
                ..ObjectMeta::default()
            },
            spec: IPSliceSpec {
                scope: scope.name(),
                block: format!("{}/{}", block.base(), block.length()),
                owner,
                assigned_at: Some(now),
                ..IPSliceSpec::default()
            },
            status: None,
        }
    }

    /// Returns the pool or the network and the block of the slice. Fails if a field or the name is
    /// invalid: such a slice has no effect.
    pub fn place(&self) -> Result<(Scope, Block), SliceProblem> {
        let scope = self.scope()?;
        let block = self.block()?;
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let expected = reservation_name(&scope, block);
        if name != expected {
            return Err(SliceProblem::Name {
                name: name.to_owned(),
                expected,
            });
        }
        Ok((scope, block))
    }

    /// The pool or the network.
    fn scope(&self) -> Result<Scope, SliceProblem> {
        let IPSliceSpec { scope, owner, .. } = &self.spec;
        let found = match scope.strip_prefix("n.") {
            Some("") => None,
            Some(network) => Some(Scope::Network(network.into())),
            None => PoolKey::of_scope(scope).map(Scope::Pool),
        };
        let found = found.ok_or_else(|| SliceProblem::Scope {
            scope: scope.clone(),
        })?;
        let is_of_network = matches!(found, Scope::Network(_));
        if is_of_network != (owner.kind == SliceOwnerKind::ManagementCluster) {
            return Err(SliceProblem::Owner {
                scope: scope.clone(),
                kind: owner.kind,
            });
        }
        Ok(found)
    }

    fn block(&self) -> Result<Block, SliceProblem> {
        let text = &self.spec.block;
        let invalid = || SliceProblem::Block {
            block: text.clone(),
        };
        let entry = parse_entry(text).map_err(|_| invalid())?;
        let block = block_of(&entry).ok_or_else(invalid)?;
        // A network is parsed with its host bits set too.
        let first = match text.split_once('/') {
            Some((first, _)) => first,
            None => text,
        };
        match parse_address(first) {
            Ok(first) if first == block.base() => Ok(block),
            _ => Err(invalid()),
        }
    }
}

/// The block of an entry that is one address or a network without host bits.
fn block_of(entry: &Entry) -> Option<Block> {
    let count = entry
        .span
        .last()
        .checked_sub(entry.span.first())?
        .checked_add(1)?;
    let length = u32::from(entry.family.bits()).checked_sub(count.checked_ilog2()?)?;
    let block = Block::new(
        entry.family.address(entry.span.first()),
        u8::try_from(length).ok()?,
    );
    (count.is_power_of_two() && block.span() == entry.span).then_some(block)
}

/// The name of the slice of a pool: that of the reservation of its block, in the scope of the pool.
pub fn slice_name(pool: &PoolKey, block: Block) -> String {
    reservation_name(&Scope::Pool(pool.clone()), block)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(change: &Value) -> IPSlice {
        let mut object = json!({
            "metadata": {"name": "g.site-a.10.8.0.64-26"},
            "spec": {"scope": "g.site-a", "block": "10.8.0.64/26",
                     "owner": {"kind": "Cluster", "namespace": "team-a", "name": "alpha"}},
        });
        json_patch::merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn assigned_slice_is_read_back() {
        let (scope, block) = slice(&json!({})).place().unwrap();
        assert_eq!(
            (scope.to_string().as_str(), block.to_string().as_str()),
            ("GlobalInClusterIPPool site-a", "10.8.0.64/26")
        );
        for (scope, block) in [
            ("p.a.b.c", "10.0.0.7/32"),
            ("pp.a.b", "fd00::/60"),
            ("gp.x", "0.0.0.0/0"),
        ] {
            let pool = PoolKey::of_scope(scope).unwrap();
            let block = parse_entry(block).ok().as_ref().and_then(block_of).unwrap();
            let now = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
            let scope = Scope::Pool(pool);
            let made = IPSlice::assigned(&scope, block, SliceOwner::default(), now);
            assert_eq!(made.place(), Ok((scope, block)), "{made:?}");
        }
    }

    #[test]
    fn management_cluster_owns_blocks_of_networks_only() {
        let owner = json!({"kind": "ManagementCluster", "namespace": null, "name": "west-1"});
        let block = slice(&json!({
            "metadata": {"name": "n.lab.10.8.0.64-26"},
            "spec": {"scope": "n.lab", "owner": owner},
        }));
        let (scope, _) = block.place().unwrap();
        assert_eq!(scope, Scope::Network("lab".into()));
        for change in [json!({"scope": "n.lab"}), json!({"owner": owner})] {
            let problem = slice(&json!({ "spec": change })).place().unwrap_err();
            assert!(matches!(problem, SliceProblem::Owner { .. }), "{problem}");
        }
    }

    #[test]
    fn each_problem_names_its_field() {
        let cases = [
            (
                json!({"metadata": {"name": "x"}}),
                "metadata.name",
                "g.site-a.10.8.0.64-26",
            ),
            (json!({"spec": {"scope": "n."}}), "spec.scope", "n."),
            (json!({"spec": {"scope": "p.a"}}), "spec.scope", "p.a"),
            (
                json!({"spec": {"block": "10.8.0.65/26"}}),
                "spec.block",
                "10.8.0.65/26",
            ),
            (
                json!({"spec": {"block": "10.8.0.1-10.8.0.2"}}),
                "spec.block",
                "10.8.0.1",
            ),
            (json!({"spec": {"block": "alpha"}}), "spec.block", "alpha"),
        ];
        for (change, field, text) in cases {
            let problem = slice(&change).place().unwrap_err().to_string();
            assert!(
                problem.starts_with(field) && problem.contains(text),
                "{problem}"
            );
        }
    }
}
