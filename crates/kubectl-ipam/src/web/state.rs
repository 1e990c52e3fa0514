//! The objects of the cluster, and what the page asks about them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use capi_ipam_api::{InClusterKind, PoolKey, Scope};
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::Ledger;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::claim_entry::ClaimEntry;
use super::demand::Demand;
use super::findings::{Findings, named_pools};
use super::table::Table;
use crate::cluster::Kind;
use crate::error::MissingRight;
use crate::input::parse_block;
use crate::load::{Claims, Readable};
use crate::model::{
    Answer, BlockObjects, Finding, FoundProblem, LastRecords, LeaseRow, Lookup, Manager, MapPart,
    NetworkBlocks, Outage, Overview, OverviewPool, PoolLine, PoolObjects, PoolWindow,
    RegistryFacts, SearchResult, Searched, Severity, Snapshot, WaitingGroup, diagnosis, manager,
    network_blocks, networks, pools, ranges, size, unprocessed, waiting_groups, window,
};
use crate::objects::{
    AddressRow, ClaimRow, NetworkRow, PoolRow, RegistryRow, ReservationRow, SliceRow, UnservedClaim,
};

/// All objects.
#[derive(Default)]
pub(super) struct Tables {
    /// The ledger of the manager, filled with the same objects. Networks accept the pools of all
    /// namespaces: the status of a pool states its network.
    pub(super) ledger: Ledger,
    pub(super) pools: BTreeMap<InClusterKind, Table<PoolRow>>,
    pub(super) addresses: Table<AddressRow>,
    pub(super) reservations: Table<ReservationRow>,
    pub(super) claims: Table<ClaimEntry>,
    pub(super) networks: Table<NetworkRow>,
    pub(super) slices: Table<SliceRow>,
    pub(super) registries: Table<RegistryRow>,
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
    /// Adds the networks of an address in which other management clusters can have it.
    fn add_shared_networks(&self, found: &mut SearchResult) {
        let of_networks: BTreeSet<&str> = found
            .matches
            .iter()
            .filter_map(|entry| entry.network.as_deref())
            .collect();
        let networks = self.networks.read();
        found.is_complete &= of_networks.is_empty() || networks.is_complete();
        let mut shared = Vec::new();
        for network in networks.into_seen() {
            if network.registry().is_some() && of_networks.contains(network.name.as_str()) {
                shared.push(network.name.clone());
            }
        }
        found.shared_networks = shared;
    }

    /// The pools, by kind, namespace and name.
    pub(super) fn pools(&self) -> Readable<Vec<PoolRow>> {
        let mut all = Readable::complete(Vec::new());
        for table in self.pools.values() {
            let (rows, more) = (all, table.read());
            all = rows.and(more).map(|(mut rows, more): (Vec<PoolRow>, _)| {
                rows.extend(more.cloned());
                rows
            });
        }
        all.map(|mut rows| {
            rows.sort_by(|a, b| a.key.cmp(&b.key));
            rows
        })
    }

    /// The ledger, with the permissions without which the blocks of a pool are not known.
    fn supply<T>(&self, pool: &PoolRow, all: &Readable<T>) -> Readable<&Ledger> {
        let ledger = Readable::complete(&self.ledger);
        let Some(network) = pool.network.as_deref() else {
            return ledger;
        };
        let networks = self.networks.read();
        let ledger = ledger.depends_on(all).depends_on(&networks);
        let mut networks = networks.into_seen();
        match networks.find(|row| row.name == network) {
            Some(row) if row.registry().is_some() => ledger
                .depends_on(&self.slices.read())
                .depends_on(&self.registries.read()),
            _ => ledger,
        }
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

    /// The pools that a finding is about: those that it names, or that of the claim or of the address.
    fn pools_of(&self, finding: &Finding) -> BTreeSet<PoolKey> {
        let mut pools = named_pools(finding);
        let Some((kind, name)) = finding.object.split_once(' ') else {
            return pools;
        };
        if kind == "address" {
            let rows = self.addresses.iter();
            let sharing = rows.filter(|row| row.block.to_string() == name);
            pools.extend(sharing.map(|row| row.pool.clone()));
        }
        if let Some((namespace, name)) = name.split_once('/') {
            let key = NamespacedName::new(namespace, name);
            if kind == "ipaddress" {
                pools.extend(self.addresses.get(&key).map(|row| row.pool.clone()));
            } else if kind == "ipaddressclaim" {
                let claim = self.claims.get(&key).and_then(ClaimEntry::served);
                pools.extend(claim.map(|claim| claim.pool.clone()));
            }
        }
        pools
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
        let claims = self.claims.read().map(|entries| {
            let mut claims = Claims::default();
            for entry in entries {
                match entry {
                    ClaimEntry::Served(claim) => claims.served.push(claim.clone()),
                    ClaimEntry::Unserved(claim) => claims.unserved.push((**claim).clone()),
                }
            }
            claims
        });
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
            pools: self.pools(),
            networks: self.networks.read().map(|rows| rows.cloned().collect()),
            addresses: self.addresses.read().map(|rows| rows.cloned().collect()),
            reservations: self.reservations.read().map(|rows| rows.cloned().collect()),
            claims,
            slices: self.slices.read().map(|rows| rows.cloned().collect()),
            registries: unread(),
            deleted_namespaces: BTreeSet::new(),
            unreadable: Vec::new(),
        }
    }

