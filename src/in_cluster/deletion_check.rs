//! Finds what blocks the deletion of a pool, by live reads.
//!
//! All reservations and IPAddress objects are listed only if the ledger knows of nothing that uses
//! the pool. Pools are often deleted together, and there may be a hundred thousand reservations. So
//! there is one list at a time for all pools that wait, and no more than a page of it is in memory.
//! After a list there is a pause in proportion to it: a user who deletes pools all the time does
//! not keep the API server busy. A pool does not occupy a worker while it waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{Audience, IPReservation, PoolKey, PoolSetKey, Scope, block_of_name};
use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::priority::inherited;
use capi_ipam_controller::watch::Invalid;
use capi_ipam_provider::advanced::ContractClient;
use capi_ipam_provider::api::{IPAddress, Uid};
use kube::ResourceExt;
use parking_lot::Mutex;

use super::shared_ledger::SharedLedger;

/// The pause after a list, as a multiple of the time that the list has taken.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause after a list.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long the result of a list is kept for a pool that is not reconciled.
const RESULT_TTL: Duration = Duration::from_secs(10);

/// What blocks the deletion of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeletionBlocker {
    /// Addresses in use: their number in the ledger, and the claims of the first ones.
    Addresses {
        count: usize,
        claims: Vec<NamespacedName>,
    },
    /// A reservation of that name, which belongs to a claim.
    Reservation(String),
    /// An IPAddress of the pool that is not in the ledger.
    UnknownAddress,
    /// An object that cannot be decoded and may belong to the pool: its kind and name.
    Undecodable(String),
}

/// What blocks the deletion of a pool, if anything does.
pub(super) type CheckResult = Result<Option<DeletionBlocker>, Arc<CallError>>;

/// A pool in deletion: its key and uid.
type PoolId = (PoolKey, String);

/// Checks pools for reservations and IPAddress objects, with shared lists.
pub(super) struct DeletionChecker {
    reservations: ResourceClient<IPReservation>,
    contract: ContractClient,
    ledger: Arc<SharedLedger>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// The pools that the next list checks, and the scopes in which addresses of each may be
    /// reserved.
    waiting: HashMap<PoolId, Vec<Scope>>,
    /// The pools that the running list checks.
    listed: HashSet<PoolId>,
    /// What the last lists have found, and when they ended.
    found: HashMap<PoolId, (Instant, CheckResult)>,
    /// Whether a task is listing, or pausing after a list.
    is_running: bool,
}

impl DeletionChecker {
    pub(super) fn new(
        reservations: ResourceClient<IPReservation>,
        contract: ContractClient,
        ledger: Arc<SharedLedger>,
    ) -> Self {
        Self {
            reservations,
            contract,
            ledger,
            queue: Mutex::default(),
        }
    }

    /// Finds a reservation of a claim or an IPAddress of the pool; `Ok(None)` if there was none at
    /// some time after the first call. Returns `None` until the next list is complete, which
    /// notifies the controller of the pool. `scopes` are those in which addresses of the pool may
    /// be reserved: a reservation that cannot be decoded is known by its name only.
    pub(super) fn find_blocker(
        self: &Arc<Self>,
        pool: &PoolKey,
        uid: &str,
        scopes: Vec<Scope>,
    ) -> Option<CheckResult> {
        let id = (pool.clone(), uid.to_owned());
        let mut queue = self.queue.lock();
        queue
            .found
            .retain(|_, (ended, _)| ended.elapsed() < RESULT_TTL);
        if let Some((_, result)) = queue.found.remove(&id) {
            return Some(result);
        }
        if !queue.listed.contains(&id) {
            // The pool can have left one of the scopes since the last call.
            queue.waiting.entry(id).or_default().extend(scopes);
        }
        if !std::mem::replace(&mut queue.is_running, true) {
            tokio::spawn(inherited(Arc::clone(self).run()));
        }
        None
    }

    async fn run(self: Arc<Self>) {
        while let Some(pools) = self.next_list() {
            let began = Instant::now();
            let ids: Vec<PoolId> = pools.keys().cloned().collect();
            let users = self.list_for(pools).await.map_err(Arc::new);
            let ended = Instant::now();
            self.record(&ids, users.as_ref(), ended);
            for (pool, _) in &ids {
                self.ledger.notify_pool(pool);
            }
            tokio::time::sleep(pause_after(ended.duration_since(began))).await;
        }
    }

