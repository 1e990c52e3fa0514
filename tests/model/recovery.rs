//! Whether all ends well from a state, once nothing goes wrong any more.
//!
//! Not an `eventually` of the checker, which is not sound where paths meet or return. Instead, from every state that is
//! reached, one fair course of events is followed to its end: writes that are late arrive, watches catch up, what is
//! under way is finished, and then the managers and their sweepers do whatever they find to do, until a whole round
//! changes nothing. There all must be well. So in every state that can be reached a good end can be reached; and as there
//! are finitely many states, a course of events that keeps taking the steps that are open to it gets there.

use crate::protocol::{Action, Protocol, all_suspects};
use crate::server::Fate;
use crate::state::{Manager, NAMES, State, Step, Sweep};
use crate::tasks::{Decision, decide};

/// More calls than this for one task mean that it does not end.
const MOST_CALLS: usize = 100;
/// More rounds than this mean that the managers never come to rest.
const MOST_ROUNDS: usize = 20;

impl Protocol {
    /// Whether there is a good end to this.
    pub(crate) fn recovers(&self, state: &State) -> bool {
        let mut state = *state;
        state.managers.iter_mut().skip(self.scope.managers).for_each(|unused| *unused = Manager::default());
        for index in (0..state.late.len()).rev() {
            state.happen(&self.scope, Action::ApplyLateWrite(index));
        }
        for manager in 0..self.scope.managers {
            state.see_everything(manager);
            if !self.finish(&mut state, manager) {
                return false;
            }
        }
        // From here on all depends on the objects alone, and on what a manager has forgotten to take back.
        let proposed = std::array::from_fn(|address| state.managers.iter().any(|known| known.proposed[address]));
        let key = (state.objects, proposed);
        if let Some(known) = self.settled.lock().expect("nobody panics with the lock").get(&key) {
            return *known;
        }
        let ends_well = self.settles(&mut state);
        self.settled.lock().expect("nobody panics with the lock").insert(key, ends_well);
        ends_well
    }

    /// Finishes what a manager has begun.
    fn finish(&self, state: &mut State, manager: usize) -> bool {
        for name in 0..NAMES {
            let mut calls = 0;
            while state.managers[manager].tasks[name].step != Step::Idle {
                state.happen(&self.scope, Action::Work { manager, name, fate: Fate::Answered });
                calls += 1;
                if calls > MOST_CALLS {
                    return false;
                }
            }
        }
        while state.managers[manager].sweep != Sweep::Idle {
            state.happen(&self.scope, Action::Sweep { manager, fate: Fate::Answered });
        }
        true
    }

    /// Lets the managers work until there is nothing to do.
    fn settles(&self, state: &mut State) -> bool {
        for _ in 0..MOST_ROUNDS {
            let before = state.objects;
            for manager in 0..self.scope.managers {
                for name in 0..NAMES {
                    state.see_everything(manager);
                    if decide(&state.managers[manager], name) != Decision::Nothing {
                        state.happen(&self.scope, Action::Work { manager, name, fate: Fate::Answered });
                    }
                    if !self.finish(state, manager) {
                        return false;
                    }
                }
                for suspect in all_suspects() {
                    state.see_everything(manager);
                    state.happen(&self.scope, Action::BeginSweep { manager, suspect, fate: Fate::Answered });
                    self.finish(state, manager);
                }
            }
            for name in 0..NAMES {
                state.collect(name);
            }
            if state.objects == before {
                return self.is_well(state);
            }
        }
        false
    }

    /// As many claims are served as there are addresses, and there is nothing but what they have.
    fn is_well(&self, state: &State) -> bool {
        let objects = &state.objects;
        let alive = objects.claims.iter().flatten().count();
        let mut served = 0;
        for name in 0..NAMES {
            match (objects.claims[name], objects.addresses[name]) {
                (Some(claim), Some(address)) => {
                    let is_right = address.owner == claim.life && address.finalizer;
                    let reserved = objects.reservations[usize::from(address.address)];
                    let is_reserved = reserved.is_some_and(|reserved| reserved.is_for(name, claim.life));
                    if claim.bound != Some(address.address) || !is_right || !is_reserved || claim.deleting {
                        return false;
                    }
                    served += 1;
                }
                (Some(claim), None) if claim.deleting || claim.bound.is_some() => return false,
                (None, Some(_)) => return false,
                _ => {}
            }
        }
        served == alive.min(self.scope.addresses) && objects.reservations.iter().flatten().count() == served
    }
}
