//! What is wrong with the rows of a table that can be read, each by itself and in comparison with the
//! others.

use std::collections::{BTreeMap, HashMap, HashSet};

use capi_ipam_api::{FieldProblem, Pool, PoolKey, Scope, Slot, is_dns_label, is_dns_subdomain};
use capi_ipam_ip::{Block, Family, UsableBlocks};
use serde_json::Value;

use super::Problem;
use super::table::{Object, Wanted, column_of};
use crate::user_reservation::{promised_to, reservation};

/// The manifests of all rows, and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) objects: Vec<Value>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
}

/// A pool of the table.
struct CheckedPool {
    line: u64,
    /// The network that the row names.
    network: Option<String>,
    /// The blocks; `None` if the specification is not valid, which is a problem of the pool.
    usable: Option<UsableBlocks>,
}

/// Checks all rows. `unread` are the pools of rows that cannot be read.
pub(super) fn check(rows: Vec<(u64, Object)>, unread: &HashSet<PoolKey>) -> Checked {
    let mut checker = Checker {
        unread,
        networks: BTreeMap::new(),
        pools: BTreeMap::new(),
        manifests: BTreeMap::new(),
        lengths: HashMap::new(),
        reservations: BTreeMap::new(),
        checked: Checked::default(),
    };
    let mut reservations = Vec::new();
    for (line, object) in rows {
        match object {
            Object::Network(name, manifest) => checker.network(line, name, manifest),
            Object::Pool(pool, manifest) => checker.pool(line, &pool, manifest),
            Object::Reservation(wanted) => reservations.push((line, wanted)),
        }
    }
    checker.find_overlaps();
    for (line, wanted) in &reservations {
        checker.reservation(*line, wanted);
    }
    checker.finish()
}

struct Checker<'a> {
    unread: &'a HashSet<PoolKey>,
    /// The lines and the manifests of networks.
    networks: BTreeMap<String, (u64, Value)>,
    pools: BTreeMap<PoolKey, CheckedPool>,
    /// The manifests of pools.
    manifests: BTreeMap<PoolKey, Value>,
    /// The block length of each network and family, as the first pool has it.
    lengths: HashMap<(String, Family), (u8, PoolKey)>,
    /// The lines and the manifests of reservations.
    reservations: BTreeMap<Slot, (u64, Value)>,
    checked: Checked,
}

