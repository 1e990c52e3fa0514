//! Sets of pools: what users do to them, and what must hold.
//!
//! A member has one address. Two managers can observe a change of the set at different times, and
//! choose different members.

use crate::scope::Scope;
use crate::server::Answer;
use crate::state::{Address, Age, Claim, PoolSet, Reservation, State};

impl State {
    pub(crate) fn change_set(&mut self, set: PoolSet) -> bool {
        self.set_changes_left -= 1;
        self.objects.set = set;
        true
    }

    pub(crate) fn edit_member(&mut self, scope: &Scope, name: usize) -> bool {
        self.edits_left -= 1;
        let edit = |address: &mut Address| address.member = scope.edited;
        self.change_address(name, Age::Current, edit) == Answer::Done
    }

    /// Whether an existing claim has reserved addresses of both members.
    pub(crate) fn has_two_choices(&self) -> bool {
        let is_for = |held: Option<Reservation>, name, claim: Claim| {
            held.is_some_and(|held| held.is_for(name, claim.life))
        };
        let mut claims = self.objects.claims.into_iter().enumerate();
        claims.any(|(name, claim)| {
            let mut held = self.objects.reservations.into_iter();
            claim.is_some_and(|claim| held.all(|held| is_for(held, name, claim)))
        })
    }
}
