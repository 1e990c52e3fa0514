//! Recovery: whether a state converges to a correct one when no more faults happen.
//!
//! This is not an `eventually` property of the checker, which is unsound where paths join or loop.
//! Instead, from every reached state one fair sequence of actions is followed to its end: late
//! writes are applied, watches and lists catch up, pending steps are finished, cool-downs end, and
//! then the managers and their sweepers work until a whole round changes nothing. The final state
//! must be correct. So a correct state is reachable from every reachable state; and since the
//! number of states is finite, every fair sequence reaches one.

use capi_ipam_protocol::decision::Decision;

use crate::protocol::{Action, Protocol};
use crate::server::Outcome;
use crate::state::{
    ADDRESSES, CLEAN_UP, Claim, MANAGERS, Manager, NAMES, Objects, Pool, PoolStep, Reservation,
    State, Sweep, Task,
};
use crate::sweeper::all_suspects;
use crate::tasks::decide;

/// More requests than this for one task mean that it does not end.
const MAX_CALLS: usize = 100;
/// More rounds than this mean that the managers never settle.
const MAX_ROUNDS: usize = 20;

/// The relevant state when no step is pending: the objects and the ledgers.
pub(crate) type Settled = (Objects, [Ledger; MANAGERS]);
type Ledger = (
    [Option<Reservation>; ADDRESSES],
    [bool; ADDRESSES],
    [Option<(u8, u8)>; NAMES],
);

fn ledgers(state: &State) -> [Ledger; MANAGERS] {
    state
        .managers
        .map(|known| (known.ledger, known.proposed, known.attempts))
}

impl Protocol {
    /// Whether this state converges to a correct one.
    pub(crate) fn recovers(&self, state: &State) -> bool {
        let mut state = *state;
        state
            .managers
            .iter_mut()
            .skip(self.scope.managers)
            .for_each(|unused| *unused = Manager::default());
        for index in (0..state.late.len()).rev() {
            state.apply_action(&self.scope, Action::ApplyLateWrite(index));
        }
        for manager in 0..self.scope.managers {
            state.see_everything(&self.scope, manager);
            if !self.finish(&mut state, manager) {
                return false;
            }
        }
        for manager in 0..self.scope.managers {
            state.see_everything(&self.scope, manager);
            // Claims that were just observed to vanish are left to the sweepers.
            state.managers[manager].tasks[CLEAN_UP] = Task::default();
        }
        // From here on everything depends only on the objects and the ledgers.
        let key = (state.objects, ledgers(&state));
        if let Some(known) = self
            .settled
            .lock()
            .expect("the lock is not poisoned")
            .get(&key)
        {
            return *known;
        }
        let ends_well = self.settle(&mut state) && self.ends_with_its_claims(state);
        self.settled
            .lock()
            .expect("the lock is not poisoned")
            .insert(key, ends_well);
        ends_well
    }

    /// A pool that is being deleted is removed when its claims are released, and nothing of them
    /// remains.
    fn ends_with_its_claims(&self, mut state: State) -> bool {
        if state.objects.pool == Pool::Serving {
            return true;
        }
        for name in 0..NAMES {
            if state.objects.claims[name].is_some() {
                state.apply_action(&self.scope, Action::DeleteClaim(name));
            }
        }
        self.settle(&mut state)
            && state.objects
                == Objects {
                    pool: Pool::Gone,
                    set: state.objects.set,
                    ..Objects::default()
                }
    }

    /// Finishes the pending steps of a manager.
    fn finish(&self, state: &mut State, manager: usize) -> bool {
        let outcome = Outcome::Answered;
        let tasks = (0..NAMES).map(|name| {
            (
                name,
                Action::Work {
                    manager,
                    name,
                    outcome,
                },
            )
        });
        for (slot, action) in tasks.chain([(CLEAN_UP, Action::CleanUp { manager, outcome })]) {
            let mut calls = 0;
            while !state.managers[manager].tasks[slot].is_idle() {
                state.apply_action(&self.scope, action);
                calls += 1;
                if calls > MAX_CALLS {
                    return false;
                }
            }
        }
        while state.managers[manager].sweep != Sweep::Idle {
            state.apply_action(&self.scope, Action::Sweep { manager, outcome });
        }
        while state.managers[manager].pool_step != PoolStep::Idle {
            state.apply_action(&self.scope, Action::WorkOnPool { manager, outcome });
        }
        if state.managers[manager].listed.is_some() {
            state.apply_action(&self.scope, Action::InsertList(manager));
        }
        true
    }

