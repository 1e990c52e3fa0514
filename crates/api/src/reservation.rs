use capi_ipam_contract::{AddressConflict, MAX_QUARANTINE};
use capi_ipam_ip::{Block, ParseError, parse_address};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PoolKey, ProblemStatus, Scope, Slot, names};

mod claim;

pub use claim::{ClaimProblem, ReservationClaim};

/// Records which claim holds an address of a scope.
///
/// Its name is derived from the scope and the address
/// ([`reservation_name`](super::reservation_name)), so the API server lets only one client create
/// it. The specification is immutable, except that an address can be released, and that a released
/// reservation can be given to another claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPReservation {
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
    /// The address, and the claim that holds it.
    pub spec: IPReservationSpec,
    /// Whether a reservation that a user created has an effect; `None` for one of a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProblemStatus>,
}

super::resource::cluster_resource!(IPReservation, "ipreservations");

/// The specification of an [`IPReservation`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The address or prefix, its pool, and the claim that holds it.")]
pub struct IPReservationSpec {
    /// Scope within which the address is unique: p.NAMESPACE.POOL for an InClusterIPPool, g.POOL
    /// for a GlobalInClusterIPPool, pp.NAMESPACE.POOL and gp.POOL for pools of prefixes, and
    /// n.NETWORK for all pools of a network.
    #[schemars(length(min = 1, max = 512))]
    pub scope: String,
    /// The reserved address, or the first address of the reserved prefix.
    #[schemars(length(min = 2, max = 39))]
    pub address: String,
    /// Length of the reserved prefix. Omitted for a single address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub prefix_length: Option<i32>,
    /// Pool of the address.
    pub pool_ref: ReservationPool,
    /// Claim that holds the address. Without a claim, the address is never allocated. Without a
    /// uid, the address is promised to the claim with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ReservationClaim>,
    /// Time at which the claim released the address. It can be reused after the grace period of the
    /// pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub released_at: Option<Time>,
    /// Quarantine of an address at which another host answers. The reservation has no claim: an
    /// earlier version of the provider, which does not know this field, excludes the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// Why and until when an address is not allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quarantine {
    /// Time from which on the address can be allocated again. It is set to 30 days from now if it
    /// is later.
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub until: Time,
    /// What was observed.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
}

impl Quarantine {
    /// The quarantine of an address that is released now.
    pub fn of(conflict: &AddressConflict, now: &Time) -> Self {
        Self {
            until: later(now, conflict.duration),
            reason: conflict.reason.clone(),
        }
    }

    /// The latest end of a quarantine.
    pub fn latest_end(now: &Time) -> Time {
        later(now, MAX_QUARANTINE)
    }
}

fn later(now: &Time, duration: SignedDuration) -> Time {
    Time(now.0.checked_add(duration).unwrap_or(now.0))
}

/// A reference to a pool from a cluster-scoped object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationPool {
    /// Kind of the pool.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the pool; omitted for a global pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl PoolKey {
    /// Returns the pool that a reservation refers to; `None` if it is not of a kind of this
    /// provider.
    pub fn of_reservation(pool: &ReservationPool) -> Option<Self> {
        Self::of_kind(&pool.kind, pool.namespace.as_deref(), &pool.name)
    }

    /// Converts the key to the pool reference of a reservation.
    pub fn to_reference(&self) -> ReservationPool {
        ReservationPool {
            kind: self.kind.name().to_owned(),
            namespace: self.namespace.as_deref().map(str::to_owned),
            name: self.name.as_ref().to_owned(),
        }
    }
}

/// Why an [`IPReservation`] has no effect. Displayed with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationProblem {
    /// The kind is not one of this provider, or the namespace is missing.
    #[error(
        "spec.poolRef: {kind} is not a kind of pool of this provider, or its namespace is missing"
    )]
    Pool {
        /// The kind in the pool reference.
        kind: String,
    },
    /// The scope is not one of the pool.
    #[error(
        "spec.scope: {scope} is not a scope of {pool}; write {expected}, or n. and the name of the pool's network"
    )]
    Scope {
        /// The scope in the specification.
        scope: String,
        /// The pool in the pool reference.
        pool: PoolKey,
        /// The scope of the pool if it has no network.
        expected: String,
    },
    /// The address is invalid.
    #[error("spec.address: {0}")]
    Address(#[source] ParseError),
    /// The address is not the first one of a prefix of this length.
    #[error(
        "spec.prefixLength: {address} with the length {length} is not a prefix; its first address is {first}"
    )]
    Prefix {
        /// The address in the specification.
        address: String,
        /// The prefix length in the specification.
        length: i32,
        /// The first address of the prefix.
        first: String,
    },
    /// A quarantined address has a claim.
    #[error(
        "spec.quarantine: a quarantined address has neither a claim nor a time of its release; remove spec.claimRef and spec.releasedAt"
    )]
    Quarantine,
    /// The name does not match scope and address.
    #[error("metadata.name: {name} does not match scope and address; it must be {expected}")]
    Name {
        /// The name in the metadata.
        name: String,
        /// The name that scope and address require.
        expected: String,
    },
}