    /// The pools that the next list checks; `None` if no pool waits.
    fn next_list(&self) -> Option<HashMap<PoolId, Vec<Scope>>> {
        let mut queue = self.queue.lock();
        let pools = std::mem::take(&mut queue.waiting);
        queue.is_running = !pools.is_empty();
        queue.listed = pools.keys().cloned().collect();
        queue.is_running.then_some(pools)
    }

    fn record(&self, ids: &[PoolId], users: Result<&Users, &Arc<CallError>>, ended: Instant) {
        let mut queue = self.queue.lock();
        queue.listed.clear();
        for id in ids {
            let result = match users {
                Ok(users) => Ok(users.blocker(&id.0)),
                Err(error) => Err(Arc::clone(error)),
            };
            queue.found.insert(id.clone(), (ended, result));
        }
    }

    /// Reservations first: an address is reserved before its IPAddress is created.
    async fn list_for(&self, pools: HashMap<PoolId, Vec<Scope>>) -> Result<Users, CallError> {
        let mut users = Users::of(pools);
        self.reservations
            .for_each_page(|page| {
                for reservation in page {
                    match reservation.0 {
                        Ok(reservation) => users.add_reservation(&reservation),
                        Err(invalid) => users.add_undecodable_reservation(&invalid),
                    }
                }
            })
            .await?;
        let namespaces: HashSet<String> = users
            .unused
            .keys()
            .map(|pool| pool.namespace.as_deref().unwrap_or_default().to_owned())
            .collect();
        // A global pool has addresses in all namespaces, which include those of the other pools.
        let all = namespaces.contains("").then(String::new);
        for namespace in all.map_or_else(|| namespaces.into_iter().collect(), |all| vec![all]) {
            let addresses = self.contract.addresses(&namespace);
            addresses
                .for_each_page(|page| {
                    for address in page {
                        match address.0 {
                            Ok(address) => users.add_address(&address, &self.ledger),
                            Err(invalid) => users.add_undecodable_address(&invalid),
                        }
                    }
                })
                .await?;
        }
        Ok(users)
    }
}

/// The pause after a list that has taken this time.
fn pause_after(list: Duration) -> Duration {
    list.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE)
}

/// The pools that a list has shown to be used, and the others.
struct Users {
    /// The scopes in which addresses of each pool may be reserved.
    unused: HashMap<PoolKey, Vec<Scope>>,
    used: Vec<(PoolKey, DeletionBlocker)>,
}

impl Users {
    fn of(pools: HashMap<PoolId, Vec<Scope>>) -> Self {
        let mut unused = HashMap::<PoolKey, Vec<Scope>>::new();
        for ((key, _), scopes) in pools {
            // A pool can be created and deleted again while it waits.
            unused.entry(key).or_default().extend(scopes);
        }
        Self {
            unused,
            used: Vec::new(),
        }
    }

    fn add_reservation(&mut self, reservation: &IPReservation) {
        let held = reservation
            .spec
            .claim_ref
            .as_ref()
            .is_some_and(|claim| claim.uid.is_some());
        if held
            && reservation.spec.released_at.is_none()
            && let Some(pool) = PoolKey::of_reservation(&reservation.spec.pool_ref)
        {
            self.mark_used(&pool, || {
                DeletionBlocker::Reservation(reservation.name_any())
            });
        }
    }

    /// The content of the reservation is unknown, but its name has the scope: of a network, each
    /// pool may have it.
    fn add_undecodable_reservation(&mut self, invalid: &Invalid) {
        let name = invalid.metadata.name.as_deref().unwrap_or_default();
        let is_of = |scopes: &[Scope]| {
            scopes
                .iter()
                .any(|scope| block_of_name(scope, name).is_some())
        };
        let pools: Vec<PoolKey> = self
            .unused
            .iter()
            .filter(|(_, scopes)| is_of(scopes))
            .map(|(pool, _)| pool.clone())
            .collect();
        for pool in pools {
            self.mark_used(&pool, || {
                DeletionBlocker::Undecodable(format!("IPReservation {name}"))
            });
        }
    }

    fn add_address(&mut self, address: &IPAddress, ledger: &SharedLedger) {
        // A user can change the annotation that names the member of a set: the pool that it names, the
        // one with the reservation, and all that contain the address are in use.
        let claim_uid = address.claim_uid().map(Uid::of);
        let member = ledger.read(|ledger| ledger.member_of_address(address, claim_uid));
        let named = PoolKey::of_address(address);
        let mut pools: Vec<PoolKey> = named.into_iter().chain(member).collect();
        if PoolSetKey::of_address(address).is_some() {
            let contains = |pool: &&PoolKey| ledger.read(|it| it.contains_address(pool, address));
            pools.extend(self.unused.keys().filter(contains).cloned());
        }
        for pool in pools {
            self.mark_used(&pool, || DeletionBlocker::UnknownAddress);
        }
    }