    /// Whether all kinds were listed once.
    fn is_listed(&self) -> bool {
        let tables = [
            self.addresses.is_listed(),
            self.reservations.is_listed(),
            self.claims.is_listed(),
            self.networks.is_listed(),
            self.slices.is_listed(),
        ];
        !tables.contains(&false) && self.pools.values().all(Table::is_listed)
    }

    /// Adds what is not known.
    fn report(&self, overview: &mut Overview) {
        for (kind, table) in &self.pools {
            table.report(Kind::Pool(*kind), overview);
        }
        self.addresses.report(Kind::Address, overview);
        self.reservations.report(Kind::Reservation, overview);
        self.claims.report(Kind::Claim, overview);
        self.networks.report(Kind::Network, overview);
        self.slices.report(Kind::Slice, overview);
        self.registries.report(Kind::Registry, overview);
    }

    fn waiting(&self, keep: impl Fn(&ClaimRow) -> bool) -> Readable<Vec<ClaimRow>> {
        let is_kept = |claim: &&ClaimRow| claim.is_waiting() && keep(claim);
        self.served()
            .map(|claims| claims.filter(is_kept).cloned().collect())
    }

    /// The claims of the provider.
    fn served(&self) -> Readable<impl Iterator<Item = &ClaimRow>> {
        self.claims
            .read()
            .map(|claims| claims.filter_map(ClaimEntry::served))
    }

    /// A claim of the provider.
    fn claim(&self, key: &NamespacedName) -> Option<&ClaimRow> {
        self.claims.get(key)?.served()
    }

