//! What a manager does about one claim, call by call: steps A1 to A4 and R1 to R3, and adoption.
//!
//! One call to the API server and all that follows from its answer in memory are one step of the model.

use crate::protocol::{Mistake, Scope};
use crate::server::{Answer, Fate};
use crate::state::{ADDRESSES, Address, Age, Claim, Manager, Purpose, Reservation, State, Step, Task, Write};

/// How often the IPAddress of a claim may turn out to be another in one attempt.
const MOST_ROUNDS: u8 = 3;
/// How often an adoption tries to reserve.
const MOST_ATTEMPTS: u8 = 2;

/// What is to be done about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Nothing,
    Bind,
    Release,
}

/// The same as `provider::decision::decide`, for claims that nothing is paused for and whose pool serves.
pub(crate) fn decide(manager: &Manager, name: usize) -> Decision {
    let Some(claim) = manager.claims[name] else { return Decision::Nothing };
    if claim.deleting {
        return if claim.finalizer { Decision::Release } else { Decision::Nothing };
    }
    let right = manager.addresses[name]
        .is_some_and(|address| address.owner == claim.life && (address.deleting || address.finalizer));
    if claim.bound.is_some() && right && claim.finalizer { Decision::Nothing } else { Decision::Bind }
}

/// One step of one task.
pub(crate) struct Worker<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) state: &'a mut State,
    pub(crate) manager: usize,
    pub(crate) name: usize,
    pub(crate) task: Task,
}

