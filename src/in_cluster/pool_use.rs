//! What still uses a pool that is being deleted, by live reads.
//!
//! The ledger is asked first; only when it knows of nothing are all reservations and IPAddresses read. Pools are often
//! deleted together, and there may be a hundred thousand reservations: one listing at a time serves all pools that wait
//! for one, and no more than a page of it is in memory.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_provider::ContractClient;
use kube::ResourceExt;
use tokio::sync::oneshot;

use crate::api::{IPReservation, PoolKey};

/// What keeps a deleted pool from being removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// IPAddresses, as many as the ledger knows.
    Addresses(u64),
    /// A reservation of that name, held by a claim.
    Reservation(String),
    /// An IPAddress that names the pool, and that the ledger does not know.
    UnknownAddress,
}

type Answer = Result<Option<Obstacle>, Arc<CallError>>;

/// Answers for one pool after the other whether something uses it.
pub(super) struct PoolUse {
    reservations: ResourceClient<IPReservation>,
    contract: ContractClient,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(PoolKey, oneshot::Sender<Answer>)>,
    /// A task is reading.
    is_reading: bool,
}

impl PoolUse {
    pub(super) fn new(reservations: ResourceClient<IPReservation>, contract: ContractClient) -> Self {
        Self { reservations, contract, queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads whether a reservation of a claim or an IPAddress names the pool. `None` when nothing does, at a moment after
    /// this was called. May wait for a listing that is under way, and then takes another one.
    pub(super) async fn find(self: &Arc<Self>, pool: &PoolKey) -> Answer {
        let (sender, answer) = oneshot::channel();
        let begins = {
            let mut queue = self.queue();
            queue.waiting.push((pool.clone(), sender));
            !std::mem::replace(&mut queue.is_reading, true)
        };
        if begins {
            tokio::spawn(Arc::clone(self).read());
        }
        // The task answers all that wait before it ends, unless it panics or the program stops.
        answer.await.unwrap_or(Ok(Some(Obstacle::UnknownAddress)))
    }

    async fn read(self: Arc<Self>) {
        loop {
            let batch = {
                let mut queue = self.queue();
                queue.is_reading = !queue.waiting.is_empty();
                std::mem::take(&mut queue.waiting)
            };
            if batch.is_empty() {
                return;
            }
            let pools: HashSet<PoolKey> = batch.iter().map(|(pool, _)| pool.clone()).collect();
            let found = self.read_for(pools).await.map_err(Arc::new);
            for (pool, sender) in batch {
                let obstacle = found.as_ref().map(|found| found.obstacle(&pool)).map_err(Arc::clone);
                // The reconcile that asked may have been ended.
                let _ = sender.send(obstacle);
            }
        }
    }

    /// Reservations first: an address is reserved before its IPAddress is created.
    async fn read_for(&self, pools: HashSet<PoolKey>) -> Result<Found, CallError> {
        let mut found = Found { unused: pools, used: Vec::new() };
        self.reservations.for_each_page(|page| page.iter().for_each(|reservation| found.see(reservation))).await?;
        let namespaces: HashSet<String> =
            found.unused.iter().map(|pool| pool.namespace.as_deref().unwrap_or_default().to_owned()).collect();
        // The addresses of a global pool are in all namespaces, and these include those of the others.
        let all = namespaces.contains("").then(String::new);
        for namespace in all.map_or_else(|| namespaces.into_iter().collect(), |all| vec![all]) {
            let addresses = self.contract.addresses(&namespace);
            addresses
                .for_each_page(|page| {
                    for pool in page.iter().filter_map(PoolKey::of_address) {
                        found.use_by(&pool, || Obstacle::UnknownAddress);
                    }
                })
                .await?;
        }
        Ok(found)
    }
}

/// What a listing found so far.
struct Found {
    unused: HashSet<PoolKey>,
    used: Vec<(PoolKey, Obstacle)>,
}

impl Found {
    fn see(&mut self, reservation: &IPReservation) {
        let held = reservation.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
        if held
            && reservation.spec.released_at.is_none()
            && let Some(pool) = PoolKey::of_reservation(&reservation.spec.pool_ref)
        {
            self.use_by(&pool, || Obstacle::Reservation(reservation.name_any()));
        }
    }

    fn use_by(&mut self, pool: &PoolKey, obstacle: impl FnOnce() -> Obstacle) {
        if let Some(pool) = self.unused.take(pool) {
            self.used.push((pool, obstacle()));
        }
    }

    fn obstacle(&self, pool: &PoolKey) -> Option<Obstacle> {
        self.used.iter().find(|(used, _)| used == pool).map(|(_, obstacle)| obstacle.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::Semaphore;
    use tower::service_fn;

    use crate::api::InClusterKind;
    use super::*;

    fn pool(name: &str) -> PoolKey {
        PoolKey { kind: InClusterKind::IPPool, namespace: Some("n".into()), name: name.into() }
    }

    fn reservation(pool: &str, claim: &serde_json::Value, released: Option<&str>) -> IPReservation {
        serde_json::from_value(json!({
            "metadata": {"name": format!("p.n.{pool}.10.0.0.1")},
            "spec": {"scope": format!("p.n.{pool}"), "address": "10.0.0.1", "claimRef": claim, "releasedAt": released,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
        }))
        .unwrap()
    }

    /// An API server without objects, which answers listings of reservations once `go_on` has a permit for each, and counts
    /// them in `listings`.
    fn empty_server(listings: &Arc<AtomicUsize>, go_on: &Arc<Semaphore>) -> Client {
        let (listings, go_on) = (Arc::clone(listings), Arc::clone(go_on));
        let answer = move |request: Request<Body>| {
            let (listings, go_on) = (Arc::clone(&listings), Arc::clone(&go_on));
            async move {
                if request.uri().path().ends_with("/ipreservations") {
                    listings.fetch_add(1, Ordering::Relaxed);
                    go_on.acquire().await.unwrap().forget();
                }
                let empty =
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
                Ok::<_, Infallible>(Response::new(Body::from(empty.to_string().into_bytes())))
            }
        };
        Client::new(service_fn(answer), "default")
    }

    #[tokio::test]
    async fn pools_deleted_together_share_a_listing() {
        let (listings, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let client = empty_server(&listings, &go_on);
        let contract = ContractClient::for_tests(&client);
        let pool_use = Arc::new(PoolUse::new(ResourceClient::new(kube::Api::all(client), &()), contract));
        let find = |name: &'static str| {
            let pool_use = Arc::clone(&pool_use);
            tokio::spawn(async move { pool_use.find(&pool(name)).await.unwrap() })
        };
        let first = find("a");
        while listings.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // These come while a listing is under way, which may not show what uses them.
        let others = ["b", "c", "d", "e"].map(find);
        while pool_use.queue().waiting.len() < others.len() {
            tokio::task::yield_now().await;
        }
        go_on.add_permits(2);
        assert_eq!(first.await.unwrap(), None);
        for other in others {
            assert_eq!(other.await.unwrap(), None);
        }
        assert_eq!(listings.load(Ordering::Relaxed), 2);
        let is_idle = || !pool_use.queue().is_reading;
        while !is_idle() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn only_reservations_held_by_claims_use_a_pool() {
        let held = json!({"namespace": "n", "name": "c", "uid": "u"});
        let mut found = Found { unused: ["a", "b", "c", "d"].map(pool).into(), used: Vec::new() };
        found.see(&reservation("a", &held, None));
        found.see(&reservation("a", &held, None));
        found.see(&reservation("b", &held, Some("2026-01-01T00:00:00Z")));
        found.see(&reservation("c", &json!({"namespace": "n", "name": "c"}), None));
        found.see(&reservation("d", &json!(null), None));
        assert_eq!(found.obstacle(&pool("a")), Some(Obstacle::Reservation("p.n.a.10.0.0.1".into())));
        assert_eq!(["b", "c", "d"].map(|name| found.obstacle(&pool(name))), [None, None, None]);
    }
}
