//! What the Secret has in it: read, checked, and made anew.

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

use crate::https::Validity;
use super::decision::{Action, Found, Reason};
use super::issue;

/// The end of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// What certificates are made for, and how long they last.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// DNS names and addresses.
    pub(super) names: Vec<String>,
    /// How long an authority is valid.
    pub(super) authority: Duration,
    /// How long a certificate is valid.
    pub(super) serving: Duration,
}

/// The four values, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// The authorities, the newest first.
    pub(super) authorities: Vec<u8>,
    /// The key of the newest.
    pub(super) authority_key: Vec<u8>,
    /// The certificate to serve with.
    pub(super) certificate: Vec<u8>,
    /// Its key.
    pub(super) key: Vec<u8>,
}

/// The values, read.
pub(super) struct Kept {
    authorities: Result<Vec<Authority>, Reason>,
    authority_key: Result<KeyPair, Reason>,
    serving: Result<Serving, Reason>,
    contents: Contents,
}

/// The certificate of an authority.
#[derive(Clone)]
struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    validity: Validity,
}

/// A certificate to serve with.
#[derive(Clone)]
pub(super) struct Serving {
    /// The certificate with its key.
    pub(super) certified: CertifiedKey,
    /// Who signed it.
    pub(super) authority: CertificateDer<'static>,
    /// From when until when it is valid.
    pub(super) validity: Validity,
}

impl Kept {
    /// Reads the values; what cannot be used is told as such.
    pub(super) fn read(contents: Contents, names: &[String]) -> Self {
        let authorities = read_authorities(&contents.authorities);
        let newest = authorities.as_ref().ok().and_then(|all| all.first());
        let authority_key = read_authority_key(newest, &contents.authority_key);
        let serving = authorities
            .as_ref()
            .map_err(|reason| *reason)
            .and_then(|authorities| read_serving(&contents, authorities, names));
        Self { authorities, authority_key, serving, contents }
    }

    /// What there is to decide about.
    pub(super) fn found(&self) -> Found {
        let validities = |all: &Vec<Authority>| all.iter().map(|one| one.validity).collect();
        Found {
            authorities: self.authorities.as_ref().map(validities).map_err(|reason| *reason),
            key: self.authority_key.as_ref().map(drop).map_err(|reason| *reason),
            serving: self.serving().map(|serving| serving.validity),
        }
    }

    /// What API servers are to trust, in PEM.
    pub(super) fn bundle(&self) -> &[u8] {
        &self.contents.authorities
    }

    /// Whether API servers are to trust an authority.
    pub(super) fn trusts(&self, authority: &CertificateDer<'_>) -> bool {
        self.authorities.as_ref().is_ok_and(|all| all.iter().any(|one| one.certificate == *authority))
    }

    /// The certificate to serve with.
    pub(super) fn serving(&self) -> Result<&Serving, Reason> {
        self.serving.as_ref().map_err(|reason| *reason)
    }

    /// The values after an action.
    pub(super) fn after(&self, action: &Action, wanted: &Wanted, now: Timestamp) -> Result<Contents, rcgen::Error> {
        let mut contents = self.contents.clone();
        let old = self.authorities.iter().flatten().filter(|one| now <= one.validity.until);
        let mut bundle: String = old.map(|one| one.pem.as_str()).collect();
        match (action, &self.authorities, &self.authority_key) {
            (Action::Keep, ..) => return Ok(contents),
            (Action::Prune, ..) => {}
            (Action::Serving(_), Ok(authorities), Ok(key)) => {
                contents.certify(key, authorities.first().map(|one| one.validity), wanted, now)?;
            }
            (Action::Serving(_) | Action::Authority(_), ..) => {
                let (key, validity) = (KeyPair::generate()?, issue::lifetime(wanted.authority, now, None));
                bundle.insert_str(0, &issue::authority(&key, validity)?.pem());
                contents.authority_key = key.serialize_pem().into_bytes();
                contents.certify(&key, Some(validity), wanted, now)?;
            }
        }
        contents.authorities = bundle.into_bytes();
        Ok(contents)
    }
}

