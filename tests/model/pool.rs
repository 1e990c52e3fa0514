//! The deletion of the pool: it is marked as deleted, the managers learn of it late, and its finalizer goes once nobody
//! has an address of it.
//!
//! A claim that holds something of a pool that is being deleted is bound to completion; one that holds nothing waits. So
//! pool and claim never wait for each other.

use capi_ipam::mistakes::Mistake;
use capi_ipam::scope::Scope;
use capi_ipam::server::{Answer, Fate};
use capi_ipam::state::{Claim, Manager, Pool, PoolStep, State, Write};

/// Whether a claim that is not released yet may be worked on.
pub(crate) fn admits(scope: &Scope, manager: &Manager, name: usize, claim: Claim) -> bool {
    match manager.pool {
        Pool::Serving => true,
        Pool::Deleting if scope.makes(Mistake::AllocateFromDeletingPool) => true,
        Pool::Deleting if scope.makes(Mistake::WaitForDeletingPool) => false,
        Pool::Deleting => {
            // An IPAddress of its name counts, whoever owns it: nobody else removes that while the claim is there.
            let own =
                |found: &crate::state::Address| found.owner == claim.life || !scope.makes(Mistake::WaitBesideLeftover);
            let reserved = manager.ledger.iter().flatten().any(|held| held.is_for(name, claim.life));
            reserved || manager.addresses[name].as_ref().is_some_and(own)
        }
        Pool::Gone => false,
    }
}

/// Whether a free address may be proposed.
pub(crate) fn proposes(scope: &Scope, manager: &Manager) -> bool {
    manager.pool == Pool::Serving || scope.makes(Mistake::AllocateFromDeletingPool)
}

impl Manager {
    /// Whether the pool is known to be deleted, and nothing of it in use by what is in memory.
    fn has_unused_pool(&self, scope: &Scope) -> bool {
        let proposed = self.proposed.contains(&true) && !scope.makes(Mistake::RemovePoolBesideProposals);
        self.pool == Pool::Deleting && self.addresses.iter().all(Option::is_none) && !proposed
    }

    pub(crate) fn may_work_on_pool(&self, scope: &Scope) -> bool {
        self.pool_step != PoolStep::Idle || self.has_unused_pool(scope)
    }
}

impl State {
    pub(crate) fn delete_pool(&mut self) -> bool {
        self.objects.pool = Pool::Deleting;
        self.cooling = Default::default();
        true
    }

    /// The next call of a manager that waits until the pool can go. `false` when it has to wait.
    pub(crate) fn work_on_pool(&mut self, scope: &Scope, manager: usize, fate: Fate) -> bool {
        let step = self.managers[manager].pool_step;
        if fate != Fate::Answered && step != PoolStep::RemoveFinalizer {
            return false;
        }
        let next = match step {
            PoolStep::Idle if !self.managers[manager].has_unused_pool(scope) => return false,
            PoolStep::Idle if scope.makes(Mistake::RemovePoolByCache) => PoolStep::RemoveFinalizer,
            PoolStep::Idle if self.objects.reservations.iter().flatten().any(|held| !held.released) => return false,
            PoolStep::Idle => PoolStep::ListAddresses,
            PoolStep::ListAddresses if self.objects.addresses.iter().any(Option::is_some) => PoolStep::Idle,
            PoolStep::ListAddresses => PoolStep::RemoveFinalizer,
            PoolStep::RemoveFinalizer => {
                self.send(scope, Write::RemovePoolFinalizer, fate);
                PoolStep::Idle
            }
        };
        self.managers[manager].pool_step = next;
        true
    }

    /// The API server removes the pool along with its last finalizer.
    pub(crate) fn remove_pool(&mut self) -> Answer {
        if self.objects.pool != Pool::Deleting {
            return Answer::NotFound;
        }
        // What was made for a claim that is gone, by a write that was given up long ago, cannot be waited for.
        self.wrongs.pool_missing |= self.objects.addresses.iter().flatten().any(|address| !address.posthumous);
        self.objects.pool = Pool::Gone;
        Answer::Done
    }
}
