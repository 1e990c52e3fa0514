//! The validity period of an X.509 certificate.

use jiff::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Time;

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
        let certificate = Certificate::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate().validity();
        Some(Self {
            not_before: timestamp(validity.not_before)?,
            not_after: timestamp(validity.not_after)?,
        })
    }
}

fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_second(time.to_unix_duration().as_secs().try_into().ok()?).ok()
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
                (
                    validity.not_before.to_string(),
                    validity.not_after.to_string()
                ),
                (from.to_owned(), until.to_owned())
            );
        }
    }

    #[test]
    fn malformed_certificate_has_no_validity() {
        for text in [
            &b""[..],
            b"\x30",
            b"\x30\x82\xff\xff",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x80\x00\x00",
            &[0; 99],
        ] {
            assert_eq!(Validity::of(text), None, "{text:?}");
        }
    }
}
