//! Which write a management cluster sends next for one block of a network that several clusters
//! share.
//!
//! Three objects say who uses a block: its record in the registry, which all clusters see; the
//! IPSlice of the cluster; and the addresses in use. A cluster allocates from a block only while its
//! slice is [usable](Slice::is_usable), so allocation never waits for the registry. A slice that a
//! process has not seen before its confirmation is [compared](Compared) with the record first.
//!
//! The decision depends on the present state only. A write that is lost or whose process was killed
//! is decided again from the state that the next reads show. Every write names the version that it
//! replaces, so a decision that rests on an old state has no effect.
//!
//! | operation | order of the writes | reason |
//! |---|---|---|
//! | take | record, slice, [confirmation of the record](Step::ConfirmRecord), [confirmation of the slice](Step::ConfirmSlice) | The record cannot be deleted between its confirmation and that of the slice: a process that deletes it marks it first, and then finds the slice. A registry that loses the first write rejects the second one. |
//! | return | mark of the slice, deletion of the slice, mark of the record, deletion of the record | An interruption leaves a record too many, never one too few. |
//! | conflict | conflict of the slice, name of the cluster in the record of the other one | No cluster allocates from the block, also after a restart without the registry. |
//! | conflict with a block of another size | conflict of the slice, record | The record shows the conflict to the other cluster, which has no record of the block to be named in. |
//!
//! All clusters use one size, which the record of the network says. When this record is lost or
//! edited, two clusters can create records of blocks that overlap: they have different names. So a
//! record is confirmed only after the watch of the registry, which shows all writes in their order,
//! has shown it. Then it has shown all records that were written before. Of two records that overlap,
//! the later one is not confirmed as long as the earlier one exists.
//!
//! A slice is deleted after a list shows that no address of its block is in use or reserved, and the
//! list is later than the mark of the slice. An allocation creates its reservation and then reads
//! the slice. So either the list shows the reservation, or the read shows the mark.
//!
//! When a network stops to share blocks, or is deleted, its slices and records are returned as their
//! addresses are released. No slice is created any more: it would restrict the network again.

mod compared;

pub use compared::{Compared, Comparison};

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// The record in the registry.
    pub record: Record,
    /// Whether the network shares blocks through this registry.
    pub sharing: Sharing,
    /// Whether another cluster has a block of another size that overlaps with this one. Their records
    /// have different names, so the registry accepts both.
    pub is_overlapped: bool,
    /// The slice of this cluster; `None` if it has none.
    pub slice: Option<Slice>,
    /// Whether an address of the block is in use, reserved, being allocated or cooling down.
    pub is_used: bool,
    /// Whether the cluster needs the block, used or not.
    pub is_needed: bool,
    /// Whether the block has been neither used nor needed for so long that its slice is marked as
    /// empty. Until then, addresses of it are allocated without any write for the block. True for a
    /// block in conflict, of which no address is allocated.
    pub is_idle: bool,
    /// Whether the record was written so long ago that the registry does not lose it any more.
    pub is_settled: bool,
    /// Whether the watch of the registry has shown the record, and so all records that were written
    /// before it.
    pub is_watched: bool,
    /// Whether another manager of this cluster can be taking the block for a claim that this one does
    /// not see.
    pub is_being_taken: bool,
}

/// Whether a network shares blocks through a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sharing {
    /// It does.
    Active,
    /// It shares no blocks any more. This registry has or had a record of the block.
    Ended,
    /// It shares no blocks any more. The record of the block can be in another registry: what this
    /// one has under its name is of no concern, and no record is created here.
    Elsewhere,
}

/// Whether a process knows that the record of a block is, or was, in this registry: it returns the
/// block when the network shares blocks no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recorded(bool);

/// What a process sees of a block, for [`Recorded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether the network shares blocks through this registry, and this process can have created the
    /// record a moment ago.
    pub is_taking: bool,
    /// Whether this cluster has a slice of the block.
    pub has_slice: bool,
    /// Whether the slice names this registry.
    pub is_slice_of_registry: bool,
    /// Whether the registry shows a record that names this cluster; `None` if the record is unknown.
    pub is_named: Option<bool>,
}