impl Worker<'_> {
    /// Does the next call. `false` when there is none, or when it cannot fare like that.
    pub(crate) fn run(&mut self, fate: Fate) -> bool {
        if self.task.step == Step::Idle {
            self.begin();
        }
        let Some(write) = self.write() else {
            if fate != Fate::Answered || self.task.step == Step::Idle {
                return false;
            }
            self.read();
            self.state.managers[self.manager].tasks[self.name] = self.task;
            return true;
        };
        // What the write does to copies, it does to those of this task too.
        self.state.managers[self.manager].tasks[self.name] = self.task;
        let answer = self.state.send(self.scope, write, fate);
        self.task = self.state.managers[self.manager].tasks[self.name];
        self.answered(answer);
        self.state.managers[self.manager].tasks[self.name] = self.task;
        true
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.scope.makes(mistake)
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

    /// The reconcile ends; a proposal that came to nothing is given back.
    fn end(&mut self) {
        self.withdraw();
        self.task = Task::default();
    }

    fn begin(&mut self) {
        let decision = decide(self.memory(), self.name);
        let Some(claim) = self.memory().claims[self.name] else { return };
        self.task = Task { claim, ..Task::default() };
        match decision {
            Decision::Nothing => {}
            Decision::Bind if claim.finalizer || self.makes(Mistake::AllocateBeforeFinalizer) => self.look(),
            Decision::Bind => self.go_to(Step::AddFinalizer),
            Decision::Release if self.makes(Mistake::ReleaseByCache) => match self.memory().addresses[self.name] {
                Some(address) => self.remove(address, Purpose::Releasing),
                None => self.give_back(0, Purpose::Releasing),
            },
            Decision::Release if self.makes(Mistake::UnreserveBeforeRemoval) => self.give_back(0, Purpose::Releasing),
            Decision::Release => self.go_to(Step::ReleaseLook),
        }
    }

    /// The write that is next, if the next call is one.
    fn write(&self) -> Option<Write> {
        let (name, life, address) = (self.own_name(), self.life(), self.task.address);
        let claim = self.task.claim.age;
        let existing = self.task.existing.map(|existing| existing.age).unwrap_or_default();
        let ledger = self.state.managers[self.manager].ledger[usize::from(address)];
        match self.task.step {
            Step::AddFinalizer => Some(Write::AddFinalizer { name, age: claim }),
            Step::Reserve => Some(Write::Reserve { address, name, life }),
            Step::TakeOver => Some(Write::Unreserve { address, age: self.task.found }),
            Step::CreateAddress => Some(Write::CreateAddress { name, life, address }),
            Step::Repair => Some(Write::RepairAddress { name, life, age: existing }),
            Step::Bind => Some(Write::Bind { name, address, age: claim }),
            Step::Strip => Some(Write::StripAddress { name, age: existing }),
            Step::Delete => Some(Write::DeleteAddress { name, age: existing }),
            Step::Unreserve if self.makes(Mistake::UnreserveWhatIsKnownNow) => {
                Some(Write::Unreserve { address, age: ledger.map_or(Age::Gone, |reservation| reservation.age) })
            }
            Step::Unreserve => Some(Write::Unreserve { address, age: self.task.found }),
            Step::LetGo => Some(Write::LetGo { name, age: claim }),
            _ => None,
        }
    }

    fn answered(&mut self, answer: Answer) {
        match (self.task.step, answer) {
            (Step::AddFinalizer, Answer::Done) => {
                self.task.claim = self.state.objects.claims[self.name].unwrap_or_default();
                if self.makes(Mistake::AllocateBeforeFinalizer) { self.bind() } else { self.look() }
            }
            (Step::Reserve, Answer::Done) => {
                let made = self.state.objects.reservations[usize::from(self.task.address)];
                self.learn(made);
                self.reserved();
            }
            (Step::Reserve, Answer::Unknown) if self.makes(Mistake::UnknownMeansDone) => self.reserved(),
            (Step::Reserve, Answer::Exists | Answer::Unknown) => self.go_to(Step::ReadReservation),
            (Step::TakeOver, Answer::Done | Answer::NotFound) => {
                self.forget();
                self.try_again();
            }
            (Step::CreateAddress, Answer::Done) => {
                self.index();
                self.bind();
            }
            (Step::CreateAddress, Answer::Exists) if self.makes(Mistake::AcceptAnyAddress) => self.bind(),
            (Step::CreateAddress, Answer::Exists | Answer::Unknown) => self.go_to(Step::ReadAddress),
            (Step::Repair, Answer::Done) => {
                self.index();
                self.bind();
            }
            (Step::Bind, Answer::Done) if self.makes(Mistake::BindBeforeCreate) => self.go_to(Step::CreateAddress),
            (Step::Bind, Answer::Conflict | Answer::NotFound) => self.go_to(Step::CheckAfterBind),
            (Step::Strip, Answer::Done | Answer::NotFound) => {
                // The answer to the patch says at which version the IPAddress is now.
                if answer == Answer::Done && self.state.objects.addresses[self.name].is_some() {
                    self.task.existing = self.state.objects.addresses[self.name];
                }
                self.go_to(Step::Delete);
            }
            (Step::Strip | Step::Delete, Answer::Conflict) if self.task.purpose == Purpose::Undoing => {
                self.go_to(Step::UndoLook);
            }
            (Step::Delete, Answer::Done | Answer::NotFound) => {
                let name = self.name;
                self.memory_mut().addresses[name] = None;
                self.removed();
            }
            (Step::Delete, Answer::Waiting) if self.task.purpose != Purpose::Releasing => self.removed(),
            (Step::Unreserve, Answer::Done | Answer::NotFound) => {
                self.forget();
                self.give_back(self.task.address + 1, self.task.purpose);
            }
            (Step::Unreserve, Answer::Conflict) => {
                // It is read once more; what then is this claim's all the same makes an error.
                let found = self.state.objects.reservations[usize::from(self.task.address)];
                if found.is_some_and(|found| found.is_for(self.name, self.life())) {
                    self.end();
                } else {
                    if found.is_some() {
                        self.learn(found);
                    }
                    self.give_back(self.task.address + 1, self.task.purpose);
                }
            }
            _ => self.end(),
        }
    }

    fn read(&mut self) {
        let claim = self.state.objects.claims[self.name];
        let is_there = claim.is_some_and(|claim| claim.life == self.life());
        let address = self.state.objects.addresses[self.name];
        let reservation = self.state.objects.reservations[usize::from(self.task.address)];
        match self.task.step {
            Step::Look => self.consider(address),
            Step::CheckBeforeAdoption if is_there => self.adopt(),
            Step::CheckBeforeAdoption => self.go_to(Step::UndoLook),
            Step::CheckReservation => self.reservation_checked(reservation),
            Step::ReadReservation => self.reservation_read(reservation),
            Step::ReadHolder => self.holder_read(reservation),
            Step::CheckBeforeTakingOver if is_there => self.go_to(Step::TakeOver),
            Step::ReadAddress if address.is_some() => {
                self.task.rounds += 1;
                if self.task.rounds < MOST_ROUNDS { self.consider(address) } else { self.end() }
            }
            Step::CheckAfterBind if !is_there => self.go_to(Step::UndoLook),
            Step::ReleaseLook => match address {
                None => self.give_back(0, Purpose::Releasing),
                Some(found) if found.owner == self.life() || self.makes(Mistake::ReleaseWithoutReadingTheClaim) => {
                    self.remove(found, Purpose::Releasing);
                }
                Some(found) => {
                    self.task.existing = Some(found);
                    self.go_to(Step::CheckBeforeRelease);
                }
            },
            Step::CheckBeforeRelease => match self.task.existing {
                Some(found) if is_there => self.remove(found, Purpose::Releasing),
                _ => self.go_to(Step::UndoLook),
            },
            Step::ConfirmRelease if address.is_none() => self.go_to(Step::LetGo),
            Step::UndoLook => match address {
                Some(found) if found.owner == self.life() => self.remove(found, Purpose::Undoing),
                Some(found) if found.owner == 0 => {
                    self.task.existing = Some(found);
                    self.go_to(Step::UndoCheck);
                }
                _ => self.give_back(0, Purpose::Undoing),
            },
            Step::UndoCheck => match self.task.existing {
                Some(found) if claim.is_none() => self.remove(found, Purpose::Undoing),
                _ => self.give_back(0, Purpose::Undoing),
            },
            _ => self.end(),
        }
    }
}

