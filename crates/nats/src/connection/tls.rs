//! Certificates of a connection.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::problem::ConnectionError;

/// The certificates of a connection, as the content of PEM files. The text form of this type
/// contains none of them.
#[derive(Clone, Default)]
pub struct Tls {
    /// The authorities that sign the certificates of servers: `ca.crt`.
    pub authorities: String,
    /// The certificate of the client with its chain, and its key: `tls.crt` and `tls.key`.
    pub identity: Option<(String, String)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("has_identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// The configuration of the client, which verifies the certificate of the server.
    pub(super) fn client_config(&self) -> Result<ClientConfig, ConnectionError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| pem_error("TLS configuration", error))?
            .with_root_certificates(roots(&self.authorities)?);
        let Some((certificates, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let certificates = parse(certificates, "client certificate")?;
        // The error of the parser can contain the key.
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| pem_error("client key", "it is not PEM"))?;
        builder
            .with_client_auth_cert(certificates, key)
            .map_err(|error| pem_error("client certificate with its key", error))
    }
}

/// The authorities in a PEM file.
fn roots(authorities: &str) -> Result<RootCertStore, ConnectionError> {
    const WHAT: &str = "certificate of the authority";
    let mut roots = RootCertStore::empty();
    for certificate in parse(authorities, WHAT)? {
        roots
            .add(certificate)
            .map_err(|error| pem_error(WHAT, error))?;
    }
    Ok(roots)
}

/// The certificates in a PEM file, at least one.
fn parse(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, ConnectionError> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_error(what, error))?;
    if certificates.is_empty() {
        return Err(pem_error(what, "it contains no certificate"));
    }
    Ok(certificates)
}

fn pem_error(
    what: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ConnectionError {
    ConnectionError::Pem {
        what,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_without_certificate_is_an_error_that_names_it() {
        let error = Tls::default().client_config().expect_err("it is empty");
        assert_eq!(
            error.to_string(),
            "the certificate of the authority cannot be used"
        );
    }

    #[test]
    fn error_of_a_client_key_shows_none_of_its_text() {
        use std::error::Error as _;

        let authority = rcgen::generate_simple_self_signed(["nats".to_owned()])
            .expect("it is signed")
            .cert
            .pem();
        let tls = Tls {
            authorities: authority.clone(),
            identity: Some((
                authority,
                "-----BEGIN PRIVATE KEY-----marker-----END PRIVATE KEY-----".to_owned(),
            )),
        };
        let error = tls.client_config().expect_err("its line breaks were lost");
        let source = error.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("it is not PEM"));
    }
}
