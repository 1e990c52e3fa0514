//! A reconciler that a test of a provider calls, without a manager and without watches.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::controller::{Action, Attempt, ControllerBuilder};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::Expectations;
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::BoxError;
use capi_ipam_controller::metrics::Metrics;
use capi_ipam_controller::watch::EventHandler;
use kube::Client;

use crate::adapter::ProviderAdapter;
use crate::api::{Cluster, IPAddress};
use crate::backoff::ClaimBackoff;
use crate::claim_cache::ClaimFilter;
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::index::AddressIndex;
use crate::metrics::ClaimMetrics;
use crate::options::ClaimOptions;
use crate::pending_creates::PendingCreates;
use crate::reconciler::ClaimReconciler;
use crate::selection::Selection;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Creates a reconciler for a test of a provider: [`Self::reconcile_once`] reconciles a claim
    /// when the test says so. It has the default options, publishes no events, and watches nothing.
    /// The API server has to serve the newest versions of the contract.
    ///
    /// ```no_run
    /// use capi_ipam_provider::prelude::*;
    /// use kube::Client;
    ///
    /// async fn claim_is_bound<P: PoolProvider>(provider: P, client: Client) {
    ///     let pools = WatchedPools::for_test(provider, &client);
    ///     let reconciler = ClaimReconciler::for_test(pools, &client);
    ///     // A test creates a pool `web` and a claim `web-1` before.
    ///     reconciler.reconcile_once("default", "web-1").await.unwrap();
    /// }
    /// ```
    pub fn for_test(adapter: A, client: &Client) -> Self {
        // Without the task that sends them, events stay in the queue of the publisher.
        let (events, _) = EventPublisher::new(client.clone(), "test", "test");
        Self::for_test_with(adapter, client, ClaimOptions::default(), events)
    }

    /// Like [`Self::for_test`], with options and a publisher of events. The options of the
    /// controller have no effect: concurrency, retries and the interval of verifications.
    pub fn for_test_with(
        adapter: A,
        client: &Client,
        options: ClaimOptions,
        events: EventPublisher,
    ) -> Self {
        let trigger = ControllerBuilder::<_, ()>::new("claims").trigger();
        Self {
            adapter,
            contract: ContractClient::with_newest_versions(client),
            addresses: Arc::new(AddressIndex::new(trigger.clone())),
            events,
            clusters: Arc::new(Clusters::new(trigger)),
            options,
            backoff: Arc::new(ClaimBackoff::default()),
            filter: Arc::new(ClaimFilter {
                selection: Selection::default(),
                pools: Vec::new(),
            }),
            expectations: Expectations::default(),
            pending_creates: Arc::new(PendingCreates::new(Instant::now())),
            verification: None,
            metrics: ClaimMetrics::of(&Metrics::default()),
            waiting_log: RepetitionLimit::default(),
        }
    }

    /// Reads a claim, its IPAddress and its Cluster from the API server, and reconciles the claim
    /// once, whatever the kind of its pool. A claim that does not exist needs nothing. Returns when
    /// the controller would reconcile the claim again.
    ///
    /// # Errors
    /// If a request fails, or if the adapter fails to look up the pool, or to allocate or release
    /// the address. The condition of the claim reports it only if it lasts.
    pub async fn reconcile_once(&self, namespace: &str, name: &str) -> Result<Action, BoxError> {
        let Some(claim) = self.contract.claims(namespace).get(name).await? else {
            return Ok(Action::AwaitChange);
        };
        let address = self.contract.addresses(namespace).get(name).await?;
        show::<IPAddress>(self.addresses.as_ref(), address.as_ref());
        let cluster = match claim.cluster_name() {
            Some(cluster) => self.contract.clusters(namespace).get(cluster).await?,
            None => None,
        };
        show::<Cluster>(self.clusters.as_ref(), cluster.as_ref());
        let mut attempt = Attempt::default();
        let claim = Arc::new(claim);
        // Its size depends on the adapter, and it is a part of the caller's future.
        let reconcile = Box::pin(self.reconcile_current(&claim, &mut attempt));
        Ok(reconcile.await?)
    }
}

/// Shows a list with at most one object to the handler of a watch.
fn show<K: 'static>(handler: &dyn EventHandler<K>, object: Option<&K>) {
    handler.init();
    if let Some(object) = object {
        handler.apply(object);
    }
    handler.init_done();
}