    /// The pool of the IPAddress is that of its owner reference. Without one it may be of each pool
    /// that claims of its namespace can use.
    fn add_undecodable_address(&mut self, invalid: &Invalid) {
        let namespace = invalid.metadata.namespace.as_deref();
        let owners = invalid
            .metadata
            .owner_references
            .as_deref()
            .unwrap_or_default();
        let owner = owners
            .iter()
            .find_map(|owner| PoolKey::of_owner(owner, namespace));
        let may_be_of = |pool: &PoolKey| match &owner {
            Some(owner) => owner == pool,
            None => pool.namespace.is_none() || pool.namespace.as_deref() == namespace,
        };
        let pools: Vec<PoolKey> = self
            .unused
            .keys()
            .filter(|pool| may_be_of(pool))
            .cloned()
            .collect();
        let name = invalid.metadata.name.as_deref().unwrap_or_default();
        for pool in pools {
            let audience = Audience::of(pool.namespace.as_deref());
            let object = audience.object("IPAddress", namespace.unwrap_or_default(), name);
            self.mark_used(&pool, || DeletionBlocker::Undecodable(object));
        }
    }

    fn mark_used(&mut self, pool: &PoolKey, blocker: impl FnOnce() -> DeletionBlocker) {
        if let Some((pool, _)) = self.unused.remove_entry(pool) {
            self.used.push((pool, blocker()));
        }
    }

