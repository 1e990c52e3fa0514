//! The requests, and what their answers mean to the machines.

use capi_ipam_protocol::clean_up::CleanUp;
use capi_ipam_protocol::write::{self, Change, ChangeRead, Creation, CreationRead};
use capi_ipam_protocol::{ClaimRead, adopt, allocate, bind, clean_up, free, release};

use super::Worker;
use crate::mutations::Mutation;
use crate::server::Answer;
use crate::state::{Age, Operation, Provider, Request, Reservation, Write};

impl Worker<'_> {
    /// The next request, if it is a write.
    pub(super) fn write(&self) -> Option<Write> {
        let (name, life, address) = (self.own_name(), self.life(), self.task.address);
        let (claim, found) = (self.task.claim.age, self.task.found);
        let existing = self.task.existing.map(|existing| existing.age);
        let existing = existing.unwrap_or_default();
        match self.task.request {
            Request::AddFinalizer => Some(Write::AddFinalizer { name, age: claim }),
            Request::CreateAddress => Some(Write::CreateAddress {
                name,
                life,
                address,
            }),
            Request::RepairAddress => Some(Write::RepairAddress {
                name,
                life,
                age: existing,
            }),
            Request::Commit => Some(Write::Bind {
                name,
                address,
                age: claim,
            }),
            Request::Strip => Some(Write::StripAddress {
                name,
                age: existing,
            }),
            Request::Delete => Some(Write::DeleteAddress {
                name,
                age: existing,
            }),
            Request::RemoveFinalizer => Some(Write::RemoveFinalizer { name, age: claim }),
            Request::Reserve => Some(Write::Reserve {
                address,
                name,
                life,
            }),
            // As the ledger knows it: it may have been taken over since, and be in use.
            Request::TakeReleased => Some(Write::TakeReleased {
                address,
                name,
                life,
                age: found,
            }),
            // As it was read: it may have been released since, and cool down.
            Request::TakeOver => Some(Write::TakeOver {
                address,
                name,
                life,
                age: found,
                exact: !self.has_mutation(Mutation::TakeOverByUid),
            }),
            Request::Unreserve => Some(self.unreserve()),
            Request::MarkReleased => Some(Write::MarkReleased {
                address,
                age: found,
            }),
            Request::None
            | Request::ReadAddress
            | Request::ReadClaim
            | Request::ReadHeld
            | Request::ReadCreated
            | Request::ReadChanged
            | Request::ReadHolder
            | Request::ReadReleased => None,
        }
    }

    /// As the ledger knows it: it may have been taken over when the deletion is applied.
    fn unreserve(&self) -> Write {
        let address = self.task.address;
        if self.has_mutation(Mutation::UnreserveByLedger) {
            let known = self.memory().ledger[usize::from(address)];
            return Write::Unreserve {
                address,
                age: known.map_or(Age::Gone, |known| known.age),
                exact: false,
            };
        }
        Write::Unreserve {
            address,
            age: self.task.found,
            exact: !self.has_mutation(Mutation::UnreserveByUid),
        }
    }

    /// Takes in the answer to a write.
    pub(super) fn answered(&mut self, answer: Answer) {
        let request = std::mem::take(&mut self.task.request);
        match request {
            Request::AddFinalizer => self.finalizer_answered(answer),
            Request::CreateAddress => self.creation_answered(answer),
            Request::RepairAddress if answer == Answer::Done => {
                self.index();
                self.bind_next(bind::Event::Repaired);
            }
            Request::Commit => self.commit_answered(answer),
            Request::Strip => self.strip_answered(answer),
            Request::Delete => self.deletion_answered(answer),
            Request::RemoveFinalizer if matches!(answer, Answer::Done | Answer::NotFound) => {
                self.release_next(release::Event::FinalizerRemoved);
            }
            Request::Reserve => self.reserve_answered(answer),
            Request::TakeReleased
            | Request::TakeOver
            | Request::Unreserve
            | Request::MarkReleased => self.change_answered(request, answer),
            _ => self.end(),
        }
    }

    fn finalizer_answered(&mut self, answer: Answer) {
        let is_early = self.task.early.is_some();
        match answer {
            Answer::Done => {
                self.task.claim = self.state.objects.claims[self.name].unwrap_or_default();
                // A mutation adds the finalizer before the commit.
                if self.bind_is_at(bind::Step::Commit) {
                    return self.send(Request::Commit);
                }
                self.bind_next(bind::Event::FinalizerSet);
            }
            _ if self.bind_is_at(bind::Step::Commit) => self.end(),
            Answer::NotFound => self.bind_next(bind::Event::FinalizerNotSet),
            _ if is_early => self.bind_next(bind::Event::FinalizerNotSet),
            _ => self.end(),
        }
    }

    fn bind_is_at(&self, step: bind::Step) -> bool {
        matches!(self.task.operation, Operation::Bind(bind) if bind.step() == step)
    }

    fn creation_answered(&mut self, answer: Answer) {
        match answer {
            Answer::Exists if self.has_mutation(Mutation::AcceptAnyAddress) => {
                self.bind_next(bind::Event::Created);
            }
            Answer::Done => {
                self.index();
                self.bind_next(bind::Event::Created);
            }
            Answer::Exists | Answer::Unknown => self.bind_next(bind::Event::NotCreated),
            _ => self.end(),
        }
    }

    fn commit_answered(&mut self, answer: Answer) {
        match answer {
            // A mutation commits before the IPAddress is created.
            Answer::Done if self.bind_is_at(bind::Step::CreateAddress) => {
                self.task.claim.bound = Some(self.task.address);
            }
            Answer::Done => self.bind_next(bind::Event::Committed),
            Answer::Conflict | Answer::NotFound if self.bind_is_at(bind::Step::Commit) => {
                self.bind_next(bind::Event::NotCommitted);
            }
            _ => self.end(),
        }
    }

    fn strip_answered(&mut self, answer: Answer) {
        match answer {
            Answer::Done | Answer::NotFound => {
                // The answer to the patch says at which version the IPAddress is now.
                let stripped = self.state.objects.addresses[self.name];
                if answer == Answer::Done && stripped.is_some() {
                    self.task.existing = stripped;
                }
                self.send(Request::Delete);
            }
            Answer::Conflict => self.address_changed(),
            _ => self.end(),
        }
    }

    fn deletion_answered(&mut self, answer: Answer) {
        match answer {
            Answer::Done | Answer::NotFound => {
                let name = self.name;
                self.memory_mut().addresses[name] = None;
                self.address_removed(true);
            }
            Answer::Waiting => self.address_removed(false),
            Answer::Conflict => self.address_changed(),
            _ => self.end(),
        }
    }

    fn reserve_answered(&mut self, answer: Answer) {
        let is_trusted = self.has_mutation(Mutation::TreatUnknownAsDone);
        if answer == Answer::Unknown && is_trusted {
            return self.reserved();
        }
        self.task.is_unknown = answer == Answer::Unknown;
        match write::after_creation(answer_of(answer)) {
            Creation::Created => {
                let created = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(created);
                self.reserved();
            }
            Creation::Read => self.send(Request::ReadCreated),
            Creation::Failed => self.fail(),
        }
    }

    fn change_answered(&mut self, request: Request, answer: Answer) {
        self.task.is_unknown = answer == Answer::Unknown;
        match write::after_change(answer_of(answer)) {
            Change::Done if request == Request::Unreserve => {
                self.forget();
                self.changed(ChangeRead::Done, None);
            }
            Change::Done => {
                let changed = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(changed);
                self.changed(ChangeRead::Done, None);
            }
            Change::Gone => {
                self.forget();
                self.changed(ChangeRead::Gone, None);
            }
            Change::Read => self.send(Request::ReadChanged),
            Change::Failed => self.fail(),
        }
    }

    /// Takes in the result of a read.
    pub(super) fn read(&mut self) {
        let claim = self.state.objects.claims[self.name];
        let address = self.state.objects.addresses[self.name];
        let reservation = self.state.objects.reservations[usize::from(self.task.address)];
        match std::mem::take(&mut self.task.request) {
            Request::ReadAddress => self.address_read(address),
            Request::ReadClaim => {
                let exists = claim.is_some_and(|claim| claim.life == self.life());
                self.claim_read(exists, claim.is_some());
            }
            Request::ReadHeld => self.held_read(reservation),
            Request::ReadCreated => self.created_read(reservation),
            Request::ReadChanged => self.changed_read(reservation),
            Request::ReadHolder => self.holder_read(reservation),
            Request::ReadReleased => self.released_read(reservation),
            _ => self.end(),
        }
    }

    fn claim_read(&mut self, exists: bool, has_name: bool) {
        let read = if exists {
            ClaimRead::Exists
        } else {
            ClaimRead::Gone
        };
        if self.task.provider != Provider::Idle {
            return self.adopt_next(adopt::Event::Claim(read));
        }
        let is_successor = |clean_up: CleanUp| clean_up.step() == clean_up::Step::CheckSuccessor;
        let checks_successor = match (self.task.clean_up, self.task.operation) {
            (Some(clean_up), _) | (None, Operation::CleanUp(clean_up)) => is_successor(clean_up),
            _ => false,
        };
        self.clean_up_next(if checks_successor {
            clean_up::Event::Successor { exists: has_name }
        } else {
            clean_up::Event::Claim(read)
        });
    }

    /// The read after a creation of a reservation.
    fn created_read(&mut self, found: Option<Reservation>) {
        let is_ours = found.map(|found| found.is_ours(self.name, self.life()));
        match write::read_after_creation(is_ours) {
            CreationRead::AsWanted => {
                self.learn(found);
                self.reserved();
            }
            CreationRead::Taken => {
                self.learn(found);
                self.forget_attempt();
                self.allocate_next(allocate::Event::Taken);
                self.adopt_next(adopt::Event::Taken);
            }
            CreationRead::StillUnknown => {
                self.remember_attempt();
                self.fail();
            }
        }
    }

    /// The read after a change of a reservation.
    fn changed_read(&mut self, found: Option<Reservation>) {
        let (name, life, age) = (self.name, self.life(), self.task.found);
        let is_release = matches!(self.task.provider, Provider::Free(_));
        let facts = found.map(|found| write::Found {
            is_same: age != Age::Gone,
            is_unchanged: age == Age::Current,
            is_done: if is_release {
                found.released
            } else {
                found.is_ours(name, life)
            },
        });
        let result = write::read_after_change(facts);
        if found.is_some() {
            self.learn(found);
        } else {
            self.forget();
        }
        self.changed(result, found);
    }

    /// What a change of a reservation has led to.
    fn changed(&mut self, result: ChangeRead, found: Option<Reservation>) {
        if result == ChangeRead::StillUnknown {
            if self.task.is_unknown {
                self.remember_attempt();
            }
            return self.fail();
        }
        if matches!(self.task.provider, Provider::Free(_)) {
            return self.release_changed(result, found);
        }
        match result {
            ChangeRead::Done => self.reserved(),
            ChangeRead::Gone => {
                self.allocate_next(allocate::Event::Gone);
                self.adopt_next(adopt::Event::Taken);
            }
            ChangeRead::Changed | ChangeRead::StillUnknown => {
                self.forget_attempt();
                self.allocate_next(allocate::Event::Taken);
                self.adopt_next(adopt::Event::Taken);
            }
        }
    }

    fn release_changed(&mut self, result: ChangeRead, found: Option<Reservation>) {
        if result != ChangeRead::Changed {
            return self.free_next(free::Event::Released);
        }
        let is_ours = found.is_some_and(|found| found.is_for(self.name, self.life()));
        self.task.found = Age::Current;
        self.free_next(free::Event::Changed { is_ours });
    }

    fn reserved(&mut self) {
        self.forget_attempt();
        self.allocate_next(allocate::Event::Reserved);
        self.adopt_next(adopt::Event::Reserved);
    }
}

/// The answer, as the product names it.
fn answer_of(answer: Answer) -> write::Answer {
    match answer {
        Answer::Done => write::Answer::Applied,
        Answer::Exists => write::Answer::NameExists,
        Answer::Conflict => write::Answer::Conflict,
        Answer::NotFound => write::Answer::NotFound,
        Answer::Unknown => write::Answer::Unknown,
        Answer::Waiting => write::Answer::Rejected,
    }
}