impl Contents {
    /// Puts a new certificate in.
    fn certify(
        &mut self,
        authority: &KeyPair,
        within: Option<Validity>,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<(), rcgen::Error> {
        let (key, validity) = (KeyPair::generate()?, issue::lifetime(wanted.serving, now, within));
        self.certificate = issue::serving(&key, &wanted.names, validity, authority)?.pem().into_bytes();
        self.key = key.serialize_pem().into_bytes();
        Ok(())
    }
}

fn read_authorities(bundle: &[u8]) -> Result<Vec<Authority>, Reason> {
    let damaged = Reason::Damaged("its authorities cannot be read");
    let text = std::str::from_utf8(bundle).map_err(|_| damaged)?;
    if text.trim().is_empty() {
        return Err(Reason::Missing);
    }
    let read = |section: &str| {
        let certificate = CertificateDer::from_pem_slice(section.as_bytes()).ok()?;
        let validity = Validity::of(&certificate)?;
        RootCertStore::empty().add(certificate.clone()).ok()?;
        Some(Authority { pem: format!("{}\n", section.trim()), certificate, validity })
    };
    let sections = text.split_inclusive(END).filter(|section| !section.trim().is_empty());
    sections.map(read).collect::<Option<_>>().ok_or(damaged)
}

fn read_authority_key(newest: Option<&Authority>, key: &[u8]) -> Result<KeyPair, Reason> {
    let authority = newest.ok_or(Reason::Missing)?;
    let unreadable = Reason::Damaged("the key of its authority cannot be read");
    let der = PrivateKeyDer::from_pem_slice(key).map_err(|_| unreadable)?;
    let pair = KeyPair::try_from(&der).map_err(|_| unreadable)?;
    CertifiedKey::from_der(vec![authority.certificate.clone()], der, &ring::default_provider())
        .map_err(|_| Reason::Damaged("the key of its authority is another's"))?;
    Ok(pair)
}

fn read_serving(contents: &Contents, authorities: &[Authority], names: &[String]) -> Result<Serving, Reason> {
    let unreadable = Reason::Damaged("its certificate cannot be read");
    let certificate = CertificateDer::from_pem_slice(&contents.certificate).map_err(|_| unreadable)?;
    let validity = Validity::of(&certificate).ok_or(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key)
        .map_err(|_| Reason::Damaged("the key of its certificate cannot be read"))?;
    let provider = ring::default_provider();
    let certified = CertifiedKey::from_der(vec![certificate.clone()], key, &provider)
        .map_err(|_| Reason::Damaged("certificate and key do not fit each other"))?;
    let parsed = ParsedCertificate::try_from(&certificate).map_err(|_| unreadable)?;
    // Whether it is valid now is another question.
    let then =
        UnixTime::since_unix_epoch(Duration::from_secs(validity.from.as_second().try_into().unwrap_or_default()));
    let algorithms = provider.signature_verification_algorithms.all;
    let has_signed = |authority: &&Authority| {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).is_ok()
            && verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], then, algorithms).is_ok()
    };
    let authority = authorities
        .iter()
        .find(has_signed)
        .ok_or(Reason::Damaged("its certificate is of none of its authorities"))?
        .certificate
        .clone();
    let is_named = |name: &String| {
        ServerName::try_from(name.as_str()).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    if !names.iter().all(is_named) {
        return Err(Reason::Damaged("its certificate is not for all names that the webhooks have"));
    }
    Ok(Serving { certified, authority, validity })
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the contents of a Secret")
    }
}

#[cfg(test)]
mod tests {
    use crate::self_managed::decision::decide;
    use super::*;

