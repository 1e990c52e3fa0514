//! What an answer of the API server to a write of a reservation means, and the read that decides
//! where the answer does not.
//!
//! | answer | meaning |
//! |---|---|
//! | success | the write is applied |
//! | not found, to a change of a known object | the object is gone |
//! | conflict, the name exists, or no answer | a live read decides |
//! | any other error | nothing was written |
//!
//! A write without an answer may be applied later. A known object is changed with its uid and
//! resourceVersion as preconditions, so this cannot happen once a read shows another version. A
//! creation can be applied as long as no object has the name.

/// The answer of the API server to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The write is applied.
    Applied,
    /// An object has the name already.
    NameExists,
    /// The object is not the one of the preconditions.
    Conflict,
    /// No object has the name.
    NotFound,
    /// There is no answer: the write is applied, or not, or will be.
    Unknown,
    /// Any other error: nothing was written.
    Rejected,
}

/// What follows the answer to a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Creation {
    /// The object is created.
    Created,
    /// A live read has to decide.
    Read,
    /// The error of the creation is the result.
    Failed,
}

/// What the read after a creation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CreationRead {
    /// The object is as wanted: this request has created it, or another one.
    AsWanted,
    /// The name is taken, whatever the object contains.
    Taken,
    /// No object has the name: the creation may still be applied.
    StillUnknown,
}

/// What follows the answer to a change or deletion of a known object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The change is applied.
    Done,
    /// No object has the name.
    Gone,
    /// A live read has to decide.
    Read,
    /// The error of the change is the result.
    Failed,
}

/// The object that the read after a change shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// Whether it has the uid of the known object.
    pub is_same: bool,
    /// Whether it has its resourceVersion as well.
    pub is_unchanged: bool,
    /// Whether it is as wanted.
    pub is_done: bool,
}

/// What the read after a change shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeRead {
    /// The change is applied.
    Done,
    /// No object has the name.
    Gone,
    /// The object is another one than the change requires: the change is not applied and will not
    /// be.
    Changed,
    /// The object is the known one: the change may still be applied.
    StillUnknown,
}

/// What follows the answer to a creation.
pub fn after_creation(answer: Answer) -> Creation {
    match answer {
        Answer::Applied => Creation::Created,
        Answer::NameExists | Answer::Unknown => Creation::Read,
        Answer::Conflict | Answer::NotFound | Answer::Rejected => Creation::Failed,
    }
}

/// What the read after a creation shows. `found` is whether the object that has the name is as
/// wanted; `None` if there is none.
pub fn read_after_creation(found: Option<bool>) -> CreationRead {
    match found {
        Some(true) => CreationRead::AsWanted,
        Some(false) => CreationRead::Taken,
        None => CreationRead::StillUnknown,
    }
}

/// What follows the answer to a change or deletion of a known object.
pub fn after_change(answer: Answer) -> Change {
    match answer {
        Answer::Applied => Change::Done,
        Answer::NotFound => Change::Gone,
        Answer::Conflict | Answer::Unknown => Change::Read,
        Answer::NameExists | Answer::Rejected => Change::Failed,
    }
}

/// What the read after a change or deletion shows; `None` if no object has the name.
pub fn read_after_change(found: Option<Found>) -> ChangeRead {
    let Some(found) = found else {
        return ChangeRead::Gone;
    };
    if found.is_same && found.is_done {
        ChangeRead::Done
    } else if found.is_same && found.is_unchanged {
        ChangeRead::StillUnknown
    } else {
        ChangeRead::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unclear_answer_needs_a_read() {
        use Answer::{Applied, Conflict, NameExists, NotFound, Rejected, Unknown};
        for (answer, creation, change) in [
            (Applied, Creation::Created, Change::Done),
            (NameExists, Creation::Read, Change::Failed),
            (Conflict, Creation::Failed, Change::Read),
            (NotFound, Creation::Failed, Change::Gone),
            (Unknown, Creation::Read, Change::Read),
            (Rejected, Creation::Failed, Change::Failed),
        ] {
            assert_eq!(after_creation(answer), creation, "{answer:?}");
            assert_eq!(after_change(answer), change, "{answer:?}");
        }
    }

    #[test]
    fn write_that_may_still_be_applied_stays_unknown() {
        let read = |is_same, is_unchanged, is_done| {
            read_after_change(Some(Found {
                is_same,
                is_unchanged,
                is_done,
            }))
        };
        assert_eq!(read(true, false, true), ChangeRead::Done);
        assert_eq!(read(true, true, false), ChangeRead::StillUnknown);
        assert_eq!(read(true, false, false), ChangeRead::Changed);
        // Another object of the name, even if it looks as wanted.
        assert_eq!(read(false, false, true), ChangeRead::Changed);
        assert_eq!(read_after_change(None), ChangeRead::Gone);
        assert_eq!(read_after_creation(None), CreationRead::StillUnknown);
        assert_eq!(read_after_creation(Some(false)), CreationRead::Taken);
    }
}
