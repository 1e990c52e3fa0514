//! What a write without a clear answer has done, decided from what a read shows afterwards.

use crate::error::Meaning;

/// What the leader shows of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its last write is the one in question.
    Ours {
        /// The revision of the write.
        revision: u64,
    },
    /// Its last write is another one; 0 if there is none.
    Other {
        /// The revision of that write.
        revision: u64,
    },
    /// The read failed.
    Nothing,
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is the current state of the key.
    Written {
        /// Its revision.
        revision: u64,
    },
    /// The key does not have the expected revision any more.
    Conflict,
    /// It was not applied, and the key still has the expected revision: it can be sent again.
    Again,
    /// It may still be applied.
    Unknown,
}

/// Decides what a write has done whose answer had this meaning.
pub(super) fn outcome(meaning: Meaning, expected: u64, seen: Seen) -> Outcome {
    let was_refused = matches!(meaning, Meaning::Conflict | Meaning::InProgress);
    match seen {
        Seen::Ours { revision } => Outcome::Written { revision },
        // The expected revision is gone, so a write that is still on its way will be refused.
        Seen::Other { revision } if revision > expected => Outcome::Conflict,
        Seen::Other { revision } if was_refused && revision == expected => Outcome::Again,
        // What another write in progress will do is not known.
        Seen::Nothing if meaning == Meaning::InProgress => Outcome::Again,
        Seen::Other { .. } | Seen::Nothing if was_refused => Outcome::Conflict,
        // An older revision is that of a leader which was deposed and does not know it yet.
        Seen::Other { .. } | Seen::Nothing => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_write_is_sent_again_only_for_the_expected_revision() {
        for meaning in [Meaning::Conflict, Meaning::InProgress] {
            let of = |seen| outcome(meaning, 7, seen);
            assert_eq!(of(Seen::Other { revision: 7 }), Outcome::Again);
            assert_eq!(of(Seen::Other { revision: 8 }), Outcome::Conflict);
            assert_eq!(of(Seen::Other { revision: 0 }), Outcome::Conflict);
        }
        let of_unread = |meaning| outcome(meaning, 7, Seen::Nothing);
        assert_eq!(of_unread(Meaning::Conflict), Outcome::Conflict);
        assert_eq!(of_unread(Meaning::InProgress), Outcome::Again);
    }

    #[test]
    fn write_without_answer_is_never_sent_again() {
        let of = |seen| outcome(Meaning::Unknown, 7, seen);
        assert_eq!(
            of(Seen::Ours { revision: 8 }),
            Outcome::Written { revision: 8 }
        );
        assert_eq!(of(Seen::Other { revision: 7 }), Outcome::Unknown);
        assert_eq!(of(Seen::Other { revision: 9 }), Outcome::Conflict);
        assert_eq!(of(Seen::Other { revision: 0 }), Outcome::Unknown);
        assert_eq!(of(Seen::Nothing), Outcome::Unknown);
    }
}