    fn wanted() -> Wanted {
        let names = ["webhooks.system.svc", "127.0.0.1"].map(str::to_owned).to_vec();
        Wanted { names, authority: Duration::from_hours(1000), serving: Duration::from_hours(100) }
    }

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * 3600).unwrap()
    }

    fn read(contents: &Contents) -> Kept {
        Kept::read(contents.clone(), &wanted().names)
    }

    /// What is made of nothing, in the hour 0.
    fn made() -> Contents {
        let nothing = read(&Contents::default());
        let action = decide(&nothing.found(), at(0));
        assert_eq!(action, Action::Authority(Reason::Missing));
        nothing.after(&action, &wanted(), at(0)).unwrap()
    }

    /// The next contents, and why.
    fn step(contents: &Contents, hour: i64) -> (Action, Contents) {
        let kept = read(contents);
        let action = decide(&kept.found(), at(hour));
        let next = kept.after(&action, &wanted(), at(hour)).unwrap();
        assert_eq!(decide(&read(&next).found(), at(hour)), Action::Keep, "after {action:?}");
        (action, next)
    }

    fn authorities(contents: &Contents) -> usize {
        String::from_utf8_lossy(&contents.authorities).matches(END).count()
    }

    #[test]
    fn from_nothing_to_the_end_of_the_first_authority() {
        let first = made();
        assert_eq!(step(&first, 1), (Action::Keep, first.clone()));
        let (action, second) = step(&first, 67);
        assert_eq!(action, Action::Serving(Reason::Ending));
        assert_eq!((&second.authorities, &second.authority_key), (&first.authorities, &first.authority_key));
        assert_ne!((&second.certificate, &second.key), (&first.certificate, &first.key));
        let (action, third) = step(&second, 667);
        assert_eq!(action, Action::Authority(Reason::Ending));
        assert_eq!(authorities(&third), 2);
        assert!(third.authorities.ends_with(&first.authorities));
        let of = |contents: &Contents| read(contents).serving().unwrap().authority.clone();
        assert_eq!(of(&first), of(&second));
        assert_ne!(of(&second), of(&third));
        // Who serves the old one is trusted by those who have the new bundle.
        assert!(read(&third).trusts(&of(&second)));
        assert!(!read(&second).trusts(&of(&third)));
        let (_, fourth) = step(&third, 760);
        let (action, fifth) = step(&fourth, 761);
        assert_eq!((action, authorities(&fifth)), (Action::Keep, 2));
        let renewed = read(&fifth).after(&Action::Serving(Reason::Ending), &wanted(), at(999)).unwrap();
        let (action, last) = step(&renewed, 1001);
        assert_eq!((action, authorities(&last)), (Action::Prune, 1));
        assert_eq!(last.certificate, renewed.certificate);
    }

    #[test]
    fn what_is_damaged_is_found_and_as_little_as_possible_is_made_anew() {
        let (good, other) = (made(), made());
        let is_serving = |action: &Action| matches!(action, Action::Serving(Reason::Damaged(_)));
        let is_authority = |action: &Action| matches!(action, Action::Authority(Reason::Damaged(_)));
        let junk = b"junk".to_vec();
        for (contents, expected, authorities_after) in [
            (Contents { certificate: Vec::new(), ..good.clone() }, &is_serving as &dyn Fn(&Action) -> bool, 1),
            (Contents { certificate: junk.clone(), ..good.clone() }, &is_serving, 1),
            (Contents { certificate: other.certificate.clone(), ..good.clone() }, &is_serving, 1),
            (Contents { key: junk.clone(), ..good.clone() }, &is_serving, 1),
            (Contents { key: other.key.clone(), ..good.clone() }, &is_serving, 1),
            (
                Contents { certificate: other.certificate.clone(), key: other.key.clone(), ..good.clone() },
                &is_serving,
                1,
            ),
            (Contents { authority_key: Vec::new(), ..good.clone() }, &is_authority, 2),
            (Contents { authority_key: junk.clone(), ..good.clone() }, &is_authority, 2),
            (Contents { authority_key: other.authority_key.clone(), ..good.clone() }, &is_authority, 2),
            (Contents { authorities: other.authorities.clone(), ..good.clone() }, &is_authority, 2),
            (Contents { authorities: junk.clone(), ..good.clone() }, &is_authority, 1),
            (Contents { authorities: [&good.authorities[..], &junk].concat(), ..good.clone() }, &is_authority, 1),
            (Contents { authorities: vec![0xff], ..good.clone() }, &is_authority, 1),
        ] {
            let (action, next) = step(&contents, 1);
            assert!(expected(&action), "{action:?}");
            assert_eq!(authorities(&next), authorities_after, "{action:?}");
        }
        let (action, _) = step(&Contents { authorities: Vec::new(), ..good.clone() }, 1);
        assert_eq!(action, Action::Authority(Reason::Missing));
    }

    #[test]
    fn a_certificate_may_have_more_names_and_not_less() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Kept::read(made(), &names).serving().is_ok()
        };
        assert!(names(&["webhooks.system.svc"]) && names(&["127.0.0.1"]) && names(&[]));
        assert!(!names(&["webhooks.system.svc", "other.system.svc"]) && !names(&["127.0.0.2"]) && !names(&["no name"]));
    }
}
