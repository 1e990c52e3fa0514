//! The contents of the Secret: parsed, verified, and generated.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::decision::{Action, Reason, SecretState};
use super::issue;
use crate::https::Validity;

/// The last line of a certificate in PEM.
const PEM_END: &str = "-----END CERTIFICATE-----";

/// The specification of the certificates.
#[derive(Clone, Debug)]
pub(super) struct CertSpec {
    /// DNS names and IP addresses of the webhooks.
    pub(super) names: Vec<String>,
    /// Lifetime of a CA.
    pub(super) ca_lifetime: Duration,
    /// Lifetime of a serving certificate.
    pub(super) cert_lifetime: Duration,
}

/// The values of the Secret, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// The CA certificates, the newest first.
    pub(super) ca_bundle: Vec<u8>,
    /// The private key of the newest CA.
    pub(super) ca_key: Vec<u8>,
    /// The serving certificate.
    pub(super) certificate: Vec<u8>,
    /// The private key of the serving certificate.
    pub(super) key: Vec<u8>,
}

/// The parsed contents.
pub(super) struct CertBundle {
    cas: Result<Vec<Ca>, Reason>,
    ca_key: Result<KeyPair, Reason>,
    serving: Result<ServingCert, Reason>,
    contents: Contents,
}

/// The certificate of a CA.
#[derive(Clone)]
struct Ca {
    pem: String,
    certificate: CertificateDer<'static>,
    validity: Validity,
}

/// A serving certificate.
#[derive(Clone)]
pub(super) struct ServingCert {
    /// The certificate with its private key.
    pub(super) certified: CertifiedKey,
    /// The certificate of the CA that signed it.
    pub(super) ca: CertificateDer<'static>,
    /// The validity period.
    pub(super) validity: Validity,
}

impl CertBundle {
    /// Parses and verifies the contents. `names` are the names that the serving certificate must
    /// have.
    pub(super) fn parse(contents: Contents, names: &[String]) -> Self {
        let cas = parse_cas(&contents.ca_bundle);
        let newest = cas.as_ref().ok().and_then(|cas| cas.first());
        let ca_key = parse_ca_key(newest, &contents.ca_key);
        let serving = cas
            .as_ref()
            .map_err(|reason| *reason)
            .and_then(|cas| parse_serving_cert(&contents, cas, names));
        Self {
            cas,
            ca_key,
            serving,
            contents,
        }
    }

    /// The state that [`decide`](super::decision::decide) needs.
    pub(super) fn state(&self) -> SecretState {
        let validities = |cas: &Vec<Ca>| cas.iter().map(|ca| ca.validity).collect();
        SecretState {
            cas: self.cas.as_ref().map(validities).map_err(|reason| *reason),
            ca_key: self.ca_key.as_ref().map(drop).map_err(|reason| *reason),
            serving: self.serving().map(|serving| serving.validity),
        }
    }

    /// The CA certificates in PEM, which API servers have to trust.
    pub(super) fn ca_bundle(&self) -> &[u8] {
        &self.contents.ca_bundle
    }

    /// Whether a CA is in the bundle.
    pub(super) fn trusts(&self, certificate: &CertificateDer<'_>) -> bool {
        self.cas
            .as_ref()
            .is_ok_and(|cas| cas.iter().any(|ca| ca.certificate == *certificate))
    }

    /// The serving certificate.
    pub(super) fn serving(&self) -> Result<&ServingCert, Reason> {
        self.serving.as_ref().map_err(|reason| *reason)
    }

    /// The contents after an action.
    pub(super) fn after(
        &self,
        action: &Action,
        spec: &CertSpec,
        now: Timestamp,
    ) -> Result<Contents, rcgen::Error> {
        let mut contents = self.contents.clone();
        let unexpired = self
            .cas
            .iter()
            .flatten()
            .filter(|ca| now <= ca.validity.not_after);
        let mut bundle: String = unexpired.map(|ca| ca.pem.as_str()).collect();
        match (action, &self.cas, &self.ca_key) {
            (Action::Keep, ..) => return Ok(contents),
            (Action::Prune, ..) => {}
            (Action::IssueCert(_), Ok(cas), Ok(key)) => {
                contents.issue_cert(key, cas.first().map(|ca| ca.validity), spec, now)?;
            }
            (Action::IssueCert(_) | Action::RotateCa(_), ..) => {
                let (key, validity) = (
                    KeyPair::generate()?,
                    issue::validity(spec.ca_lifetime, now, None),
                );
                bundle.insert_str(0, &issue::ca_certificate(&key, validity)?.pem());
                contents.ca_key = key.serialize_pem().into_bytes();
                contents.issue_cert(&key, Some(validity), spec, now)?;
            }
        }
        contents.ca_bundle = bundle.into_bytes();
        Ok(contents)
    }
}

