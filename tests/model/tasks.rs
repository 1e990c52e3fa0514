//! The reconcile of one claim, request by request: steps A1 to A4 and R1 to R3, and adoption.
//!
//! One request to the API server and its effect in memory are one step of the model.

mod allocating;
mod memory;
mod releasing;

use capi_ipam_provider::decision::{
    self, AddressState, ClaimView, ClusterState, Decision, EarlyRelease,
};

use crate::mutations::Mutation;
use crate::pool;
use crate::scope::Scope;
use crate::server::{Answer, Outcome};
use crate::state::{Age, CLEAN_UP, Claim, Manager, Purpose, State, Step, Task, Write};

/// How often the IPAddress of a claim may be another than expected in one attempt.
const MAX_ROUNDS: u8 = 3;

/// The decision of a manager for a claim. `Nothing` if it does not serve the claim, or if the claim
/// waits.
pub(crate) fn decide(scope: &Scope, state: &State, manager: usize, name: usize) -> Decision {
    let known = &state.managers[manager];
    let Some(claim) = known.claims[name].filter(|claim| scope.serves(manager, name, *claim)) else {
        return Decision::Nothing;
    };
    let view = ClaimView {
        deleting: claim.deleting,
        has_finalizer: claim.finalizer,
        has_foreign_finalizers: false,
        paused: false,
        bound: claim.bound.is_some(),
        not_ready: false,
        cluster: ClusterState::None,
        address: match known.addresses[name] {
            None => AddressState::Absent,
            Some(found) if found.owner == claim.life && found.deleting => AddressState::Deleting,
            Some(found) if found.owner == claim.life && found.finalizer => AddressState::Valid,
            Some(_) => AddressState::Invalid,
        },
        holds_address: pool::holds_address(scope, known, name, claim),
        early_release: EarlyRelease::No,
        released_early: false,
        pool: Some(pool::state(scope, known)),
    };
    match decision::decide(&view) {
        decided @ (Decision::Bind | Decision::Release) => decided,
        _ => Decision::Nothing,
    }
}

/// One step of one task.
pub(crate) struct Worker<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) state: &'a mut State,
    pub(crate) manager: usize,
    /// The index of the task.
    slot: usize,
    pub(crate) name: usize,
    pub(crate) task: Task,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(scope: &'a Scope, state: &'a mut State, manager: usize, slot: usize) -> Self {
        let known = &state.managers[manager];
        let name = if slot == CLEAN_UP {
            known.cleaning.into()
        } else {
            slot
        };
        let task = known.tasks[slot];
        Self {
            scope,
            state,
            manager,
            slot,
            name,
            task,
        }
    }
}

