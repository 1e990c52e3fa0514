//! Strict parsers of addresses and of the entries of a pool.
//!
//! The result decides which address a machine gets. So a text that two programs could read
//! differently is an error.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use crate::{Block, Family, Span};

/// The maximum length of an entry in characters: that of a range of two fully written IPv6
/// addresses.
pub const MAX_ENTRY_LENGTH: usize = 79;

/// One entry of the address list of a pool: `10.0.0.1`, `10.0.0.0/24` or `10.0.0.1-10.0.0.9`.
///
/// It is displayed in canonical form: as a single address, as a network if it has all addresses of
/// one, otherwise as a range. IPv6 addresses have the format of RFC 5952.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The family of the addresses.
    pub family: Family,
    /// The numbers of the addresses.
    pub span: Span,
}

/// An error of [`parse_entry`], [`parse_address`] or [`parse_block`]. Every message contains the
/// whole text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The text is empty.
    #[error("the text \"\" is empty; write an IPv4 or IPv6 address")]
    Empty,
    /// The text has more than [`MAX_ENTRY_LENGTH`] characters.
    #[error("{text:?} is longer than {MAX_ENTRY_LENGTH} characters")]
    TooLong {
        /// The first characters of the text, followed by `…`.
        text: String,
    },
    /// The text contains whitespace.
    #[error("{text:?} contains whitespace; remove it")]
    Whitespace {
        /// The whole text.
        text: String,
    },
    /// The address has a zone such as `%eth0` (RFC 4007), which has a meaning on one machine only.
    #[error("{text:?} contains \"%\"; an address with a zone cannot be in a pool")]
    Zone {
        /// The whole text.
        text: String,
    },
    /// A part of the text is not an address.
    #[error("{} is not an IPv4 or IPv6 address", place(part, text))]
    NotAnAddress {
        /// The whole text.
        text: String,
        /// The part that is not an address.
        part: String,
    },
    /// A part of an IPv4 address has a leading zero, such as `010`: some programs read it as 8,
    /// others as 10.
    #[error("{text:?} has an IPv4 address with a leading zero; remove the zero")]
    LeadingZero {
        /// The whole text.
        text: String,
    },
    /// The address is an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2). It stands for an IPv4
    /// address, which could then be allocated twice.
    #[error("{text:?} has an IPv4-mapped IPv6 address; write the IPv4 address {plain} instead")]
    Mapped {
        /// The whole text.
        text: String,
        /// The corresponding IPv4 address.
        plain: Ipv4Addr,
    },
    /// The prefix length is not a plain decimal number.
    #[error(
        "the prefix length of {text:?} is not a decimal number without a sign or leading zeros"
    )]
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
    /// An address with the length of its subnet, where a prefix is expected.
    #[error("{text:?} has host bits; write {address} for the address, or {prefix} for the prefix")]
    HostBits {
        /// The whole text.
        text: String,
        /// The text read as an address.
        address: IpAddr,
        /// The text read as a prefix.
        prefix: Block,
    },
    /// The ends of the range are of different families.
    #[error("the range {text:?} mixes IPv4 and IPv6")]
    MixedFamilies {
        /// The whole text.
        text: String,
    },
    /// The first address of the range is greater than the last one.
    #[error("the range {text:?} ends before it begins; write the lower address first")]
    Reversed {
        /// The whole text.
        text: String,
    },
}

/// Parses one entry of an address list: an address, a network with a prefix length, or a range.
///
/// A network with host bits set stands for the whole network, as in the Go provider: `10.0.0.5/24`
/// is `10.0.0.0/24`. Whitespace, zones, leading zeros and IPv4-mapped addresses are errors, see
/// [`ParseError`].
pub fn parse_entry(text: &str) -> Result<Entry, ParseError> {
    check_characters(text)?;
    if let Some((first, last)) = text.split_once('-') {
        parse_range(first, last, text)
    } else {
        let (_, block) = parse_part_with_length(text)?;
        Ok(Entry::from(block))
    }
}

