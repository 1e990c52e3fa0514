//! Reads the address texts of a pool, strictly.
//!
//! What is read here decides which address a machine gets, so a text that two programs might
//! read differently is refused instead of guessed at.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use thiserror::Error;

use crate::{Family, Span};

/// The longest text that is read, in characters: a range of two IPv6 addresses in full.
pub const MAX_ENTRY_LENGTH: usize = 79;

/// One entry of a pool's address list: `10.0.0.1`, `10.0.0.0/24` or `10.0.0.1-10.0.0.9`.
///
/// Displayed, it gives the canonical text: a single address, a network when the numbers are
/// exactly one, otherwise a range; IPv6 addresses as RFC 5952 writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The family of the addresses.
    pub family: Family,
    /// The numbers of the addresses.
    pub span: Span,
}

/// Why a text is neither an address nor a pool entry. Every message names the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// There is nothing to read.
    #[error("the text \"\" is empty; write an IPv4 or IPv6 address")]
    Empty,
    /// More than [`MAX_ENTRY_LENGTH`] characters.
    #[error("{text:?} is longer than {MAX_ENTRY_LENGTH} characters")]
    TooLong {
        /// The beginning of the text, ending in `…`.
        text: String,
    },
    /// White space before, after or inside.
    #[error("{text:?} contains white space; remove it")]
    WhiteSpace {
        /// The whole text.
        text: String,
    },
    /// A zone such as `%eth0` (RFC 4007), which has a meaning on one machine only.
    #[error("{text:?} contains \"%\"; an address with a zone cannot be in a pool")]
    Zone {
        /// The whole text.
        text: String,
    },
    /// Where an address should be there is something else.
    #[error("{} is not an IPv4 or IPv6 address", place(part, text))]
    NotAnAddress {
        /// The whole text.
        text: String,
        /// The part of it that should be an address.
        part: String,
    },
    /// An IPv4 part such as `010`, which some programs read as 8 and others as 10.
    #[error("{text:?} has an IPv4 address with a leading zero; write it without")]
    LeadingZero {
        /// The whole text.
        text: String,
    },
    /// An IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2). It would be a second text for
    /// one IPv4 address, and the same address could then be given out twice.
    #[error("{text:?} has an IPv4-mapped IPv6 address; write the IPv4 address {plain} instead")]
    Mapped {
        /// The whole text.
        text: String,
        /// The IPv4 address that is meant.
        plain: Ipv4Addr,
    },
    /// What follows the `/` is not a plain decimal number.
    #[error("the prefix length of {text:?} is not a decimal number without a sign or leading zeros")]
    PrefixLength {
        /// The whole text.
        text: String,
    },
    /// The prefix length is greater than the number of bits of the address.
    #[error("the prefix length of {text:?} is greater than the {} of {family}", family.bits())]
    PrefixTooLong {
        /// The whole text.
        text: String,
        /// The family of the address.
        family: Family,
    },
    /// A range from an IPv4 to an IPv6 address or the other way around.
    #[error("the range {text:?} mixes IPv4 and IPv6")]
    MixedFamilies {
        /// The whole text.
        text: String,
    },
    /// A range whose first address is greater than its last.
    #[error("the range {text:?} ends before it begins; write the lower address first")]
    Reversed {
        /// The whole text.
        text: String,
    },
}

/// Reads one entry of an address list.
///
/// A network with host bits set means the whole network: `10.0.0.5/24` is `10.0.0.0/24`, as in
/// the Go implementation of this provider.
///
/// # Errors
///
/// See the variants of [`ParseError`]: only plain addresses, networks with a prefix length and
/// ranges are read, without white space, zones, leading zeros in IPv4 addresses or prefix
/// lengths, or IPv4-mapped addresses.
pub fn parse_entry(text: &str) -> Result<Entry, ParseError> {
    check_characters(text)?;
    if let Some((first, last)) = text.split_once('-') {
        read_range(first, last, text)
    } else if let Some((address, length)) = text.split_once('/') {
        read_network(address, length, text)
    } else {
        Ok(Entry::from(read_address(text, text)?))
    }
}

/// Reads one address, for instance a gateway.
///
/// # Errors
///
/// As [`parse_entry`]; a network or a range is [`ParseError::NotAnAddress`].
pub fn parse_address(text: &str) -> Result<IpAddr, ParseError> {
    check_characters(text)?;
    read_address(text, text)
}