impl ReservationProblem {
    /// The path of the invalid field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Pool { .. } => "spec.poolRef",
            Self::Scope { .. } => "spec.scope",
            Self::Address(_) => "spec.address",
            Self::Prefix { .. } => "spec.prefixLength",
            Self::Quarantine => "spec.quarantine",
            Self::Name { .. } => "metadata.name",
        }
    }
}

impl IPReservation {
    /// Returns the reserved address or prefix, and its pool. Fails if a field or the name is
    /// invalid: such a reservation has no effect.
    pub fn slot(&self) -> Result<(Slot, PoolKey), ReservationProblem> {
        let IPReservationSpec {
            scope,
            address,
            prefix_length,
            pool_ref,
            ..
        } = &self.spec;
        let pool = PoolKey::of_reservation(pool_ref).ok_or_else(|| ReservationProblem::Pool {
            kind: pool_ref.kind.clone(),
        })?;
        let scope = Scope::parse(scope, &pool).ok_or_else(|| ReservationProblem::Scope {
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
                    return Err(ReservationProblem::Prefix {
                        address,
                        length: *length,
                        first,
                    });
                }
                block
            }
        };
        let is_released_or_held = self.spec.claim_ref.is_some() || self.spec.released_at.is_some();
        if self.spec.quarantine.is_some() && is_released_or_held {
            return Err(ReservationProblem::Quarantine);
        }
        let slot = Slot { scope, block };
        let (name, expected) = (
            self.metadata.name.as_deref().unwrap_or_default(),
            slot.reservation_name(),
        );
        if name != expected {
            return Err(ReservationProblem::Name {
                name: name.to_owned(),
                expected,
            });
        }
        Ok((slot, pool))
    }

    /// Whether the status reports that the reservation has an effect. `None` if it reports neither.
    pub fn is_ready(&self) -> Option<bool> {
        self.status.as_ref()?.is_ready()
    }

    /// Whether no claim holds the reservation, and the label with which `clusterctl move` moves it
    /// is missing.
    pub fn needs_move_label(&self) -> bool {
        let of_a_claim = self
            .spec
            .claim_ref
            .as_ref()
            .is_some_and(|claim| claim.uid.is_some());
        let is_labelled = self.labels().contains_key(names::MOVE_LABEL);
        !of_a_claim && !is_labelled && self.metadata.deletion_timestamp.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn each_problem_names_its_field() {
        let (slot, pool) = reservation(&json!({})).slot().unwrap();
        assert_eq!(
            (slot.to_string(), pool.to_string()),
            (
                "10.0.0.5 of InClusterIPPool a/b".to_owned(),
                "InClusterIPPool a/b".to_owned()
            )
        );
        let quarantine = json!({"until": "2026-01-01T00:00:00Z", "reason": "ARP reply"});
        assert!(
            reservation(&json!({"spec": {"quarantine": quarantine}}))
                .slot()
                .is_ok()
        );
        let cases = [
            (
                json!({"metadata": {"name": "p.a.b.10.0.0.6"}}),
                "metadata.name",
                "p.a.b.10.0.0.5",
            ),
            (json!({"spec": {"scope": "g.b"}}), "spec.scope", "p.a.b"),
            (
                json!({"spec": {"address": "10.0.0.05"}}),
                "spec.address",
                "leading zero",
            ),
            (
                json!({"spec": {"prefixLength": 24}}),
                "spec.prefixLength",
                "10.0.0.0",
            ),
            (
                json!({"spec": {"prefixLength": 33}}),
                "spec.prefixLength",
                "33",
            ),
            (
                json!({"spec": {"quarantine": quarantine, "claimRef": {"namespace": "a", "name": "c", "uid": "u"}}}),
                "spec.quarantine",
                "claimRef",
            ),
            (
                json!({"spec": {"quarantine": quarantine, "releasedAt": "2026-01-01T00:00:00Z"}}),
                "spec.quarantine",
                "releasedAt",
            ),
            (
                json!({"spec": {"poolRef": {"kind": "Pod"}}}),
                "spec.poolRef",
                "Pod",
            ),
            (
                json!({"spec": {"poolRef": {"namespace": null}}}),
                "spec.poolRef",
                "namespace",
            ),
        ];
        for (change, field, text) in cases {
            let problem = reservation(&change).slot().unwrap_err();
            assert_eq!(problem.field(), field, "{problem}");
            assert!(problem.to_string().contains(text), "{problem}");
        }
        let in_network = reservation(
            &json!({"metadata": {"name": "n.lab.10.0.0.5"}, "spec": {"scope": "n.lab"}}),
        );
        assert_eq!(
            in_network.slot().unwrap().0.scope,
            Scope::Network("lab".into())
        );
    }
}
