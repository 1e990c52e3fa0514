//! The shared blocks of a network that have an address which is not free.

use super::super::usage::Availability;
use super::{Change, Derived};

/// Counts the address in its block if it is no longer free, or became free.
pub(super) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let Some(counts) = &mut derived.block_use else {
        return;
    };
    let was_used = change.before.availability != Availability::Free;
    let is_used = change.after.availability != Availability::Free;
    if was_used != is_used {
        counts.count(change.slot.block, is_used);
    }
}
