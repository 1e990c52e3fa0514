//! What the watches tell the ledger.

use std::sync::Arc;

use capi_ipam_controller::watch::Observer;
use capi_ipam_ip::{Block, parse_lenient};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use kube::ResourceExt;

use crate::api::{GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind, InClusterPrefixPool, IPReservation, Pool, Slot};
use super::usage::{Holder, Origin, AddressUsage};
use super::{ClaimKey, Ledger, PoolKey};

/// Pool, block and holder of an IPAddress, if it is of a pool of ours and its address can be read. Cluster API admits
/// texts that no pool may contain, such as an IPv4-mapped address: what they mean is in use all the same.
pub(in crate::in_cluster) fn holding(address: &IPAddress) -> Option<(PoolKey, Block, ClaimKey)> {
    let pool = PoolKey::of_address(address)?;
    let value = parse_lenient(&address.spec.address)?;
    let block = match pool.kind {
        // The prefix of a single address is that of its subnet.
        InClusterKind::IPPool | InClusterKind::GlobalIPPool => Block::address(value),
        InClusterKind::PrefixPool | InClusterKind::GlobalPrefixPool => {
            Block::new(value, u8::try_from(address.spec.prefix).ok()?)
        }
    };
    Some((pool, block, (address.namespace().unwrap_or_default(), address.name_any())))
}

impl Observer<IPAddress> for Ledger {
    fn listing(&self) {
        let mut state = self.lock();
        state.listings.addresses = state.listings.addresses.wrapping_add(1);
    }

    fn listed(&self) {
        self.change(|state| {
            let newest = state.listings.addresses;
            let is_old = |taken: &AddressUsage| taken.holders.iter().any(|holder| holder.listing != newest);
            let mut old = Vec::new();
            for (scope, entry) in &state.scopes {
                let blocks = entry.taken.iter().filter(|(_, taken)| is_old(taken)).map(|(block, _)| *block);
                old.extend(blocks.map(|block| Slot { scope: scope.clone(), block }));
            }
            for slot in old {
                state.update(&slot, |taken| taken.holders.retain(|holder| holder.listing == newest));
            }
        });
    }

    fn applied(&self, address: &IPAddress) {
        let Some((pool, block, name)) = holding(address) else { return };
        let origin = Origin::of(address);
        self.change(|state| {
            let (pool, listing) = (state.shared_key(pool), state.listings.addresses);
            let slot = Slot { scope: state.scope_of(&pool), block };
            // Another manager may have served a claim that has been called.
            if state.pools.get_mut(&pool).is_some_and(|entry| entry.line.step_out(&name)) {
                state.touched.push(PoolKey::clone(&pool));
            }
            state.update(&slot, |taken| taken.hold(Holder { name: Arc::new(name), pool, origin, listing }));
        });
    }

    fn deleted(&self, address: &IPAddress) {
        let Some((pool, block, name)) = holding(address) else { return };
        self.change(|state| {
            let slot = Slot { scope: state.scope_of(&pool), block };
            state.update(&slot, |taken| taken.remove_address(&name));
            // The claim it is reserved for may have been waiting for the other to go.
            let reservations_of = state.taken(&slot).and_then(|taken| taken.reserved.as_ref()?.claim.clone());
            state.unblocked.extend(reservations_of.map(|claim| ClaimKey::clone(&claim)).filter(|claim| *claim != name));
        });
    }
}

impl Observer<IPReservation> for Ledger {
    fn listing(&self) {
        let mut state = self.lock();
        state.listings.reservations = state.listings.reservations.wrapping_add(1);
    }

    fn listed(&self) {
        self.change(super::state::State::drop_reservations_not_listed);
    }

    fn applied(&self, reservation: &IPReservation) {
        self.observe_reservation(reservation);
    }

    fn deleted(&self, reservation: &IPReservation) {
        self.remove_reservation(reservation);
    }
}

impl Observer<IPAddressClaim> for Ledger {
    fn listing(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let lines = state.pools.iter().flat_map(|(pool, entry)| entry.line.claims().map(move |claim| (pool, claim)));
        state.unlisted = lines.map(|(pool, claim)| (pool.clone(), claim.clone())).collect();
    }

    /// Claims that wait and are gone would have addresses kept for them.
    fn listed(&self) {
        let gone = std::mem::take(&mut self.lock().unlisted);
        gone.iter().for_each(|(pool, claim)| self.leave_line(pool, claim));
    }

    fn applied(&self, claim: &IPAddressClaim) {
        let mut state = self.lock();
        if !state.unlisted.is_empty()
            && let Some(pool) = PoolKey::of_claim(claim)
        {
            state.unlisted.remove(&(pool, (claim.namespace().unwrap_or_default(), claim.name_any())));
        }
    }

    fn deleted(&self, claim: &IPAddressClaim) {
        if let Some(pool) = PoolKey::of_claim(claim) {
            self.leave_line(&pool, &(claim.namespace().unwrap_or_default(), claim.name_any()));
        }
    }
}

macro_rules! impl_pool_observer {
    ($($kind:ty),*) => {
        $(impl Observer<$kind> for Ledger {
            fn listing(&self) {
                if let Some(listing) = self.lock().listings.of_kind(<$kind>::KIND) {
                    *listing = listing.wrapping_add(1);
                }
            }
            fn listed(&self) {
                self.pools_listed(<$kind>::KIND);
            }
            fn applied(&self, pool: &$kind) {
                self.apply_pool(pool);
            }
            fn deleted(&self, pool: &$kind) {
                self.remove_pool(&PoolKey::of(pool));
            }
        })*
    };
}
impl_pool_observer!(InClusterIPPool, GlobalInClusterIPPool, InClusterPrefixPool, GlobalInClusterPrefixPool);
