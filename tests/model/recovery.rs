//! Whether all ends well from a state, once nothing goes wrong any more.
//!
//! Not an `eventually` of the checker, which is not sound where paths meet or return. Instead, from every state that is
//! reached, one fair course of events is followed to its end: writes that are late arrive, watches and lists catch up,
//! what is under way is finished, cool-downs end, and then the managers and their sweepers do whatever they find to do,
//! until a whole round changes nothing. There all must be well. So in every state that can be reached a good end can be
//! reached; and as there are finitely many states, a course of events that keeps taking the steps that are open to it
//! gets there.

use capi_ipam::protocol::{Action, Protocol};
use capi_ipam::server::Fate;
use capi_ipam::state::{ADDRESSES, Claim, CLEAN_UP, Manager, MANAGERS, NAMES, Objects, Pool, PoolStep, Reservation, State, Step, Sweep, Task};
use capi_ipam::sweeper::all_suspects;
use capi_ipam::tasks::{decide, Decision};

/// More calls than this for one task mean that it does not end.
const MOST_CALLS: usize = 100;
/// More rounds than this mean that the managers never come to rest.
const MOST_ROUNDS: usize = 20;

/// All that matters when nothing is under way: the objects, and what the ledgers show.
pub(crate) type Settled = (Objects, [Ledger; MANAGERS]);
type Ledger = ([Option<Reservation>; ADDRESSES], [bool; ADDRESSES]);

fn ledgers(state: &State) -> [Ledger; MANAGERS] {
    state.managers.map(|known| (known.ledger, known.proposed))
}

impl Protocol {
    /// Whether there is a good end to this.
    pub(crate) fn recovers(&self, state: &State) -> bool {
        let mut state = *state;
        state.managers.iter_mut().skip(self.scope.managers).for_each(|unused| *unused = Manager::default());
        for index in (0..state.late.len()).rev() {
            state.happen(&self.scope, Action::ApplyLateWrite(index));
        }
        for manager in 0..self.scope.managers {
            state.see_everything(&self.scope, manager);
            if !self.finish(&mut state, manager) {
                return false;
            }
        }
        for manager in 0..self.scope.managers {
            state.see_everything(&self.scope, manager);
            // What was just seen to vanish is left to the sweepers.
            state.managers[manager].tasks[CLEAN_UP] = Task::default();
        }
        // From here on all depends on the objects alone, and on what the ledgers show.
        let key = (state.objects, ledgers(&state));
        if let Some(known) = self.settled.lock().expect("nobody panics with the lock").get(&key) {
            return *known;
        }
        let ends_well = self.settles(&mut state) && self.ends_with_its_claims(state);
        self.settled.lock().expect("nobody panics with the lock").insert(key, ends_well);
        ends_well
    }

    /// A pool that is being deleted goes once its claims are released, and nothing is left of them.
    fn ends_with_its_claims(&self, mut state: State) -> bool {
        if state.objects.pool == Pool::Serving {
            return true;
        }
        for name in 0..NAMES {
            if state.objects.claims[name].is_some() {
                state.happen(&self.scope, Action::DeleteClaim(name));
            }
        }
        self.settles(&mut state) && state.objects == Objects { pool: Pool::Gone, ..Objects::default() }
    }

    /// Finishes what a manager has begun.
    fn finish(&self, state: &mut State, manager: usize) -> bool {
        let fate = Fate::Answered;
        let tasks = (0..NAMES).map(|name| (name, Action::Work { manager, name, fate }));
        for (slot, action) in tasks.chain([(CLEAN_UP, Action::CleanUp { manager, fate })]) {
            let mut calls = 0;
            while state.managers[manager].tasks[slot].step != Step::Idle {
                state.happen(&self.scope, action);
                calls += 1;
                if calls > MOST_CALLS {
                    return false;
                }
            }
        }
        while state.managers[manager].sweep != Sweep::Idle {
            state.happen(&self.scope, Action::Sweep { manager, fate });
        }
        while state.managers[manager].pool_step != PoolStep::Idle {
            state.happen(&self.scope, Action::WorkOnPool { manager, fate });
        }
        if state.managers[manager].listed.is_some() {
            state.happen(&self.scope, Action::InsertList(manager));
        }
        true
    }

