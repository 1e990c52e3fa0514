//! The objects of the cluster, and what the page asks about them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use capi_ipam_api::{InClusterKind, PoolKey, Scope};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::MaybeInvalid;
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Kind;
use crate::error::MissingRight;
use crate::input::parse_block;
use crate::load::Readable;
use crate::model::{
    ClaimLine, Overview, OverviewPool, PoolWindow, SearchResult, Searched, View, networks, pools,
    ranges, waiting_claims, window,
};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow};

/// Number of samples in the history of a pool.
const MAX_SAMPLES: usize = 60;
/// Maximum number of waiting claims that the page lists.
const MAX_WAITING: usize = 500;

/// The verb of a list.
const LIST: &str = "list";

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Table<V> {
    /// The row of each object, or why the object cannot be decoded.
    rows: Observed<Result<V, String>>,
    is_listed: bool,
    missing: Vec<MissingRight>,
    problem: Option<String>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            rows: Observed::default(),
            is_listed: false,
            missing: Vec::new(),
            problem: None,
        }
    }
}

impl<V> Table<V> {
    /// Applies an event of a watch. `row` returns `None` for an object of another provider.
    pub(super) fn apply<K: kube::Resource>(
        &mut self,
        event: Event<MaybeInvalid<K>>,
        row: impl Fn(&K) -> Option<V>,
    ) {
        // kube sends `Init` before its request.
        if !matches!(event, Event::Init) {
            self.problem = None;
        }
        match event {
            Event::Init => self.rows.begin_list(),
            Event::InitApply(object) | Event::Apply(object) => {
                let shown = match &object.0 {
                    Ok(valid) => row(valid).map(Ok),
                    Err(invalid) => Some(Err(invalid.to_string())),
                };
                match shown {
                    Some(shown) => {
                        drop(
                            self.rows
                                .see(Origin::Watch, object.meta(), shown, Instant::now()),
                        )
                    }
                    None => drop(
                        self.rows
                            .forget(&object.namespace().unwrap_or_default(), &object.name_any()),
                    ),
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                self.rows.delete(
                    &namespace,
                    &name,
                    object.meta().uid.as_deref(),
                    Instant::now(),
                );
            }
            Event::InitDone => {
                self.rows.end_list(Instant::now());
                self.is_listed = true;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, namespace: &str, name: &str, row: V) {
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        let metadata = kube::core::ObjectMeta {
            namespace,
            name,
            ..kube::core::ObjectMeta::default()
        };
        self.rows
            .see(Origin::Watch, &metadata, Ok(row), Instant::now());
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
        self.rows.iter().filter_map(|(_, _, row)| row.as_ref().ok())
    }

    /// The objects, with the permissions without which they are not all. What is only not watched
    /// is known: it is read again and again.
    fn read(&self) -> Readable<impl Iterator<Item = &V>> {
        let missing = self
            .missing
            .iter()
            .filter(|right| right.verb == LIST)
            .cloned()
            .collect();
        Readable::part(self.iter(), missing)
    }

    fn get(&self, key: &NamespacedName) -> Option<&V> {
        self.rows.get(key.namespace(), key.name())?.as_ref().ok()
    }

    fn report(&self, kind: Kind, overview: &mut Overview) {
        if !self.is_listed {
            overview.listing.push(kind.plural());
        }
        overview
            .missing
            .extend(self.missing.iter().map(ToString::to_string));
        overview.problems.extend(self.problem.clone());
        let all = self.rows.iter();
        let invalid: Vec<_> = all
            .filter_map(|(namespace, name, row)| Some((namespace, name, row.as_ref().err()?)))
            .collect();
        let count = invalid.len();
        if let Some((namespace, name, error)) = invalid.first() {
            let place = if namespace.is_empty() {
                (*name).to_owned()
            } else {
                format!("{namespace}/{name}")
            };
            let text = format!(
                "{count} {} cannot be decoded and are missing here, such as {place}: {error}",
                kind.plural()
            );
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
    fn pools(&self) -> Readable<Vec<PoolRow>> {
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

    fn waiting(&self, keep: impl Fn(&ClaimRow) -> bool) -> Readable<Vec<ClaimRow>> {
        let is_kept = |claim: &&ClaimRow| claim.is_waiting() && keep(claim);
        self.claims
            .read()
            .map(|claims| claims.filter(is_kept).cloned().collect())
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
        Self {
            server,
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

    /// Waits for a change since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds the current counts to the history of the pools.
    pub(super) fn sample(&self) {
        let tables = &mut *self.tables.lock();
        let pools: Vec<&PoolRow> = tables.pools.values().flat_map(Table::iter).collect();
        tables
            .samples
            .retain(|key, _| pools.iter().any(|pool| pool.key == *key));
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
        let keys = tables
            .pools
            .values()
            .flat_map(Table::iter)
            .map(|pool| pool.key.clone());
        let Some(key) = keys.into_iter().find(|key| key.name.as_ref() == pool) else {
            return;
        };
        tables.samples.entry(key).or_default().push_back(used);
    }

    #[cfg(test)]
    pub(super) fn finish_lists(&self) {
        self.update(|tables| {
            tables
                .pools
                .values_mut()
                .for_each(|table| table.is_listed = true);
            tables.addresses.is_listed = true;
            tables.reservations.is_listed = true;
            tables.claims.is_listed = true;
        });
    }

    pub(super) fn overview(&self) -> Overview {
        let tables = self.tables.lock();
        let rows = tables.pools();
        let waiting = tables.waiting(|_| true);
        let lines = pools(rows.seen(), &waiting.as_ref());
        let number = |count: usize| u64::try_from(count).unwrap_or_default();
        let bound = tables
            .claims
            .read()
            .map(|claims| claims.filter(|claim| claim.bound.is_some()).count());
        let mut overview = Overview {
            version: tables.version,
            time: Timestamp::now(),
            server: self.server.clone(),
            networks: networks(&rows.as_ref().map(|_| lines.as_slice())),
            pools: Vec::new(),
            bound: bound.known().map(|count| number(*count)),
            waiting: waiting.known().map(|claims| number(claims.len())),
            listing: Vec::new(),
            missing: Vec::new(),
            problems: Vec::new(),
        };
        overview.pools = rows
            .seen()
            .iter()
            .zip(lines)
            .map(|(row, line)| {
                let mut trend: Vec<u64> = tables
                    .samples
                    .get(&row.key)
                    .into_iter()
                    .flatten()
                    .copied()
                    .collect();
                trend.extend(line.counts.map(|counts| counts.used));
                OverviewPool {
                    line,
                    ranges: ranges(&row.entries()),
                    trend,
                }
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

    /// A pool and a part of its map. An error if it is unknown whether there is such a pool.
    pub(super) fn pool(
        &self,
        key: &PoolKey,
        view: View,
    ) -> Result<Option<PoolWindow>, Vec<MissingRight>> {
        let tables = self.tables.lock();
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
        let waiting = tables.waiting(|claim| claim.pool == *key);
        let claim_of = |key: &NamespacedName| tables.claims.get(key);
        let pools = all.as_ref().map(Vec::as_slice);
        Ok(Some(window(
            pool,
            &pools,
            addresses,
            reservations,
            waiting,
            claim_of,
            view,
        )))
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
            claims: tables.claims.read(),
        };
        let claim_of = |key: &NamespacedName| tables.claims.get(key);
        match parse_block(text) {
            Ok(block) => searched.address(block, claim_of),
            Err(_) => searched.text(text, claim_of, |key| tables.addresses.get(key)),
        }
    }

    /// The claims that wait for an address, the first one first; `None` if they may not be read.
    pub(super) fn waiting(&self) -> Option<Vec<ClaimLine>> {
        let waiting = self.tables.lock().waiting(|_| true);
        if waiting.seen().is_empty() && !waiting.is_complete() {
            return None;
        }
        let mut rows = waiting.into_seen();
        rows.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        rows.truncate(MAX_WAITING);
        let mut lines = waiting_claims(rows, &[]);
        lines.sort_by_key(|line| line.created);
        Some(lines)
    }
}
