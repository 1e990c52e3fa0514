//! The machines of the provider: allocation, adoption, and the release of reservations.

use capi_ipam_protocol::allocate::{self, EarlierAttempt, HeldAddress, Proposed};
use capi_ipam_protocol::free::{self, Free};
use capi_ipam_protocol::{ClaimRead, adopt, bind};

use super::Worker;
use crate::mutations::Mutation;
use crate::pool;
use crate::state::{ADDRESSES, Age, Early, NAMES, Operation, Provider, Request, Reservation};

impl Worker<'_> {
    pub(super) fn allocate_next(&mut self, event: allocate::Event) {
        if let Provider::Allocate(allocate) = &mut self.task.provider {
            allocate.next(event);
        }
    }

    pub(super) fn adopt_next(&mut self, event: adopt::Event) {
        if let Provider::Adopt(adopt) = &mut self.task.provider {
            adopt.next(event);
        }
    }

    pub(super) fn free_next(&mut self, event: free::Event) {
        if let Provider::Free(free) = &mut self.task.provider {
            free.next(event);
        }
    }

    pub(super) fn allocate_step(&mut self, step: allocate::Step) {
        use allocate::{Event, Step};
        match step {
            Step::FindHeld => {
                let held = self.find_held();
                self.allocate_next(Event::Held(held));
            }
            Step::MoveHeld => self.allocate_next(Event::Changed),
            Step::CheckHeld => self.send(Request::ReadHeld),
            Step::FindAttempt => {
                let attempt = self.find_attempt();
                self.allocate_next(Event::Attempt(attempt));
            }
            Step::CheckPermission | Step::CheckLimits | Step::CheckBlock | Step::CheckPool => {
                self.allocate_next(Event::Permitted);
            }
            Step::Propose => match self.propose() {
                Some(proposed) => self.allocate_next(Event::Proposed(proposed)),
                None if self.scope.sets => self.refused(),
                None => self.fail(),
            },
            Step::TakeOver(_) | Step::Reserve(_) if self.has_mutation(Mutation::PickByCache) => {
                self.allocate_next(Event::Reserved);
            }
            Step::TakeOver(_) => self.send(Request::TakeReleased),
            Step::Reserve(_) => self.send(Request::Reserve),
            Step::CatchUp => self.allocate_next(Event::CaughtUp),
            Step::Done(end) => {
                assert_ne!(end, allocate::End::UnexpectedEvent, "{:?}", self.task);
                if end == allocate::End::Allocated {
                    self.allocated();
                } else {
                    self.fail();
                }
            }
        }
    }

    pub(super) fn adopt_step(&mut self, step: adopt::Step) {
        use adopt::{Event, Step};
        let is_blind = self.has_mutation(Mutation::AdoptWithoutReservation)
            || self.has_mutation(Mutation::PickByCache);
        let trusts = self.has_mutation(Mutation::TakeOverWithoutReadingTheClaim)
            || self.has_mutation(Mutation::AdoptWithoutReadingTheClaim);
        match step {
            Step::CheckHeld | Step::Reserve if is_blind => self.allocated(),
            Step::CheckHeld => self.send(Request::ReadHeld),
            Step::Reserve => {
                self.hold_candidate();
                self.send(Request::Reserve);
            }
            Step::ReadHolder => self.send(Request::ReadHolder),
            Step::CheckClaim(_) if trusts => self.adopt_next(Event::Claim(ClaimRead::Exists)),
            Step::CheckClaim(_) => self.send(Request::ReadClaim),
            Step::TakeOver(adopt::Holder::Released) => self.send(Request::TakeReleased),
            Step::TakeOver(_) => self.send(Request::TakeOver),
            Step::Done(adopt::End::Allocated) => self.allocated(),
            Step::Done(adopt::End::Conflict) => self.conflict(),
            Step::Done(end) => {
                assert_ne!(end, adopt::End::UnexpectedEvent, "{:?}", self.task);
                self.end();
            }
        }
    }

    pub(super) fn free_step(&mut self, step: free::Step) {
        use free::{Event, Step};
        match step {
            Step::FindHeld => {
                let frees_promises = self.has_mutation(Mutation::ReleasePromises);
                let exists = self.find_next_held(if frees_promises {
                    Reservation::is_ours
                } else {
                    Reservation::is_for
                });
                self.free_next(Event::Found { exists });
            }
            Step::FindScope => {
                let address = self.task.deleted.take();
                self.task.address = address.unwrap_or(self.task.address);
                self.free_next(Event::Found {
                    exists: address.is_some(),
                });
            }
            Step::ReadReservation => self.send(Request::ReadReleased),
            Step::Release(_) => {
                let manager = self.memory();
                let cools_down = self
                    .scope
                    .cools_down(self.manager, manager, self.state.is_sticky);
                self.send(if cools_down {
                    Request::MarkReleased
                } else {
                    Request::Unreserve
                });
            }
            Step::Done(free::End::Released) => {
                self.task.provider = Provider::Idle;
                self.freed();
            }
            Step::Done(end) => {
                assert_ne!(end, free::End::UnexpectedEvent, "{:?}", self.task);
                self.end();
            }
        }
    }

    /// Starts R2.
    pub(super) fn start_free(&mut self) {
        let is_held = |address: &u8| {
            let held = self.memory().ledger[usize::from(*address)];
            held.is_some_and(|held| held.is_for(self.name, self.life()))
        };
        // What the ledger shows as held is released as that.
        self.task.deleted = self.task.deleted.filter(|address| !is_held(address));
        self.task.next_held = 0;
        self.task.provider = Provider::Free(Free::start());
    }

    /// The address is reserved for this claim.
    pub(super) fn allocated(&mut self) {
        self.drop_candidate();
        self.task.provider = Provider::Idle;
        let is_early = matches!(
            self.task.operation,
            Operation::Bind(bind) if bind.step() == bind::Step::AddFinalizerAndAllocate
        );
        if is_early {
            self.task.early = Some(Early::Allocated);
        } else {
            self.bind_next(bind::Event::Allocated);
        }
    }

    /// The address of the IPAddress is reserved for another claim: a leftover is deleted, any other
    /// is reported and not changed.
    fn conflict(&mut self) {
        let life = self.life();
        let is_leftover = self
            .task
            .existing
            .is_some_and(|existing| existing.owner != 0 && existing.owner != life);
        if !is_leftover || self.task.claim.bound.is_some() {
            return self.end();
        }
        self.drop_candidate();
        self.task.provider = Provider::Idle;
        self.bind_next(bind::Event::AddressRejected);
    }

    /// The next address that the ledger shows as reserved for the claim, or promised to it.
    fn find_next_held(&mut self, is_held: fn(Reservation, usize, u8) -> bool) -> bool {
        let (name, life) = (self.name, self.life());
        let first = usize::from(self.task.next_held);
        let held = (first..ADDRESSES).find_map(|address| {
            let held = self.memory().ledger[address].filter(|held| is_held(*held, name, life))?;
            Some((u8::try_from(address).unwrap_or_default(), held.age))
        });
        let Some((address, age)) = held else {
            return false;
        };
        self.task.address = address;
        self.task.found = age;
        self.task.next_held = address + 1;
        true
    }

    fn find_held(&mut self) -> Option<HeldAddress> {
        let ignores = self.has_mutation(Mutation::IgnoreOwnReservation)
            || self.has_mutation(Mutation::AllocateBeforeLookup)
            || self.has_mutation(Mutation::PickByCache);
        if ignores || !self.find_next_held(Reservation::is_ours) {
            return None;
        }
        let address = self.task.address;
        if !self.scope.may_have(address.into()) || !self.is_of_member(address.into()) {
            return self.find_held();
        }
        let known = self.memory();
        let is_used_by_other =
            (0..NAMES).any(|other| other != self.name && known.is_used_by(other, address.into()));
        Some(HeldAddress {
            is_misplaced: false,
            is_promise: self.memory().ledger[usize::from(address)]
                .is_some_and(Reservation::is_promise),
            is_in_pool: true,
            is_draining: false,
            is_used_by_other,
        })
    }

    /// The address of an attempt with an unknown outcome.
    fn find_attempt(&mut self) -> EarlierAttempt {
        let (name, life) = (self.name, self.life());
        let Some((of, address)) = self.memory().attempts[name] else {
            return EarlierAttempt::None;
        };
        if !self.is_of_member(address.into()) {
            return EarlierAttempt::None;
        }
        let may_have_it = of == life
            && !self.memory().is_used(address.into())
            && pool::proposes(self.scope, self.memory(), address.into())
            && self.scope.may_have(address.into());
        if !may_have_it {
            self.memory_mut().attempts[name] = None;
            return EarlierAttempt::None;
        }
        self.task.address = address;
        let released = self.memory().ledger[usize::from(address)].filter(|held| {
            let is_former = usize::from(held.name) == name;
            held.released
                && self.state.is_sticky
                && (is_former || self.has_cooled_down(address.into()))
        });
        match released {
            Some(released) => {
                self.task.found = released.age;
                EarlierAttempt::Released
            }
            None => EarlierAttempt::Unreserved,
        }
    }

    /// The address that the last claim of the name has released, if the pool is sticky; else the
    /// lowest address that seems free, marked as proposed; else one that is kept for the claims of
    /// another name.
    fn propose(&mut self) -> Option<Proposed> {
        self.drop_candidate();
        let (name, is_sticky) = (self.name, self.state.is_sticky);
        let manager = self.memory();
        let find = |is_candidate: &dyn Fn(usize) -> bool| {
            (0..self.scope.addresses).find(|&address| {
                is_candidate(address)
                    && !manager.proposed[address]
                    && !manager.is_used(address)
                    && pool::proposes(self.scope, manager, address)
                    && self.scope.may_have(address)
                    && self.is_of_member(address)
            })
        };
        let released =
            |address: usize| manager.ledger[address].filter(|held| held.released && is_sticky);
        let former =
            find(&|address| released(address).is_some_and(|held| usize::from(held.name) == name));
        let free = former.or_else(|| find(&|address| manager.ledger[address].is_none()));
        let kept = || find(&|address| released(address).is_some() && self.has_cooled_down(address));
        let chosen = free.or_else(kept)?;
        let takes_over = manager.ledger[chosen];
        self.task.address = u8::try_from(chosen).unwrap_or_default();
        self.hold_candidate();
        let Some(released) = takes_over else {
            return Some(Proposed::Unreserved);
        };
        self.task.found = released.age;
        Some(Proposed::Released)
    }

    /// Whether the cool-down of a released address is over, as the manager knows it.
    fn has_cooled_down(&self, address: usize) -> bool {
        let is_over = self
            .state
            .seems_cooled_down(self.scope, self.manager, address);
        is_over || self.has_mutation(Mutation::TakeCoolingAddress)
    }

    /// What a read of a reservation that should be that of the claim shows.
    pub(super) fn held_read(&mut self, found: Option<Reservation>) {
        let is_ours = found.is_some_and(|found| found.is_ours(self.name, self.life()));
        if found.is_some() && !is_ours {
            self.learn(found);
        }
        self.allocate_next(allocate::Event::HeldRead { is_ours });
        self.adopt_next(adopt::Event::HeldRead { is_ours });
    }

    /// Who has the address of the IPAddress.
    pub(super) fn holder_read(&mut self, found: Option<Reservation>) {
        let holder = found.map(|found| self.holder(found));
        // As it was read: it may be released or taken over since.
        self.task.found = Age::Current;
        self.adopt_next(adopt::Event::Holder(holder));
    }

    fn holder(&self, found: Reservation) -> adopt::Holder {
        let is_of_name = usize::from(found.name) == self.name;
        if is_of_name && found.life != self.life() && !found.released && !found.is_promise() {
            return adopt::Holder::EarlierClaim;
        }
        let is_kept = found.released && self.state.is_sticky;
        if is_kept && (is_of_name || self.has_cooled_down(self.task.address.into())) {
            return adopt::Holder::Released;
        }
        adopt::Holder::Other
    }

    /// The reservation of the deleted IPAddress, which the ledger does not show.
    pub(super) fn released_read(&mut self, found: Option<Reservation>) {
        let is_ours = found.is_some_and(|found| found.is_for(self.name, self.life()));
        self.task.found = Age::Current;
        self.free_next(free::Event::Read { is_ours });
    }
}