impl Worker<'_> {
    /// Sends the next request. `false` when there is none, or when it cannot have this outcome.
    pub(crate) fn run(&mut self, outcome: Outcome) -> bool {
        if self.task.step == Step::Idle {
            self.begin();
        }
        let Some(write) = self.write() else {
            if outcome != Outcome::Answered || self.task.step == Step::Idle {
                return false;
            }
            self.read();
            self.state.managers[self.manager].tasks[self.slot] = self.task;
            return true;
        };
        // A write also affects the copies of this task.
        self.state.managers[self.manager].tasks[self.slot] = self.task;
        let answer = self.state.send(self.scope, write, outcome);
        self.task = self.state.managers[self.manager].tasks[self.slot];
        self.answered(answer);
        self.state.managers[self.manager].tasks[self.slot] = self.task;
        true
    }

    fn has_mutation(&self, mutation: Mutation) -> bool {
        self.scope.has_mutation(mutation)
    }

    fn memory(&self) -> &Manager {
        &self.state.managers[self.manager]
    }

    fn memory_mut(&mut self) -> &mut Manager {
        &mut self.state.managers[self.manager]
    }

    fn life(&self) -> u8 {
        self.task.claim.life
    }

    fn own_name(&self) -> u8 {
        u8::try_from(self.name).unwrap_or_default()
    }

    fn go_to(&mut self, step: Step) {
        self.task.step = step;
    }

    /// Ends the reconcile and drops an unused proposal.
    fn end(&mut self) {
        self.drop_candidate();
        if self.task.early {
            return self.go_to(Step::AddFinalizer);
        }
        self.task = Task::default();
    }

    fn begin(&mut self) {
        if self.slot == CLEAN_UP {
            return;
        }
        let decision = decide(self.scope, self.state, self.manager, self.name);
        let Some(claim) = self.memory().claims[self.name] else {
            return;
        };
        self.task = Task {
            claim,
            ..Task::default()
        };
        match decision {
            Decision::Nothing
            | Decision::FetchPool
            | Decision::Wait(_)
            | Decision::ReleaseEarly => {}
            Decision::Bind
                if claim.finalizer || self.has_mutation(Mutation::CreateBeforeFinalizer) =>
            {
                self.look_up_address();
            }
            Decision::Bind if self.scope.early && self.memory().addresses[self.name].is_none() => {
                self.task.early = true;
                self.allocate(0);
            }
            Decision::Bind => self.go_to(Step::AddFinalizer),
            Decision::Release if self.has_mutation(Mutation::ReleaseByCache) => {
                match self.memory().addresses[self.name] {
                    Some(address) => self.remove(address, Purpose::Releasing),
                    None => self.unreserve_from(0, Purpose::Releasing),
                }
            }
            Decision::Release if self.has_mutation(Mutation::UnreserveBeforeRemoval) => {
                self.unreserve_from(0, Purpose::Releasing);
            }
            Decision::Release => match self.memory().addresses[self.name] {
                Some(seen) if seen.owner == claim.life && seen.finalizer && !seen.deleting => {
                    self.task.unread = true;
                    self.remove(seen, Purpose::Releasing);
                }
                _ => self.go_to(Step::ReadForRelease),
            },
        }
    }

    /// The next request, if it is a write.
    fn write(&self) -> Option<Write> {
        let (name, life, address) = (self.own_name(), self.life(), self.task.address);
        let claim = self.task.claim.age;
        let existing = self
            .task
            .existing
            .map(|existing| existing.age)
            .unwrap_or_default();
        let ledger = self.state.managers[self.manager].ledger[usize::from(address)];
        match self.task.step {
            Step::AddFinalizer => Some(Write::AddFinalizer { name, age: claim }),
            // As the ledger knows it: it may have been taken over since, and be in use.
            Step::TakeReleased | Step::TakeReleasedAgain => Some(Write::TakeReleased {
                address,
                name,
                life,
                age: self.task.found,
            }),
            Step::Reserve => Some(Write::Reserve {
                address,
                name,
                life,
            }),
            Step::TakeOver => {
                // As it was read: it may have been released since, and cool down.
                let exact = !self.has_mutation(Mutation::TakeOverByUid);
                Some(Write::TakeOver {
                    address,
                    name,
                    life,
                    age: self.task.found,
                    exact,
                })
            }
            Step::CreateAddress => Some(Write::CreateAddress {
                name,
                life,
                address,
            }),
            Step::Repair => Some(Write::RepairAddress {
                name,
                life,
                age: existing,
            }),
            Step::Bind => Some(Write::Bind {
                name,
                address,
                age: claim,
            }),
            Step::Strip => Some(Write::StripAddress {
                name,
                age: existing,
            }),
            Step::Delete => Some(Write::DeleteAddress {
                name,
                age: existing,
            }),
            Step::Unreserve if self.has_mutation(Mutation::UnreserveByLedger) => {
                let age = ledger.map_or(Age::Gone, |reservation| reservation.age);
                Some(Write::Unreserve {
                    address,
                    age,
                    exact: false,
                })
            }
            Step::Unreserve => {
                // As the ledger knows it: it may have been taken over when the deletion is applied.
                let exact = !self.has_mutation(Mutation::UnreserveByUid);
                Some(Write::Unreserve {
                    address,
                    age: self.task.found,
                    exact,
                })
            }
            Step::MarkReleased => Some(Write::MarkReleased {
                address,
                age: self.task.found,
            }),
            Step::RemoveFinalizer => Some(Write::RemoveFinalizer { name, age: claim }),
            _ => None,
        }
    }

    fn answered(&mut self, answer: Answer) {
        match (self.task.step, answer) {
            (Step::AddFinalizer, answer) if std::mem::take(&mut self.task.early) => {
                self.early_answered(answer)
            }
            (Step::AddFinalizer, Answer::Done) => {
                self.task.claim = self.state.objects.claims[self.name].unwrap_or_default();
                if self.has_mutation(Mutation::CreateBeforeFinalizer) {
                    self.bind()
                } else {
                    self.look_up_address()
                }
            }
            (Step::TakeReleased | Step::TakeReleasedAgain, Answer::Done) => {
                let taken = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(taken);
                self.reserved();
            }
            (Step::TakeReleased, Answer::Conflict | Answer::NotFound) => self.go_to(Step::Reserve),
            (Step::TakeReleasedAgain, Answer::Conflict | Answer::NotFound) => self.try_again(),
            (Step::TakeReleased | Step::TakeReleasedAgain, Answer::Unknown) => {
                self.go_to(Step::ReadReservation)
            }
            (Step::Reserve, Answer::Done) => {
                let made = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(made);
                self.reserved();
            }
            (Step::Reserve, Answer::Unknown) if self.has_mutation(Mutation::TreatUnknownAsDone) => {
                self.reserved()
            }
            (Step::Reserve, Answer::Exists | Answer::Unknown) => self.go_to(Step::ReadReservation),
            (Step::TakeOver, Answer::Done) => {
                let taken = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(taken);
                self.reserved();
            }
            (Step::TakeOver, Answer::Conflict | Answer::NotFound) => self.try_again(),
            (Step::TakeOver, Answer::Unknown) => self.go_to(Step::ReadReservation),
            (Step::CreateAddress, Answer::Done) => {
                self.index();
                self.bind();
            }
            (Step::CreateAddress, Answer::Exists)
                if self.has_mutation(Mutation::AcceptAnyAddress) =>
            {
                self.bind()
            }
            (Step::CreateAddress, Answer::Exists | Answer::Unknown) => {
                self.go_to(Step::ReadAddress)
            }
            (Step::Repair, Answer::Done) => {
                self.index();
                self.bind();
            }
            (Step::Bind, Answer::Done) if self.has_mutation(Mutation::BindBeforeCreate) => {
                self.go_to(Step::CreateAddress);
            }
            (Step::Bind, Answer::Conflict | Answer::NotFound) => self.go_to(Step::CheckAfterBind),
            (Step::Strip, Answer::Done | Answer::NotFound) => {
                // The answer to the patch says at which version the IPAddress is now.
                if answer == Answer::Done && self.state.objects.addresses[self.name].is_some() {
                    self.task.existing = self.state.objects.addresses[self.name];
                }
                self.go_to(Step::Delete);
            }
            (Step::Strip | Step::Delete, Answer::Conflict)
                if self.task.purpose == Purpose::CleaningUp =>
            {
                self.go_to(Step::ReadForCleanUp);
            }
            (Step::Strip | Step::Delete, Answer::Conflict) if self.task.unread => {
                self.task.unread = false;
                self.go_to(Step::ReadForRelease);
            }
            (Step::Delete, Answer::Done | Answer::NotFound) => {
                let name = self.name;
                self.memory_mut().addresses[name] = None;
                self.removed();
            }
            (Step::Delete, Answer::Waiting) if self.task.purpose != Purpose::Releasing => {
                self.removed()
            }
            (Step::Unreserve, Answer::Done | Answer::NotFound) => {
                self.forget();
                self.unreserve_from(self.task.address + 1, self.task.purpose);
            }
            (Step::MarkReleased, Answer::Done) => {
                let released = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(released);
                self.unreserve_from(self.task.address + 1, self.task.purpose);
            }
            (Step::MarkReleased, Answer::NotFound) => {
                self.unreserve_from(self.task.address + 1, self.task.purpose)
            }
            (Step::Unreserve, Answer::Conflict) => {
                // It is read once more. If it still belongs to this claim, the release fails and is
                // retried.
                let found = self.state.objects.reservations[usize::from(self.task.address)];
                if found.is_some_and(|found| found.is_for(self.name, self.life())) {
                    self.end();
                } else {
                    if found.is_some() {
                        self.learn(found);
                    }
                    self.unreserve_from(self.task.address + 1, self.task.purpose);
                }
            }
            _ => self.end(),
        }
    }

    /// A1 was concurrent with A2.
    fn early_answered(&mut self, answer: Answer) {
        let is_reserved = std::mem::take(&mut self.task.is_reserved);
        match answer {
            Answer::Done => {
                self.task.claim = self.state.objects.claims[self.name].unwrap_or_default();
                if is_reserved {
                    self.reserved()
                } else {
                    self.end()
                }
            }
            _ if self.has_mutation(Mutation::UnreserveWithoutReadingTheClaim) => {
                self.unreserve_from(0, Purpose::CleaningUp);
            }
            _ => self.go_to(Step::CheckAfterBind),
        }
    }

    fn read(&mut self) {
        let claim = self.state.objects.claims[self.name];
        let is_there = claim.is_some_and(|claim| claim.life == self.life());
        let address = self.state.objects.addresses[self.name];
        let reservation = self.state.objects.reservations[usize::from(self.task.address)];
        match self.task.step {
            Step::ReadExisting => self.consider(address),
            Step::CheckBeforeAdoption if is_there => self.adopt(),
            Step::CheckBeforeAdoption => self.go_to(Step::ReadForCleanUp),
            Step::CheckReservation => self.reservation_checked(reservation),
            Step::ReadReservation => self.reservation_read(reservation),
            Step::ReadHolder => self.holder_read(reservation),
            Step::CheckBeforeTakingOver if is_there && self.task.is_released => {
                self.go_to(Step::TakeReleasedAgain)
            }
            Step::CheckBeforeTakingOver if is_there => self.go_to(Step::TakeOver),
            Step::ReadAddress if address.is_some() => {
                self.task.rounds += 1;
                if self.task.rounds < MAX_ROUNDS {
                    self.consider(address)
                } else {
                    self.end()
                }
            }
            Step::CheckAfterBind if !is_there => self.go_to(Step::ReadForCleanUp),
            Step::ReadForRelease => match address {
                None => self.unreserve_from(0, Purpose::Releasing),
                Some(found)
                    if found.owner == self.life()
                        || self.has_mutation(Mutation::ReleaseWithoutReadingTheClaim) =>
                {
                    self.remove(found, Purpose::Releasing);
                }
                Some(found) => {
                    self.task.existing = Some(found);
                    self.go_to(Step::CheckBeforeRelease);
                }
            },
            Step::CheckBeforeRelease => match self.task.existing {
                Some(found) if is_there => self.remove(found, Purpose::Releasing),
                _ => self.go_to(Step::ReadForCleanUp),
            },
            Step::ReadHeld => {
                match reservation.filter(|found| found.is_for(self.name, self.life())) {
                    Some(found) => {
                        self.task.found = found.age;
                        self.go_to(Step::MarkReleased);
                    }
                    None => self.unreserve_from(self.task.address + 1, self.task.purpose),
                }
            }
            Step::CheckBeforeCleanUp if !is_there => self.go_to(Step::ReadForCleanUp),
            Step::ReadForCleanUp => match address {
                Some(found) if found.owner == self.life() => {
                    self.remove(found, Purpose::CleaningUp)
                }
                Some(found) if found.owner == 0 => {
                    self.task.existing = Some(found);
                    self.go_to(Step::CheckCleanUp);
                }
                _ => self.unreserve_from(0, Purpose::CleaningUp),
            },
            Step::CheckCleanUp => match self.task.existing {
                Some(found) if claim.is_none() => self.remove(found, Purpose::CleaningUp),
                _ => self.unreserve_from(0, Purpose::CleaningUp),
            },
            _ => self.end(),
        }
    }
}

/// Whether the claim of that name is this one, and not being deleted.
pub(crate) fn lives(claim: Option<Claim>, life: u8) -> bool {
    claim.is_some_and(|claim| claim.life == life && !claim.deleting)
}
