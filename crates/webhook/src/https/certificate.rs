//! The certificate of a server, which may change at any time. It comes from two files, or is given by another part of the
//! program.
//!
//! The files are read every second and compared with what they were. That needs no support of the file system, and it
//! sees every way in which a certificate is renewed: a file written anew, or a mounted Secret whose folder is swapped.
//! A pair that does not fit (one file is written already, the other is not) changes nothing until it does.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use capi_ipam_controller::client::chain;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::metrics::Metrics;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Validity;

/// How often the files are read.
pub const POLL: Duration = Duration::from_secs(1);

/// How long before its end a certificate is complained about. It should have been renewed long before.
const SOON: Duration = Duration::from_hours(24);

/// Why the files give no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file is not PEM, or what should be in it is not.
    #[error("there is no {what} in PEM format in {path}")]
    Pem {
        /// The file.
        path: String,
        /// What should be in it.
        what: &'static str,
        /// Why it cannot be read.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key are no pair, or of a kind that is not supported.
    #[error("the certificate in {certificate} cannot be used with the key in {key}")]
    Pair {
        /// The file with the certificate.
        certificate: String,
        /// The file with the key.
        key: String,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}

/// Where certificate and key lie, in PEM format. The certificate may be followed by those of its issuers; the key may
/// be PKCS #8, PKCS #1 or SEC 1.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The certificate as it is now. Clones speak of the same one.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
    loaded: Counter,
    refused: Counter,
    expiry: Gauge,
}

/// What was in the two files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificates {
    /// Shows how the certificate is doing. `name` begins the names of the metrics.
    pub fn register(&self, metrics: &Metrics, name: &str) {
        let reloads = "How often a certificate was loaded, the first time included";
        metrics.register(&format!("{name}_certificate_loads"), reloads, self.loaded.clone());
        let refused = "How often the files of the certificate changed to something that cannot be used";
        metrics.register(&format!("{name}_certificate_refusals"), refused, self.refused.clone());
        let expiry = "When the certificate expires, in seconds since 1970; 0 when there is none";
        metrics.register(&format!("{name}_certificate_expiry_timestamp_seconds"), expiry, self.expiry.clone());
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Serves with that one from the next handshake on. Returns when it expires.
    pub(crate) fn change(&self, certificate: CertifiedKey) -> Option<Timestamp> {
        let validity = certificate.cert.first().and_then(|certificate| Validity::of(certificate));
        let expiry = validity.map(|validity| validity.until);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certificate));
        self.loaded.inc();
        self.expiry.set(expiry.map_or(0, Timestamp::as_second));
        expiry
    }

    /// Reads the files now and then, until the token is cancelled. `health` is done once there is a certificate, and
    /// until then says why there is none.
    pub async fn watch(self, files: CertificateFiles, every: Duration, health: ReadinessGate, stop: CancellationToken) {
        let mut watcher = Watcher { certificates: self, files, health, last: None, trouble: String::new() };
        loop {
            watcher.look().await;
            if stop.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
                return;
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Watcher {
    certificates: Certificates,
    files: CertificateFiles,
    health: ReadinessGate,
    /// What was in the files the last time, whether it could be used or not.
    last: Option<Contents>,
    /// What was complained about the last time, so that it is said once.
    trouble: String,
}

impl Watcher {
    async fn look(&mut self) {
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || Contents::read(&files)).await;
        match read {
            // The program ends.
            Err(_) => {}
            Ok(Err(error)) => self.complain(chain(&error)),
            Ok(Ok(contents)) if self.last.as_ref() == Some(&contents) => self.check_expiry(),
            Ok(Ok(contents)) => {
                self.trouble.clear();
                match contents.load(&self.files) {
                    Ok(certificate) => self.change(certificate),
                    Err(error) => {
                        self.certificates.refused.inc();
                        self.complain(chain(&error));
                    }
                }
                self.last = Some(contents);
            }
        }
    }

    fn change(&mut self, certificate: CertifiedKey) {
        let expiry = self.certificates.change(certificate);
        self.health.done();
        info!(
            file = %self.files.certificate.display(),
            expires = %expiry.map_or_else(|| "unknown".to_owned(), |time| time.to_string()),
            "certificate loaded"
        );
        self.check_expiry();
    }

    fn check_expiry(&mut self) {
        let Ok(end) = Timestamp::from_second(self.certificates.expiry.get()) else { return };
        let left = end.duration_since(Timestamp::now());
        if end == Timestamp::UNIX_EPOCH || left > jiff::SignedDuration::try_from(SOON).unwrap_or_default() {
            return;
        }
        let what = if left.is_negative() { "has expired" } else { "expires soon" };
        self.complain(format!("the certificate in {} {what}: {end}", self.files.certificate.display()));
    }

    fn complain(&mut self, trouble: String) {
        if self.trouble == trouble {
            return;
        }
        if self.certificates.is_there() {
            warn!(trouble, "certificate: the one loaded last stays in use");
        } else {
            warn!(trouble, "certificate: there is none yet, so there are no TLS handshakes");
            self.health.broken(&trouble);
        }
        self.trouble = trouble;
    }
}

impl Contents {
    fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CertificateError::Read { path: path.display().to_string(), source })
        };
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn load(&self, files: &CertificateFiles) -> Result<CertifiedKey, CertificateError> {
        let failed = |path: &Path, what| {
            let path = path.display().to_string();
            move |source| CertificateError::Pem { path, what, source }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .and_then(|chain: Vec<_>| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
            .map_err(failed(&files.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(failed(&files.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| CertificateError::Pair {
            certificate: files.certificate.display().to_string(),
            key: files.key.display().to_string(),
            source,
        })
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the contents of the files of a certificate")
    }
}
