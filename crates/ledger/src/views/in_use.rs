//! The scopes in which each address is in use.

use super::{Change, Derived};

/// Counts the scope of the address if an IPAddress has it there now, and no longer if none has.
pub(super) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let was_in_use = !change.before.used_by.is_empty();
    let is_in_use = !change.after.used_by.is_empty();
    if was_in_use != is_in_use {
        derived.in_use.set(change.slot, is_in_use);
    }
}
