//! The uids of objects that the ledger keeps.

use std::fmt;

use capi_ipam_contract::Uid;

/// The uid of an object, as the API server returned it. A UUID needs 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectUid {
    Uuid(Uid),
    Other(Box<str>),
}

impl ObjectUid {
    pub(crate) fn of(text: &str) -> Self {
        match Uid::parse(text) {
            Some(uid) => Self::Uuid(uid),
            None => Self::Other(text.into()),
        }
    }

    pub(crate) fn uid(&self) -> Uid {
        match self {
            Self::Uuid(uid) => *uid,
            Self::Other(text) => Uid::of(text),
        }
    }
}

impl fmt::Display for ObjectUid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uid) => uid.fmt(formatter),
            Self::Other(text) => formatter.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept() {
        for text in [
            "6101ef08-5b98-40af-8a1f-bc85701b2e47",
            "6101EF08-5b98-40af-8a1f-bc85701b2e47",
            "text",
            "",
        ] {
            let uid = ObjectUid::of(text);
            assert_eq!(
                (uid.to_string(), uid.uid()),
                (text.to_owned(), Uid::of(text))
            );
        }
    }
}