    /// The claims whose pool has a kind that does not exist. Nobody serves them.
    fn unserved(&self, keep: impl Fn(&UnservedClaim) -> bool) -> Vec<UnservedClaim> {
        let unserved = self.claims.iter().filter_map(ClaimEntry::unserved);
        let waiting = unserved.filter(|claim| claim.is_waiting() && keep(claim));
        waiting.cloned().collect()
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
    pub(super) fn new(server: String, namespace: Option<String>, is_go_provider: bool) -> Self {
        Self {
            server,
            namespace,
            is_go_provider,
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
        let pools = tables.pools.values().flat_map(Table::iter);
        let claims = tables.claims.iter().filter_map(ClaimEntry::served);
        let unprocessed = unprocessed(pools, claims, self.is_go_provider, now);
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
        let mut findings = std::mem::take(&mut tables.findings);
        let is_other = findings.set(found, |finding| tables.pools_of(finding));
        tables.findings = findings;
        if is_other {
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
            tables.pools.values_mut().for_each(Table::finish_list);
            tables.addresses.finish_list();
            tables.reservations.finish_list();
            tables.claims.finish_list();
            tables.networks.finish_list();
            tables.slices.finish_list();
            tables.registries.finish_list();
        });
    }

    pub(super) fn overview(&self) -> Overview {
        let tables = self.tables.lock();
        let time = clock::timestamp();
        let (outage, manager) = self.health(&tables, time);
        let rows = tables.pools();
        let waiting = tables.waiting(|claim| self.lists(Some(claim.key.namespace())));
        let unserved = tables.unserved(|claim| self.lists(Some(claim.key.namespace())));
        let lines = pools(rows.seen(), &waiting.as_ref());
        let is_counted =
            |claim: &&ClaimRow| claim.bound.is_some() && self.lists(Some(claim.key.namespace()));
        let bound = tables
            .served()
            .map(|claims| claims.filter(is_counted).count());
        let number = |count: usize| u64::try_from(count).unwrap_or_default();
        let listed = tables.networks.read().map(|rows| {
            let mut rows: Vec<NetworkRow> = rows.cloned().collect();
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            rows
        });
        let mut overview = Overview {
            version: tables.version,
            time,
            server: self.server.clone(),
            namespace: self.namespace.clone(),
            outage,
            manager,
            networks: networks(
                listed.seen(),
                &rows.as_ref().map(|_| lines.as_slice()),
                &rows,
            ),
            pools: Vec::new(),
            bound: bound.known().map(|count| number(*count)),
            waiting: waiting
                .known()
                .map(|claims| number(claims.len().saturating_add(unserved.len()))),
            findings: 0,
            listing: Vec::new(),
            missing: Vec::new(),
            problems: Vec::new(),
        };
        for (row, line) in rows.seen().iter().zip(lines) {
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
        let tables = &*tables;
        let all = tables.pools();
        let Some(pool) = all.seen().iter().find(|pool| pool.key == *key) else {
            return if all.is_complete() {
                Ok(None)
            } else {
                Err(all.missing().to_vec())
            };
        };
        let scopes: HashMap<&PoolKey, &Scope> = all
            .seen()
            .iter()
            .map(|pool| (&pool.key, &pool.scope))
            .collect();
        let is_same = |other: &PoolKey| {
            other == key || scopes.get(other).is_some_and(|scope| **scope == pool.scope)
        };
        let addresses = tables
            .addresses
            .read()
            .map(|rows| rows.filter(|row| is_same(&row.pool)));
        // Which addresses are in a network depends on its pools.
        let addresses = if pool.network.is_some() {
            addresses.depends_on(&all)
        } else {
            addresses
        };
        let reservations = tables
            .reservations
            .read()
            .map(|rows| rows.filter(|row| row.slot.scope == pool.scope));
        let is_of_pool = |row: &&SliceRow| row.is_of(key);
        let slices = tables
            .slices
            .read()
            .map(|rows| rows.filter(is_of_pool).cloned().collect());
        let objects = PoolObjects {
            ledger: tables.supply(pool, &all),
            all: all.as_ref().map(Vec::as_slice),
            addresses,
            reservations,
            slices,
            waiting: tables.waiting(|claim| claim.pool == *key),
        };
        let claim_of = |key: &NamespacedName| tables.claim(key);
        let mut window = window(pool, objects, claim_of, part);
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
        let nothing = LastRecords::default();
        let tables = self.tables.lock();
        let networks = tables.networks.read();
        let missing = networks.missing().to_vec();
        let mut networks = networks.into_seen();
        let found = networks.find(|row| row.name == name);
        let shared = found.and_then(|network| Some((network, network.registry()?)));
        let Some((network, registry)) = shared else {
            let is_unknown = found.is_none() && !missing.is_empty();
            return if is_unknown { Err(missing) } else { Ok(None) };
        };
        self.demand.ask(registry, Instant::now());
        let all = tables.pools();
        let pools = all.as_ref().map(|pools| {
            let pools = pools.iter();
            let members = pools.filter(|pool| pool.network.as_deref() == Some(name));
            members.collect::<Vec<&PoolRow>>()
        });
        let keys: HashSet<&PoolKey> = pools.seen().iter().map(|pool| &pool.key).collect();
        // Which addresses are in a network depends on its pools.
        let addresses = tables.addresses.read().depends_on(&all);
        let addresses = addresses.map(|rows| rows.filter(|row| keys.contains(&row.pool)));
        let is_of_network = |row: &&SliceRow| {
            row.shared_block()
                .is_some_and(|(network, _)| network == name)
        };
        let slices = tables.slices.read();
        let rows = tables.registries.read();
        let objects = BlockObjects {
            network,
            registry_name: registry,
            registry: rows.map(|mut rows| rows.find(|row| row.name == registry)),
            slices: slices.map(|rows| rows.filter(is_of_network).collect()),
            pools,
            addresses,
            last: tables.records.get(registry).unwrap_or(&nothing),
        };
        Ok(Some(network_blocks(objects, clock::timestamp())))
    }

    /// A registry.
    pub(super) fn registry(&self, name: &str) -> Option<RegistryRow> {
        let tables = self.tables.lock();
        let mut registries = tables.registries.iter();
        registries.find(|row| row.name == name).cloned()
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
        let all = tables.pools();
        let searched = Searched {
            pools: all.as_ref().map(Vec::as_slice),
            addresses: tables.addresses.read(),
            reservations: tables.reservations.read(),
            claims: tables.served(),
        };
        let lookup = Lookup {
            claim: |key: &NamespacedName| tables.claim(key),
            address: |key: &NamespacedName| tables.addresses.get(key),
            lists: |namespace: Option<&str>| self.lists(namespace),
        };
        match parse_block(text, false) {
            Ok(block) => {
                let mut found = searched.address(block, &lookup);
                tables.add_shared_networks(&mut found);
                found
            }
            Err(_) => searched.text(text, &lookup),
        }
    }

    /// The claims that wait for an address, by pool and reason; `None` if they may not be read.
    pub(super) fn waiting(&self) -> Option<Vec<WaitingGroup>> {
        let tables = self.tables.lock();
        let waiting = tables.waiting(|claim| self.lists(Some(claim.key.namespace())));
        let unserved = tables.unserved(|claim| self.lists(Some(claim.key.namespace())));
        drop(tables);
        let waiting = waiting.listed_if_known()?;
        Some(waiting_groups(waiting, unserved))
    }
}
