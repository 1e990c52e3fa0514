//! Polling until a condition holds, or while it has to keep holding.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a test waits for something that takes milliseconds on a free machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls `poll` every 20 ms until it returns a value.
///
/// # Panics
/// When it returns none within [`TIMEOUT`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, poll: impl FnMut() -> F) -> T {
    eventually_within(TIMEOUT, what, poll).await
}

/// Like [`eventually`], with another timeout.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    timeout: Duration,
    what: &str,
    mut poll: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = poll().await {
            return found;
        }
        assert!(Instant::now() < deadline, "did not happen within {timeout:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asserts for half a second that a condition keeps holding.
///
/// # Panics
/// When it does not hold.
pub async fn consistently<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..10 {
        assert!(holds().await, "does not hold consistently: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