/// Giving an address.
impl Worker<'_> {
    /// After A1: is an IPAddress of the claim's name known?
    fn look(&mut self) {
        if self.makes(Mistake::LookForAFreeOneFirst) {
            self.propose();
        } else if self.memory().addresses[self.name].is_some() {
            self.go_to(Step::Look);
        } else {
            self.allocate(0);
        }
    }

    fn consider(&mut self, found: Option<Address>) {
        self.task.existing = found;
        match found {
            None => self.allocate(0),
            Some(found) if found.deleting => self.remove(found, Purpose::Binding),
            Some(found) if found.owner == self.life() || self.makes(Mistake::AdoptWithoutReadingTheClaim) => {
                self.adopt();
            }
            Some(_) => self.go_to(Step::CheckBeforeAdoption),
        }
    }

    /// What the ledger says is this claim's already, from that address on; else a free one.
    fn allocate(&mut self, from: u8) {
        let (name, life) = (self.name, self.life());
        let ignores = self.makes(Mistake::IgnoreOwnReservation) || self.makes(Mistake::PickByCache);
        let own = (usize::from(from)..ADDRESSES).find(|&address| {
            let manager = self.memory();
            let used_by_another = (0..manager.addresses.len()).any(|other| {
                other != name && manager.addresses[other].is_some_and(|held| usize::from(held.address) == address)
            });
            manager.ledger[address].is_some_and(|held| held.is_for(name, life)) && !used_by_another
        });
        match own.filter(|_| !ignores) {
            Some(address) => {
                self.task.address = u8::try_from(address).unwrap_or_default();
                self.go_to(Step::CheckReservation);
            }
            None => self.propose(),
        }
    }

    /// The lowest address that seems free, marked as taken.
    fn propose(&mut self) {
        let addresses = self.scope.addresses;
        let manager = self.memory();
        let free = (0..addresses).find(|&address| {
            let used = manager.addresses.iter().flatten().any(|held| usize::from(held.address) == address);
            manager.ledger[address].is_none() && !manager.proposed[address] && !used
        });
        let Some(free) = free else { return self.end() };
        self.task.address = u8::try_from(free).unwrap_or_default();
        if self.makes(Mistake::PickByCache) {
            return self.go_to(Step::CreateAddress);
        }
        self.announce();
        self.go_to(Step::Reserve);
    }

    fn reservation_checked(&mut self, found: Option<Reservation>) {
        if found.is_some_and(|found| found.is_for(self.name, self.life())) {
            return self.reserved();
        }
        if found.is_some() {
            self.learn(found);
        }
        if self.task.existing.is_some() {
            self.announce();
            self.go_to(Step::Reserve);
        } else {
            self.allocate(self.task.address + 1);
        }
    }

    fn reservation_read(&mut self, found: Option<Reservation>) {
        // Not there, or not yet: a new attempt will tell.
        let Some(held) = found else { return self.end() };
        self.learn(found);
        if held.is_for(self.name, self.life()) {
            self.reserved();
        } else if self.task.existing.is_some() {
            self.go_to(Step::ReadHolder);
        } else {
            self.propose();
        }
    }

    fn holder_read(&mut self, found: Option<Reservation>) {
        let Some(found) = found else { return self.try_again() };
        if usize::from(found.name) == self.name && found.life != self.life() {
            self.task.found = Age::Current;
            let blindly =
                self.makes(Mistake::TakeOverWithoutReadingTheClaim) || self.makes(Mistake::AdoptWithoutReadingTheClaim);
            return self.go_to(if blindly { Step::TakeOver } else { Step::CheckBeforeTakingOver });
        }
        match self.task.existing {
            Some(existing) if existing.owner != 0 && existing.owner != self.life() => {
                self.withdraw();
                self.remove(existing, Purpose::Discarding);
            }
            // It is reported, and left as it is.
            _ => self.end(),
        }
    }

    fn try_again(&mut self) {
        self.task.attempts += 1;
        if self.task.attempts < MOST_ATTEMPTS { self.go_to(Step::Reserve) } else { self.end() }
    }

    /// The address is this claim's.
    fn reserved(&mut self) {
        self.withdraw();
        let life = self.life();
        match self.task.existing {
            Some(existing) if existing.owner == life && existing.finalizer => self.bind(),
            Some(_) => self.go_to(Step::Repair),
            None if self.makes(Mistake::BindBeforeCreate) => self.go_to(Step::Bind),
            None => self.go_to(Step::CreateAddress),
        }
    }

    fn adopt(&mut self) {
        let Some(existing) = self.task.existing else { return self.end() };
        self.task.address = existing.address;
        self.task.attempts = 0;
        if self.makes(Mistake::AdoptWithoutReservation) || self.makes(Mistake::PickByCache) {
            return self.reserved();
        }
        let (name, life) = (self.name, self.life());
        let known = self.memory().ledger[usize::from(existing.address)];
        if known.is_some_and(|known| known.is_for(name, life)) {
            self.go_to(Step::CheckReservation);
        } else {
            self.announce();
            self.go_to(Step::Reserve);
        }
    }

    fn bind(&mut self) {
        if self.task.claim.bound == Some(self.task.address) {
            return self.end();
        }
        let finalizer_is_missing = self.makes(Mistake::AllocateBeforeFinalizer) && !self.task.claim.finalizer;
        self.go_to(if finalizer_is_missing { Step::AddFinalizer } else { Step::Bind });
    }
}

