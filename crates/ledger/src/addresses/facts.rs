//! What one address contributes to every count.

use capi_ipam_api::PoolKey;
use smallvec::SmallVec;

use crate::quota::Consumer;

use super::usage::{AddressUsage, Availability, Released, ReservationInfo};

/// What one address contributes to every count: a value that is computed from its usage, and never
/// changed. The default is that of an address which nothing uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) availability: Availability,
    /// The pools whose IPAddress objects have the address, in order: nearly always one.
    pub(crate) used_by: SmallVec<[PoolKey; 1]>,
    /// The pool of its reservation.
    pub(crate) reserved_by: Option<PoolKey>,
    /// Whether a claim has this reservation: it is neither created by a user nor released.
    pub(crate) is_held: bool,
    /// The pool that holds it for a claim whose reservation is being created.
    pub(crate) offered_by: Option<PoolKey>,
    /// The release, if the address is released and has a reservation.
    pub(crate) released: Option<Released>,
    /// The claims that count for a limit, and the pool of each; empty if no pool has limits.
    pub(crate) charges: Vec<(PoolKey, Consumer)>,
}

impl Facts {
    /// Computes the facts. `has_quotas` is whether a pool has limits: the charges cost an
    /// allocation.
    pub(crate) fn of(usage: &AddressUsage, has_quotas: bool) -> Self {
        let reservation = usage.reservation.as_ref();
        Self {
            availability: usage.availability(),
            used_by: usage.pools(),
            reserved_by: reservation.map(|reservation| reservation.pool.clone()),
            is_held: reservation.is_some_and(ReservationInfo::is_held),
            offered_by: usage.candidate_pool().cloned(),
            released: usage.release(),
            charges: if has_quotas {
                usage.charges()
            } else {
                Vec::new()
            },
        }
    }
}