    fn blocker(&self, pool: &PoolKey) -> Option<DeletionBlocker> {
        self.used
            .iter()
            .find(|(used, _)| used == pool)
            .map(|(_, blocker)| blocker.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use capi_ipam_api::InClusterKind;
    use capi_ipam_controller::priority::{Priorities, Priority};
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::Semaphore;
    use tower::service_fn;

    use super::*;

    fn pool(name: &str) -> PoolKey {
        PoolKey::new(InClusterKind::IPPool, Some("n"), name)
    }

    fn reservation(pool: &str, claim: &serde_json::Value, released: Option<&str>) -> IPReservation {
        serde_json::from_value(json!({
            "metadata": {"name": format!("p.n.{pool}.10.0.0.1")},
            "spec": {"scope": format!("p.n.{pool}"), "address": "10.0.0.1", "claimRef": claim, "releasedAt": released,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
        }))
        .unwrap()
    }

    /// An API server without objects. It answers each list of reservations once `permits` has a
    /// permit, and counts the lists in `lists`.
    fn empty_server(lists: &Arc<AtomicUsize>, permits: &Arc<Semaphore>) -> Client {
        let (lists, permits) = (Arc::clone(lists), Arc::clone(permits));
        let respond = move |request: Request<Body>| {
            let (lists, permits) = (Arc::clone(&lists), Arc::clone(&permits));
            async move {
                if request.uri().path().ends_with("/ipreservations") {
                    lists.fetch_add(1, Ordering::Relaxed);
                    permits.acquire().await.unwrap().forget();
                }
                let empty = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
                Ok::<_, Infallible>(Response::new(Body::from(empty.to_string().into_bytes())))
            }
        };
        Client::new(service_fn(respond), "default")
    }

    fn checker(client: Client) -> Arc<DeletionChecker> {
        let contract = ContractClient::with_newest_versions(&client);
        Arc::new(DeletionChecker::new(
            ResourceClient::new(kube::Api::all(client), &()),
            contract,
            Arc::new(SharedLedger::read_only()),
        ))
    }

    fn check(checker: &Arc<DeletionChecker>, name: &str) -> Option<CheckResult> {
        checker.find_blocker(&pool(name), "uid", Vec::new())
    }

    async fn result(checker: &Arc<DeletionChecker>, name: &str) -> Option<DeletionBlocker> {
        loop {
            if let Some(found) = check(checker, name) {
                return found.unwrap();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn pools_deleted_together_share_a_list() {
        let (lists, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let checker = checker(empty_server(&lists, &permits));
        assert!(check(&checker, "a").is_none());
        while lists.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // These are added while a list is running, which may not show what uses them.
        for name in ["b", "c", "d", "e"] {
            assert!(check(&checker, name).is_none());
        }
        assert!(check(&checker, "a").is_none(), "it is in the running list");
        permits.add_permits(2);
        for name in ["a", "b", "c", "d", "e"] {
            assert_eq!(result(&checker, name).await, None);
        }
        assert_eq!(lists.load(Ordering::Relaxed), 2);
        let found = checker.find_blocker(&pool("a"), "later", Vec::new());
        assert!(found.is_none(), "another pool of the name");
    }

    #[test]
    fn lists_take_a_part_of_the_time_only() {
        let of = |seconds| pause_after(Duration::from_secs(seconds)).as_secs();
        assert_eq!([0, 2, 60].map(of), [0, 8, 30]);
    }

    /// Lists of low priority have smaller pages.
    #[tokio::test]
    async fn list_has_the_priority_of_the_caller() {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&limits);
        let respond = move |request: Request<Body>| {
            record.lock().push(
                request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("limit=500")),
            );
            let empty = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(
                empty.to_string().into_bytes(),
            ))))
        };
        let client = Client::new(service_fn(respond), "default");
        for (priority, is_large) in [(Priority::Low, false), (Priority::Normal, true)] {
            let checker = checker(client.clone());
            let found = Priorities::default()
                .run(priority, async { result(&checker, "a").await })
                .await;
            assert_eq!(found, None);
            assert_eq!(
                std::mem::take(&mut *limits.lock()),
                [is_large; 2],
                "{priority:?}"
            );
        }
    }

    fn users<const N: usize>(names: [&str; N]) -> Users {
        let scopes = |name| vec![Scope::Pool(pool(name))];
        Users::of(
            names
                .map(|name| ((pool(name), String::new()), scopes(name)))
                .into(),
        )
    }

    fn invalid(namespace: Option<&str>, name: &str, owner: Option<&str>) -> Invalid {
        let owner = owner.map(|pool| {
            json!([{"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "name": pool, "uid": "u"}])
        });
        let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": owner});
        Invalid {
            spec: serde_json::Value::Null,
            error: "no date".to_owned(),
            metadata: serde_json::from_value(metadata).unwrap(),
        }
    }

    #[test]
    fn undecodable_reservation_blocks_the_pools_of_its_scope() {
        let mut users = users(["a", "b", "c"]);
        users
            .unused
            .insert(pool("d"), vec![Scope::Network("lab".into())]);
        for name in [
            "p.n.a.10.0.0.1",
            "p.n.b.x.10.0.0.1",
            "c",
            "n.lab.10.0.0.1",
            "n.lab.ipv4",
        ] {
            users.add_undecodable_reservation(&invalid(None, name, None));
        }
        let blocked = |object: &str| Some(DeletionBlocker::Undecodable(object.to_owned()));
        let blockers = ["a", "b", "c", "d"].map(|name| users.blocker(&pool(name)));
        let expected = [
            blocked("IPReservation p.n.a.10.0.0.1"),
            None,
            None,
            blocked("IPReservation n.lab.10.0.0.1"),
        ];
        assert_eq!(blockers, expected);
    }

    #[test]
    fn undecodable_address_blocks_the_pool_of_its_owner_reference() {
        let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "g");
        let all = || {
            let mut users = users(["a", "b"]);
            users.unused.insert(global.clone(), Vec::new());
            users
        };
        let mut with_owner = all();
        with_owner.add_undecodable_address(&invalid(Some("n"), "c", Some("a")));
        let mut without = all();
        without.add_undecodable_address(&invalid(Some("n"), "c", None));
        let mut elsewhere = all();
        elsewhere.add_undecodable_address(&invalid(Some("other"), "c", None));
        let blocked = |users: &Users| {
            [pool("a"), pool("b"), global.clone()].map(|pool| users.blocker(&pool).is_some())
        };
        assert_eq!(blocked(&with_owner), [true, false, false]);
        assert_eq!(blocked(&without), [true, true, true]);
        assert_eq!(blocked(&elsewhere), [false, false, true]);
    }

    #[test]
    fn only_reservations_held_by_claims_use_a_pool() {
        let held = json!({"namespace": "n", "name": "c", "uid": "u"});
        let mut users = users(["a", "b", "c", "d"]);
        users.add_reservation(&reservation("a", &held, None));
        users.add_reservation(&reservation("a", &held, None));
        users.add_reservation(&reservation("b", &held, Some("2026-01-01T00:00:00Z")));
        users.add_reservation(&reservation(
            "c",
            &json!({"namespace": "n", "name": "c"}),
            None,
        ));
        users.add_reservation(&reservation("d", &json!(null), None));
        assert_eq!(
            users.blocker(&pool("a")),
            Some(DeletionBlocker::Reservation("p.n.a.10.0.0.1".into()))
        );
        assert_eq!(
            ["b", "c", "d"].map(|name| users.blocker(&pool(name))),
            [None, None, None]
        );
    }
}
