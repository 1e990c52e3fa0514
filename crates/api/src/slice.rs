use std::fmt;

use capi_ipam_ip::{Block, Entry, parse_address, parse_entry};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PoolKey, Scope, names, reservation_name};

/// Assigns a slice of a pool to an owner: the pool allocates its addresses only to claims of this
/// owner.
///
/// Its name is derived from the pool and the block, so the API server lets only one client create
/// it: a slice has one owner. All fields of the specification but `emptySince` are immutable.
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
}

super::resource::cluster_resource!(IPSlice, "ipslices");

/// The specification of an [`IPSlice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The block, its pool and its owner.")]
pub struct IPSliceSpec {
    /// Pool of the slice, in the notation of spec.scope of an IPReservation: p.NAMESPACE.POOL for
    /// an InClusterIPPool, g.POOL for a GlobalInClusterIPPool, pp.NAMESPACE.POOL and gp.POOL for
    /// pools of prefixes. It is that of the pool also if the pool belongs to a network.
    #[schemars(length(min = 1, max = 512))]
    pub scope: String,
    /// Addresses of the slice in CIDR notation, such as 10.8.0.64/26.
    #[schemars(length(min = 4, max = 43))]
    pub block: String,
    /// Owner of the slice: only its claims get addresses of the slice.
    pub owner: SliceOwner,
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

/// The owner of a slice.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct SliceOwner {
    /// Kind of the owner: Cluster, Namespace, or Label for claims with the same value of a label.
    pub kind: SliceOwnerKind,
    /// Namespace of the Cluster; omitted for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the Cluster or Namespace, or value of the label.
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
}

impl fmt::Display for SliceOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SliceOwnerKind::Cluster => "Cluster",
            SliceOwnerKind::Namespace => "namespace",
            SliceOwnerKind::Label => "label value",
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
    /// The scope is not that of a pool.
    #[error(
        "spec.scope: {scope} is not a pool; write p.NAMESPACE.POOL, g.POOL, pp.NAMESPACE.POOL or gp.POOL"
    )]
    Scope {
        /// The scope in the specification.
        scope: String,
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
    pub fn assigned(pool: &PoolKey, block: Block, owner: SliceOwner, now: Time) -> Self {
        Self {
            api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
            kind: Some("IPSlice".to_owned()),
            metadata: ObjectMeta {
                name: Some(slice_name(pool, block)),
                ..ObjectMeta::default()
            },
            spec: IPSliceSpec {
                scope: Scope::Pool(pool.clone()).name(),
                block: format!("{}/{}", block.base(), block.length()),
                owner,
                assigned_at: Some(now),
                empty_since: None,
            },
        }
    }

    /// Returns the pool and the block of the slice. Fails if a field or the name is invalid: such a
    /// slice has no effect.
    pub fn block(&self) -> Result<(PoolKey, Block), SliceProblem> {
        let IPSliceSpec {
            scope, block: text, ..
        } = &self.spec;
        let pool = PoolKey::of_scope(scope).ok_or_else(|| SliceProblem::Scope {
            scope: scope.clone(),
        })?;
        let invalid = || SliceProblem::Block {
            block: text.clone(),
        };
        let block = parse_entry(text)
            .ok()
            .as_ref()
            .and_then(block_of)
            .ok_or_else(invalid)?;
        // A network is parsed with its host bits set too.
        let first = text
            .split_once('/')
            .map_or(text.as_str(), |(first, _)| first);
        if !parse_address(first).is_ok_and(|first| first == block.base()) {
            return Err(invalid());
        }
        let (name, expected) = (
            self.metadata.name.as_deref().unwrap_or_default(),
            slice_name(&pool, block),
        );
        if name != expected {
            return Err(SliceProblem::Name {
                name: name.to_owned(),
                expected,
            });
        }
        Ok((pool, block))
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
        let (pool, block) = slice(&json!({})).block().unwrap();
        assert_eq!(
            (pool.to_string().as_str(), block.to_string().as_str()),
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
            let made = IPSlice::assigned(&pool, block, SliceOwner::default(), now);
            assert_eq!(made.block(), Ok((pool, block)), "{made:?}");
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
            (json!({"spec": {"scope": "n.lab"}}), "spec.scope", "n.lab"),
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
            let problem = slice(&change).block().unwrap_err().to_string();
            assert!(
                problem.starts_with(field) && problem.contains(text),
                "{problem}"
            );
        }
    }
}
