//! The objects of the cluster, and what the page asks about them.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::PoolKey;
use capi_ipam_controller::clock;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ledger::Ledger;
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::Demand;
use super::findings::Findings;
use crate::error::MissingRight;
use crate::input::parse_block;
use crate::load::Readable;
use crate::model::{
    Answer, ClusterAddresses, FoundProblem, LastRecords, LeaseRow, Manager, MapPart, NetworkBlocks,
    Outage, Overview, OverviewPool, PoolLine, PoolWindow, RegistryFacts, SearchResult, Severity,
    Snapshot, WaitingGroup, claims, clusters, diagnosis, manager, network_blocks, networks, pools,
    ranges, search_address, search_text, size, unprocessed, waiting_groups, window,
};
use crate::objects::{
    ClaimRow, Kind, ListState, Objects, PoolRow, RegistryRow, ServedKinds, Shown,
};

/// The objects, and what else the page shows.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) objects: Objects,
    /// The ledger of the manager, filled with the same objects. Networks accept the pools of all
    /// namespaces: the status of a pool states its network.
    pub(super) ledger: Ledger,
    /// The last known records of registries, by name.
    records: BTreeMap<String, LastRecords>,
    contact: Contact,
    version: u64,
    findings: Findings,
}

/// What is known of the API server and of the manager.
#[derive(Debug, Default)]
struct Contact {
    /// Time of the last answer.
    answered: Option<Timestamp>,
    outage: Option<Outage>,
    /// The leases, if they may be listed.
    leases: Option<Vec<LeaseRow>>,
}

impl Contact {
    fn apply(&mut self, answer: Answer, now: Timestamp) {
        let leases = match answer {
            Answer::Leases(leases) => Some(leases),
            Answer::Refused => None,
            Answer::None(cause, reason) => {
                let since = self.answered;
                self.outage = Some(Outage {
                    cause,
                    reason,
                    since,
                });
                return;
            }
        };
        self.leases = leases;
        self.outage = None;
        self.answered = Some(now);
    }
}

impl Tables {
    /// Applies an event of a watch.
    pub(super) fn apply<K: Shown>(&mut self, kind: Kind, event: Event<MaybeInvalid<K>>) {
        K::feed_without_namespaces(&mut self.ledger, kind, &event);
        self.objects.apply(kind, event);
    }

    /// A pool with what is wrong with it.
    fn overview_pool(&self, row: &PoolRow, line: PoolLine) -> OverviewPool {
        OverviewPool {
            size: line.counts.map(|counts| size(row, &counts.into())),
            line,
            ranges: ranges(&row.entries()),
            finding: self.findings.of_pool(&row.key),
        }
    }

    /// What the checks of `doctor` read. What the page does not read is unknown, and is not checked.
    fn snapshot(&self, is_go_provider: bool) -> Snapshot {
        fn unread<T>() -> Readable<Vec<T>> {
            let right = MissingRight {
                verb: "list",
                resource: String::new(),
                namespace: None,
            };
            Readable::part(Vec::new(), vec![right])
        }
        Snapshot {
            now: Timestamp::now(),
            is_go_provider,
            definitions: Vec::new(),
            deployments: unread(),
            leases: unread(),
            running: Vec::new(),
            served: unread(),
            webhooks: unread(),
            events: unread(),
            objects: self.objects.clone(),
            registries: unread(),
            addressings: unread(),
            untrusted_mutations: unread(),
            deleted_namespaces: BTreeSet::new(),
            unreadable: Vec::new(),
        }
    }

    /// Whether all kinds were listed once.
    fn is_listed(&self) -> bool {
        let lists =
            Kind::ALL.map(|kind| self.objects.list(kind).is_some_and(ListState::is_finished));
        !lists.contains(&false)
    }

    /// Adds what is not known.
    fn report(&self, overview: &mut Overview) {
        for kind in Kind::ALL {
            let Some(list) = self.objects.list(kind) else {
                continue;
            };
            if !list.is_finished() {
                overview.listing.push(kind.plural());
            }
            let missing = list.missing_rights().map(ToString::to_string);
            overview.missing.extend(missing);
            overview.problems.extend(list.failure().map(str::to_owned));
            overview.problems.extend(self.objects.undecodable(kind));
        }
    }
}

/// The objects, shared by the watches and the server.
#[derive(Default)]
pub(super) struct State {
    server: String,
    /// The namespace whose pools and claims are listed; `None` for all.
    namespace: Option<String>,
    is_go_provider: bool,
    tables: Mutex<Tables>,
    changed: Notify,
    suspected: Notify,
    /// The registries whose records a page shows.
    pub(super) demand: Demand,
}

