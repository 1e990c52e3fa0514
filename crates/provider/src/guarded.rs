//! A handler of a provider whose panics and hangs become errors, which the claim reports.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capi_ipam_controller::{trace_span, traces};
use futures::FutureExt;

use crate::adapter::{
    AddressOrigin, Allocation, ClaimHandler, Ensured, HandlerError, PoolView, Released,
};
use crate::api::IPAddress;

/// Calls a handler with a deadline, and catches its panics.
pub(super) struct Guarded<H> {
    pub(super) handler: H,
    pub(super) timeout: Duration,
}

/// Waits for a call of a handler. `operation` says what it does.
async fn guard<T>(
    timeout: Duration,
    operation: &'static str,
    call: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    let failed = |problem: String| HandlerError::transient(format!("cannot {operation}"), problem);
    match tokio::time::timeout(timeout, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            let problem = "the provider panicked; this is a bug of the provider, see its log";
            Err(failed(problem.to_owned()))
        }
        Err(_) => {
            let problem = format!("the provider did not answer within {timeout:?}");
            Err(failed(problem))
        }
    }
}

impl<H: ClaimHandler> ClaimHandler for Guarded<H> {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        guard(self.timeout, "look up the pool", self.handler.fetch_pool()).await
    }

    async fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let allocate = guard(
            self.timeout,
            "allocate an address",
            self.handler.ensure_address(existing),
        );
        let ensured = traces::in_span(trace_span!("allocate"), allocate).await?;
        if let Ensured::Allocated(allocation) = &ensured {
            allocation.validate(existing)?;
        }
        Ok(ensured)
    }

    fn address_bound(&mut self, allocation: &Allocation, origin: AddressOrigin) {
        let call = || self.handler.address_bound(allocation, origin);
        // A panic of the provider does not undo the binding.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(call));
    }

    fn address_deleted(&mut self, address: &IPAddress) {
        // The release does not depend on it: a provider that panics here does so again when it
        // releases the address.
        let _ =
            std::panic::catch_unwind(AssertUnwindSafe(|| self.handler.address_deleted(address)));
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        let release = guard(
            self.timeout,
            "release the address",
            self.handler.release_address(),
        );
        traces::in_span(trace_span!("release_address"), release).await
    }

    async fn verify(&mut self, address: &IPAddress) -> Result<bool, HandlerError> {
        guard(
            self.timeout,
            "verify the address",
            self.handler.verify(address),
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_and_hang_are_errors() {
        let timeout = Duration::from_millis(10);
        let text = |error: HandlerError| capi_ipam_controller::client::error_chain(&error);
        let panicked = guard::<()>(timeout, "allocate an address", async {
            panic!("index out of bounds")
        })
        .await;
        assert_eq!(
            text(panicked.unwrap_err()),
            "cannot allocate an address: the provider panicked; this is a bug of the provider, see its log"
        );
        let hung = guard::<()>(timeout, "release the address", std::future::pending()).await;
        assert_eq!(
            text(hung.unwrap_err()),
            "cannot release the address: the provider did not answer within 10ms"
        );
        assert_eq!(
            guard(timeout, "look up the pool", async { Ok(7) })
                .await
                .unwrap(),
            7
        );
    }
}
