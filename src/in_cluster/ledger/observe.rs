//! What the watches tell the ledger.

use std::net::IpAddr;

use kube::ResourceExt;

use super::pool::Holder;
use super::{ClaimKey, Ledger, PoolKey};
use crate::addr::parse_address;
use crate::api::{GlobalInClusterIPPool, IPAddress, IPAddressClaim, IPReservation, InClusterIPPool};
use crate::runtime::watch::Observer;

/// Pool, address and holder of an IPAddress, if it is of a pool of ours and its address can be read.
fn holding(address: &IPAddress) -> Option<(PoolKey, IpAddr, ClaimKey)> {
    let pool = PoolKey::referred_to(&address.spec.pool_ref, address.metadata.namespace.as_deref())?;
    let value = parse_address(&address.spec.address).ok()?;
    Some((pool, value, (address.namespace().unwrap_or_default(), address.name_any())))
}

impl Observer<IPAddress> for Ledger {
    fn listing(&self) {
        let mut state = self.lock();
        state.listings.addresses = state.listings.addresses.wrapping_add(1);
    }

    fn listed(&self) {
        let pools = self.known_pools();
        for pool in pools {
            self.change(&pool, |state| {
                let newest = state.listings.addresses;
                if let Some(entry) = state.pools.get_mut(&pool) {
                    entry.drop_addresses_before(newest);
                }
            });
        }
    }

    fn applied(&self, address: &IPAddress) {
        let Some((pool, value, name)) = holding(address) else { return };
        self.change(&pool, |state| {
            let listing = state.listings.addresses;
            state.pools.entry(pool.clone()).or_default().update(value, |taken| taken.hold(Holder { name, listing }));
        });
    }

    fn deleted(&self, address: &IPAddress) {
        let Some((pool, value, name)) = holding(address) else { return };
        self.change(&pool, |state| {
            let Some(entry) = state.pools.get_mut(&pool) else { return };
            entry.update(value, |taken| taken.let_go(&name));
            if entry.is_empty() {
                state.pools.remove(&pool);
            }
        });
    }
}

impl Observer<IPReservation> for Ledger {
    fn listing(&self) {
        let mut state = self.lock();
        state.listings.reservations = state.listings.reservations.wrapping_add(1);
    }

    fn listed(&self) {
        for pool in self.known_pools() {
            self.change(&pool, |state| {
                let newest = state.listings.reservations;
                let old = state.pools.get(&pool).map(|entry| entry.reservations_before(newest)).unwrap_or_default();
                for address in old {
                    state.remove_reservation(&pool, address, None);
                }
            });
        }
    }

    fn applied(&self, reservation: &IPReservation) {
        self.insert_reservation(reservation);
    }

    fn deleted(&self, reservation: &IPReservation) {
        self.remove_reservation(reservation);
    }
}

impl Observer<IPAddressClaim> for Ledger {
    fn applied(&self, _: &IPAddressClaim) {}

    fn deleted(&self, claim: &IPAddressClaim) {
        if let Some(pool) = PoolKey::of_claim(claim) {
            self.leave_line(&pool, &(claim.namespace().unwrap_or_default(), claim.name_any()));
        }
    }
}

macro_rules! impl_pool_observer {
    ($kind:ty, $counter:ident, $global:literal) => {
        impl Observer<$kind> for Ledger {
            fn listing(&self) {
                let mut state = self.lock();
                state.listings.$counter = state.listings.$counter.wrapping_add(1);
            }
            fn listed(&self) {
                self.pools_listed($global);
            }
            fn applied(&self, pool: &$kind) {
                self.apply_pool(pool);
            }
            fn deleted(&self, pool: &$kind) {
                self.remove_pool(&PoolKey::of(pool));
            }
        }
    };
}
impl_pool_observer!(InClusterIPPool, namespaced_pools, false);
impl_pool_observer!(GlobalInClusterIPPool, global_pools, true);
