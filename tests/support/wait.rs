//! Waits for conditions.

use std::time::Duration;

pub use capi_ipam_testing::wait::*;

/// Calls `poll` until it returns true, as [`eventually`] does. `None` is false.
pub async fn until<F: Future<Output = Option<bool>>>(what: &str, poll: impl FnMut() -> F) {
    until_within(TIMEOUT, what, poll).await;
}

/// Like [`until`], with another timeout.
pub async fn until_within<F: Future<Output = Option<bool>>>(
    timeout: Duration,
    what: &str,
    mut poll: impl FnMut() -> F,
) {
    eventually_within(timeout, what, || {
        // The futures of some tests are large.
        let polled = Box::pin(poll());
        async { polled.await?.then_some(()) }
    })
    .await;
}
