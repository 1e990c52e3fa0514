//! Which write a management cluster sends next for one block of a network that several clusters
//! share.
//!
//! Three objects say who uses a block: its record in the registry, which all clusters see; the
//! IPSlice of the cluster; and the addresses in use. A cluster allocates from a block only while
//! its slice is [usable](Slice::is_usable) and the registry does not show [another
//! user](Record::is_ours_alone), so allocation never waits for the registry.
//!
//! The decision depends on the present state only. A write that is lost or whose process was killed
//! is decided again from the state that the next reads show. Every write names the version that it
//! replaces, so a decision that rests on an old state has no effect.
//!
//! | operation | order of the writes | reason |
//! |---|---|---|
//! | take | record, slice, [confirmation of the record](Step::ConfirmRecord), [confirmation of the slice](Step::ConfirmSlice) | The record cannot be returned between its confirmation and that of the slice: a process that returns it finds the slice. A registry that loses the first write rejects the second one. |
//! | return | mark of the slice, deletion of the slice, [return of the record](Step::ReturnRecord) | An interruption leaves a block that nobody uses, never one that two clusters use. |
//! | conflict | conflict of the slice, name of the cluster in the record of the other one | No cluster allocates from the block, also after a restart without the registry. |
//! | end of a conflict | return of the other cluster, end of the conflict in the slice; after the quarantine a take | The other one has no address of the block, and may be restored. |
//!
//! A record is never deleted. After the return of a block, its cluster can take it back at any
//! time; another one takes it only after the *quarantine*, which is longer than the age of the
//! oldest backup that anybody restores. So a slice of such a backup is that of a block which no
//! other cluster has taken since, and addresses of the block are allocated without a comparison
//! with the record.
//!
//! A registry that was restored shows blocks as free that clusters have taken since. Each cluster
//! writes its records again and then a sign of life, as soon as the records [show what it
//! has](Record::shows_use). Until all have done so, no block is [taken](Access::Recovering).
//!
//! A slice is deleted after a list shows that no address of its block is in use or reserved, and
//! the list is later than the mark of the slice. An allocation creates its reservation and then
//! reads the slice. So either the list shows the reservation, or the read shows the mark.
//!
//! When a network stops to share blocks, or is deleted, its slices and records are returned as
//! their addresses are released. No slice is created any more: it would restrict the network again.

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// The record in the registry.
    pub record: Record,
    /// Whether the network shares blocks. If not, it shares none any more, and what it has is
    /// returned.
    pub is_shared: bool,
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
    /// Whether another manager of this cluster can be taking the block for a claim that this one
    /// does not see.
    pub is_being_taken: bool,
    /// What this cluster may do with the blocks of the network.
    pub access: Access,
}

/// What a cluster may do with the blocks of a network. To take a block is to write a record of it
/// without a slice: a record that was lost is written again in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Another process has the identity of this cluster: the blocks can be those of the other one.
    /// Only a conflict is written down.
    Suspended,
    /// The registry has lost writes, and not all clusters have written their records again: a block
    /// that it shows as free, or as one of this cluster, can be one of another cluster. No block is
    /// taken, and a block without an address in use is not confirmed. Addresses in use show what
    /// this cluster has.
    Recovering,
    /// The registry has not shown the last sign of life of this cluster: another one can have the
    /// same identity, and the registry can have lost writes. No block is taken or returned.
    Unseen,
    /// No further block is taken.
    Limited,
    /// Blocks are taken and returned.
    Full,
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
        /// Whether this cluster has returned it.
        is_returned: bool,
        /// Whether another cluster is named that uses addresses of the block.
        is_contested: bool,
    },
    /// Another cluster has the block.
    Theirs {
        /// Whether this cluster is named as one that uses addresses of the block.
        names_us: bool,
        /// Whether no further cluster can be named.
        is_full: bool,
        /// Whether the other cluster has returned it.
        holding: Holding,
    },
    /// The record cannot be decoded. It counts as that of another cluster.
    Unreadable,
}

/// Whether another cluster still has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// It does.
    Held,
    /// It has returned the block, and can take it back. The quarantine is not over.
    Returned,
    /// It has returned the block, and the quarantine is over.
    Free,
}

