//! The caches of the managers: stale caches, restricted caches, and late lists.
//!
//! The flags of a manager select the claims that it serves. It still observes all objects; with
//! `Scope::selector` its claims are watched with a selector, as in early releases. Then the API
//! server sends DELETED, with the previous object, for an existing claim that leaves the selector.
//!
//! A cache skips the states between an old one and the current one. So a claim that was marked as
//! deleted and released meanwhile seems to vanish when the watch catches up. It does so after a new
//! list.

use capi_ipam_protocol::clean_up::CleanUp;

use crate::mutations::Mutation;
use crate::scope::Scope;
use crate::state::{
    ADDRESSES, Address, Age, CLEAN_UP, Claim, Manager, NAMES, Operation, Reservation, State, Task,
};

impl State {
    fn claims_in_view(&self, scope: &Scope, manager: usize) -> [Option<Claim>; NAMES] {
        let mut claims = self.objects.claims;
        if scope.selector {
            for (name, claim) in claims.iter_mut().enumerate() {
                *claim = claim.filter(|claim| scope.serves(manager, name, *claim));
            }
        }
        claims
    }

    fn addresses_in_view(&self, scope: &Scope, manager: usize) -> [Option<Address>; NAMES] {
        let mut addresses = self.objects.addresses;
        if scope.has_mutation(Mutation::SeeOwnAddressesOnly) {
            for (name, address) in addresses.iter_mut().enumerate() {
                *address = address.filter(|_| scope.serves(manager, name, Claim::default()));
            }
        }
        addresses
    }

    /// The ledger after the watch of reservations has caught up. A reservation that was inserted
    /// after the watch event of its deletion stays: no event will report it again.
    fn reservations_in_view(&self, manager: usize) -> [Option<Reservation>; ADDRESSES] {
        let known = &self.managers[manager];
        let mut reservations = self.objects.reservations;
        for (address, reservation) in reservations.iter_mut().enumerate() {
            if known.phantoms[address] {
                *reservation = known.ledger[address];
            }
        }
        reservations
    }

    pub(crate) fn claims_are_behind(&self, scope: &Scope, manager: usize) -> bool {
        self.managers[manager].claims != self.claims_in_view(scope, manager)
    }

    pub(crate) fn addresses_are_behind(&self, scope: &Scope, manager: usize) -> bool {
        self.managers[manager].addresses != self.addresses_in_view(scope, manager)
    }

    pub(crate) fn reservations_are_behind(&self, manager: usize) -> bool {
        self.managers[manager].ledger != self.reservations_in_view(manager)
    }

    pub(crate) fn see_claims(&mut self, scope: &Scope, manager: usize) {
        let seen = self.claims_in_view(scope, manager);
        if scope.clean_up {
            self.begin_clean_up(manager, &seen);
        }
        self.managers[manager].claims = seen;
    }

    /// Handles claims that are not in the cache any more.
    fn begin_clean_up(&mut self, manager: usize, seen: &[Option<Claim>; NAMES]) {
        let known = &mut self.managers[manager];
        for (name, seen) in seen.iter().enumerate() {
            let Some(before) = known.claims[name] else {
                continue;
            };
            let is_gone = seen.is_none_or(|claim| claim.life != before.life);
            let was_released = before.deleting || !before.finalizer;
            // The program handles them one after the other. The model leaves the others to the
            // sweeper.
            if is_gone && !was_released && known.tasks[CLEAN_UP].is_idle() {
                known.cleaning = u8::try_from(name).unwrap_or_default();
                known.tasks[CLEAN_UP] = Task {
                    operation: Operation::CleanUp(CleanUp::start()),
                    claim: before,
                    ..Task::default()
                };
            }
        }
    }

    pub(crate) fn see_addresses(&mut self, scope: &Scope, manager: usize) {
        self.managers[manager].addresses = self.addresses_in_view(scope, manager);
    }

    pub(crate) fn see_reservations(&mut self, manager: usize) {
        let seen = self.reservations_in_view(manager);
        let known = &mut self.managers[manager];
        known.ledger = seen;
        for (address, listed) in known.listed.iter().flatten().enumerate() {
            known.overtaken[address] |= listed.is_some_and(|listed| listed.age != Age::Current);
        }
    }

    pub(crate) fn see_everything(&mut self, scope: &Scope, manager: usize) {
        self.see_claims(scope, manager);
        self.see_addresses(scope, manager);
        self.see_reservations(manager);
        self.managers[manager].pool = self.objects.pool;
        self.managers[manager].set = self.objects.set;
    }

    /// The API server responds to a list of all reservations.
    pub(crate) fn list(&mut self, manager: usize) -> bool {
        self.lists_left -= 1;
        self.managers[manager].listed = Some(self.objects.reservations);
        true
    }

    /// The response to the list reaches the ledger. Newer states take precedence.
    pub(crate) fn insert_list(&mut self, scope: &Scope, manager: usize) -> bool {
        let known = &mut self.managers[manager];
        let Some(listed) = known.listed.take() else {
            return false;
        };
        let overtaken = std::mem::take(&mut known.overtaken);
        for (address, listed) in listed.into_iter().enumerate() {
            if listed.is_none() {
                continue;
            }
            if !overtaken[address] {
                known.learn(address, listed);
            } else if scope.has_mutation(Mutation::LateReadWins)
                || (scope.slow_lists && known.ledger[address].is_none())
            {
                known.ledger[address] = listed;
                known.phantoms[address] = true;
            }
        }
        true
    }
}

impl Manager {
    /// The ledger takes in a response of the API server.
    pub(crate) fn learn(&mut self, address: usize, found: Option<Reservation>) {
        self.ledger[address] = found;
        self.phantoms[address] = false;
        let listed = self.listed.and_then(|listed| listed[address]);
        self.overtaken[address] |= listed.is_some_and(|listed| listed.age != Age::Current);
    }
}
