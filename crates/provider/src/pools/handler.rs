//! Handles one claim: finds its pool and calls the provider.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::finalizer;
use kube::ResourceExt;

use super::cache::InFlight;
use super::{PoolProvider, Shared};
use crate::adapter::{ClaimHandler, Ensured, HandlerError, PoolView, Released};
use crate::api::advice::MISSING_POOL;
use crate::api::{IPAddress, IPAddressClaim};
use crate::claim::Claim;
use crate::claim_cache::pool_name;

/// The delay before a claim is reconciled again whose pool lacks the finalizer. The change of the
/// pool enqueues it earlier.
const UNINITIALIZED_DELAY: Duration = Duration::from_secs(5);

/// Handles one claim of a [`PoolProvider`] during one reconcile.
pub struct PoolHandler<P: PoolProvider> {
    shared: Arc<Shared<P>>,
    claim: Arc<IPAddressClaim>,
    pool: Option<Arc<P::Pool>>,
    /// While an address of the pool may be allocated, also for a claim that had one: a pool that is
    /// deleted stays until then.
    in_flight: Option<InFlight<P::Pool>>,
}

impl<P: PoolProvider> PoolHandler<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, claim: Arc<IPAddressClaim>) -> Self {
        Self {
            shared,
            claim,
            pool: None,
            in_flight: None,
        }
    }

    /// The name of the pool for messages.
    fn pool_name(&self) -> String {
        pool_name(&self.claim, false)
    }

    fn pool(&self) -> Result<&P::Pool, HandlerError> {
        let missing = || HandlerError::PoolNotReady(format!("{} is not known", self.pool_name()));
        self.pool.as_deref().ok_or_else(missing)
    }

    /// Reads a pool that the watch has not reported: it was just created, or its object is not
    /// valid.
    async fn read_pool(&self) -> Result<Arc<P::Pool>, HandlerError> {
        let (namespace, name) = (
            self.claim.namespace().unwrap_or_default(),
            &self.claim.spec.pool_ref.name,
        );
        match self.shared.pool_client(&namespace).get(name).await {
            Ok(Some(pool)) => Ok(Arc::new(pool)),
            Ok(None) => {
                let pool = self.pool_name();
                let text = format!("{pool} does not exist; {MISSING_POOL}");
                Err(HandlerError::PoolNotFound(text))
            }
            Err(error) => match error.invalid_response() {
                Some(problem) => {
                    let text = format!(
                        "{} is not valid: {problem}; correct the pool",
                        self.pool_name()
                    );
                    Err(HandlerError::PoolNotReady(text))
                }
                None => Err(error.into()),
            },
        }
    }

    /// Fails as long as the pool lacks the finalizer, with which it outlives its addresses.
    fn check_finalizer(&self, pool: &P::Pool) -> Result<(), HandlerError> {
        match self.shared.options.finalizer {
            Some(finalizer) if !finalizer::is_set(pool, finalizer) => {
                Err(HandlerError::RetryAfter {
                    message: format!(
                        "{} is not initialized yet (finalizer missing)",
                        self.pool_name()
                    ),
                    after: UNINITIALIZED_DELAY,
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of another IPAddress of the pool that has this address. Confirmed by a live
    /// read: the watch may show an IPAddress that was just deleted.
    async fn other_owner(&self, address: IpAddr) -> Result<Option<String>, HandlerError> {
        let Some(name) = self.shared.addresses.other_owner(&self.claim, address) else {
            return Ok(None);
        };
        let addresses = self.shared.contract.addresses_beside(&*self.claim);
        let found = addresses.get(&name).await?;
        let has_address = |found: &IPAddress| {
            found.spec.pool_ref == self.claim.spec.pool_ref
                && found
                    .spec
                    .address
                    .parse::<IpAddr>()
                    .is_ok_and(|present| present.to_canonical() == address.to_canonical())
        };
        Ok(found
            .is_some_and(|found| has_address(&found))
            .then_some(name))
    }

    fn parse(address: &IPAddress) -> Result<IpAddr, HandlerError> {
        address.spec.address.parse().map_err(|_| {
            let (name, text) = (address.name_any(), &address.spec.address);
            HandlerError::Permanent(format!(
                "IPAddress {name} has {text:?}, which is not an IP address; delete it"
            ))
        })
    }
}

impl<P: PoolProvider> ClaimHandler for PoolHandler<P> {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let in_flight = InFlight::begin(&self.shared.pools, &self.claim);
        let pool = match self.shared.pools.get_or_wait(&self.claim) {
            Some(pool) => pool,
            None => self.read_pool().await?,
        };
        let release_terminating_after = self.shared.provider.release_terminating_after(&pool);
        let view = PoolView {
            release_terminating_after,
            ..PoolView::of(pool.as_ref())
        };
        if !view.paused && !view.deleting {
            let invalid = |problem| {
                HandlerError::PoolNotReady(format!("{} is not valid: {problem}", self.pool_name()))
            };
            self.shared.provider.validate(&pool).map_err(invalid)?;
            self.check_finalizer(&pool)?;
        }
        // A claim that has an IPAddress is bound also while its pool is being deleted.
        self.in_flight = Some(in_flight);
        self.pool = Some(pool);
        Ok(view)
    }

    async fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let claim = Claim::of(&self.claim)?;
        let existing = existing.map(Self::parse).transpose()?;
        let mut request = self.shared.pools.request(&self.claim);
        let allocated = self
            .shared
            .provider
            .allocate(&claim, self.pool()?, existing)
            .await;
        request.is_exhausted = matches!(allocated, Err(HandlerError::PoolExhausted(_)));
        request.has_address = allocated.is_ok();
        drop(request);
        let allocation = allocated?;
        if let Some(other) = self.other_owner(allocation.address).await? {
            let address = allocation.address;
            return Err(HandlerError::DuplicateAddress(format!(
                "the provider allocated {address}, which IPAddress {other} of {} has already",
                self.pool_name()
            )));
        }
        self.shared.pools.stop_waiting(&self.claim);
        Ok(allocation.into())
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        let claim = Claim::of(&self.claim)?;
        let released = self.shared.provider.release(&claim).await?;
        if released == Released::Now {
            self.shared.pools.stop_waiting(&self.claim);
            self.shared.pools.wake_oldest(&self.claim);
        }
        Ok(released)
    }

    async fn verify(&mut self, address: &IPAddress) -> Result<bool, HandlerError> {
        let claim = Claim::of(&self.claim)?;
        let result = self
            .shared
            .provider
            .verify(&claim, self.pool()?, Self::parse(address)?)
            .await;
        self.shared.pools.stop_waiting(&self.claim);
        result
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::namespaced_name::NamespacedName;
    use capi_ipam_controller::watch::EventHandler;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, Config};
    use serde_json::{Value, json};

    use super::super::WatchedPools;
    use super::*;
    use crate::adapter::{Allocation, ProviderAdapter};

    struct Provider;

    impl PoolProvider for Provider {
        type Pool = ConfigMap;

        async fn allocate(
            &self,
            _: &Claim,
            _: &ConfigMap,
            _: Option<IpAddr>,
        ) -> Result<Allocation, HandlerError> {
            Err(HandlerError::Permanent("not called".to_owned()))
        }

        async fn release(&self, _: &Claim) -> Result<Released, HandlerError> {
            Ok(Released::Now)
        }
    }

    #[tokio::test]
    async fn claim_of_a_pool_in_deletion_is_in_flight() {
        let server = "http://localhost:1".parse().unwrap();
        let client = Client::try_from(Config::new(server)).unwrap();
        let pools = WatchedPools::for_test(Provider, &client);
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "c"},
            "spec": {"poolRef": {"kind": "ConfigMap", "name": "p"}}}))
        .unwrap();
        let key = NamespacedName::new("n", "p");
        for deleted in [Value::Null, json!("2026-01-01T00:00:00Z")] {
            let pool: ConfigMap = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": "p", "deletionTimestamp": deleted}}))
            .unwrap();
            pools.shared.pools.apply(&pool);
            let mut handler = pools.claim_handler(Arc::new(claim.clone()));
            let view = handler.fetch_pool().await.unwrap();
            assert_eq!(view.deleting, !deleted.is_null());
            assert!(pools.shared.pools.is_in_flight(&key), "{deleted}");
            drop(handler);
            assert!(!pools.shared.pools.is_in_flight(&key), "{deleted}");
        }
    }
}
