//! The deletion of the pool: it is marked as deleted, the managers observe it late, and its
//! finalizer is removed when no address of it is in use.
//!
//! A claim that holds a reservation or an IPAddress of a pool that is being deleted is bound; other
//! claims wait. So pool and claim never wait for each other.

use capi_ipam_protocol::decision::PoolState;

use crate::mutations::Mutation;
use crate::scope::Scope;
use crate::server::{Answer, Outcome};
use crate::state::{ADDRESSES, Address, Claim, Manager, Member, Pool, PoolStep, State, Write};

/// The state of the pool, as a manager knows it.
pub(crate) fn state(scope: &Scope, manager: &Manager) -> PoolState {
    match manager.pool {
        // Claims name the set, which is not deleted.
        _ if scope.sets => PoolState::Ready,
        Pool::Serving => PoolState::Ready,
        Pool::Deleting if scope.has_mutation(Mutation::AllocateFromDeletingPool) => {
            PoolState::Ready
        }
        Pool::Deleting => PoolState::Deleting,
        Pool::Gone => PoolState::Unavailable,
    }
}

/// Whether a claim holds an address of the pool.
pub(crate) fn holds_address(scope: &Scope, manager: &Manager, name: usize, claim: Claim) -> bool {
    // An IPAddress with its name counts regardless of the owner: only this claim can remove it.
    let own = |found: &Address| {
        found.owner == claim.life || !scope.has_mutation(Mutation::WaitDespiteLeftover)
    };
    let reserved = manager
        .ledger
        .iter()
        .flatten()
        .any(|held| held.is_for(name, claim.life));
    let holds = reserved || manager.addresses[name].as_ref().is_some_and(own);
    holds && !scope.has_mutation(Mutation::WaitForDeletingPool)
}

/// Whether this address may be proposed if it is free.
pub(crate) fn proposes(scope: &Scope, manager: &Manager, address: usize) -> bool {
    let is_served = manager.pool == Pool::Serving || !scope.is_in_pool(address);
    is_served || scope.has_mutation(Mutation::AllocateFromDeletingPool)
}

impl Manager {
    /// Whether the pool is known to be deleted, and no address of it is in use according to memory.
    fn has_unused_pool(&self, scope: &Scope) -> bool {
        let is_proposed = |address: usize| scope.is_in_pool(address) && self.proposed[address];
        let proposed = (0..ADDRESSES).any(is_proposed)
            && !scope.has_mutation(Mutation::RemovePoolDespiteProposals);
        let is_used = |address: usize| scope.is_in_pool(address) && self.is_used(address);
        self.pool == Pool::Deleting && !(0..ADDRESSES).any(is_used) && !proposed
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

    /// The next request of a manager that waits until the pool can be removed. `false` when it has
    /// to wait.
    pub(crate) fn work_on_pool(&mut self, scope: &Scope, manager: usize, outcome: Outcome) -> bool {
        let step = self.managers[manager].pool_step;
        if outcome != Outcome::Answered && step != PoolStep::RemoveFinalizer {
            return false;
        }
        let next = match step {
            PoolStep::Idle if !self.managers[manager].has_unused_pool(scope) => return false,
            PoolStep::Idle if scope.has_mutation(Mutation::RemovePoolByCache) => {
                PoolStep::RemoveFinalizer
            }
            PoolStep::Idle
                if self
                    .objects
                    .reservations
                    .iter()
                    .enumerate()
                    .any(|(at, held)| {
                        scope.is_in_pool(at) && held.is_some_and(|held| !held.released)
                    }) =>
            {
                return false;
            }
            PoolStep::Idle => PoolStep::ListAddresses,
            PoolStep::ListAddresses if self.has_listed_address(scope) => PoolStep::Idle,
            PoolStep::ListAddresses => PoolStep::RemoveFinalizer,
            PoolStep::RemoveFinalizer => {
                self.send(scope, Write::RemovePoolFinalizer, outcome);
                PoolStep::Idle
            }
        };
        self.managers[manager].pool_step = next;
        true
    }

    /// Whether a list shows an IPAddress of the pool. One without the annotation that names the
    /// member is one of each pool that contains the address.
    fn has_listed_address(&self, scope: &Scope) -> bool {
        let mut listed = self.objects.addresses.iter().flatten();
        listed.any(|found| scope.is_in_pool(found.address.into()) && found.member != Member::Wrong)
    }

    /// The API server removes the pool along with its last finalizer.
    pub(crate) fn remove_pool(&mut self, scope: &Scope) -> Answer {
        if self.objects.pool != Pool::Deleting {
            return Answer::NotFound;
        }
        // Objects that late writes create for deleted claims cannot be waited for.
        self.violations.pool_missing |= self
            .objects
            .addresses
            .iter()
            .flatten()
            .any(|address| !address.posthumous && scope.is_in_pool(address.address.into()));
        self.objects.pool = Pool::Gone;
        Answer::Done
    }
}
