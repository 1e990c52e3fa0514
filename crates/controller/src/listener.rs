//! TCP listeners for the servers of a manager.

use tokio::net::TcpListener;

/// Listens on an address such as `127.0.0.1:8443`. `:8443` means all addresses, IPv6 and IPv4.
pub async fn bind(address: &str) -> std::io::Result<TcpListener> {
    if !address.starts_with(':') {
        return TcpListener::bind(address).await;
    }
    match TcpListener::bind(format!("[::]{address}")).await {
        // A machine without IPv6.
        Err(_) => TcpListener::bind(format!("0.0.0.0{address}")).await,
        bound => bound,
    }
}
