//! Handles one claim: finds its pool and calls the provider.

use std::net::IpAddr;
use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::{PoolProvider, Shared};
use crate::adapter::{ClaimHandler, Ensured, HandlerError, PoolView, Released};
use crate::api::advice::MISSING_POOL;
use crate::api::{IPAddress, IPAddressClaim};
use crate::claim::Claim;

/// Handles one claim of a [`PoolProvider`] during one reconcile.
pub struct PoolHandler<P: PoolProvider> {
    shared: Arc<Shared<P>>,
    claim: Arc<IPAddressClaim>,
    pool: Option<Arc<P::Pool>>,
}

impl<P: PoolProvider> PoolHandler<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, claim: Arc<IPAddressClaim>) -> Self {
        Self {
            shared,
            claim,
            pool: None,
        }
    }

    /// The name of the pool for messages.
    fn pool_name(&self) -> String {
        let namespace = self.claim.namespace().unwrap_or_default();
        let (kind, name) = (P::Pool::kind(&()), &self.claim.spec.pool_ref.name);
        format!("{kind} {namespace}/{name}")
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

    /// Returns the name of another IPAddress of the pool that has this address. Confirmed by a live
    /// read: the watch may show an IPAddress that was just deleted.
    async fn other_owner(&self, address: IpAddr) -> Result<Option<String>, HandlerError> {
        let Some(name) = self.shared.addresses.other_owner(&self.claim, address) else {
            return Ok(None);
        };
        let addresses = self
            .shared
            .contract
            .addresses(&self.claim.namespace().unwrap_or_default());
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
        }
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
