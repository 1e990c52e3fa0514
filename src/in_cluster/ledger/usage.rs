//! Why an address is not free.

use std::collections::HashMap;
use std::sync::Arc;

use capi_ipam_controller::{clock, finalizer};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{IPAddress, Uid};
use kube::ResourceExt;

use crate::api::{IPReservation, names};
use super::{ClaimKey, PoolKey};

/// The addresses of one scope that are not free, and the pools that give out addresses of it.
#[derive(Debug, Default)]
pub(super) struct ScopeEntry {
    pub(super) taken: HashMap<Block, AddressUsage>,
    /// The pools that exist and are in the scope: one, unless it is a network.
    pub(super) members: Vec<PoolKey>,
}

impl ScopeEntry {
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.members.is_empty()
    }
}

/// Why an address is not free.
#[derive(Debug, Default)]
pub(super) struct AddressUsage {
    pub(super) reserved: Option<Reserved>,
    /// The IPAddress objects with this address: one, unless something went wrong.
    pub(super) holders: Vec<Holder>,
    /// Proposed to a claim that is about to create the reservation.
    pub(super) proposed: bool,
}

/// An IPReservation.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) uid: Box<str>,
    /// Its resource version; 0 when that is no number.
    pub(super) version: u64,
    pub(super) pool: PoolKey,
    pub(super) claim: Option<Arc<ClaimKey>>,
    pub(super) claim_uid: Option<Uid>,
    /// In seconds since 1970, and not later than it was heard of: the clock of who wrote it may be ahead.
    pub(super) released_at: Option<i64>,
    pub(super) listing: u32,
}

/// Whose IPAddress it is, to know what to do with one that no claim has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::in_cluster) enum Origin {
    /// A provider made it for a claim: it carries the provider's finalizer, or has a claim as owner.
    Provider,
    /// Somebody made it by hand: it has neither.
    Hand,
    /// It is being deleted, and has lost the provider's finalizer.
    Deleted,
}

impl Origin {
    pub(in crate::in_cluster) fn of(address: &IPAddress) -> Self {
        let is_owned = address.owner_references().iter().any(|owner| owner.kind == "IPAddressClaim");
        if finalizer::is_set(address, names::PROTECT_ADDRESS) {
            Self::Provider
        } else if address.metadata.deletion_timestamp.is_some() {
            Self::Deleted
        } else if is_owned {
            Self::Provider
        } else {
            Self::Hand
        }
    }
}

/// An IPAddress.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) name: Arc<ClaimKey>,
    pub(super) pool: PoolKey,
    pub(super) origin: Origin,
    pub(super) listing: u32,
}

impl Reserved {
    pub(super) fn of(reservation: &IPReservation, pool: PoolKey, listing: u32) -> Self {
        let claim = reservation.spec.claim_ref.as_ref();
        let now = clock::now().0.as_second();
        let version = reservation.metadata.resource_version.as_deref();
        Self {
            uid: reservation.metadata.uid.as_deref().unwrap_or_default().into(),
            version: version.and_then(|version| version.parse().ok()).unwrap_or_default(),
            pool,
            claim: claim.map(|claim| Arc::new((claim.namespace.clone(), claim.name.clone()))),
            claim_uid: claim.and_then(|claim| claim.uid.as_deref()).map(Uid::of),
            released_at: reservation.spec.released_at.as_ref().map(|time| time.0.as_second().min(now)),
            listing,
        }
    }

    /// Whether an operator made it: to keep the address out, or to promise it to a claim by name.
    pub(super) fn is_by_hand(&self) -> bool {
        self.claim_uid.is_none()
    }
}

impl AddressUsage {
    pub(super) fn is_free(&self) -> bool {
        self.reserved.is_none() && self.holders.is_empty() && !self.proposed
    }

    pub(super) fn is_unreserved(&self) -> bool {
        self.reserved.is_none() && !self.proposed
    }

    /// The pool that wants the address to rest, and since when it does.
    pub(super) fn cooling_down(&self) -> Option<(PoolKey, i64)> {
        let reserved = self.reserved.as_ref()?;
        Some((reserved.pool.clone(), reserved.released_at?))
    }

    /// The pools whose IPAddress objects have this address.
    pub(super) fn users(&self) -> Vec<PoolKey> {
        let mut users: Vec<PoolKey> = self.holders.iter().map(|holder| holder.pool.clone()).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    /// The claim that an operator promised the address to.
    pub(super) fn promised_to(&self) -> Option<&ClaimKey> {
        self.reserved.as_ref().filter(|reserved| reserved.is_by_hand())?.claim.as_deref()
    }

    pub(super) fn reserve(&mut self, mut reserved: Reserved) {
        if let Some(holder) = self.holders.iter().find(|holder| Some(&holder.name) == reserved.claim.as_ref()) {
            // Kept once: there are as many as there are claims.
            reserved.claim = Some(Arc::clone(&holder.name));
        }
        self.reserved = Some(reserved);
    }

    pub(super) fn hold(&mut self, mut holder: Holder) {
        if let Some(claim) = self.reserved.as_ref().and_then(|reserved| reserved.claim.as_ref())
            && *claim == holder.name
        {
            holder.name = Arc::clone(claim);
        }
        match self.holders.iter_mut().find(|present| present.name == holder.name) {
            Some(present) => *present = holder,
            None => {
                self.holders.reserve_exact(1);
                self.holders.push(holder);
            }
        }
    }

    pub(super) fn remove_address(&mut self, name: &ClaimKey) {
        self.holders.retain(|holder| *holder.name != *name);
    }
}
