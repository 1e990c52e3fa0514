//! The uid of an object.

use sha2::{Digest, Sha256};

/// The uid of an object in 16 bytes, for compact caches and fast comparison. Bytes, not a number:
/// the alignment of a `u128` would make an optional uid twice as large.
///
/// The API server assigns UUIDs (RFC 9562), which are stored losslessly; of any other text a hash
/// is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid([u8; 16]);

impl Uid {
    /// Creates the uid of a text, which need not be a UUID.
    pub fn of(text: &str) -> Self {
        let hash = || {
            Sha256::digest(text)
                .first_chunk()
                .copied()
                .unwrap_or_default()
        };
        Self(parse_uuid(text).unwrap_or_else(hash))
    }

    /// Parses a UUID in lower case. It is displayed as the same text. Returns `None` for any other
    /// text.
    pub fn parse(text: &str) -> Option<Self> {
        parse_uuid(text).map(Self)
    }
}

/// Displays the uid as a UUID.
impl std::fmt::Display for Uid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = u128::from_be_bytes(self.0);
        let part = |shift: u32, mask: u128| (number >> shift) & mask;
        let (time, low, high, clock) = (
            part(96, 0xffff_ffff),
            part(80, 0xffff),
            part(64, 0xffff),
            part(48, 0xffff),
        );
        write!(
            formatter,
            "{time:08x}-{low:04x}-{high:04x}-{clock:04x}-{:012x}",
            part(0, 0xffff_ffff_ffff)
        )
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut number = 0_u128;
    for (index, byte) in text.bytes().enumerate() {
        let is_dash = matches!(index, 8 | 13 | 18 | 23);
        let digit = match byte {
            b'-' if is_dash => continue,
            b'0'..=b'9' if !is_dash => byte.wrapping_sub(b'0'),
            b'a'..=b'f' if !is_dash => byte.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        number = (number << 4) | u128::from(digit);
    }
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_stored_and_other_text_is_hashed() {
        let number = 0x6101_ef08_5b98_40af_8a1f_bc85_701b_2e47_u128;
        assert_eq!(
            Uid::of("6101ef08-5b98-40af-8a1f-bc85701b2e47").0,
            number.to_be_bytes()
        );
        assert_ne!(
            Uid::of("6101EF08-5b98-40af-8a1f-bc85701b2e47"),
            Uid::of("6101ef08-5b98-40af-8a1f-bc85701b2e47")
        );
        let uuid = "0001ef08-5b98-00af-8a1f-0085701b2e47";
        assert_eq!(
            Uid::parse(uuid).map(|uid| uid.to_string()).as_deref(),
            Some(uuid)
        );
        assert_eq!(Uid::parse("text"), None);
        assert_eq!(Uid::of("text"), Uid::of("text"));
        assert_ne!(Uid::of("text"), Uid::of("other"));
    }
}
