//! Polling until a condition holds, or while it has to keep holding.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::patience::Patience;

/// How long a test waits for something that takes milliseconds on a free machine. The API server
/// can reject IPAddresses with owner references for 30 s after its start, see
/// `CallError::is_owner_kind_unknown` of the controller crate.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// How long a test waits for a message that a program writes after several failed requests. Each of
/// them can take until its own timeout.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_mins(3);

/// How long a test waits for an event: their rate is limited, and a program publishes them one
/// after the other.
pub const EVENT_TIMEOUT: Duration = Duration::from_mins(5);

/// The shortest and the longest time between two calls of a poll. Each call costs the API server
/// processor time that other tests need.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Calls `poll` until it returns a value: every 20 ms at first, and every 250 ms after 2.5 seconds.
///
/// # Panics
/// When it returns none within [`TIMEOUT`], or longer on a busy machine, see [`Patience`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    poll: impl FnMut() -> F,
) -> T {
    eventually_within(TIMEOUT, what, poll).await
}

/// Like [`eventually`], with another timeout.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    timeout: Duration,
    what: &str,
    mut poll: impl FnMut() -> F,
) -> T {
    let (start, patience) = (Instant::now(), Patience::new(timeout));
    loop {
        if let Some(found) = poll().await {
            return found;
        }
        assert!(
            !patience.is_over(),
            "did not happen within {timeout:?}: {what}"
        );
        pause(start).await;
    }
}

/// Like [`eventually`], for a `poll` that says what it found instead; the panic shows the last of
/// these.
pub async fn eventually_ok<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    poll: impl FnMut() -> F,
) -> T {
    eventually_ok_within(TIMEOUT, what, poll).await
}

/// Like [`eventually_ok`], with another timeout.
pub async fn eventually_ok_within<T, F: Future<Output = Result<T, String>>>(
    timeout: Duration,
    what: &str,
    mut poll: impl FnMut() -> F,
) -> T {
    let (start, patience) = (Instant::now(), Patience::new(timeout));
    loop {
        match poll().await {
            Ok(found) => return found,
            Err(instead) => {
                assert!(
                    !patience.is_over(),
                    "did not happen within {timeout:?}: {what}; instead: {instead}"
                );
            }
        }
        pause(start).await;
    }
}

/// Waits until the next call of a poll that has been called since `start`.
pub async fn pause(start: Instant) {
    tokio::time::sleep((start.elapsed() / 10).clamp(INTERVAL.0, INTERVAL.1)).await;
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