impl Checker<'_> {
    fn problem(&mut self, line: u64, column: &'static str, text: impl Into<String>) {
        let problem = Problem::of_cell(line, column, text);
        self.checked.problems.push(problem);
    }

    fn finish(mut self) -> Checked {
        let networks = self.networks.into_values().map(|(_, manifest)| manifest);
        self.checked.objects.extend(networks);
        self.checked.objects.extend(self.manifests.into_values());
        let reservations = self
            .reservations
            .into_values()
            .map(|(_, manifest)| manifest);
        self.checked.objects.extend(reservations);
        self.checked
    }

    fn network(&mut self, line: u64, name: String, manifest: Value) {
        if !is_dns_label(&name) {
            let text = "must consist of at most 63 lower case letters, digits and dashes";
            self.problem(line, "name", text);
        }
        match self.networks.get(&name) {
            Some((other, _)) => {
                let text = format!("IPNetwork {name} is also in line {other}");
                self.problem(line, "name", text);
            }
            None => drop(self.networks.insert(name, (line, manifest))),
        }
    }

    fn pool(&mut self, line: u64, pool: &Pool, manifest: Value) {
        let key = PoolKey::of(pool);
        if let Some(other) = self.pools.get(&key) {
            let text = format!("{key} is also in line {}", other.line);
            return self.problem(line, "name", text);
        }
        self.check_names(line, &key);
        let usable = pool.spec.usable();
        let has_prefixes = key.kind.has_prefixes();
        let mut found = Vec::new();
        for FieldProblem { field, value, text } in pool.spec.field_problems(usable.as_ref().ok()) {
            found.push((field.to_string(), format!("invalid value {value}: {text}")));
        }
        let usable = match usable {
            Ok(usable) => Some(usable),
            Err(problems) => {
                for problem in problems {
                    found.push((problem.field.to_string(), problem.kind.to_string()));
                }
                None
            }
        };
        for (field, text) in found {
            let problem = match column_of(&field, has_prefixes) {
                Some(column) => Problem::of_cell(line, column, text),
                None => Problem::of_row(line, format!("{field}: {text}")),
            };
            self.checked.problems.push(problem);
        }
        let network = pool.spec.network().map(str::to_owned);
        if let (Some(network), Some(usable)) = (&network, &usable) {
            self.check_length(line, &key, network, usable);
        }
        self.manifests.insert(key.clone(), manifest);
        let checked = CheckedPool {
            line,
            network,
            usable,
        };
        self.pools.insert(key, checked);
    }

    /// Names that the API server refuses.
    fn check_names(&mut self, line: u64, key: &PoolKey) {
        if !is_dns_subdomain(&key.name) {
            let text = "must consist of at most 253 lower case letters, digits, dashes and dots, with a letter or digit \
                        at both ends and beside each dot";
            self.problem(line, "name", text);
        }
        if let Some(namespace) = &key.namespace
            && !is_dns_label(namespace)
        {
            let text = format!("no namespace can have the name {namespace}");
            self.problem(line, "namespace", text);
        }
    }

    /// Pools of a network allocate blocks of one length.
    fn check_length(&mut self, line: u64, key: &PoolKey, network: &str, usable: &UsableBlocks) {
        let (family, length) = (usable.family, usable.length);
        let first = self
            .lengths
            .entry((network.to_owned(), family))
            .or_insert_with(|| (length, key.clone()));
        if first.0 != length {
            let (other, first) = first.clone();
            let text = format!(
                "{key} allocates {family} blocks of length {length}, and {first} of length {other}; use another network \
                 for one of them"
            );
            self.problem(line, "network", text);
        }
    }

    /// Finds pools with the same addresses that are not in a network: both would allocate them. Each is
    /// compared with the pool that reaches furthest of those before it.
    fn find_overlaps(&mut self) {
        let mut spans = Vec::new();
        for (key, pool) in &self.pools {
            if let (None, Some(usable)) = (&pool.network, &pool.usable) {
                for span in usable.set.spans() {
                    let first = usable.block(span.first()).span().first();
                    let last = usable.block(span.last()).span().last();
                    spans.push((usable.family, first, last, key.clone()));
                }
            }
        }
        spans.sort();
        let mut reported = HashSet::new();
        let mut furthest: Option<&(Family, u128, u128, PoolKey)> = None;
        for span in &spans {
            let (family, first, last, key) = span;
            let (mut reaches_further, mut overlap) = (true, None);
            if let Some((before, _, end, other)) = furthest
                && before == family
            {
                reaches_further = last > end;
                if first <= end && other != key {
                    overlap = Some(other);
                }
            }
            if let Some(other) = overlap
                && reported.insert((key, other))
                && let Some(pool) = self.pools.get(key)
            {
                let text = format!(
                    "{} is also in {other}: both would allocate it; correct one of them, or put both into a network",
                    family.address(*first)
                );
                let problem = Problem::of_cell(pool.line, "addresses", text);
                self.checked.problems.push(problem);
            }
            if reaches_further {
                furthest = Some(span);
            }
        }
    }

    fn reservation(&mut self, line: u64, wanted: &Wanted) {
        // The problem of the pool is reported.
        if self.unread.contains(&wanted.pool) {
            return;
        }
        let slot = Slot {
            scope: self.scope(line, wanted),
            block: wanted.block,
        };
        if let Some((other, _)) = self.reservations.get(&slot) {
            let text = format!("{slot} is also in line {other}");
            return self.problem(line, "addresses", text);
        }
        self.check_contained(line, &wanted.pool, slot.block);
        let claim = wanted.claim.as_ref();
        if let Some(problem) = claim.and_then(|claim| promised_to(claim).problem(&wanted.pool)) {
            self.problem(line, "claim", problem.to_string());
        }
        let new = reservation(&slot, &wanted.pool, claim);
        match serde_json::to_value(new) {
            Ok(manifest) => drop(self.reservations.insert(slot, (line, manifest))),
            Err(error) => {
                let problem = Problem::of_row(line, error.to_string());
                self.checked.problems.push(problem);
            }
        }
    }

    /// The scope of the pool of a reservation.
    fn scope(&mut self, line: u64, wanted: &Wanted) -> Scope {
        let key = &wanted.pool;
        let network = match (self.pools.get(key), &wanted.network) {
            (Some(pool), Some(stated)) if pool.network.as_ref() != Some(stated) => {
                let text = format!(
                    "{key} has the network {} in line {}",
                    pool.network.as_deref().unwrap_or("none"),
                    pool.line
                );
                self.problem(line, "network", text);
                None
            }
            (Some(pool), _) => pool.network.clone(),
            (None, Some(stated)) => Some(stated.clone()),
            (None, None) => {
                self.checked.warnings.push(format!(
                    "line {line}: {key} is not in the table; the reservation is one of a pool without a network: if the \
                     pool is in a network, name it in the column network"
                ));
                None
            }
        };
        match network {
            Some(network) => Scope::Network(network.into()),
            None => Scope::Pool(key.clone()),
        }
    }

    /// A pool of the table contains the addresses that are reserved in it.
    fn check_contained(&mut self, line: u64, key: &PoolKey, block: Block) {
        let pool = self.pools.get(key);
        // An invalid specification has its own problem.
        let usable = pool.and_then(|pool| pool.usable.as_ref());
        if usable.is_some_and(|usable| !usable.contains(block)) {
            let text = format!("{key} does not contain {block}");
            self.problem(line, "addresses", text);
        }
    }
}
