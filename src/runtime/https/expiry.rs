//! When a certificate expires. Nothing else in it matters to a server, so it is not parsed further.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which may be left out.
const VERSION: u8 = 0xa0;

/// The end of the validity of an X.509 certificate (RFC 5280), if it can be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let rest = match element(signed)? {
        (VERSION, _, rest) => rest,
        _ => signed,
    };
    // Serial number, algorithm of the signature, issuer.
    let (_, _, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?;
    let (_, _, rest) = element(rest)?;
    let (_, validity, _) = element(rest)?;
    let (_, _, rest) = element(validity)?;
    let (kind, end, _) = element(rest)?;
    let text = std::str::from_utf8(end).ok()?;
    let text = match kind {
        GENERALIZED_TIME => text.to_owned(),
        UTC_TIME if text.get(..2)?.parse::<u8>().ok()? < 50 => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => return None,
    };
    let end = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Some(end.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The first element of DER: its tag, what is in it, and what follows.
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
    fn the_end_of_a_certificate_is_read() {
        for (year, expected) in [(2031, "2031-02-03T00:00:00Z"), (2055, "2055-02-03T00:00:00Z")] {
            let mut params = rcgen::CertificateParams::new(["test".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 3);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for text in [&b""[..], b"\x30", b"\x30\x82\xff\xff", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80\x00\x00", &[0; 99]]
        {
            assert_eq!(not_after(text), None, "{text:?}");
        }
    }
}
