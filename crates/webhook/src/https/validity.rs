//! The validity period of an X.509 certificate. Nothing else is parsed.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tag of the version, which is optional.
const VERSION: u8 = 0xa0;

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second at which it is valid.
    pub not_before: Timestamp,
    /// The last second at which it is valid.
    pub not_after: Timestamp,
}

impl Validity {
    /// Parses the validity of an X.509 certificate in DER (RFC 5280). `None` if it is malformed.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate, _) = element(certificate)?;
        let (_, signed, _) = element(certificate)?;
        let rest = match element(signed)? {
            (VERSION, _, rest) => rest,
            _ => signed,
        };
        // Serial number, signature algorithm, issuer.
        let (_, _, rest) = element(rest)?;
        let (_, _, rest) = element(rest)?;
        let (_, _, rest) = element(rest)?;
        let (_, validity, _) = element(rest)?;
        let (kind, not_before, rest) = element(validity)?;
        let (other_kind, not_after, _) = element(rest)?;
        Some(Self { not_before: time(kind, not_before)?, not_after: time(other_kind, not_after)? })
    }
}

fn time(kind: u8, text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match kind {
        GENERALIZED_TIME => text.to_owned(),
        UTC_TIME if text.get(..2)?.parse::<u8>().ok()? < 50 => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The first DER element: its tag, its contents, and the rest of the input.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = input.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().try_fold(0_usize, |sum, byte| Some(sum.checked_mul(256)? + usize::from(*byte)))?, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_of_a_certificate_is_parsed() {
        for (year, from, until) in [
            (2031, "1975-01-01T00:00:00Z", "2031-02-03T00:00:00Z"),
            (2055, "1975-01-01T00:00:00Z", "2055-02-03T00:00:00Z"),
        ] {
            let mut params = rcgen::CertificateParams::new(["test".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 3);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let validity = Validity::of(certificate.der()).unwrap();
            assert_eq!(
                (validity.not_before.to_string(), validity.not_after.to_string()),
                (from.to_owned(), until.to_owned())
            );
        }
    }

    #[test]
    fn malformed_certificate_has_no_validity() {
        for text in [&b""[..], b"\x30", b"\x30\x82\xff\xff", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80\x00\x00", &[0; 99]]
        {
            assert_eq!(Validity::of(text), None, "{text:?}");
        }
    }
}
