//! Why there is no connection.

use std::error::Error;
use std::io;
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind};
use rustls::{AlertDescription, CertificateError};

use crate::error::Invalid;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// A server is not a URL.
    #[error("{url:?} is not the URL of a NATS server: use nats://HOST:PORT or tls://HOST:PORT")]
    Url {
        /// The text.
        url: String,
        /// The reason.
        source: io::Error,
    },
    /// The URL of a server contains a user name, a password or a token.
    #[error("the URL of NATS server {server} contains credentials: use Credentials, not the URL")]
    CredentialsInUrl {
        /// What follows the credentials.
        server: String,
    },
    /// A file that a flag names cannot be read.
    #[error("cannot read the file {path}")]
    File {
        /// Its path.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The credentials are not the content of a file `user.creds`.
    #[error("the credentials are not those of a file user.creds")]
    CredentialsFile {
        /// The reason.
        source: io::Error,
    },
    /// A certificate or key is not PEM, or the two do not belong together.
    #[error("the {what} cannot be used")]
    Pem {
        /// What it is.
        what: &'static str,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A server does not accept the credentials.
    #[error("NATS at {servers} denies the credentials: check the user, and whether it is expired")]
    Credentials {
        /// The servers, as host:port.
        servers: String,
        /// The answer.
        source: ConnectError,
    },
    /// The certificate of a server has expired.
    #[error("the certificate of NATS at {servers} has expired: renew it")]
    ServerCertificateExpired {
        /// The servers, as host:port.
        servers: String,
        /// The error of the handshake.
        source: ConnectError,
    },
    /// A server refuses the certificate of this client as expired.
    #[error("NATS at {servers} finds that the client certificate has expired: renew it")]
    ClientCertificateExpired {
        /// The servers, as host:port.
        servers: String,
        /// The error of the handshake.
        source: ConnectError,
    },
    /// The handshake of TLS failed for another reason, such as an unknown authority.
    #[error("TLS with NATS at {servers} fails: check ca.crt and the name in the certificate")]
    Tls {
        /// The servers, as host:port.
        servers: String,
        /// The error of the handshake.
        source: ConnectError,
    },
    /// No server accepts connections.
    #[error("NATS at {servers} cannot be reached")]
    Unreachable {
        /// The servers, as host:port.
        servers: String,
        /// The reason.
        source: ConnectError,
    },
    /// No server answered.
    #[error("NATS at {servers} does not answer within {after:?}")]
    Timeout {
        /// The servers, as host:port.
        servers: String,
        /// The deadline.
        after: Duration,
    },
    /// The server is not usable.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What an error of the client library means.
pub(super) fn explain(error: ConnectError, servers: String) -> ConnectionError {
    let source = error;
    match tls_error(&source) {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => return ConnectionError::ServerCertificateExpired { servers, source },
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateExpired)) => {
            return ConnectionError::ClientCertificateExpired { servers, source };
        }
        Some(_) => return ConnectionError::Tls { servers, source },
        None => {}
    }
    match source.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            ConnectionError::Credentials { servers, source }
        }
        ConnectErrorKind::Tls => ConnectionError::Tls { servers, source },
        _ => ConnectionError::Unreachable { servers, source },
    }
}

/// The error of TLS in a chain of errors.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An error of I/O hides the error that it contains behind its own source.
        let io = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match io {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
