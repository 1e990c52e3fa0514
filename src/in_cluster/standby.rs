//! The ledger for those who only ask: admission, in every replica.
//!
//! The provider's own ledger exists once its process leads. A process that waits for the lease keeps a ledger of its own
//! up to date, which costs three kinds of watches, and drops it as soon as the provider's is complete. The provider does
//! not take it over: who begins to lead lists everything anew. Who gets the lease at once keeps none beside.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::watch::{WatchApi, observed, Observer, trim};
use capi_ipam_provider::ContractClient;
use capi_ipam_provider::api::IPAddress;
use futures::StreamExt as _;
use futures::stream::SelectAll;
use kube::Client;
use kube::runtime::watcher;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::{GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterPrefixPool, IPReservation};
use super::kinds::{PoolApi, wait_for_kinds};
use super::ledger::Ledger;

/// How long to wait for the lease before a ledger is made to wait with. Who has it by then needs one only, and so
/// half of the memory.
const LIST_DELAY: Duration = Duration::from_secs(2);

/// How often to look whether somebody else's ledger is complete.
const PAUSE: Duration = Duration::from_secs(1);

/// The best ledger there is. Clones are the same.
#[derive(Clone, Default)]
pub struct LedgerHandle {
    all: Arc<RwLock<Vec<Published>>>,
}

struct Published {
    ledger: Arc<Ledger>,
    awaited: Vec<ReadinessGate>,
}

impl Published {
    fn is_complete(&self) -> bool {
        self.awaited.iter().all(ReadinessGate::is_done)
    }
}

impl LedgerHandle {
    /// Puts a ledger in the place of those before, once everything in `awaited` has been listed.
    pub fn publish(&self, ledger: Arc<Ledger>, awaited: Vec<ReadinessGate>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Published { ledger, awaited });
    }

    /// Whether there is a ledger, complete or not.
    fn is_begun(&self) -> bool {
        !self.all.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The newest ledger that is complete.
    pub fn complete(&self) -> Option<Arc<Ledger>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().find(|published| published.is_complete()).map(|published| Arc::clone(&published.ledger))
    }

    /// Waits until another ledger has taken the place of this one, and forgets it.
    async fn wait_for_another(&self, ledger: &Arc<Ledger>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.complete().is_some_and(|complete| !Arc::ptr_eq(&complete, ledger)) {
                let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
                all.retain(|published| !Arc::ptr_eq(&published.ledger, ledger));
                return;
            }
        }
    }
}

/// Keeps a ledger up to date and publishes it, until another one has taken its place.
pub async fn run_standby(client: Client, health: Health, published: LedgerHandle, stop: CancellationToken) {
    let keep = async {
        tokio::time::sleep(LIST_DELAY).await;
        if published.is_begun() {
            return;
        }
        let contract = ContractClient::discover(&client).await;
        wait_for_kinds(&client).await;
        let ledger = Arc::new(Ledger::read_only());
        let mut watches = Watches { health: health.aside(), awaited: Vec::new(), all: SelectAll::new() };
        watches.add(contract.watched_addresses(), contract.ipam, &ledger, |address: &mut IPAddress| {
            trim(&mut address.metadata);
        });
        watches.add(WatchApi::all(client.clone()), (), &ledger, |reservation: &mut IPReservation| {
            trim(&mut reservation.metadata);
        });
        watches.pools::<InClusterIPPool>(&client, &ledger);
        watches.pools::<GlobalInClusterIPPool>(&client, &ledger);
        watches.pools::<InClusterPrefixPool>(&client, &ledger);
        watches.pools::<GlobalInClusterPrefixPool>(&client, &ledger);
        published.publish(Arc::clone(&ledger), watches.awaited);
        tokio::select! {
            () = watches.all.for_each(|()| std::future::ready(())) => {}
            () = published.wait_for_another(&ledger) => debug!("the provider's own index is complete"),
        }
    };
    let _ = stop.run_until_cancelled(keep).await;
    stop.cancelled().await;
}

struct Watches {
    health: Health,
    awaited: Vec<ReadinessGate>,
    all: SelectAll<futures::stream::BoxStream<'static, ()>>,
}

impl Watches {
    fn add<K>(&mut self, api: WatchApi<K>, version: K::DynamicType, ledger: &Arc<Ledger>, trim: fn(&mut K))
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
        K::DynamicType: Clone + std::fmt::Debug + Send + Sync,
        Ledger: Observer<K>,
    {
        let synced = self.health.announce(K::kind(&version));
        let observer = Arc::clone(ledger) as _;
        let watch = observed(api, watcher::Config::default(), &version, observer, trim, synced.clone());
        self.all.push(watch.boxed());
        self.awaited.push(synced);
    }

    fn pools<P: PoolApi>(&mut self, client: &Client, ledger: &Arc<Ledger>)
    where
        Ledger: Observer<P>,
    {
        self.add(P::watched(client), (), ledger, |pool: &mut P| trim(pool.meta_mut()));
    }
}
