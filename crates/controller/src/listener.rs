//! TCP listeners of the servers of a manager.

use tokio::net::TcpListener;

/// Starts to listen at an address such as `127.0.0.1:8443`; `:8443` means any address of this machine.
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
