//! Authorities and certificates are made here.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{BasicConstraints, Certificate, CertificateParams, date_time_ymd, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData};
use sha2::{Digest, Sha256};

use crate::https::Validity;

/// Certificates begin in the past by as much, or by a tenth of their life if that is less, for clocks that go wrong.
const SKEW: Duration = Duration::from_hours(1);

/// The last second that there is, shortly before the end of the year 9999. Certificates could say a few hours more.
const END_OF_TIME: i64 = 253_402_207_200;

/// How long certificates made now are valid. A certificate is never valid for longer than its authority.
pub(super) fn lifetime(life: Duration, now: Timestamp, within: Option<Validity>) -> Validity {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(END_OF_TIME);
    let (now, skew) = (now.as_second(), seconds(SKEW.min(life / 10)));
    let (earliest, latest) =
        within.map_or((0, END_OF_TIME), |within| (within.from.as_second(), within.until.as_second()));
    let time = |second: i64| Timestamp::from_second(second.clamp(earliest, latest)).unwrap_or(Timestamp::MAX);
    Validity { from: time(now - skew), until: time(now.saturating_add(seconds(life))) }
}

/// The certificate of a new authority, which signs itself.
pub(super) fn authority(key: &KeyPair, validity: Validity) -> Result<Certificate, rcgen::Error> {
    let mut parameters = subject(key);
    set(&mut parameters, validity);
    parameters.self_signed(key)
}

/// A certificate to serve with, for `key`. `names` are DNS names and addresses.
pub(super) fn serving(
    key: &KeyPair,
    names: &[String],
    validity: Validity,
    authority: &KeyPair,
) -> Result<Certificate, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    // The names above are the ones that count; this one is for people who look at it, and may have 64 letters.
    let name = names.first().filter(|name| name.len() <= 64).map_or("webhooks", String::as_str);
    parameters.distinguished_name = named(name);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    set(&mut parameters, validity);
    let issuer = Issuer::new(subject(authority), authority);
    parameters.signed_by(key, &issuer)
}

/// What an authority is called. It follows from its key, so that no two have one name, and it need not be stored.
fn subject(key: &KeyPair) -> CertificateParams {
    let digest = Sha256::digest(key.der_bytes()).iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = named(&format!("self-managed authority {digest:016x}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn named(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn set(parameters: &mut CertificateParams, validity: Validity) {
    let time = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second().min(END_OF_TIME)).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    parameters.not_before = time(validity.from);
    parameters.not_after = time(validity.until);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_lifetime_begins_a_little_early_and_ends_with_the_authority() {
        let hours = |hours: i64| at(hours * 3600);
        let now = hours(1000);
        let week = Duration::from_hours(168);
        assert_eq!(lifetime(week, now, None), Validity { from: hours(999), until: hours(1168) });
        let short = lifetime(Duration::from_secs(30), now, None);
        assert_eq!((short.from.as_second(), short.until.as_second()), (3_599_997, 3_600_030));
        let within = Validity { from: at(3_599_998), until: hours(1002) };
        assert_eq!(lifetime(week, now, Some(within)), within);
        assert_eq!(lifetime(Duration::MAX, now, None).until.as_second(), END_OF_TIME);
    }

    #[test]
    fn what_is_made_is_valid_as_long_as_it_should_be() {
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        for until in [2_000_000_000, END_OF_TIME] {
            let validity = Validity { from: at(1_000_000_000), until: at(until) };
            let names = ["a".repeat(63), "127.0.0.1".to_owned()];
            let made = serving(&key, &names, validity, &authority_key).unwrap();
            assert_eq!(Validity::of(made.der()), Some(validity));
            assert_eq!(Validity::of(authority(&authority_key, validity).unwrap().der()), Some(validity));
        }
    }

    #[test]
    fn no_two_authorities_have_one_name() {
        let [one, other] = [(); 2].map(|()| subject(&KeyPair::generate().unwrap()).distinguished_name);
        assert_ne!(one, other);
    }
}
