//! What a write without an answer has done, decided from what a read shows afterwards.

use crate::entry::Version;

/// A write without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write<'a> {
    /// A creation with this id.
    Create {
        /// The random id of the write.
        write_id: &'a str,
    },
    /// A replacement of this version.
    Update {
        /// The version that it replaces.
        held: &'a Version,
        /// The random id of the write.
        write_id: &'a str,
    },
    /// A deletion of this version.
    Delete {
        /// The version that it deletes.
        held: &'a Version,
    },
}

/// What exists under the name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen<'a> {
    /// Nothing.
    Nothing,
    /// An object.
    Object {
        /// Its version.
        version: &'a Version,
        /// The id of the write that it had last.
        write_id: Option<&'a str>,
    },
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was applied.
    Applied,
    /// It was not applied, or was overwritten, and will not be applied.
    NotApplied,
    /// It may still be applied.
    Unknown,
}

/// Decides what a write has done.
pub(super) fn outcome(write: &Write<'_>, seen: Seen<'_>) -> Outcome {
    let Seen::Object { version, write_id } = seen else {
        return match write {
            // The name is still free.
            Write::Create { .. } => Outcome::Unknown,
            Write::Update { .. } => Outcome::NotApplied,
            Write::Delete { .. } => Outcome::Applied,
        };
    };
    let (ours, held) = match write {
        Write::Create { write_id } => (Some(*write_id), None),
        Write::Update { held, write_id } => (Some(*write_id), Some(*held)),
        Write::Delete { held } => (None, Some(*held)),
    };
    if ours.is_some() && write_id == ours {
        return Outcome::Applied;
    }
    if held == Some(version) {
        return Outcome::Unknown;
    }
    // A name that is in use, or a version that is gone: the write will be refused.
    Outcome::NotApplied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> Version {
        Version::Object {
            uid: "a".into(),
            number,
        }
    }

    fn seen<'a>(version: &'a Version, write_id: &'a str) -> Seen<'a> {
        Seen::Object {
            version,
            write_id: Some(write_id),
        }
    }

    #[test]
    fn create_is_applied_if_its_id_is_found() {
        let write = Write::Create { write_id: "ours" };
        let found = version(7);
        assert_eq!(outcome(&write, seen(&found, "ours")), Outcome::Applied);
        assert_eq!(outcome(&write, seen(&found, "other")), Outcome::NotApplied);
        assert_eq!(outcome(&write, Seen::Nothing), Outcome::Unknown);
    }

    #[test]
    fn update_of_an_unchanged_object_may_still_be_applied() {
        let [held, later] = [version(7), version(8)];
        let write = Write::Update {
            held: &held,
            write_id: "ours",
        };
        assert_eq!(outcome(&write, seen(&held, "before")), Outcome::Unknown);
        assert_eq!(outcome(&write, seen(&later, "ours")), Outcome::Applied);
        assert_eq!(outcome(&write, seen(&later, "other")), Outcome::NotApplied);
        assert_eq!(outcome(&write, Seen::Nothing), Outcome::NotApplied);
    }

    #[test]
    fn delete_is_applied_if_nothing_is_left() {
        let [held, later] = [version(7), version(8)];
        let write = Write::Delete { held: &held };
        assert_eq!(outcome(&write, Seen::Nothing), Outcome::Applied);
        assert_eq!(outcome(&write, seen(&held, "before")), Outcome::Unknown);
        assert_eq!(outcome(&write, seen(&later, "other")), Outcome::NotApplied);
    }
}