/// Taking it back.
impl Worker<'_> {
    fn remove(&mut self, address: Address, purpose: Purpose) {
        self.task.existing = Some(address);
        self.task.purpose = purpose;
        self.go_to(if address.finalizer { Step::Strip } else { Step::Delete });
    }

    /// The IPAddress is gone, or held by others.
    fn removed(&mut self) {
        match self.task.purpose {
            Purpose::Binding => self.end(),
            Purpose::Discarding => {
                self.task.existing = None;
                self.task.rounds += 1;
                if self.task.rounds < MOST_ROUNDS { self.allocate(0) } else { self.end() }
            }
            Purpose::Releasing if self.makes(Mistake::UnreserveBeforeRemoval) => self.go_to(Step::ConfirmRelease),
            Purpose::Releasing | Purpose::Undoing => self.give_back(0, self.task.purpose),
        }
    }

    /// R2, from that address on.
    fn give_back(&mut self, from: u8, purpose: Purpose) {
        self.task.purpose = purpose;
        self.task.existing = None;
        let (name, life) = (self.name, self.life());
        let manager = self.memory();
        let known = |address: usize| manager.ledger[address].filter(|held| held.is_for(name, life));
        let held = (usize::from(from)..ADDRESSES).find_map(|address| Some((address, known(address)?.age)));
        match held {
            Some((address, age)) => {
                self.task.found = age;
                self.task.address = u8::try_from(address).unwrap_or_default();
                self.go_to(Step::Unreserve);
            }
            None if purpose == Purpose::Undoing => self.end(),
            None if self.makes(Mistake::ReleaseByCache) => self.go_to(Step::LetGo),
            None if self.makes(Mistake::UnreserveBeforeRemoval) => match self.state.objects.addresses[self.name] {
                Some(address) => self.remove(address, Purpose::Releasing),
                None => self.go_to(Step::LetGo),
            },
            None => self.go_to(Step::ConfirmRelease),
        }
    }
}

/// What the manager keeps in memory.
impl Worker<'_> {
    fn announce(&mut self) {
        let address = usize::from(self.task.address);
        if !self.memory().proposed[address] {
            self.memory_mut().proposed[address] = true;
            self.task.announced = true;
        }
    }

    fn withdraw(&mut self) {
        if self.task.announced {
            let address = usize::from(self.task.address);
            self.memory_mut().proposed[address] = false;
            self.task.announced = false;
        }
    }

    /// The ledger hears of a reservation.
    fn learn(&mut self, found: Option<Reservation>) {
        self.withdraw();
        let address = usize::from(self.task.address);
        self.memory_mut().ledger[address] = found;
        self.memory_mut().proposed[address] = false;
    }

    fn forget(&mut self) {
        let address = usize::from(self.task.address);
        let forgotten = self.memory().ledger[address].is_none_or(|known| known.age == Age::Gone);
        if forgotten {
            self.memory_mut().ledger[address] = None;
        }
    }

    /// The index of addresses hears of what was just written.
    fn index(&mut self) {
        let name = self.name;
        self.memory_mut().addresses[name] = self.state.objects.addresses[name];
    }
}

/// The claim of that name is this one, and here to stay.
pub(crate) fn lives(claim: Option<Claim>, life: u8) -> bool {
    claim.is_some_and(|claim| claim.life == life && !claim.deleting)
}