/// The address that a text means, also one that [`parse_address`] refuses: a zone is dropped, and an IPv4-mapped address
/// is the IPv4 address. For addresses that are in use, with texts that other programs wrote.
#[must_use]
pub fn parse_lenient(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.split('%').next().unwrap_or(text).parse().ok()?;
    Some(address.to_canonical())
}

/// Refuses what is wrong wherever in the text it stands.
fn check_characters(text: &str) -> Result<(), ParseError> {
    if text.is_empty() {
        return Err(ParseError::Empty);
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_ENTRY_LENGTH) {
        let mut text = text.get(..end).unwrap_or_default().to_owned();
        text.push('…');
        return Err(ParseError::TooLong { text });
    }
    if text.contains(char::is_whitespace) {
        let text = text.to_owned();
        return Err(ParseError::WhiteSpace { text });
    }
    if text.contains('%') {
        let text = text.to_owned();
        return Err(ParseError::Zone { text });
    }
    Ok(())
}

/// Reads `part` of `whole` as an address.
fn read_address(part: &str, whole: &str) -> Result<IpAddr, ParseError> {
    let text = whole.to_owned();
    match part.parse() {
        Ok(IpAddr::V6(v6)) if let Some(plain) = v6.to_ipv4_mapped() => Err(ParseError::Mapped { text, plain }),
        Ok(address) => Ok(address),
        Err(_) if has_leading_zero(part) => Err(ParseError::LeadingZero { text }),
        Err(_) => Err(ParseError::NotAnAddress { text, part: part.to_owned() }),
    }
}

/// Whether `part`, which is no address, has the dots of IPv4 and between them a number like `01`.
fn has_leading_zero(part: &str) -> bool {
    // After the last colon: an IPv6 address may end in the dotted form.
    let dotted = part.rsplit(':').next().unwrap_or(part);
    let mut numbers = dotted.split('.');
    dotted.contains('.') && numbers.clone().all(is_decimal) && !numbers.all(is_plain_decimal)
}

/// Reads the two sides of a `/`.
fn read_network(address: &str, length: &str, whole: &str) -> Result<Entry, ParseError> {
    let address = read_address(address, whole)?;
    let family = Family::of(address);
    let text = whole.to_owned();
    if !is_plain_decimal(length) {
        return Err(ParseError::PrefixLength { text });
    }
    let network = length.parse().ok().and_then(|length| IpNet::new(address, length).ok());
    match network {
        Some(network) => Ok(Entry { family, span: Span::from(network) }),
        None => Err(ParseError::PrefixTooLong { text, family }),
    }
}

/// Reads the two sides of a `-`.
fn read_range(first: &str, last: &str, whole: &str) -> Result<Entry, ParseError> {
    let first = read_address(first, whole)?;
    let last = read_address(last, whole)?;
    let family = Family::of(first);
    let text = whole.to_owned();
    if family != Family::of(last) {
        return Err(ParseError::MixedFamilies { text });
    }
    match Span::new(Family::to_number(first), Family::to_number(last)) {
        Some(span) => Ok(Entry { family, span }),
        None => Err(ParseError::Reversed { text }),
    }
}

/// Whether `text` is one or more ASCII digits.
fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `text` is a decimal number without leading zeros.
fn is_plain_decimal(text: &str) -> bool {
    is_decimal(text) && (text == "0" || !text.starts_with('0'))
}

/// Names `part`, and the text that it is in unless it is all of it.
fn place(part: &str, text: &str) -> String {
    if part == text { format!("{text:?}") } else { format!("{part:?} in {text:?}") }
}

/// The entry of one address.
impl From<IpAddr> for Entry {
    fn from(address: IpAddr) -> Entry {
        Entry { family: Family::of(address), span: Span::single(Family::to_number(address)) }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.span.first(), self.span.last());
        let address = |number| self.family.address(number);
        // In a network the two ends differ in all host bits, which are the lowest ones, and in
        // no other bit.
        let host_bits = first ^ last;
        if host_bits == 0 {
            write!(formatter, "{}", address(first))
        } else if host_bits & host_bits.wrapping_add(1) == 0 && first & host_bits == 0 {
            let length = u32::from(self.family.bits()).saturating_sub(host_bits.count_ones());
            write!(formatter, "{}/{length}", address(first))
        } else {
            write!(formatter, "{}-{}", address(first), address(last))
        }
    }
}

#[cfg(test)]
mod tests;
