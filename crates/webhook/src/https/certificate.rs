//! The certificate of a server, which can change at any time. It is loaded from two files, or set
//! by another component.
//!
//! The files are read every second and compared with their previous contents. This needs no
//! notification by the file system, and detects every kind of renewal: a rewritten file, or a
//! mounted Secret whose directory is swapped. A certificate and a key that do not match, since only
//! one file is written so far, have no effect until they do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::metrics::{Description, Metrics};
use jiff::Timestamp;
use parking_lot::RwLock;
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

/// Interval at which the files are read.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time before its expiry at which a certificate causes a warning. It should be renewed long
/// before.
const EXPIRY_WARNING: Duration = Duration::from_hours(24);

/// Why the certificate cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path of the file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A file has no certificate or key in PEM format.
    #[error("there is no {expected} in PEM format in {path}")]
    Pem {
        /// Path of the file.
        path: String,
        /// What the file should contain.
        expected: &'static str,
        /// The error of the parser.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("the certificate in {certificate} cannot be used with the key in {key}")]
    Pair {
        /// Path of the certificate.
        certificate: String,
        /// Path of the key.
        key: String,
        /// The error of rustls.
        #[source]
        source: rustls::Error,
    },
}

const fn descriptions([loads, refusals, expiry]: [&'static str; 3]) -> [Description; 3] {
    let loads_help = "Number of times that a certificate was loaded, including the first";
    let refusals_help =
        "Number of times that the files of the certificate changed to unusable contents";
    let expiry_help = "Expiry of the certificate in seconds since 1970; 0 if there is none";
    [
        Description {
            name: loads,
            kind: "counter",
            labels: &[],
            help: loads_help,
        },
        Description {
            name: refusals,
            kind: "counter",
            labels: &[],
            help: refusals_help,
        },
        Description {
            name: expiry,
            kind: "gauge",
            labels: &[],
            help: expiry_help,
        },
    ]
}

/// The metrics of the certificate of webhooks.
pub(crate) const WEBHOOK_METRICS: [Description; 3] = descriptions([
    "webhook_certificate_loads_total",
    "webhook_certificate_refusals_total",
    "webhook_certificate_expiry_timestamp_seconds",
]);

/// The metrics of the certificate of a server that serves metrics only.
pub(crate) const DIAGNOSTICS_METRICS: [Description; 3] = descriptions([
    "diagnostics_certificate_loads_total",
    "diagnostics_certificate_refusals_total",
    "diagnostics_certificate_expiry_timestamp_seconds",
]);

/// The paths of a certificate and its key, in PEM format. The file of the certificate may contain
/// its issuers too; the format of the key is PKCS #8, PKCS #1 or SEC 1.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    /// Path of the certificate.
    pub(crate) certificate: PathBuf,
    /// Path of the private key.
    pub(crate) key: PathBuf,
}

/// The current certificate of a server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
    loaded: Counter,
    refused: Counter,
    expiry: Gauge,
}

