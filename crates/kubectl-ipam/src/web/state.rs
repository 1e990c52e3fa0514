//! The objects of the cluster, and what the page asks about them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use capi_ipam::api::{InClusterKind, PoolKey, Scope};
use capi_ipam_controller::object_map::ObjectMap;
use capi_ipam_controller::watch::MaybeInvalid;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Kind;
use crate::commands::parse_block;
use crate::error::MissingRight;
use crate::model::{
    ClaimLine, Overview, OverviewPool, PoolWindow, SearchResult, Searched, View, claims, networks, pools, ranges,
    window,
};
use crate::objects::{AddressRow, ClaimRow, Key, PoolRow, ReservationRow};

/// Number of samples in the history of a pool.
const MAX_SAMPLES: usize = 60;
/// Maximum number of waiting claims that the page lists.
const MAX_WAITING: usize = 500;

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Table<V> {
    rows: ObjectMap<V>,
    /// Why objects cannot be decoded.
    invalid: ObjectMap<String>,
    is_listed: bool,
    missing: Vec<MissingRight>,
    problem: Option<String>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let (rows, invalid) = (ObjectMap::default(), ObjectMap::default());
        Self { rows, invalid, is_listed: false, missing: Vec::new(), problem: None }
    }
}

impl<V> Table<V> {
    /// Applies an event of a watch. `row` returns `None` for an object of another provider.
    pub(super) fn apply<K: kube::Resource>(&mut self, event: Event<MaybeInvalid<K>>, row: impl Fn(&K) -> Option<V>) {
        // kube sends `Init` before its request.
        if !matches!(event, Event::Init) {
            self.problem = None;
        }
        match event {
            Event::Init => {
                self.rows.init();
                self.invalid.init();
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                match &object.0 {
                    Ok(valid) => {
                        self.invalid.remove(&namespace, &name);
                        match row(valid) {
                            Some(row) => drop(self.rows.insert(&namespace, &name, row)),
                            None => drop(self.rows.remove(&namespace, &name)),
                        }
                    }
                    Err(invalid) => {
                        self.rows.remove(&namespace, &name);
                        self.invalid.insert(&namespace, &name, invalid.to_string());
                    }
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                self.rows.remove(&namespace, &name);
                self.invalid.remove(&namespace, &name);
            }
            Event::InitDone => {
                self.rows.init_done();
                self.invalid.init_done();
                self.is_listed = true;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, namespace: &str, name: &str, row: V) {
        self.rows.insert(namespace, name, row);
    }

    /// Records a permission that the caller lacks.
    pub(super) fn missing(&mut self, right: MissingRight) {
        if !self.missing.contains(&right) {
            self.missing.push(right);
        }
    }

    /// Reports that the objects cannot be read. An empty list is not expected any more.
    pub(super) fn failed(&mut self, problem: Option<String>) {
        self.is_listed = true;
        self.problem = problem;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().map(|(_, _, row)| row)
    }

    fn get(&self, (namespace, name): &Key) -> Option<&V> {
        self.rows.get(namespace, name)
    }

    fn report(&self, kind: Kind, overview: &mut Overview) {
        if !self.is_listed {
            overview.listing.push(kind.plural());
        }
        overview.missing.extend(self.missing.iter().map(ToString::to_string));
        overview.problems.extend(self.problem.clone());
        let count = self.invalid.iter().count();
        if let Some((namespace, name, error)) = self.invalid.iter().next() {
            let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            let text =
                format!("{count} {} cannot be decoded and are missing here, such as {place}: {error}", kind.plural());
            overview.problems.push(text);
        }
    }
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) pools: BTreeMap<InClusterKind, Table<PoolRow>>,
    pub(super) addresses: Table<AddressRow>,
    pub(super) reservations: Table<ReservationRow>,
    pub(super) claims: Table<ClaimRow>,
    version: u64,
    samples: HashMap<PoolKey, VecDeque<u64>>,
}

impl Tables {
    /// The pools, by kind, namespace and name.
    fn pools(&self) -> Vec<PoolRow> {
        let mut all: Vec<PoolRow> = self.pools.values().flat_map(Table::iter).cloned().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    fn waiting(&self, keep: impl Fn(&ClaimRow) -> bool) -> Vec<ClaimRow> {
        self.claims.iter().filter(|claim| claim.is_waiting() && keep(claim)).cloned().collect()
    }
}

/// The objects, shared by the watches and the server.
#[derive(Debug, Default)]
pub(super) struct State {
    server: String,
    tables: Mutex<Tables>,
    changed: Notify,
}

impl State {
    pub(super) fn new(server: String) -> Self {
        Self { server, ..Self::default() }
    }

    /// Changes the objects.
    pub(super) fn update(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = self.tables.lock();
        change(&mut tables);
        tables.version = tables.version.saturating_add(1);
        drop(tables);
        self.changed.notify_one();
    }

    /// Waits for a change since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds the current counts to the history of the pools.
    pub(super) fn sample(&self) {
        let tables = &mut *self.tables.lock();
        let pools: Vec<&PoolRow> = tables.pools.values().flat_map(Table::iter).collect();
        tables.samples.retain(|key, _| pools.iter().any(|pool| pool.key == *key));
        for pool in pools {
            let Some(counts) = pool.counts else { continue };
            let samples = tables.samples.entry(pool.key.clone()).or_default();
            if samples.len() >= MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(u64::try_from(counts.used).unwrap_or_default());
        }
    }

    #[cfg(test)]
    pub(super) fn sample_of(&self, pool: &str, used: u64) {
        let tables = &mut *self.tables.lock();
        let keys = tables.pools.values().flat_map(Table::iter).map(|pool| pool.key.clone());
        let Some(key) = keys.into_iter().find(|key| key.name.as_ref() == pool) else { return };
        tables.samples.entry(key).or_default().push_back(used);
    }

    #[cfg(test)]
    pub(super) fn finish_lists(&self) {
        self.update(|tables| {
            tables.pools.values_mut().for_each(|table| table.is_listed = true);
            tables.addresses.is_listed = true;
            tables.reservations.is_listed = true;
            tables.claims.is_listed = true;
        });
    }

    pub(super) fn overview(&self) -> Overview {
        let tables = self.tables.lock();
        let rows = tables.pools();
        let waiting = tables.waiting(|_| true);
        let lines = pools(&rows, &waiting);
        let bound = tables.claims.iter().filter(|claim| claim.bound.is_some()).count();
        let mut overview = Overview {
            version: tables.version,
            time: Timestamp::now(),
            server: self.server.clone(),
            networks: networks(&lines),
            pools: Vec::new(),
            bound: u64::try_from(bound).unwrap_or_default(),
            waiting: u64::try_from(waiting.len()).unwrap_or_default(),
            listing: Vec::new(),
            missing: Vec::new(),
            problems: Vec::new(),
        };
        overview.pools = rows
            .iter()
            .zip(lines)
            .map(|(row, line)| {
                let mut trend: Vec<u64> = tables.samples.get(&row.key).into_iter().flatten().copied().collect();
                trend.extend(line.counts.map(|counts| counts.used));
                OverviewPool { line, ranges: ranges(row.entries()), trend }
            })
            .collect();
        for (kind, table) in &tables.pools {
            table.report(Kind::Pool(*kind), &mut overview);
        }
        tables.addresses.report(Kind::Address, &mut overview);
        tables.reservations.report(Kind::Reservation, &mut overview);
        tables.claims.report(Kind::Claim, &mut overview);
        overview
    }

    /// A pool and a part of its map; `None` if there is no such pool.
    pub(super) fn pool(&self, key: &PoolKey, view: View) -> Option<PoolWindow> {
        let tables = self.tables.lock();
        let all = tables.pools();
        let pool = all.iter().find(|pool| pool.key == *key)?;
        let scopes: HashMap<&PoolKey, &Scope> = all.iter().map(|pool| (&pool.key, &pool.scope)).collect();
        let is_same = |other: &PoolKey| other == key || scopes.get(other).is_some_and(|scope| **scope == pool.scope);
        let addresses = tables.addresses.iter().filter(|row| is_same(&row.pool));
        let reservations = tables.reservations.iter().filter(|row| row.slot.scope == pool.scope);
        let waiting = tables.waiting(|claim| claim.pool == *key);
        Some(window(pool, &all, addresses, reservations, waiting, |key| tables.claims.get(key), view))
    }

    /// Searches an address or prefix, or a part of a name.
    pub(super) fn search(&self, text: &str) -> SearchResult {
        if text.is_empty() {
            return SearchResult::default();
        }
        let tables = self.tables.lock();
        let pools = tables.pools();
        let (addresses, reservations) = (tables.addresses.iter(), tables.reservations.iter());
        let searched = Searched { pools: &pools, addresses, reservations, claims: tables.claims.iter() };
        let claim_of = |key: &Key| tables.claims.get(key);
        match parse_block(text) {
            Ok(block) => searched.address(block, claim_of),
            Err(_) => searched.text(text, claim_of, |key| tables.addresses.get(key)),
        }
    }

    /// The claims that wait for an address, the first one first.
    pub(super) fn waiting(&self) -> Vec<ClaimLine> {
        let mut rows = self.tables.lock().waiting(|_| true);
        rows.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        rows.truncate(MAX_WAITING);
        let mut lines = claims(rows, &[]);
        lines.sort_by_key(|line| line.created);
        lines
    }
}
