use std::sync::Arc;

use capi_ipam_ip::{Block, Family, parse_address, ParseError};
use capi_ipam_provider::impl_resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{names, network_block_length_name, PoolKey, Scope, Slot};

/// Who holds one address of one scope.
///
/// The name is made of the scope and the address, so that creating the object is the claim to the address: of two
/// writers the API server lets one through. Nothing but `releasedAt` ever changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPReservation {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata, without `managedFields`, which are not read. The name is made by
    /// [`reservation_name`](super::reservation_name).
    #[serde(default, deserialize_with = "capi_ipam_provider::api::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// Address and holder.
    pub spec: IPReservationSpec,
}

impl_resource!(IPReservation, names::GROUP, "ipreservations", ClusterResourceScope, (), |_version| {
    names::POOL_VERSION
});

/// Address and holder of an [`IPReservation`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The address or prefix, its pool, and who holds it.")]
pub struct IPReservationSpec {
    /// The set within which the address is unique: p.NAMESPACE.POOL for an InClusterIPPool, g.POOL for a
    /// GlobalInClusterIPPool, pp.NAMESPACE.POOL and gp.POOL for pools of prefixes, and n.NETWORK for all pools that
    /// name that network.
    #[schemars(length(min = 1, max = 512))]
    pub scope: String,
    /// The reserved address.
    #[schemars(length(min = 2, max = 39))]
    pub address: String,
    /// Length of the prefix when a whole prefix is reserved and not a single address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub prefix_length: Option<i32>,
    /// The pool that the address was taken from.
    pub pool_ref: ReservationPool,
    /// The claim that holds the address. Without one the address is kept out of its pool. Without a uid the address is
    /// promised to the claim of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ReservationClaim>,
    /// When the holder gave the address back. It is given out again once the grace period of the pool is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub released_at: Option<Time>,
}

/// A reference to a pool from an object without a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationPool {
    /// Kind of the pool.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the pool; none for a global pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a claim from an object without a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationClaim {
    /// Namespace of the claim.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Unique id of the claim; none while the address is only promised to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub uid: Option<String>,
}

/// Why an [`IPReservation`] reserves nothing. Displayed with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationProblem {
    /// The pool's kind is none of ours, or its namespace is missing.
    #[error("spec.poolRef: {kind} is no kind of pool here, or its namespace is missing")]
    Pool {
        /// The kind as written.
        kind: String,
    },
    /// The scope is not one that the pool can be in.
    #[error("spec.scope: {scope} is not a scope of {pool}; write {expected}, or n. and the name of the pool's network")]
    Scope {
        /// The scope as written.
        scope: String,
        /// The pool.
        pool: PoolKey,
        /// The scope of the pool without a network.
        expected: String,
    },
    /// The address cannot be read.
    #[error("spec.address: {0}")]
    Address(#[source] ParseError),
    /// The address and the length do not make a prefix.
    #[error("spec.prefixLength: {address} with the length {length} is not a prefix; its first address is {first}")]
    Prefix {
        /// The address as written.
        address: String,
        /// The length as written.
        length: i32,
        /// The first address of the prefix.
        first: String,
    },
    /// The name is not the one that belongs to scope and address.
    #[error("metadata.name: {name} is not the name for that scope and address; it has to be {expected}")]
    Name {
        /// The name as written.
        name: String,
        /// The only right one.
        expected: String,
    },
}

impl ReservationProblem {
    /// The path of the field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Pool { .. } => "spec.poolRef",
            Self::Scope { .. } => "spec.scope",
            Self::Address(_) => "spec.address",
            Self::Prefix { .. } => "spec.prefixLength",
            Self::Name { .. } => "metadata.name",
        }
    }
}

