//! The machines of the claim life cycle: bind, release and clean-up.

use capi_ipam_protocol::adopt::Adopt;
use capi_ipam_protocol::allocate::Allocate;
use capi_ipam_protocol::clean_up::{self, CleanUp};
use capi_ipam_protocol::{ClaimRead, FoundAddress, Owner, bind, release};

use super::Worker;
use crate::mutations::Mutation;
use crate::state::{Address, Early, Member, Operation, Provider, Request};

impl Worker<'_> {
    pub(super) fn bind_next(&mut self, event: bind::Event) {
        if let Operation::Bind(bind) = &mut self.task.operation {
            bind.next(event);
        }
    }

    pub(super) fn release_next(&mut self, event: release::Event) {
        if let Operation::Release(release) = &mut self.task.operation {
            release.next(event);
        }
    }

    pub(super) fn clean_up_next(&mut self, event: clean_up::Event) {
        if let Some(clean_up) = &mut self.task.clean_up {
            clean_up.next(event);
        } else if let Operation::CleanUp(clean_up) = &mut self.task.operation {
            clean_up.next(event);
        }
    }

    pub(super) fn bind_step(&mut self, step: bind::Step) {
        let without_finalizer = self.has_mutation(Mutation::CreateBeforeFinalizer);
        match step {
            bind::Step::AddFinalizerAndAllocate if self.task.early.is_none() => {
                self.start_allocate();
            }
            bind::Step::AddFinalizer | bind::Step::AddFinalizerAndAllocate if without_finalizer => {
                self.bind_next(bind::Event::FinalizerSet);
            }
            bind::Step::AddFinalizer | bind::Step::AddFinalizerAndAllocate => {
                self.send(Request::AddFinalizer);
            }
            bind::Step::ReadAddress(_) => self.send(Request::ReadAddress),
            bind::Step::CheckRestore => self.bind_next(bind::Event::Served),
            bind::Step::CheckClaim(bind::ClaimReason::OtherOwner)
                if self.has_mutation(Mutation::AdoptWithoutReadingTheClaim) =>
            {
                self.bind_next(bind::Event::Claim(ClaimRead::Exists));
            }
            bind::Step::CheckClaim(reason) => {
                let mut clean_up = CleanUp::start();
                let is_blind = reason == bind::ClaimReason::NoFinalizer
                    && self.has_mutation(Mutation::UnreserveWithoutReadingTheClaim);
                if is_blind {
                    clean_up.next(clean_up::Event::Claim(ClaimRead::Gone));
                }
                self.drop_candidate();
                self.task.clean_up = Some(clean_up);
            }
            bind::Step::Allocate => match self.task.early.take() {
                Some(Early::Allocated) => self.bind_next(bind::Event::Allocated),
                Some(Early::Failed) => self.end(),
                None => self.start_allocate(),
            },
            bind::Step::RemoveAddress(_) => self.remove_address(),
            bind::Step::CreateAddress => {
                let is_early = self.has_mutation(Mutation::BindBeforeCreate);
                let is_committed = self.task.claim.bound == Some(self.task.address);
                self.send(if is_early && !is_committed {
                    Request::Commit
                } else {
                    Request::CreateAddress
                });
            }
            bind::Step::RepairAddress => {
                let life = self.life();
                let is_complete = |existing: Address| existing.owner == life && existing.finalizer;
                if self.task.existing.is_some_and(is_complete) {
                    self.bind_next(bind::Event::Repaired);
                } else {
                    self.send(Request::RepairAddress);
                }
            }
            bind::Step::Commit => {
                if self.task.claim.bound == Some(self.task.address) {
                    self.bind_next(bind::Event::Committed);
                } else if without_finalizer && !self.task.claim.finalizer {
                    self.send(Request::AddFinalizer);
                } else {
                    self.send(Request::Commit);
                }
            }
            bind::Step::Done(end) => {
                assert_ne!(end, bind::End::UnexpectedEvent, "{:?}", self.task);
                self.end();
            }
        }
    }

    pub(super) fn release_step(&mut self, step: release::Step) {
        match step {
            release::Step::RemoveKnownAddress | release::Step::RemoveAddress => {
                self.remove_address();
            }
            release::Step::ReadAddress if self.has_mutation(Mutation::ReleaseByCache) => {
                let cached = self.memory().addresses[self.name];
                self.task.existing = cached;
                self.release_next(release::Event::Address(self.facts_of(cached)));
            }
            release::Step::ReadAddress | release::Step::ReadLateAddress => {
                self.send(Request::ReadAddress);
            }
            release::Step::CheckClaim
                if self.has_mutation(Mutation::ReleaseWithoutReadingTheClaim)
                    || self.has_mutation(Mutation::ReleaseByCache) =>
            {
                self.release_next(release::Event::Claim(ClaimRead::Exists));
            }
            release::Step::CheckClaim => self.task.clean_up = Some(CleanUp::start()),
            release::Step::Release => self.start_free(),
            release::Step::Report => {
                self.release_next(release::Event::Reported { is_written: false });
            }
            release::Step::RemoveFinalizer => self.send(Request::RemoveFinalizer),
            release::Step::Done(end) => {
                assert_ne!(end, release::End::UnexpectedEvent, "{:?}", self.task);
                self.end();
            }
        }
    }

    pub(super) fn clean_up_step(&mut self, step: clean_up::Step) {
        match step {
            clean_up::Step::CheckClaim
                if self.task.clean_up.is_none()
                    && self.has_mutation(Mutation::CleanUpWithoutReadingTheClaim) =>
            {
                self.clean_up_next(clean_up::Event::Claim(ClaimRead::Gone));
            }
            clean_up::Step::CheckClaim | clean_up::Step::CheckSuccessor => {
                self.send(Request::ReadClaim);
            }
            clean_up::Step::ReadAddress => self.send(Request::ReadAddress),
            clean_up::Step::RemoveAddress => self.remove_address(),
            clean_up::Step::Release => self.start_free(),
            clean_up::Step::Done(end) => {
                assert_ne!(end, clean_up::End::UnexpectedEvent, "{:?}", self.task);
                self.cleaned_up(end);
            }
        }
    }

    /// The clean-up has ended: the operation that has started it continues if the claim exists.
    fn cleaned_up(&mut self, end: clean_up::End) {
        if self.task.clean_up.take().is_none() || end == clean_up::End::Failed {
            return self.end();
        }
        let read = if end == clean_up::End::ClaimExists {
            ClaimRead::Exists
        } else {
            ClaimRead::Gone
        };
        self.bind_next(bind::Event::Claim(read));
        self.release_next(release::Event::Claim(read));
    }

    /// What the machines see of an IPAddress.
    pub(super) fn facts_of(&self, address: Option<Address>) -> Option<FoundAddress> {
        let address = address?;
        let owner = match address.owner {
            0 => Owner::NoClaim,
            owner if owner == self.life() => Owner::ThisClaim,
            _ => Owner::OtherClaim,
        };
        Some(FoundAddress {
            is_deleting: address.deleting,
            is_for_claim: true,
            owner,
        })
    }

    /// Starts A2.
    fn start_allocate(&mut self) {
        self.task.next_held = 0;
        let Some(existing) = self.task.existing else {
            return if self.scope.sets {
                self.allocate_from_set();
            } else {
                self.allocate_from_pool();
            };
        };
        self.task.address = existing.address;
        if self.scope.sets && !self.is_right_member(existing) {
            return;
        }
        let held = self.memory().ledger[usize::from(existing.address)];
        let is_held = held.is_some_and(|held| held.is_ours(self.name, self.life()));
        self.task.provider = Provider::Adopt(Adopt::start(is_held));
    }

    pub(super) fn allocate_from_pool(&mut self) {
        let is_bound = self.task.claim.bound.is_some();
        self.task.provider = Provider::Allocate(Allocate::start(is_bound));
    }

    /// R1: the finalizer is removed first.
    fn remove_address(&mut self) {
        let has_finalizer = self
            .task
            .existing
            .is_some_and(|existing| existing.finalizer);
        self.send(if has_finalizer {
            Request::Strip
        } else {
            Request::Delete
        });
    }

    /// An IPAddress is deleted, or waits for finalizers.
    pub(super) fn address_removed(&mut self, is_gone: bool) {
        let is_cleaned_up =
            self.task.clean_up.is_some() || matches!(self.task.operation, Operation::CleanUp(_));
        let removed = self.task.existing.take();
        if is_cleaned_up || matches!(self.task.operation, Operation::Release(_)) {
            // The pool is that of the annotation.
            let removed = removed.filter(|removed| removed.member == Member::Right);
            self.task.deleted = removed.map(|removed| removed.address);
        }
        if is_cleaned_up {
            return self.clean_up_next(clean_up::Event::Removed);
        }
        self.bind_next(bind::Event::Removed);
        self.release_next(if is_gone {
            release::Event::Removed
        } else {
            release::Event::Blocked
        });
    }

    /// An IPAddress is not the one that was to be removed.
    pub(super) fn address_changed(&mut self) {
        let is_known = matches!(
            self.task.operation,
            Operation::Release(release) if release.step() == release::Step::RemoveKnownAddress
        );
        if self.task.clean_up.is_some() || matches!(self.task.operation, Operation::CleanUp(_)) {
            self.clean_up_next(clean_up::Event::AddressChanged);
        } else if is_known {
            self.release_next(release::Event::AddressChanged);
        } else {
            self.end();
        }
    }

    /// What a read of the IPAddress shows.
    pub(super) fn address_read(&mut self, found: Option<Address>) {
        let facts = self.facts_of(found);
        self.task.existing = found;
        if self.task.clean_up.is_some() || matches!(self.task.operation, Operation::CleanUp(_)) {
            return self.clean_up_next(clean_up::Event::Address(facts));
        }
        self.bind_next(bind::Event::Address(facts));
        self.release_next(release::Event::Address(facts));
    }

    /// The provider has released the addresses of the claim.
    pub(super) fn freed(&mut self) {
        if self.task.clean_up.is_some() || matches!(self.task.operation, Operation::CleanUp(_)) {
            return self.clean_up_next(clean_up::Event::Released);
        }
        // The product also reads the IPAddress if a late creation is possible. The model must hold
        // without it.
        let released = release::Event::Released {
            creation_may_apply: false,
        };
        if let Operation::Release(release) = self.task.operation
            && release.step() == release::Step::Release
        {
            self.release_next(released);
        }
    }
}