    /// Lets the managers work until nothing changes.
    fn settle(&self, state: &mut State) -> bool {
        for _ in 0..MAX_ROUNDS {
            let before = (state.objects, ledgers(state));
            state.cooling = Default::default();
            for name in 0..NAMES {
                if state.objects.claims[name].is_some_and(|claim| claim.deleting) {
                    state.remove_foreign(name);
                }
            }
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
                return self.is_settled_well(state);
            }
        }
        false
    }

    /// A manager does all pending work.
    fn work(&self, state: &mut State, manager: usize) -> bool {
        let outcome = Outcome::Answered;
        for name in 0..NAMES {
            state.see_everything(&self.scope, manager);
            if decide(&self.scope, state, manager, name) != Decision::Nothing {
                state.apply_action(
                    &self.scope,
                    Action::Work {
                        manager,
                        name,
                        outcome,
                    },
                );
            }
            if !self.finish(state, manager) {
                return false;
            }
        }
        for suspect in all_suspects(&self.scope) {
            state.see_everything(&self.scope, manager);
            state.apply_action(
                &self.scope,
                Action::BeginSweep {
                    manager,
                    suspect,
                    outcome,
                },
            );
            self.finish(state, manager);
        }
        state.see_everything(&self.scope, manager);
        state.apply_action(&self.scope, Action::WorkOnPool { manager, outcome });
        self.finish(state, manager)
    }

    /// As many claims are bound as the pool has addresses, no other objects exist, and every cache
    /// is current.
    fn is_settled_well(&self, state: &State) -> bool {
        let objects = &state.objects;
        let known = (0..self.scope.managers).all(|manager| {
            let known = &state.managers[manager];
            known.ledger == objects.reservations && !known.proposed.contains(&true)
        });
        let in_use = objects.addresses.iter().flatten();
        let is_in_use = in_use
            .map(|found| found.address)
            .any(|address| self.scope.is_in_pool(address.into()));
        let pool_is_right = match objects.pool {
            Pool::Serving => true,
            Pool::Deleting => is_in_use,
            Pool::Gone => self.scope.may_leave_addresses() || !is_in_use,
        };
        let claims = (0..NAMES).all(|name| match objects.claims[name] {
            None => objects.addresses[name].is_none(),
            Some(claim) if self.is_unserved(name, claim) => true,
            Some(claim) if claim.deleting => false,
            Some(claim) if claim.bound.is_some() => is_complete(objects, name, claim),
            Some(_) if self.goes_later(objects, name) => true,
            Some(_) => {
                objects.addresses[name].is_none()
                    && !has_free_promise(objects, name)
                    && !self.scope.has_free_address(objects)
            }
        });
        let reservations = (0..ADDRESSES).all(|address| match objects.reservations[address] {
            None => true,
            Some(held) => self.is_justified(objects, address, held),
        });
        known && pool_is_right && claims && reservations
    }

    /// No manager serves the claim. It stays as it is.
    fn is_unserved(&self, name: usize, claim: Claim) -> bool {
        !self.scope.is_served(name, claim)
    }

    /// The reservation of an unbound claim of a removed pool is deleted with the claim. Another
    /// member of a set replaces the pool, unless the claim has an IPAddress of it.
    fn goes_later(&self, objects: &Objects, name: usize) -> bool {
        let is_kept = !self.scope.sets || objects.addresses[name].is_some();
        objects.pool == Pool::Gone && self.scope.may_leave_addresses() && is_kept
    }

    fn is_justified(&self, objects: &Objects, address: usize, held: Reservation) -> bool {
        if held.is_promise() {
            return true;
        }
        let name = usize::from(held.name);
        let Some(claim) = objects.claims[name] else {
            return false;
        };
        let is_its_own = held.is_for(name, claim.life);
        let is_bound_to_it = claim
            .bound
            .is_some_and(|bound| usize::from(bound) == address);
        // Leftovers of a previous claim are adopted, or deleted with this one.
        let is_in_use =
            objects.addresses[name].is_some_and(|found| usize::from(found.address) == address);
        let goes_later = claim.bound.is_none() && self.goes_later(objects, name);
        is_its_own && (is_bound_to_it || self.is_unserved(name, claim))
            || goes_later && (is_its_own || is_in_use)
    }
}

/// Whether an address is promised to the claims of a name, and no claim uses it.
fn has_free_promise(objects: &Objects, name: usize) -> bool {
    let in_use = |address: usize| {
        let mut found = objects.addresses.iter().flatten();
        found.any(|found| usize::from(found.address) == address)
    };
    (0..ADDRESSES).any(|address| {
        let held = objects.reservations[address];
        let is_promised =
            held.is_some_and(|held| held.is_promise() && usize::from(held.name) == name);
        is_promised && !in_use(address) && objects.pool == Pool::Serving
    })
}

fn is_complete(objects: &Objects, name: usize, claim: Claim) -> bool {
    objects.addresses[name].is_some_and(|address| {
        let is_right = address.owner == claim.life
            && address.finalizer
            && claim.bound == Some(address.address);
        let reserved = objects.reservations[usize::from(address.address)];
        is_right && reserved.is_some_and(|reserved| reserved.is_ours(name, claim.life))
    })
}