impl IPReservation {
    /// What is reserved, and for which pool. A reservation with any mistake in it, the name included, reserves nothing.
    pub fn slot(&self) -> Result<(Slot, PoolKey), ReservationProblem> {
        let IPReservationSpec { scope, address, prefix_length, pool_ref, .. } = &self.spec;
        let pool = PoolKey::of_reservation(pool_ref)
            .ok_or_else(|| ReservationProblem::Pool { kind: pool_ref.kind.clone() })?;
        let scope = Scope::named(scope, &pool).ok_or_else(|| ReservationProblem::Scope {
            scope: scope.clone(),
            expected: Scope::Pool(pool.clone()).name(),
            pool: pool.clone(),
        })?;
        let value = parse_address(address).map_err(ReservationProblem::Address)?;
        let block = match prefix_length {
            None => Block::address(value),
            Some(length) => {
                let block = Block::new(value, u8::try_from(*length).unwrap_or_default());
                if block.base() != value || i32::from(block.length()) != *length {
                    let (address, first) = (address.clone(), block.base().to_string());
                    return Err(ReservationProblem::Prefix { address, length: *length, first });
                }
                block
            }
        };
        let slot = Slot { scope, block };
        let (name, expected) = (self.metadata.name.as_deref().unwrap_or_default(), slot.reservation_name());
        if name != expected {
            return Err(ReservationProblem::Name { name: name.to_owned(), expected });
        }
        Ok((slot, pool))
    }

    /// For the object that says how long the blocks of a network are: the network, the family, and that length.
    pub fn network_block_length(&self) -> Option<(Arc<str>, Family, u8)> {
        let network = self.spec.scope.strip_prefix("n.")?;
        let family = Family::of(parse_address(&self.spec.address).ok()?);
        let length = u8::try_from(self.spec.prefix_length?).ok()?;
        let is_it = self.metadata.name.as_deref() == Some(&network_block_length_name(network, family));
        is_it.then(|| (network.into(), family, length))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    fn reservation(change: &Value) -> IPReservation {
        let mut object = json!({
            "metadata": {"name": "p.a.b.10.0.0.5"},
            "spec": {"scope": "p.a.b", "address": "10.0.0.5",
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "a", "name": "b"}},
        });
        json_patch::merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_mistake_is_told_with_its_field() {
        let (slot, pool) = reservation(&json!({})).slot().unwrap();
        assert_eq!(
            (slot.to_string(), pool.to_string()),
            ("10.0.0.5 of InClusterIPPool a/b".to_owned(), "InClusterIPPool a/b".to_owned())
        );
        let cases = [
            (json!({"metadata": {"name": "p.a.b.10.0.0.6"}}), "metadata.name", "p.a.b.10.0.0.5"),
            (json!({"spec": {"scope": "g.b"}}), "spec.scope", "p.a.b"),
            (json!({"spec": {"address": "10.0.0.05"}}), "spec.address", "leading zero"),
            (json!({"spec": {"prefixLength": 24}}), "spec.prefixLength", "10.0.0.0"),
            (json!({"spec": {"prefixLength": 33}}), "spec.prefixLength", "33"),
            (json!({"spec": {"poolRef": {"kind": "Pod"}}}), "spec.poolRef", "Pod"),
            (json!({"spec": {"poolRef": {"namespace": null}}}), "spec.poolRef", "namespace"),
        ];
        for (change, field, text) in cases {
            let problem = reservation(&change).slot().unwrap_err();
            assert_eq!(problem.field(), field, "{problem}");
            assert!(problem.to_string().contains(text), "{problem}");
        }
        let in_network = reservation(&json!({"metadata": {"name": "n.lab.10.0.0.5"}, "spec": {"scope": "n.lab"}}));
        assert_eq!(in_network.slot().unwrap().0.scope, Scope::Network("lab".into()));
    }

    #[test]
    fn the_unit_of_a_network_is_told_from_reservations() {
        let spec = json!({"scope": "n.lab", "address": "::", "prefixLength": 64});
        let unit = reservation(&json!({"metadata": {"name": "n.lab.ipv6"}, "spec": spec}));
        assert_eq!(unit.network_block_length(), Some(("lab".into(), Family::V6, 64)));
        assert!(unit.slot().is_err());
        assert_eq!(reservation(&json!({"metadata": {"name": "n.lab.ipv4"}, "spec": spec})).network_block_length(), None);
        assert_eq!(reservation(&json!({})).network_block_length(), None);
    }
}