impl Contents {
    /// Replaces the serving certificate.
    fn issue_cert(
        &mut self,
        ca_key: &KeyPair,
        ca: Option<Validity>,
        spec: &CertSpec,
        now: Timestamp,
    ) -> Result<(), rcgen::Error> {
        let (key, validity) = (
            KeyPair::generate()?,
            issue::validity(spec.cert_lifetime, now, ca),
        );
        self.certificate = issue::serving_certificate(&key, &spec.names, validity, ca_key)?
            .pem()
            .into_bytes();
        self.key = key.serialize_pem().into_bytes();
        Ok(())
    }
}

fn parse_cas(bundle: &[u8]) -> Result<Vec<Ca>, Reason> {
    let unusable = Reason::Unusable("the CA certificates cannot be parsed");
    let text = std::str::from_utf8(bundle).map_err(|_| unusable)?;
    if text.trim().is_empty() {
        return Err(Reason::Missing);
    }
    let parse = |section: &str| {
        let certificate = CertificateDer::from_pem_slice(section.as_bytes()).ok()?;
        let validity = Validity::of(&certificate)?;
        RootCertStore::empty().add(certificate.clone()).ok()?;
        Some(Ca {
            pem: format!("{}\n", section.trim()),
            certificate,
            validity,
        })
    };
    let sections = text
        .split_inclusive(PEM_END)
        .filter(|section| !section.trim().is_empty());
    sections.map(parse).collect::<Option<_>>().ok_or(unusable)
}

fn parse_ca_key(newest: Option<&Ca>, key: &[u8]) -> Result<KeyPair, Reason> {
    let ca = newest.ok_or(Reason::Missing)?;
    let malformed = Reason::Unusable("the key of the CA cannot be parsed");
    let der = PrivateKeyDer::from_pem_slice(key).map_err(|_| malformed)?;
    let pair = KeyPair::try_from(&der).map_err(|_| malformed)?;
    CertifiedKey::from_der(vec![ca.certificate.clone()], der, &ring::default_provider())
        .map_err(|_| Reason::Unusable("the key of the CA does not match its certificate"))?;
    Ok(pair)
}