impl Recorded {
    /// Takes in what is seen now.
    #[must_use]
    pub fn update(self, seen: Seen) -> Self {
        // A record that is found when the network shares none, without a slice, may belong to another
        // management cluster with the same identity, or to objects that are not restored yet.
        let is_known = self.0 || seen.is_taking || seen.has_slice;
        let is_named = seen.is_named.unwrap_or(self.0);
        Self(seen.is_slice_of_registry || is_named && is_known)
    }

    /// Whether the network shares blocks through this registry. `is_active` is what it declares.
    pub fn sharing(self, is_active: bool) -> Sharing {
        match (is_active, self.0) {
            (true, _) => Sharing::Active,
            (false, true) => Sharing::Ended,
            (false, false) => Sharing::Elsewhere,
        }
    }
}

/// The record of a block, as the last read or write of it shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// It was not read since the last failed request: the registry is unavailable.
    Unknown,
    /// No cluster has the block.
    Absent,
    /// This cluster has the block.
    Ours {
        /// Whether it is marked as being returned.
        is_returning: bool,
        /// Whether another cluster is named that uses addresses of the block.
        is_contested: bool,
    },
    /// Another cluster has the block.
    Theirs {
        /// Whether this cluster is named as one that uses addresses of the block.
        names_us: bool,
        /// Whether no further cluster can be named.
        is_full: bool,
    },
    /// The record cannot be decoded. It counts as that of another cluster.
    Unreadable,
}

impl Record {
    /// Whether this cluster has the block and no other one uses addresses of it, as far as is known. If not,
    /// no address of the block is allocated before the slice is [compared](Compared) with the record:
    /// the mark of a conflict in the slice takes a write, and this takes none.
    pub fn is_ours_alone(self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Ours {
                is_returning,
                is_contested,
            } => !is_returning && !is_contested,
            Self::Absent | Self::Theirs { .. } | Self::Unreadable => false,
        }
    }
}

/// The slice of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Whether the record was confirmed for it.
    pub confirmation: Confirmation,
    /// Whether another cluster uses the block as well.
    pub is_conflicting: bool,
    /// Whether it is marked as empty.
    pub mark: Mark,
}

impl Slice {
    /// A slice that was just created.
    pub const NEW: Self = Self {
        confirmation: Confirmation::Missing,
        is_conflicting: false,
        mark: Mark::None,
    };

    /// Whether addresses of the block may be allocated.
    pub fn is_usable(self) -> bool {
        self.confirmation == Confirmation::Written
            && !self.is_conflicting
            && self.mark == Mark::None
    }
}

/// Whether the record of a slice was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confirmation {
    /// It was not.
    Missing,
    /// This process has confirmed it since it read the slice in this version.
    Received,
    /// The slice says that it was.
    Written,
}

/// The mark of an empty slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// The slice has none.
    None,
    /// The slice is marked, and an address of it may still be allocated.
    Recent,
    /// The mark is so old that a list of the addresses in use decides.
    Old,
}

/// The next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Nothing is to be done until the view changes.
    Wait,
    /// Create the record.
    CreateRecord,
    /// Write the record again, without the mark that it is being returned.
    KeepRecord,
    /// Write the record again: the registry confirms that this cluster has the block.
    ConfirmRecord,
    /// Mark the record as being returned.
    MarkRecord,
    /// Read the slice and the addresses in use, and delete the record if there are none. It is
    /// deleted in the revision that it had before this read: another process may confirm it
    /// meanwhile.
    DeleteRecord,
    /// Make another cluster that uses addresses of the block its holder.
    HandOver,
    /// Name this cluster in the record of another one.
    Contend,
    /// Remove the name of this cluster from the record of another one.
    Withdraw,
    /// Create the slice, not confirmed.
    CreateSlice,
    /// Write into the slice that the record is confirmed and that there is no conflict.
    ConfirmSlice,
    /// Write into the slice that another cluster uses the block.
    MarkConflict,
    /// Mark the slice as empty.
    MarkEmpty,
    /// Remove the mark of an empty slice.
    ClearMark,
    /// List the addresses in use, and delete the slice if none is in its block. A slice that was
    /// never confirmed is deleted without the list.
    DeleteSlice,
}

