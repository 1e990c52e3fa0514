//! The addresses on which a manager listens, and servers of plain HTTP.

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// An address cannot be bound: it is in use, needs privileges, or is none of this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} ({flag})")]
pub struct ListenError {
    /// The value of the flag.
    pub address: String,
    /// The flag.
    pub flag: &'static str,
    /// The error of the operating system.
    #[source]
    pub source: std::io::Error,
}

/// Listens on an address such as `127.0.0.1:8443`. `:8443` means all addresses, IPv6 and IPv4.
/// `None` if the address is `0` or empty, by which a flag disables a server.
///
/// # Errors
/// If the address cannot be bound.
pub async fn listen(address: &str, flag: &'static str) -> Result<Option<TcpListener>, ListenError> {
    if address.is_empty() || address == "0" {
        return Ok(None);
    }
    let bound = if address.starts_with(':') {
        match TcpListener::bind(format!("[::]{address}")).await {
            // A machine without IPv6.
            Err(_) => TcpListener::bind(format!("0.0.0.0{address}")).await,
            bound => bound,
        }
    } else {
        TcpListener::bind(address).await
    };
    let failed = |source| ListenError {
        address: address.to_owned(),
        flag,
        source,
    };
    bound.map(Some).map_err(failed)
}

/// Answers requests until the token is cancelled.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        error!(%error, "a server of plain HTTP failed");
    }
}
