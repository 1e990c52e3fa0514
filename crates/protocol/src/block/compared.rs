//! Whether a slice was compared with the record of its block.

use super::{Confirmation, Record, Slice, View};

/// Whether a process knows that the registry has confirmed a block for the slice that exists now: it
/// has seen the slice before the confirmation, or has compared it with the record since. A slice that
/// was restored with etcd or from a backup can be of a time when this cluster had the block. No address
/// of the block is allocated before the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Compared(bool);

/// What a comparison of a slice with the record has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The record is that of this cluster.
    Agreement,
    /// Another cluster has addresses of the block.
    Conflict,
    /// The record is missing, is being returned, or is not known.
    Unknown,
}

impl Compared {
    /// The registry has confirmed the block for the slice.
    pub const DONE: Self = Self(true);

    /// What is known when the slice is seen in the state `now`. `before` is what was known of the same
    /// object; `None` if it was not.
    #[must_use]
    pub fn after(before: Option<(Self, Slice)>, now: Slice) -> Self {
        match before {
            // Only a confirmation ends a conflict.
            Some((compared, before)) if !before.is_conflicting || now.is_conflicting => compared,
            Some(_) => Self(false),
            None => Self(now.confirmation == Confirmation::Missing),
        }
    }

    /// Whether the slice was compared.
    pub fn is_done(self) -> bool {
        self.0
    }
}

impl View {
    /// Compares the slice of this cluster with the record.
    pub fn compare(self) -> Comparison {
        let view = self.of_its_registry();
        match view.record {
            _ if view.is_overlapped => Comparison::Conflict,
            Record::Theirs { .. } | Record::Unreadable => Comparison::Conflict,
            Record::Ours {
                is_contested: true, ..
            } => Comparison::Conflict,
            // A process that has not seen the slice can be about to delete the record.
            Record::Ours {
                is_returning: true, ..
            } => Comparison::Unknown,
            Record::Ours { .. } => Comparison::Agreement,
            Record::Absent | Record::Unknown => Comparison::Unknown,
        }
    }
}
