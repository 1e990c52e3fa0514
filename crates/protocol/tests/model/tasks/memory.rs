//! The memory of the manager.

use super::Worker;
use crate::state::{Provider, Reservation};

impl Worker<'_> {
    pub(super) fn hold_candidate(&mut self) {
        let address = usize::from(self.task.address);
        if !self.memory().proposed[address] {
            self.memory_mut().proposed[address] = true;
            self.task.announced = true;
        }
    }

    pub(super) fn drop_candidate(&mut self) {
        if self.task.announced {
            let address = usize::from(self.task.address);
            self.memory_mut().proposed[address] = false;
            self.task.announced = false;
        }
    }

    /// The ledger takes in a reservation.
    pub(super) fn learn(&mut self, found: Option<Reservation>) {
        self.drop_candidate();
        let address = usize::from(self.task.address);
        self.memory_mut().learn(address, found);
        self.memory_mut().proposed[address] = false;
    }

    pub(super) fn forget(&mut self) {
        let address = usize::from(self.task.address);
        self.memory_mut().forget(address);
    }

    /// The claim has tried to get the address, and the outcome is unknown: its next attempt uses
    /// the same address.
    pub(super) fn remember_attempt(&mut self) {
        if !matches!(self.task.provider, Provider::Free(_)) {
            let attempt = (self.life(), self.task.address);
            let name = self.name;
            self.memory_mut().attempts[name] = Some(attempt);
        }
    }

    pub(super) fn forget_attempt(&mut self) {
        let name = self.name;
        self.memory_mut().attempts[name] = None;
    }

    /// The index of addresses takes in the written object.
    pub(super) fn index(&mut self) {
        let name = self.name;
        self.memory_mut().addresses[name] = self.state.objects.addresses[name];
    }
}