impl State {
    /// The state of a page without objects; `kinds` are those that the API server serves.
    pub(super) fn new(
        server: String,
        namespace: Option<String>,
        kinds: ServedKinds,
        is_go_provider: bool,
    ) -> Self {
        let mut tables = Tables::default();
        tables.objects.served = ServedKinds {
            omits_others: true,
            ..kinds
        };
        Self {
            server,
            namespace,
            is_go_provider,
            tables: Mutex::new(tables),
            ..Self::default()
        }
    }

    /// Changes the objects.
    pub(super) fn update(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = self.tables.lock();
        change(&mut tables);
        tables.version = tables.version.saturating_add(1);
        drop(tables);
        self.changed.notify_one();
    }

    /// Changes the objects with what the API server has sent.
    pub(super) fn receive(&self, change: impl FnOnce(&mut Tables)) {
        self.update(|tables| {
            tables.contact.answered = Some(clock::timestamp());
            change(tables);
        });
    }

    /// Records the answer to a heartbeat.
    pub(super) fn heard(&self, answer: Answer) {
        let now = clock::timestamp();
        let mut tables = self.tables.lock();
        let before = self.health(&tables, now);
        tables.contact.apply(answer, now);
        if before == self.health(&tables, now) {
            return;
        }
        tables.version = tables.version.saturating_add(1);
        drop(tables);
        self.changed.notify_one();
    }

    /// A watch has failed: perhaps the API server does not answer.
    pub(super) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Waits until a watch fails.
    pub(super) async fn suspected(&self) {
        self.suspected.notified().await;
    }

    fn health(&self, tables: &Tables, now: Timestamp) -> (Option<Outage>, Manager) {
        let unprocessed = unprocessed(&tables.objects, self.is_go_provider, now);
        let contact = &tables.contact;
        let manager = manager(contact.leases.as_deref(), unprocessed, now);
        (contact.outage.clone(), manager)
    }

    /// Whether an object of a namespace is listed. Global objects always are.
    fn lists(&self, namespace: Option<&str>) -> bool {
        let is_other = |only: &String| namespace.is_some_and(|namespace| namespace != only);
        !self.namespace.as_ref().is_some_and(is_other)
    }

    /// Waits for a change since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Makes the checks of `doctor`, of the objects that the page reads.
    pub(super) fn examine(&self) {
        let tables = self.tables.lock();
        // What is not listed yet, or not up to date, is not missing.
        if !tables.is_listed() || tables.contact.outage.is_some() {
            return;
        }
        let snapshot = tables.snapshot(self.is_go_provider);
        drop(tables);
        let found = diagnosis(&snapshot).findings;
        let mut tables = self.tables.lock();
        if tables.findings.set(found) {
            tables.version = tables.version.saturating_add(1);
            drop(tables);
            self.changed.notify_one();
        }
    }

    /// What the last examination has found in the listed pools, and about none.
    pub(super) fn findings(&self) -> Vec<FoundProblem> {
        let tables = self.tables.lock();
        let shown = tables.findings.shown.iter();
        shown.filter(|it| self.is_listed(it)).cloned().collect()
    }

    fn is_listed(&self, problem: &FoundProblem) -> bool {
        let mut pools = problem.pools.iter();
        problem.pools.is_empty() || pools.any(|pool| self.lists(pool.namespace.as_deref()))
    }

    #[cfg(test)]
    pub(super) fn finish_lists(&self) {
        self.update(|tables| {
            for kind in Kind::ALL {
                tables.objects.list_mut(kind).finish();
            }
        });
    }