impl Step {
    /// Whether the step is a request to the registry.
    pub fn is_of_registry(self) -> bool {
        match self {
            Self::CreateRecord
            | Self::KeepRecord
            | Self::ConfirmRecord
            | Self::MarkRecord
            | Self::DeleteRecord
            | Self::HandOver
            | Self::Contend
            | Self::Withdraw => true,
            Self::Wait
            | Self::CreateSlice
            | Self::ConfirmSlice
            | Self::MarkConflict
            | Self::MarkEmpty
            | Self::ClearMark
            | Self::DeleteSlice => false,
        }
    }

    /// Whether the step returns a block: no claim of this cluster waits for it.
    pub fn is_of_return(self) -> bool {
        match self {
            Self::MarkRecord
            | Self::DeleteRecord
            | Self::HandOver
            | Self::Withdraw
            | Self::MarkEmpty
            | Self::DeleteSlice => true,
            Self::Wait
            | Self::CreateRecord
            | Self::KeepRecord
            | Self::ConfirmRecord
            | Self::Contend
            | Self::CreateSlice
            | Self::ConfirmSlice
            | Self::MarkConflict
            | Self::ClearMark => false,
        }
    }
}

impl View {
    /// The next write for the block.
    pub fn next(self) -> Step {
        let view = self.of_its_registry();
        let step = view.step();
        if view.is_being_taken && view.ends_take(step) {
            return Step::Wait;
        }
        step
    }

    /// Leaves out what a registry shows that is not the one of the network.
    fn of_its_registry(self) -> Self {
        if self.sharing != Sharing::Elsewhere {
            return self;
        }
        let record = match self.record {
            Record::Unknown => Record::Unknown,
            _ => Record::Absent,
        };
        Self {
            record,
            is_overlapped: false,
            ..self
        }
    }

    /// Whether the next write waits only for the time after which the record is settled.
    pub fn is_settling(self) -> bool {
        let settled = Self {
            is_settled: true,
            ..self
        };
        settled.next() != self.next()
    }

    /// Whether a step undoes what a cluster has written to take the block.
    fn ends_take(self, step: Step) -> bool {
        match (step, self.record) {
            (Step::MarkRecord, _) => true,
            // Another cluster has the other ones: no claim is served from them.
            (Step::DeleteSlice, Record::Absent | Record::Ours { .. }) => !self.is_overlapped,
            _ => false,
        }
    }

    /// The next write if no other manager of this cluster takes the block.
    fn step(self) -> Step {
        match (self.slice, self.record) {
            (None, _) => self.without_slice(),
            (Some(slice), Record::Unknown) => self.unknown_record(slice),
            // Another cluster has addresses of the block, whatever the record of the block says.
            (Some(slice), _) if self.is_overlapped => self.other_record(slice),
            (Some(slice), Record::Absent) => self.missing_record(slice),
            (Some(slice), Record::Ours { is_returning, .. }) if is_returning => {
                self.returning_record(slice)
            }
            (Some(slice), Record::Ours { is_contested, .. }) => {
                self.own_record(slice, is_contested)
            }
            (Some(slice), Record::Theirs { .. } | Record::Unreadable) => self.other_record(slice),
        }
    }

    /// Whether the cluster takes the block or keeps it.
    pub fn is_wanted(self) -> bool {
        let is_overlapped = self.of_its_registry().is_overlapped;
        self.is_used || self.is_needed && !is_overlapped
    }

