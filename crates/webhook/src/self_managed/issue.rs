//! Creates CA certificates and serving certificates.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use sha2::{Digest, Sha256};

use crate::https::Validity;

/// Tolerated clock skew: certificates are valid from that time in the past, or from a tenth of
/// their lifetime if less.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// The latest time of a certificate, shortly before the end of the year 9999. X.509 allows a few
/// hours more.
const MAX_TIME: i64 = 253_402_207_200;

/// The validity of a certificate that is created now, limited to that of its CA.
pub(super) fn validity(lifetime: Duration, now: Timestamp, ca: Option<Validity>) -> Validity {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(MAX_TIME);
    let (now, skew) = (now.as_second(), seconds(CLOCK_SKEW.min(lifetime / 10)));
    let (earliest, latest) = ca.map_or((0, MAX_TIME), |ca| {
        (ca.not_before.as_second(), ca.not_after.as_second())
    });
    let time = |second: i64| {
        Timestamp::from_second(second.clamp(earliest, latest)).unwrap_or(Timestamp::MAX)
    };
    Validity {
        not_before: time(now - skew),
        not_after: time(now.saturating_add(seconds(lifetime))),
    }
}

/// Creates the self-signed certificate of a CA.
pub(super) fn ca_certificate(
    key: &KeyPair,
    validity: Validity,
) -> Result<Certificate, rcgen::Error> {
    let mut parameters = ca_parameters(key);
    set_validity(&mut parameters, validity);
    parameters.self_signed(key)
}

/// Creates a serving certificate for `key`. `names` are DNS names and IP addresses.
pub(super) fn serving_certificate(
    key: &KeyPair,
    names: &[String],
    validity: Validity,
    ca_key: &KeyPair,
) -> Result<Certificate, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    // Clients check the names above. The common name is informative, and has at most 64 characters.
    let name = names
        .first()
        .filter(|name| name.len() <= 64)
        .map_or("webhooks", String::as_str);
    parameters.distinguished_name = common_name(name);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    set_validity(&mut parameters, validity);
    let issuer = Issuer::new(ca_parameters(ca_key), ca_key);
    parameters.signed_by(key, &issuer)
}

/// The parameters of a CA. Its name contains a hash of its key, so that names are unique and need
/// not be stored. A change of the name would make the CAs of existing Secrets unusable.
fn ca_parameters(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::digest(key.der_bytes())
        .iter()
        .take(8)
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(&format!("self-managed authority {digest:016x}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn common_name(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn set_validity(parameters: &mut CertificateParams, validity: Validity) {
    let time = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second().min(MAX_TIME)).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    parameters.not_before = time(validity.not_before);
    parameters.not_after = time(validity.not_after);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn validity_allows_clock_skew_and_ends_with_the_ca() {
        let hours = |hours: i64| at(hours * 3600);
        let now = hours(1000);
        let week = Duration::from_hours(168);
        assert_eq!(
            validity(week, now, None),
            Validity {
                not_before: hours(999),
                not_after: hours(1168)
            }
        );
        let short = validity(Duration::from_secs(30), now, None);
        assert_eq!(
            (short.not_before.as_second(), short.not_after.as_second()),
            (3_599_997, 3_600_030)
        );
        let ca = Validity {
            not_before: at(3_599_998),
            not_after: hours(1002),
        };
        assert_eq!(validity(week, now, Some(ca)), ca);
        assert_eq!(
            validity(Duration::MAX, now, None).not_after.as_second(),
            MAX_TIME
        );
    }

    #[test]
    fn certificates_have_the_given_validity() {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        for not_after in [2_000_000_000, MAX_TIME] {
            let validity = Validity {
                not_before: at(1_000_000_000),
                not_after: at(not_after),
            };
            let names = ["a".repeat(63), "127.0.0.1".to_owned()];
            let serving = serving_certificate(&key, &names, validity, &ca_key).unwrap();
            assert_eq!(Validity::of(serving.der()), Some(validity));
            assert_eq!(
                Validity::of(ca_certificate(&ca_key, validity).unwrap().der()),
                Some(validity)
            );
        }
    }

    #[test]
    fn names_of_cas_are_unique() {
        let [one, other] =
            [(); 2].map(|()| ca_parameters(&KeyPair::generate().unwrap()).distinguished_name);
        assert_ne!(one, other);
    }
}
