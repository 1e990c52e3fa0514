//! The API server: it applies one write at a time, if its preconditions hold.

use crate::protocol::{Mistake, Scope};
use crate::state::{ADDRESSES, Address, Age, Claim, NAMES, Reservation, State, Step, Sweep, Write};

/// What the API server answers to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The object is marked as deleted and waits for finalizers.
    Waiting,
    Exists,
    Conflict,
    NotFound,
    /// No answer came.
    Unknown,
}

/// How a write fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Answered,
    /// Applied, and the reply is lost.
    ReplyLost,
    /// Given up by the manager, and applied later.
    Late,
}

impl State {
    /// Sends a write.
    pub(crate) fn send(&mut self, scope: &Scope, write: Write, fate: Fate) -> Answer {
        match fate {
            Fate::Answered => self.apply(scope, write),
            Fate::ReplyLost => {
                self.lost_replies_left -= 1;
                self.apply(scope, write);
                Answer::Unknown
            }
            Fate::Late => {
                self.late_writes_left -= 1;
                let free = self.late.iter_mut().find(|slot| slot.is_none());
                *free.expect("there is room for as many late writes as there may be") = Some(write);
                self.late.sort_unstable();
                Answer::Unknown
            }
        }
    }

    pub(crate) fn apply(&mut self, scope: &Scope, write: Write) -> Answer {
        match write {
            Write::AddFinalizer { name, age } => {
                // A new finalizer on what is being deleted is refused.
                let refused = self.objects.claims[usize::from(name)].is_some_and(|claim| claim.deleting);
                let age = if refused { Age::Gone } else { age };
                self.change_claim(name.into(), age, |claim| claim.finalizer = true)
            }
            Write::Bind { name, address, age } => self.bind(scope, name.into(), address, age),
            Write::LetGo { name, age } => self.let_go(name.into(), age),
            Write::Reserve { address, name, life } => self.reserve(address, name, life),
            Write::Unreserve { address, age } => self.unreserve(scope, address.into(), age),
            Write::CreateAddress { name, life, address } => self.create_address(name.into(), life, address),
            Write::RepairAddress { name, life, age } => self.change_address(name.into(), age, |address| {
                address.owner = life;
                address.finalizer |= !address.deleting;
            }),
            Write::StripAddress { name, .. } if scope.makes(Mistake::DeleteAddressWithoutUid) => {
                self.change_address(name.into(), Age::Current, |address| address.finalizer = false)
            }
            Write::StripAddress { name, age } => self.change_address(name.into(), age, |address| {
                address.finalizer = false;
            }),
            Write::DeleteAddress { name, age } => self.delete_address(scope, name.into(), age),
        }
    }

    fn bind(&mut self, scope: &Scope, name: usize, address: u8, age: Age) -> Answer {
        let age = if scope.makes(Mistake::BindWithoutUid) { Age::Current } else { age };
        self.change_claim(name, age, |claim| claim.bound = Some(address))
    }

    /// A guarded patch of a claim: uid and resource version.
    fn change_claim(&mut self, name: usize, age: Age, change: impl FnOnce(&mut Claim)) -> Answer {
        let Some(mut claim) = self.objects.claims[name] else { return Answer::NotFound };
        if age != Age::Current {
            return Answer::Conflict;
        }
        let before = claim;
        change(&mut claim);
        self.wrongs.rebound |= before.bound.is_some() && before.bound != claim.bound && !before.deleting;
        self.age_claim(name, Age::Changed);
        self.objects.claims[name] = Some(claim);
        Answer::Done
    }

    fn let_go(&mut self, name: usize, age: Age) -> Answer {
        let Some(claim) = self.objects.claims[name] else { return Answer::NotFound };
        if age != Age::Current {
            return Answer::Conflict;
        }
        let left = self.objects.addresses[name];
        self.wrongs.left_behind |= left.is_some_and(|left| left.owner == claim.life && !left.posthumous);
        self.remove_claim(name);
        Answer::Done
    }

    pub(crate) fn remove_claim(&mut self, name: usize) {
        self.objects.claims[name] = None;
        self.age_claim(name, Age::Gone);
    }

    /// The consumer deletes a claim.
    pub(crate) fn delete_claim(&mut self, name: usize) -> bool {
        if self.objects.claims[name].is_some_and(|claim| claim.finalizer) {
            self.change_claim(name, Age::Current, |claim| claim.deleting = true);
        } else {
            self.remove_claim(name);
        }
        true
    }

    fn reserve(&mut self, address: u8, name: u8, life: u8) -> Answer {
        let slot = &mut self.objects.reservations[usize::from(address)];
        if slot.is_some() {
            return Answer::Exists;
        }
        *slot = Some(Reservation { name, life, age: Age::Current });
        Answer::Done
    }

    fn unreserve(&mut self, scope: &Scope, address: usize, age: Age) -> Answer {
        let Some(found) = self.objects.reservations[address] else { return Answer::NotFound };
        if age == Age::Gone && !scope.makes(Mistake::UnreserveWithoutUid) {
            return Answer::Conflict;
        }
        let claim = self.objects.claims[usize::from(found.name)];
        self.wrongs.freed |= claim.is_some_and(|claim| {
            let needs_it = claim.bound.is_none_or(|bound| usize::from(bound) == address);
            claim.life == found.life && !claim.deleting && needs_it
        });
        self.objects.reservations[address] = None;
        self.age_reservation(address);
        Answer::Done
    }

