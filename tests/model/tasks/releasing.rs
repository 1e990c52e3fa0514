//! Release: steps R1 to R3.

use super::{MAX_ROUNDS, Worker};
use crate::mutations::Mutation;
use crate::state::{ADDRESSES, Address, Purpose, Step};

impl Worker<'_> {
    pub(super) fn remove(&mut self, address: Address, purpose: Purpose) {
        self.task.existing = Some(address);
        self.task.purpose = purpose;
        self.go_to(if address.finalizer {
            Step::Strip
        } else {
            Step::Delete
        });
    }

    /// The IPAddress is deleted, or held by foreign finalizers.
    pub(super) fn removed(&mut self) {
        match self.task.purpose {
            Purpose::Binding => self.end(),
            Purpose::Discarding => {
                self.task.existing = None;
                self.task.rounds += 1;
                if self.task.rounds < MAX_ROUNDS {
                    self.allocate(0)
                } else {
                    self.end()
                }
            }
            Purpose::Releasing | Purpose::CleaningUp => self.unreserve_from(0, self.task.purpose),
        }
    }

    /// R2, from that address on.
    pub(super) fn unreserve_from(&mut self, from: u8, purpose: Purpose) {
        self.task.purpose = purpose;
        self.task.existing = None;
        let (name, life) = (self.name, self.life());
        let manager = self.memory();
        let known = |address: usize| manager.ledger[address].filter(|held| held.is_for(name, life));
        let held =
            (usize::from(from)..ADDRESSES).find_map(|address| Some((address, known(address)?.age)));
        match held {
            Some((address, age)) => {
                self.task.found = age;
                self.task.address = u8::try_from(address).unwrap_or_default();
                let cools_down =
                    self.scope
                        .cools_down(self.manager, self.memory(), self.state.is_sticky);
                self.go_to(if cools_down {
                    Step::ReadHeld
                } else {
                    Step::Unreserve
                });
            }
            None if purpose == Purpose::CleaningUp => self.end(),
            None if self.has_mutation(Mutation::UnreserveBeforeRemoval) => {
                match self.state.objects.addresses[self.name] {
                    Some(address) => self.remove(address, Purpose::Releasing),
                    None => self.go_to(Step::RemoveFinalizer),
                }
            }
            // The program also reads here if a late creation is possible. The model must hold
            // without it.
            None => self.go_to(Step::RemoveFinalizer),
        }
    }
}
