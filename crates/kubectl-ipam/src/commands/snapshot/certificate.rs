//! X.509 certificates in PEM.

use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Time;

use crate::model::doctor::snapshot::CertificateFacts;

/// Returns when a certificate expires, and whether an authority of the bundle has signed it. Fails
/// if it cannot be parsed.
pub(super) fn facts(certificate: &[u8], bundle: &[u8]) -> Result<CertificateFacts, String> {
    let malformed = || "the certificate in tls.crt cannot be parsed".to_owned();
    let mut chain = CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok);
    let leaf = chain.next().ok_or_else(malformed)?;
    let intermediates: Vec<CertificateDer<'_>> = chain.collect();
    let parsed = Certificate::from_der(&leaf).map_err(|_| malformed())?;
    let validity = parsed.tbs_certificate().validity();
    let authorities: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(bundle)
        .filter_map(Result::ok)
        .collect();
    // A certificate that is its own authority need not be allowed to sign others.
    let is_own = authorities.contains(&leaf);
    let is_signed = || is_signed(&leaf, &intermediates, &authorities, validity.not_before);
    Ok(CertificateFacts {
        not_after: timestamp(validity.not_after).ok_or_else(malformed)?,
        is_trusted: is_own || is_signed(),
    })
}

/// Whether an authority has signed a certificate. Verified at the beginning of its validity:
/// whether it is valid now is another question.
fn is_signed(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    start: Time,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned().map(CertificateDer::into_owned));
    let Ok(parsed) = ParsedCertificate::try_from(leaf) else {
        return false;
    };
    let algorithms = default_provider().signature_verification_algorithms.all;
    let seconds = start.to_unix_duration().as_secs();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, time, algorithms)
        .is_ok()
}

fn timestamp(time: Time) -> Option<Timestamp> {
    let seconds = time.to_unix_duration().as_secs().try_into().ok()?;
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn certificate_is_verified_with_the_bundle() {
        let (own, other) = (authority(), authority());
        let mut params = CertificateParams::new(vec!["webhook.svc".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &own).unwrap().pem();
        let alone = CertificateParams::new(vec!["webhook.svc".to_owned()]).unwrap();
        let alone = alone.self_signed(&key).unwrap().pem();
        let both = format!("{}{}", other.pem(), own.pem());
        for (certificate, bundle, is_trusted) in [
            (&leaf, own.pem(), true),
            (&leaf, both, true),
            (&leaf, other.pem(), false),
            (&leaf, String::new(), false),
            (&alone, alone.clone(), true),
            (&alone, own.pem(), false),
        ] {
            let facts = facts(certificate.as_bytes(), bundle.as_bytes()).unwrap();
            assert_eq!(facts.is_trusted, is_trusted, "{bundle}");
        }
        let expired = facts(leaf.as_bytes(), own.pem().as_bytes()).unwrap();
        assert_eq!(expired.not_after.to_string(), "2021-01-01T00:00:00Z");
        assert!(facts(b"none", own.pem().as_bytes()).is_err());
    }
}