    fn create_address(&mut self, name: usize, owner: u8, address: u8) -> Answer {
        if self.objects.addresses[name].is_some() {
            return Answer::Exists;
        }
        let claim = self.objects.claims[name];
        self.wrongs.unprotected |= claim.is_some_and(|claim| claim.life == owner && !claim.finalizer);
        let posthumous = claim.is_none_or(|claim| claim.life != owner || claim.deleting);
        self.objects.addresses[name] =
            Some(Address { owner, address, finalizer: true, deleting: false, posthumous, age: Age::Current });
        Answer::Done
    }

    /// A guarded patch of an IPAddress: uid and resource version. What is being deleted ends with its last finalizer.
    pub(crate) fn change_address(&mut self, name: usize, age: Age, change: impl FnOnce(&mut Address)) -> Answer {
        let Some(mut address) = self.objects.addresses[name] else { return Answer::NotFound };
        if age != Age::Current {
            return Answer::Conflict;
        }
        change(&mut address);
        if address.deleting && !address.finalizer {
            self.remove_address(name);
        } else {
            self.age_address(name, Age::Changed);
            self.objects.addresses[name] = Some(address);
        }
        Answer::Done
    }

    /// Deletes the IPAddress with that uid and resource version.
    fn delete_address(&mut self, scope: &Scope, name: usize, age: Age) -> Answer {
        let Some(mut address) = self.objects.addresses[name] else { return Answer::NotFound };
        let hits = match scope.mistake {
            Some(Mistake::DeleteAddressWithoutVersion) => age != Age::Gone,
            Some(Mistake::DeleteAddressWithoutUid) => true,
            _ => age == Age::Current,
        };
        if !hits {
            return Answer::Conflict;
        }
        if !address.finalizer {
            self.remove_address(name);
            return Answer::Done;
        }
        if !address.deleting {
            self.age_address(name, Age::Changed);
            address.deleting = true;
            self.objects.addresses[name] = Some(address);
        }
        Answer::Waiting
    }

    fn remove_address(&mut self, name: usize) {
        self.objects.addresses[name] = None;
        self.age_address(name, Age::Gone);
    }

    /// The garbage collector strikes out an owner that is gone.
    pub(crate) fn collect(&mut self, name: usize) -> bool {
        let Some(address) = self.objects.addresses[name] else { return false };
        let alive = self.objects.claims[name].is_some_and(|claim| claim.life == address.owner);
        if alive || address.owner == 0 {
            return false;
        }
        self.change_address(name, Age::Current, |address| address.owner = 0);
        true
    }
}

/// What a write does to the copies that others have.
impl State {
    fn age_claim(&mut self, name: usize, age: Age) {
        for manager in &mut self.managers {
            if let Some(copy) = &mut manager.claims[name] {
                copy.age = copy.age.max(age);
            }
            let task = &mut manager.tasks[name];
            if task.step != Step::Idle {
                task.claim.age = task.claim.age.max(age);
            }
        }
        for write in self.late.iter_mut().flatten() {
            match write {
                Write::AddFinalizer { name: its, age: copy }
                | Write::Bind { name: its, age: copy, .. }
                | Write::LetGo { name: its, age: copy }
                    if usize::from(*its) == name =>
                {
                    *copy = age.max(*copy);
                }
                _ => {}
            }
        }
    }

    fn age_address(&mut self, name: usize, age: Age) {
        let older = |copy: &mut Age| *copy = age.max(*copy);
        for manager in &mut self.managers {
            manager.addresses[name].iter_mut().for_each(|copy| older(&mut copy.age));
            manager.tasks[name].existing.iter_mut().for_each(|copy| older(&mut copy.age));
            match &mut manager.sweep {
                Sweep::CheckClaim { name: its, found } | Sweep::Strip { name: its, found }
                    if usize::from(*its) == name =>
                {
                    older(&mut found.age);
                }
                Sweep::Delete { name: its, age } if usize::from(*its) == name => older(age),
                _ => {}
            }
        }
        for write in self.late.iter_mut().flatten() {
            match write {
                Write::RepairAddress { name: its, age, .. }
                | Write::StripAddress { name: its, age }
                | Write::DeleteAddress { name: its, age }
                    if usize::from(*its) == name =>
                {
                    older(age);
                }
                _ => {}
            }
        }
    }

    /// Reservations are deleted and created, never changed.
    fn age_reservation(&mut self, address: usize) {
        for manager in &mut self.managers {
            manager.ledger[address].iter_mut().for_each(|copy| copy.age = Age::Gone);
            for task in &mut manager.tasks {
                if task.step != Step::Idle && usize::from(task.address) == address {
                    task.found = Age::Gone;
                }
            }
            match &mut manager.sweep {
                Sweep::ReadAddress { address: its, age, .. }
                | Sweep::ReadClaim { address: its, age, .. }
                | Sweep::Unreserve { address: its, age }
                    if usize::from(*its) == address =>
                {
                    *age = Age::Gone;
                }
                _ => {}
            }
        }
        for write in self.late.iter_mut().flatten() {
            match write {
                Write::Unreserve { address: its, age } if usize::from(*its) == address => *age = Age::Gone,
                _ => {}
            }
        }
    }
}

const _: () = assert!(NAMES <= 4 && ADDRESSES <= 4);