/// The contents of the two files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificates {
    /// Registers the metrics of the certificate of webhooks, or of another server.
    pub(crate) fn register(&self, metrics: &Metrics, [loads, refusals, expiry]: &[Description; 3]) {
        metrics.add(loads, self.loaded.clone());
        metrics.add(refusals, self.refused.clone());
        metrics.add(expiry, self.expiry.clone());
    }

    /// Whether there is a certificate.
    fn is_loaded(&self) -> bool {
        self.current.read().is_some()
    }

    /// Replaces the certificate, for all handshakes from now on. Returns its expiry.
    pub(crate) fn set(&self, certificate: CertifiedKey) -> Option<Timestamp> {
        let validity = certificate
            .cert
            .first()
            .and_then(|certificate| Validity::of(certificate));
        let expiry = validity.map(|validity| validity.not_after);
        *self.current.write() = Some(Arc::new(certificate));
        self.loaded.inc();
        self.expiry.set(expiry.map_or(0, Timestamp::as_second));
        expiry
    }

    /// Reloads the files periodically until the token is cancelled. `health` becomes ready when
    /// there is a certificate, and shows the problem until then.
    pub(crate) async fn watch(
        self,
        files: CertificateFiles,
        interval: Duration,
        health: ReadinessGate,
        stop: CancellationToken,
    ) {
        let mut watcher = Watcher {
            certificates: self,
            files,
            health,
            last: None,
            problem: String::new(),
        };
        loop {
            watcher.poll().await;
            if stop
                .run_until_cancelled(tokio::time::sleep(interval))
                .await
                .is_none()
            {
                return;
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }
}

struct Watcher {
    certificates: Certificates,
    files: CertificateFiles,
    health: ReadinessGate,
    /// The previous contents of the files, usable or not.
    last: Option<Contents>,
    /// The problem that was logged last, so that it is logged once.
    problem: String,
}

impl Watcher {
    async fn poll(&mut self) {
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || Contents::read(&files)).await;
        match read {
            // The runtime is shutting down.
            Err(_) => {}
            Ok(Err(error)) => self.report(error_chain(&error)),
            Ok(Ok(contents)) if self.last.as_ref() == Some(&contents) => self.check_expiry(),
            Ok(Ok(contents)) => {
                self.problem.clear();
                match contents.load(&self.files) {
                    Ok(certificate) => self.load(certificate),
                    Err(error) => {
                        self.certificates.refused.inc();
                        self.report(error_chain(&error));
                    }
                }
                self.last = Some(contents);
            }
        }
    }

    fn load(&mut self, certificate: CertifiedKey) {
        let expiry = self.certificates.set(certificate);
        self.health.ready();
        info!(
            file = %self.files.certificate.display(),
            expires = %expiry.map_or_else(|| "unknown".to_owned(), |time| time.to_string()),
            "certificate loaded"
        );
        self.check_expiry();
    }

    fn check_expiry(&mut self) {
        let Ok(end) = Timestamp::from_second(self.certificates.expiry.get()) else {
            return;
        };
        let left = end.duration_since(Timestamp::now());
        if end == Timestamp::UNIX_EPOCH
            || left > jiff::SignedDuration::try_from(EXPIRY_WARNING).unwrap_or_default()
        {
            return;
        }
        let state = if left.is_negative() {
            "has expired"
        } else {
            "expires soon"
        };
        self.report(format!(
            "the certificate in {} {state}: {end}",
            self.files.certificate.display()
        ));
    }

    fn report(&mut self, problem: String) {
        if self.problem == problem {
            return;
        }
        if self.certificates.is_loaded() {
            warn!(
                problem,
                "a problem with the certificate; the one loaded last stays in use"
            );
        } else {
            warn!(
                problem,
                "no certificate is loaded yet; TLS handshakes fail until there is one"
            );
            let directory = self.files.certificate.parent().unwrap_or(Path::new("/"));
            self.health.failing(&format!(
                "{problem}; check the Secret that is mounted at {}, and with cert-manager the Certificate that its \
                 annotation cert-manager.io/certificate-name names",
                directory.display()
            ));
        }
        self.problem = problem;
    }
}

impl Contents {
    fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CertificateError::Read {
                path: path.display().to_string(),
                source,
            })
        };
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn load(&self, files: &CertificateFiles) -> Result<CertifiedKey, CertificateError> {
        let failed = |path: &Path, expected| {
            let path = path.display().to_string();
            move |source| CertificateError::Pem {
                path,
                expected,
                source,
            }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .and_then(|chain: Vec<_>| {
                if chain.is_empty() {
                    Err(pem::Error::NoItemsFound)
                } else {
                    Ok(chain)
                }
            })
            .map_err(failed(&files.certificate, "certificate"))?;
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(failed(&files.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| {
            CertificateError::Pair {
                certificate: files.certificate.display().to_string(),
                key: files.key.display().to_string(),
                source,
            }
        })
    }
}