    fn without_slice(self) -> Step {
        match self.record {
            Record::Unknown => Step::Wait,
            // The record keeps other clusters from the addresses in use until they are released.
            _ if self.sharing != Sharing::Active && self.is_used => Step::Wait,
            Record::Absent if self.is_wanted() && !self.is_overlapped => Step::CreateRecord,
            Record::Ours { .. } if self.is_wanted() => Step::CreateSlice,
            Record::Ours {
                is_contested: true, ..
            } => Step::HandOver,
            Record::Ours {
                is_returning: false,
                ..
            } => Step::MarkRecord,
            Record::Ours {
                is_returning: true, ..
            } => Step::DeleteRecord,
            // The slice keeps the conflict, also while the registry is unavailable.
            Record::Absent | Record::Theirs { .. } | Record::Unreadable if self.is_used => {
                Step::CreateSlice
            }
            Record::Theirs { names_us: true, .. } => Step::Withdraw,
            Record::Absent | Record::Theirs { .. } | Record::Unreadable => Step::Wait,
        }
    }

    /// The registry is unavailable. The slice and the addresses in use stay as they are, and claims
    /// still get addresses of the block: a slice that exists was not returned, so its mark can be
    /// removed.
    fn unknown_record(self, slice: Slice) -> Step {
        let is_confirmed = slice.confirmation == Confirmation::Written && !slice.is_conflicting;
        if is_confirmed && slice.mark != Mark::None && self.is_wanted() && !self.is_overlapped {
            Step::ClearMark
        } else {
            Step::Wait
        }
    }

    /// The registry has lost the record, or it was never created.
    fn missing_record(self, slice: Slice) -> Step {
        let is_kept = slice.confirmation == Confirmation::Written || self.is_wanted();
        // Without an address in use, no record is needed any more.
        let is_drained = match self.sharing {
            Sharing::Active => false,
            Sharing::Ended => !self.is_used,
            Sharing::Elsewhere => true,
        };
        if is_kept && is_drained {
            self.drain(slice)
        } else if is_kept {
            Step::CreateRecord
        } else {
            Step::DeleteSlice
        }
    }

    /// A process has started to return the record, and then the slice was created again.
    fn returning_record(self, slice: Slice) -> Step {
        if slice.confirmation == Confirmation::Written || self.is_wanted() {
            Step::KeepRecord
        } else {
            Step::DeleteSlice
        }
    }

    fn own_record(self, slice: Slice, is_contested: bool) -> Step {
        if slice.confirmation == Confirmation::Missing && !self.is_wanted() {
            return Step::DeleteSlice;
        }
        if is_contested && !slice.is_conflicting {
            return Step::MarkConflict;
        }
        if is_contested {
            return self.drain(slice);
        }
        // Also a conflict ends with a confirmation: the record is ours in this moment.
        let is_confirmed = slice.confirmation == Confirmation::Written && !slice.is_conflicting;
        if !is_confirmed {
            return match slice.confirmation {
                Confirmation::Received => Step::ConfirmSlice,
                _ if self.is_settled && self.is_watched => Step::ConfirmRecord,
                _ => Step::Wait,
            };
        }
        if self.is_wanted() {
            return match slice.mark {
                Mark::None => Step::Wait,
                Mark::Recent | Mark::Old => Step::ClearMark,
            };
        }
        self.drain(slice)
    }

    /// The block has another holder than the slice says.
    fn other_record(self, slice: Slice) -> Step {
        // It was never usable.
        if slice.confirmation == Confirmation::Missing && !self.is_used {
            return Step::DeleteSlice;
        }
        if !slice.is_conflicting {
            return Step::MarkConflict;
        }
        match self.record {
            // The clusters that are named make the conflict known already if there is no room.
            Record::Theirs {
                names_us: false,
                is_full: false,
            } if self.is_used => Step::Contend,
            // It shows the conflict to the cluster whose block overlaps with this one.
            Record::Absent if self.is_used && self.sharing != Sharing::Elsewhere => {
                Step::CreateRecord
            }
            _ => self.drain(slice),
        }
    }

    /// Returns the slice when its block is no longer used.
    fn drain(self, slice: Slice) -> Step {
        match slice.mark {
            _ if self.is_used => Step::Wait,
            Mark::None if !self.is_idle => Step::Wait,
            Mark::None => Step::MarkEmpty,
            Mark::Recent => Step::Wait,
            Mark::Old => Step::DeleteSlice,
        }
    }
}

#[cfg(test)]
mod tests;