    /// The claims of the listed namespaces that wait, also those that this provider does not serve.
    fn waiting_of<'a>(&self, objects: &'a Objects) -> Vec<&'a ClaimRow> {
        let mut waiting = objects.claims.sorted();
        waiting.retain(|it| it.is_waiting() && self.lists(Some(it.key.namespace())));
        waiting
    }

    pub(super) fn overview(&self) -> Overview {
        let tables = self.tables.lock();
        let objects = &tables.objects;
        let time = clock::timestamp();
        let (outage, manager) = self.health(&tables, time);
        let waiting = self.waiting_of(objects);
        let count = waiting.len();
        let rows = objects.pools();
        let lines = pools(&rows, objects, waiting);
        let mut bound = objects.served();
        bound.retain(|it| it.bound.is_some() && self.lists(Some(it.key.namespace())));
        let has_claims = objects.has(&[Kind::Claim]);
        let number = |count: usize| has_claims.then(|| u64::try_from(count).unwrap_or_default());
        let mut overview = Overview {
            version: tables.version,
            time,
            server: self.server.clone(),
            namespace: self.namespace.clone(),
            outage,
            manager,
            networks: networks(objects, &lines),
            pools: Vec::new(),
            bound: number(bound.len()),
            waiting: number(count),
            findings: 0,
            listing: Vec::new(),
            missing: Vec::new(),
            problems: Vec::new(),
        };
        for (row, line) in rows.into_iter().zip(lines) {
            if self.lists(row.key.namespace.as_deref()) {
                overview.pools.push(tables.overview_pool(row, line));
            }
        }
        let is_problem =
            |it: &&FoundProblem| it.finding.severity != Severity::Note && self.is_listed(it);
        overview.findings = tables.findings.shown.iter().filter(is_problem).count();
        tables.report(&mut overview);
        overview
    }

    /// A pool and a part of its map. An error if it is unknown whether there is such a pool.
    pub(super) fn pool(
        &self,
        key: &PoolKey,
        part: MapPart,
    ) -> Result<Option<PoolWindow>, Vec<MissingRight>> {
        let mut tables = self.tables.lock();
        let now = Timestamp::now().as_second();
        tables.ledger.end_cooldowns(now);
        let objects = &tables.objects;
        let Some(pool) = objects.pool(key) else {
            let missing = objects.lacking(&Kind::POOLS);
            return if missing.is_empty() {
                Ok(None)
            } else {
                Err(missing)
            };
        };
        let mut window = window(pool, objects, &tables.ledger, part);
        let name = key.into();
        for problem in &tables.findings.shown {
            if problem.pools.contains(&name) {
                window.findings.push(problem.finding.clone());
            }
        }
        Ok(Some(window))
    }

    /// The blocks of a network that shares them; `None` if there is no such network. An error if it is
    /// unknown. Asks for the records of its registry.
    pub(super) fn blocks(&self, name: &str) -> Result<Option<NetworkBlocks>, Vec<MissingRight>> {
        let tables = self.tables.lock();
        let objects = &tables.objects;
        let found = objects.network(name);
        let shared = found.and_then(|network| Some((network, network.registry()?)));
        let Some((network, registry)) = shared else {
            let missing = objects.lacking(&[Kind::Network]);
            let is_unknown = found.is_none() && !missing.is_empty();
            return if is_unknown { Err(missing) } else { Ok(None) };
        };
        self.demand.ask(registry, Instant::now());
        let nothing = LastRecords::default();
        let last = tables.records.get(registry).unwrap_or(&nothing);
        let now = clock::timestamp();
        Ok(Some(network_blocks(network, registry, objects, last, now)))
    }

    /// A registry.
    pub(super) fn registry(&self, name: &str) -> Option<RegistryRow> {
        self.tables.lock().objects.registry(name).cloned()
    }

    /// Records what was read from a registry, or why nothing was.
    pub(super) fn receive_records(&self, registry: &str, read: Result<RegistryFacts, String>) {
        let now = clock::timestamp();
        self.update(|tables| {
            let last = tables.records.entry(registry.to_owned()).or_default();
            last.apply(read, now);
        });
    }

    /// Searches an address or prefix, or a part of a name.
    pub(super) fn search(&self, text: &str) -> SearchResult {
        if text.is_empty() {
            return SearchResult::default();
        }
        let tables = self.tables.lock();
        match parse_block(text, false) {
            Ok(block) => search_address(&tables.objects, block),
            Err(_) => search_text(&tables.objects, text, |namespace| self.lists(namespace)),
        }
    }

    /// The addresses of the Clusters of the listed namespaces; `None` if claims may not be read.
    pub(super) fn clusters(&self) -> Option<Vec<ClusterAddresses>> {
        let tables = self.tables.lock();
        let objects = &tables.objects;
        let claims = claims(objects.claims.sorted(), objects);
        let mut found = clusters(&claims, objects, &[]);
        found.retain(|cluster| self.lists(Some(&cluster.namespace)));
        let is_known = !found.is_empty() || objects.has(&[Kind::Claim]);
        is_known.then_some(found)
    }

    /// The claims that wait for an address, by pool and reason; `None` if they may not be read.
    pub(super) fn waiting(&self) -> Option<Vec<WaitingGroup>> {
        let tables = self.tables.lock();
        let objects = &tables.objects;
        let waiting = self.waiting_of(objects);
        let is_known = !waiting.is_empty() || objects.has(&[Kind::Claim]);
        is_known.then(|| waiting_groups(waiting, objects))
    }
}