impl Record {
    /// Whether this cluster has the block and no other one uses addresses of it, as far as is
    /// known. If not, no address of the block is allocated, from the moment in which the registry
    /// shows it: the mark of a conflict in the slice takes a write.
    pub fn is_ours_alone(self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Ours {
                is_returned,
                is_contested,
            } => !is_returned && !is_contested,
            Self::Absent | Self::Theirs { .. } | Self::Unreadable => false,
        }
    }

    /// Whether the record shows what this cluster has of the block, with its slice. Others conclude
    /// so from the sign of life of this cluster after a restore of the registry, and take blocks. A
    /// block without a slice is taken after the first sign of life only.
    pub fn shows_use(self, slice: Option<Slice>, is_used: bool) -> bool {
        // A process that starts without the registry allocates from a confirmed slice.
        if slice.is_some_and(Slice::is_confirmed) && !self.is_ours_alone() {
            return false;
        }
        let has_slice = slice.is_some();
        match self {
            Self::Ours { is_returned, .. } => !(is_returned && has_slice && is_used),
            Self::Theirs {
                names_us,
                is_full,
                holding,
            } => names_us || is_full || !is_used || !has_slice && holding == Holding::Free,
            Self::Unreadable => true,
            Self::Absent => !has_slice,
            Self::Unknown => false,
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

    /// Whether the slice says that only this cluster has the block. Then its mark can be removed
    /// without the registry.
    pub fn is_confirmed(self) -> bool {
        self.confirmation == Confirmation::Written && !self.is_conflicting
    }

    /// Whether addresses of the block may be allocated.
    pub fn is_usable(self) -> bool {
        self.is_confirmed() && self.mark == Mark::None
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
    /// Take a block that another cluster has returned: write the record with the name of this
    /// cluster.
    TakeRecord,
    /// Take back a block that this cluster has returned.
    KeepRecord,
    /// Write the record again: the registry confirms that this cluster has the block.
    ConfirmRecord,
    /// Read the slice, and write into the record that the block is returned if there is none. The
    /// record is written in the revision that it had before this read: another process may confirm
    /// it meanwhile.
    ReturnRecord,
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
    /// Write into the slice that the record is not confirmed, and that there is no conflict.
    AwaitQuarantine,
    /// Mark the slice as empty.
    MarkEmpty,
    /// Remove the mark of an empty slice.
    ClearMark,
    /// List the addresses in use, and delete the slice if none is in its block.
    DeleteSlice,
}

impl Step {
    /// Whether the step is a request to the registry.
    pub fn is_of_registry(self) -> bool {
        matches!(
            self,
            Self::CreateRecord
                | Self::TakeRecord
                | Self::KeepRecord
                | Self::ConfirmRecord
                | Self::ReturnRecord
                | Self::Contend
                | Self::Withdraw
        )
    }

    /// Whether the step writes that this cluster has a block.
    fn is_of_take(self) -> bool {
        matches!(
            self,
            Self::CreateRecord | Self::TakeRecord | Self::KeepRecord
        )
    }

    /// Whether the step returns a block: no claim of this cluster waits for it.
    pub fn is_of_return(self) -> bool {
        matches!(
            self,
            Self::ReturnRecord | Self::Withdraw | Self::MarkEmpty | Self::DeleteSlice
        )
    }
}

impl View {
    /// The next write for the block.
    pub fn next(self) -> Step {
        let step = self.step();
        let is_undone = self.is_being_taken && self.ends_take(step);
        if is_undone || !self.may_send(step) {
            return Step::Wait;
        }
        step
    }

    /// Whether the access of the cluster allows a step.
    fn may_send(self, step: Step) -> bool {
        let is_taken = step.is_of_take() && self.slice.is_none();
        match self.access {
            Access::Suspended => step == Step::MarkConflict,
            Access::Recovering => !is_taken && (self.is_used || !self.goes_on_to_take(step)),
            Access::Unseen => !is_taken && step != Step::ReturnRecord,
            Access::Limited => !is_taken,
            Access::Full => true,
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

    /// Whether a step goes on with the take of a block whose record is that of this cluster.
    fn goes_on_to_take(self, step: Step) -> bool {
        match step {
            Step::ConfirmRecord | Step::CreateSlice | Step::ConfirmSlice => true,
            // A block that was confirmed is kept as one whose record was lost.
            Step::KeepRecord => !self.slice.is_some_and(Slice::is_confirmed),
            _ => false,
        }
    }

    /// Whether a step undoes what a cluster has written to take the block.
    fn ends_take(self, step: Step) -> bool {
        match (step, self.record) {
            (Step::ReturnRecord, _) => true,
            // Another cluster has the other ones: no claim is served from them.
            (Step::DeleteSlice, Record::Absent | Record::Ours { .. }) => true,
            _ => false,
        }
    }

    /// The next write if no other manager of this cluster takes the block.
    fn step(self) -> Step {
        match (self.slice, self.record) {
            (None, _) => self.without_slice(),
            (Some(slice), Record::Unknown) => self.unknown_record(slice),
            (Some(slice), Record::Absent) => self.missing_record(slice),
            (Some(slice), Record::Ours { is_returned, .. }) if is_returned => {
                self.returned_record(slice)
            }
            (Some(slice), Record::Ours { is_contested, .. }) => {
                self.own_record(slice, is_contested)
            }
            (Some(slice), Record::Theirs { holding, .. }) => match holding {
                Holding::Held => self.other_record(slice),
                Holding::Returned => self.quarantined_record(slice),
                Holding::Free => self.free_record(slice),
            },
            (Some(slice), Record::Unreadable) => self.other_record(slice),
        }
    }

    /// Whether the cluster takes the block or keeps it.
    pub fn is_wanted(self) -> bool {
        self.is_used || self.is_needed
    }

    fn without_slice(self) -> Step {
        match self.record {
            Record::Unknown => Step::Wait,
            // The record keeps other clusters from the addresses in use until they are released.
            _ if !self.is_shared && self.is_used => Step::Wait,
            Record::Absent if self.is_wanted() => Step::CreateRecord,
            Record::Theirs {
                holding: Holding::Free,
                ..
            } if self.is_wanted() => Step::TakeRecord,
            Record::Ours {
                is_returned: true, ..
            } if self.is_wanted() => Step::KeepRecord,
            Record::Ours { .. } if self.is_wanted() => Step::CreateSlice,
            Record::Ours { is_returned, .. } if is_returned => Step::Wait,
            Record::Ours { .. } => Step::ReturnRecord,
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
        if slice.is_confirmed() && slice.mark != Mark::None && self.is_wanted() {
            Step::ClearMark
        } else {
            Step::Wait
        }
    }

    /// The registry has lost the record, or it was never created.
    fn missing_record(self, slice: Slice) -> Step {
        let is_kept = slice.confirmation == Confirmation::Written || self.is_wanted();
        // Without an address in use, no record is needed any more.
        let is_drained = !self.is_shared && !self.is_used;
        if is_kept && is_drained {
            self.drain(slice)
        } else if is_kept {
            Step::CreateRecord
        } else {
            Step::DeleteSlice
        }
    }

    /// The block was returned, and the slice was created or restored since.
    fn returned_record(self, slice: Slice) -> Step {
        if slice.confirmation == Confirmation::Written || self.is_wanted() {
            Step::KeepRecord
        } else {
            Step::DeleteSlice
        }
    }

    /// Another cluster has returned the block, and this one has a slice of it: it has contended for
    /// the block, or the registry was restored and does not show that this cluster has taken it.
    fn free_record(self, slice: Slice) -> Step {
        if self.is_used || self.is_shared && (slice.is_confirmed() || self.is_needed) {
            Step::TakeRecord
        } else {
            self.drop_slice(slice)
        }
    }

    /// The other cluster uses no address of the block any more, so there is no conflict. This one
    /// takes the block after the quarantine if it uses addresses of it.
    fn quarantined_record(self, slice: Slice) -> Step {
        if !self.is_used && slice.is_confirmed() {
            // Not kept as an empty block is: without the registry, its mark would be removed.
            return Step::AwaitQuarantine;
        }
        if !self.is_used {
            return self.drop_slice(slice);
        }
        match self.record {
            Record::Theirs {
                names_us: false,
                is_full: false,
                ..
            } => Step::Contend,
            _ if slice.is_conflicting || slice.confirmation == Confirmation::Written => {
                Step::AwaitQuarantine
            }
            _ => Step::Wait,
        }
    }

    /// Deletes the slice of a block that this cluster neither has nor uses.
    fn drop_slice(self, slice: Slice) -> Step {
        match slice.confirmation {
            Confirmation::Missing => Step::DeleteSlice,
            Confirmation::Received | Confirmation::Written => self.drain(slice),
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
        if !slice.is_confirmed() {
            return match slice.confirmation {
                Confirmation::Received => Step::ConfirmSlice,
                _ if self.is_settled => Step::ConfirmRecord,
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
                ..
            } if self.is_used => Step::Contend,
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