fn parse_serving_cert(
    contents: &Contents,
    cas: &[Ca],
    names: &[String],
) -> Result<ServingCert, Reason> {
    let malformed = Reason::Unusable("the certificate cannot be parsed");
    let certificate =
        CertificateDer::from_pem_slice(&contents.certificate).map_err(|_| malformed)?;
    let validity = Validity::of(&certificate).ok_or(malformed)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key)
        .map_err(|_| Reason::Unusable("the key of the certificate cannot be parsed"))?;
    let provider = ring::default_provider();
    let certified = CertifiedKey::from_der(vec![certificate.clone()], key, &provider)
        .map_err(|_| Reason::Unusable("the key of the certificate does not match it"))?;
    let parsed = ParsedCertificate::try_from(&certificate).map_err(|_| malformed)?;
    // Verified at the beginning of the validity: whether it is valid now is decided later.
    let start = validity
        .not_before
        .as_second()
        .try_into()
        .unwrap_or_default();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(start));
    let algorithms = provider.signature_verification_algorithms.all;
    let has_signed = |ca: &&Ca| {
        let mut roots = RootCertStore::empty();
        roots.add(ca.certificate.clone()).is_ok()
            && verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms)
                .is_ok()
    };
    let ca = cas
        .iter()
        .find(has_signed)
        .ok_or(Reason::Unusable(
            "none of the CAs has signed the certificate",
        ))?
        .certificate
        .clone();
    let has_name = |name: &String| {
        ServerName::try_from(name.as_str())
            .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    if !names.iter().all(has_name) {
        return Err(Reason::Unusable(
            "the certificate does not have all names of the webhooks",
        ));
    }
    Ok(ServingCert {
        certified,
        ca,
        validity,
    })
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents { .. }")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_managed::decision::decide;

    fn spec() -> CertSpec {
        let names = ["webhooks.system.svc", "127.0.0.1"]
            .map(str::to_owned)
            .to_vec();
        CertSpec {
            names,
            ca_lifetime: Duration::from_hours(1000),
            cert_lifetime: Duration::from_hours(100),
        }
    }

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * 3600).unwrap()
    }

    fn parse(contents: &Contents) -> CertBundle {
        CertBundle::parse(contents.clone(), &spec().names)
    }

    /// The contents that are generated from nothing, at hour 0.
    fn generated() -> Contents {
        let empty = parse(&Contents::default());
        let action = decide(&empty.state(), at(0));
        assert_eq!(action, Action::RotateCa(Reason::Missing));
        empty.after(&action, &spec(), at(0)).unwrap()
    }

    /// The action at that hour, and the contents after it.
    fn step(contents: &Contents, hour: i64) -> (Action, Contents) {
        let bundle = parse(contents);
        let action = decide(&bundle.state(), at(hour));
        let next = bundle.after(&action, &spec(), at(hour)).unwrap();
        assert_eq!(
            decide(&parse(&next).state(), at(hour)),
            Action::Keep,
            "after {action:?}"
        );
        (action, next)
    }

    fn count_cas(contents: &Contents) -> usize {
        String::from_utf8_lossy(&contents.ca_bundle)
            .matches(PEM_END)
            .count()
    }

    #[test]
    fn certificates_are_renewed_until_the_first_ca_expires() {
        let first = generated();
        assert_eq!(step(&first, 1), (Action::Keep, first.clone()));
        let (action, second) = step(&first, 67);
        assert_eq!(action, Action::IssueCert(Reason::Expiring));
        assert_eq!(
            (&second.ca_bundle, &second.ca_key),
            (&first.ca_bundle, &first.ca_key)
        );
        assert_ne!(
            (&second.certificate, &second.key),
            (&first.certificate, &first.key)
        );
        let (action, third) = step(&second, 667);
        assert_eq!(action, Action::RotateCa(Reason::Expiring));
        assert_eq!(count_cas(&third), 2);
        assert!(third.ca_bundle.ends_with(&first.ca_bundle));
        let ca_of = |contents: &Contents| parse(contents).serving().unwrap().ca.clone();
        assert_eq!(ca_of(&first), ca_of(&second));
        assert_ne!(ca_of(&second), ca_of(&third));
        // The new bundle trusts replicas that serve the old certificate.
        assert!(parse(&third).trusts(&ca_of(&second)));
        assert!(!parse(&second).trusts(&ca_of(&third)));
        let (_, fourth) = step(&third, 760);
        let (action, fifth) = step(&fourth, 761);
        assert_eq!((action, count_cas(&fifth)), (Action::Keep, 2));
        let renewed = parse(&fifth)
            .after(&Action::IssueCert(Reason::Expiring), &spec(), at(999))
            .unwrap();
        let (action, last) = step(&renewed, 1001);
        assert_eq!((action, count_cas(&last)), (Action::Prune, 1));
        assert_eq!(last.certificate, renewed.certificate);
    }

    #[test]
    fn only_unusable_parts_are_regenerated() {
        let (good, other) = (generated(), generated());
        let issues_cert =
            |action: &Action| matches!(action, Action::IssueCert(Reason::Unusable(_)));
        let rotates_ca = |action: &Action| matches!(action, Action::RotateCa(Reason::Unusable(_)));
        let junk = b"junk".to_vec();
        for (contents, expected, cas_after) in [
            (
                Contents {
                    certificate: Vec::new(),
                    ..good.clone()
                },
                &issues_cert as &dyn Fn(&Action) -> bool,
                1,
            ),
            (
                Contents {
                    certificate: junk.clone(),
                    ..good.clone()
                },
                &issues_cert,
                1,
            ),
            (
                Contents {
                    certificate: other.certificate.clone(),
                    ..good.clone()
                },
                &issues_cert,
                1,
            ),
            (
                Contents {
                    key: junk.clone(),
                    ..good.clone()
                },
                &issues_cert,
                1,
            ),
            (
                Contents {
                    key: other.key.clone(),
                    ..good.clone()
                },
                &issues_cert,
                1,
            ),
            (
                Contents {
                    certificate: other.certificate.clone(),
                    key: other.key.clone(),
                    ..good.clone()
                },
                &issues_cert,
                1,
            ),
            (
                Contents {
                    ca_key: Vec::new(),
                    ..good.clone()
                },
                &rotates_ca,
                2,
            ),
            (
                Contents {
                    ca_key: junk.clone(),
                    ..good.clone()
                },
                &rotates_ca,
                2,
            ),
            (
                Contents {
                    ca_key: other.ca_key.clone(),
                    ..good.clone()
                },
                &rotates_ca,
                2,
            ),
            (
                Contents {
                    ca_bundle: other.ca_bundle.clone(),
                    ..good.clone()
                },
                &rotates_ca,
                2,
            ),
            (
                Contents {
                    ca_bundle: junk.clone(),
                    ..good.clone()
                },
                &rotates_ca,
                1,
            ),
            (
                Contents {
                    ca_bundle: [&good.ca_bundle[..], &junk].concat(),
                    ..good.clone()
                },
                &rotates_ca,
                1,
            ),
            (
                Contents {
                    ca_bundle: vec![0xff],
                    ..good.clone()
                },
                &rotates_ca,
                1,
            ),
        ] {
            let (action, next) = step(&contents, 1);
            assert!(expected(&action), "{action:?}");
            assert_eq!(count_cas(&next), cas_after, "{action:?}");
        }
        let (action, _) = step(
            &Contents {
                ca_bundle: Vec::new(),
                ..good.clone()
            },
            1,
        );
        assert_eq!(action, Action::RotateCa(Reason::Missing));
    }

    #[test]
    fn certificate_needs_all_names() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            CertBundle::parse(generated(), &names).serving().is_ok()
        };
        assert!(names(&["webhooks.system.svc"]) && names(&["127.0.0.1"]) && names(&[]));
        assert!(
            !names(&["webhooks.system.svc", "other.system.svc"])
                && !names(&["127.0.0.2"])
                && !names(&["no name"])
        );
    }
}