    /// Lets the managers work until there is nothing to do.
    fn settles(&self, state: &mut State) -> bool {
        for _ in 0..MOST_ROUNDS {
            let before = (state.objects, ledgers(state));
            state.cooling = Default::default();
            for manager in 0..self.scope.managers {
                if !self.work(state, manager) {
                    return false;
                }
            }
            for name in 0..NAMES {
                state.collect(name);
            }
            for manager in 0..self.scope.managers {
                state.see_everything(&self.scope, manager);
            }
            if (state.objects, ledgers(state)) == before {
                return self.is_well(state);
            }
        }
        false
    }

    /// A manager does all that it finds to do.
    fn work(&self, state: &mut State, manager: usize) -> bool {
        let fate = Fate::Answered;
        for name in 0..NAMES {
            state.see_everything(&self.scope, manager);
            if decide(&self.scope, state, manager, name) != Decision::Nothing {
                state.happen(&self.scope, Action::Work { manager, name, fate });
            }
            if !self.finish(state, manager) {
                return false;
            }
        }
        for suspect in all_suspects(&self.scope) {
            state.see_everything(&self.scope, manager);
            state.happen(&self.scope, Action::BeginSweep { manager, suspect, fate });
            self.finish(state, manager);
        }
        state.see_everything(&self.scope, manager);
        state.happen(&self.scope, Action::WorkOnPool { manager, fate });
        self.finish(state, manager)
    }

    /// As many claims are served as there are addresses, there is nothing but what they have, and every manager knows.
    fn is_well(&self, state: &State) -> bool {
        let objects = &state.objects;
        let known = (0..self.scope.managers).all(|manager| {
            let known = &state.managers[manager];
            known.ledger == objects.reservations && !known.proposed.contains(&true)
        });
        let pool_is_right = match objects.pool {
            Pool::Serving => true,
            Pool::Deleting => objects.addresses.iter().any(Option::is_some),
            Pool::Gone => self.scope.leaves_addresses() || objects.addresses.iter().all(Option::is_none),
        };
        // What an unbound claim holds of a pool that is gone goes with the claim.
        let goes_later = objects.pool == Pool::Gone && self.scope.leaves_addresses();
        let no_address_is_left = self.scope.taken(objects) == self.scope.addresses;
        let claims = (0..NAMES).all(|name| match objects.claims[name] {
            None => objects.addresses[name].is_none(),
            Some(claim) if self.is_nobodys(name, claim) => true,
            Some(claim) if claim.deleting => false,
            Some(claim) if claim.bound.is_some() => has_all_it_needs(objects, name, claim),
            Some(_) if goes_later => true,
            Some(_) => objects.addresses[name].is_none() && (no_address_is_left || objects.pool != Pool::Serving),
        });
        let reservations = (0..ADDRESSES).all(|address| match objects.reservations[address] {
            None => true,
            Some(held) => self.has_a_right(objects, address, held),
        });
        known && pool_is_right && claims && reservations
    }

    /// No manager serves the claim. It stays as it is.
    fn is_nobodys(&self, name: usize, claim: Claim) -> bool {
        !self.scope.is_served(name, claim)
    }

    fn has_a_right(&self, objects: &Objects, address: usize, held: Reservation) -> bool {
        let name = usize::from(held.name);
        let Some(claim) = objects.claims[name] else { return false };
        let is_its_own = held.is_for(name, claim.life);
        let is_bound_to_it = claim.bound.is_some_and(|bound| usize::from(bound) == address);
        // What an earlier claim has left is adopted, or goes with this one.
        let is_in_use = objects.addresses[name].is_some_and(|found| usize::from(found.address) == address);
        let goes_later = objects.pool == Pool::Gone && claim.bound.is_none() && self.scope.leaves_addresses();
        is_its_own && (is_bound_to_it || self.is_nobodys(name, claim)) || goes_later && (is_its_own || is_in_use)
    }
}

fn has_all_it_needs(objects: &Objects, name: usize, claim: Claim) -> bool {
    objects.addresses[name].is_some_and(|address| {
        let is_right = address.owner == claim.life && address.finalizer && claim.bound == Some(address.address);
        let reserved = objects.reservations[usize::from(address.address)];
        is_right && reserved.is_some_and(|reserved| reserved.is_for(name, claim.life))
    })
}