/// Parses what one claim has: an address, or a prefix with its length.
///
/// Other programs list an address with the length of its subnet: `10.0.0.20/24` is the address
/// `10.0.0.20`. If only a prefix can be meant, it is a [`ParseError::HostBits`].
pub fn parse_block(text: &str, is_prefix: bool) -> Result<Block, ParseError> {
    check_characters(text)?;
    let (address, prefix) = parse_part_with_length(text)?;
    if prefix.base() == address {
        return Ok(prefix);
    }
    if is_prefix {
        let text = text.to_owned();
        return Err(ParseError::HostBits {
            text,
            address,
            prefix,
        });
    }
    Ok(Block::address(address))
}

/// Returns the network that a text stands for if it has host bits set: `10.0.0.0/24` for
/// `10.0.0.5/24`. `None` for all other texts.
pub fn network_with_host_bits(text: &str) -> Option<Entry> {
    check_characters(text).ok()?;
    let (address, block) = parse_part_with_length(text).ok()?;
    (block.base() != address).then(|| Entry::from(block))
}

/// Parses one address, such as a gateway, with the rules of [`parse_entry`]. A network or a range
/// is a [`ParseError::NotAnAddress`].
pub fn parse_address(text: &str) -> Result<IpAddr, ParseError> {
    check_characters(text)?;
    parse_part(text, text)
}

/// Parses an address that another program wrote, and that is in use. Zones are ignored, and an
/// IPv4-mapped address becomes the IPv4 address; [`parse_address`] rejects both.
pub fn parse_lenient(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.split('%').next().unwrap_or(text).parse().ok()?;
    Some(address.to_canonical())
}

/// Rejects texts with characters that are not valid in any entry.
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
        return Err(ParseError::Whitespace { text });
    }
    if text.contains('%') {
        let text = text.to_owned();
        return Err(ParseError::Zone { text });
    }
    Ok(())
}

/// Parses `part` of `whole` as an address.
fn parse_part(part: &str, whole: &str) -> Result<IpAddr, ParseError> {
    let text = whole.to_owned();
    match part.parse() {
        Ok(IpAddr::V6(v6)) if let Some(plain) = v6.to_ipv4_mapped() => {
            Err(ParseError::Mapped { text, plain })
        }
        Ok(address) => Ok(address),
        Err(_) if has_leading_zero(part) => Err(ParseError::LeadingZero { text }),
        Err(_) => Err(ParseError::NotAnAddress {
            text,
            part: part.to_owned(),
        }),
    }
}

/// Whether `part`, which is not an address, has the dots of an IPv4 address and a number with a
/// leading zero.
fn has_leading_zero(part: &str) -> bool {
    // After the last colon: an IPv6 address can end in dotted notation.
    let dotted = part.rsplit(':').next().unwrap_or(part);
    let mut numbers = dotted.split('.');
    dotted.contains('.') && numbers.clone().all(is_decimal) && !numbers.all(is_plain_decimal)
}

/// Parses an address, which a prefix length can follow. Returns the address, and its block of this
/// length.
fn parse_part_with_length(whole: &str) -> Result<(IpAddr, Block), ParseError> {
    let Some((address, length)) = whole.split_once('/') else {
        let address = parse_part(whole, whole)?;
        return Ok((address, Block::address(address)));
    };
    let address = parse_part(address, whole)?;
    let family = Family::of(address);
    let text = whole.to_owned();
    if !is_plain_decimal(length) {
        return Err(ParseError::PrefixLength { text });
    }
    match length.parse() {
        Ok(length) if length <= family.bits() => Ok((address, Block::new(address, length))),
        _ => Err(ParseError::PrefixTooLong { text, family }),
    }
}

/// Parses a range from the parts before and after the `-`.
fn parse_range(first: &str, last: &str, whole: &str) -> Result<Entry, ParseError> {
    let first = parse_part(first, whole)?;
    let last = parse_part(last, whole)?;
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

/// Quotes `part`, with the whole text if that is longer.
fn place(part: &str, text: &str) -> String {
    if part == text {
        format!("{text:?}")
    } else {
        format!("{part:?} in {text:?}")
    }
}

impl From<IpAddr> for Entry {
    fn from(address: IpAddr) -> Self {
        Self::from(Block::address(address))
    }
}

impl From<Block> for Entry {
    fn from(block: Block) -> Self {
        Self {
            family: block.family(),
            span: block.span(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.span.first(), self.span.last());
        let address = |number| self.family.address(number);
        // The two ends of a network differ in all host bits, which are the lowest ones, and in no
        // other bit.
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
