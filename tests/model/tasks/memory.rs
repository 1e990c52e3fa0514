//! What the manager keeps in memory.

use capi_ipam::state::Reservation;

use super::Worker;

impl Worker<'_> {
    pub(super) fn announce(&mut self) {
        let address = usize::from(self.task.address);
        if !self.memory().proposed[address] {
            self.memory_mut().proposed[address] = true;
            self.task.announced = true;
        }
    }

    pub(super) fn withdraw(&mut self) {
        if self.task.announced {
            let address = usize::from(self.task.address);
            self.memory_mut().proposed[address] = false;
            self.task.announced = false;
        }
    }

    /// The ledger hears of a reservation.
    pub(super) fn learn(&mut self, found: Option<Reservation>) {
        self.withdraw();
        let address = usize::from(self.task.address);
        self.memory_mut().learn(address, found);
        self.memory_mut().proposed[address] = false;
    }

    pub(super) fn forget(&mut self) {
        let address = usize::from(self.task.address);
        self.memory_mut().forget(address);
    }

    /// The index of addresses hears of what was just written.
    pub(super) fn index(&mut self) {
        let name = self.name;
        self.memory_mut().addresses[name] = self.state.objects.addresses[name];
    }
}
