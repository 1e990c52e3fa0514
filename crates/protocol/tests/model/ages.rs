//! The effect of a write on the copies of an object.

use crate::state::{Age, State, Sweep, Write};

impl State {
    pub(crate) fn age_claim(&mut self, name: usize, age: Age) {
        for manager in &mut self.managers {
            if let Some(copy) = &mut manager.claims[name] {
                copy.age = copy.age.max(age);
            }
            for task in manager.tasks_of(name).filter(|task| !task.is_idle()) {
                task.claim.age = task.claim.age.max(age);
            }
        }
        for write in self.late.iter_mut().flatten() {
            match write {
                Write::AddFinalizer {
                    name: its,
                    age: copy,
                }
                | Write::Bind {
                    name: its,
                    age: copy,
                    ..
                }
                | Write::RemoveFinalizer {
                    name: its,
                    age: copy,
                } if usize::from(*its) == name => {
                    *copy = age.max(*copy);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn age_address(&mut self, name: usize, age: Age) {
        let older = |copy: &mut Age| *copy = age.max(*copy);
        for manager in &mut self.managers {
            manager.addresses[name]
                .iter_mut()
                .for_each(|copy| older(&mut copy.age));
            manager
                .tasks_of(name)
                .filter_map(|task| task.existing.as_mut())
                .for_each(|copy| older(&mut copy.age));
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

    pub(crate) fn age_reservation(&mut self, address: usize, age: Age) {
        let older = |copy: &mut Age| *copy = age.max(*copy);
        for manager in &mut self.managers {
            manager.ledger[address]
                .iter_mut()
                .for_each(|copy| older(&mut copy.age));
            // A watch event will report a newer state than the ledger shows now.
            manager.phantoms[address] = false;
            if let Some(listed) = &mut manager.listed {
                listed[address]
                    .iter_mut()
                    .for_each(|copy| older(&mut copy.age));
            }
            for task in &mut manager.tasks {
                if !task.is_idle() && usize::from(task.address) == address {
                    older(&mut task.found);
                }
            }
            match &mut manager.sweep {
                Sweep::Check {
                    address: its, age, ..
                }
                | Sweep::Unreserve { address: its, age }
                | Sweep::MarkReleased { address: its, age }
                | Sweep::TakeForUse {
                    address: its, age, ..
                }
                | Sweep::EndCooldown { address: its, age }
                | Sweep::CheckUse {
                    address: its, age, ..
                }
                | Sweep::CheckUser {
                    address: its, age, ..
                } if usize::from(*its) == address => {
                    older(age);
                }
                _ => {}
            }
        }
        for write in self.late.iter_mut().flatten() {
            match write {
                Write::Unreserve {
                    address: its, age, ..
                }
                | Write::TakeReleased {
                    address: its, age, ..
                }
                | Write::TakeOver {
                    address: its, age, ..
                }
                | Write::MarkReleased { address: its, age }
                    if usize::from(*its) == address =>
                {
                    older(age);
                }
                _ => {}
            }
        }
    }
}
