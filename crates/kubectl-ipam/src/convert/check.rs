//! What is wrong with the rows of a table that can be read, each by itself and in comparison with the
//! others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use capi_ipam_api::{
    FieldProblem, Pool, PoolKey, Scope, Slot, counted, is_dns_label, is_dns_subdomain,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Entry, Extents, Family, UsableBlocks, parse_entry};
use serde_json::Value;

use super::Problem;
use super::table::{Object, Wanted, column_of};
use crate::input::short;
use crate::user_reservation::{promised_to, reservation};

/// The maximum number of warnings about the addresses of a pool that pools of other networks have, too.
const MAX_OVERLAPS: usize = 10;

/// The manifests of all rows, and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) objects: Vec<Value>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
}

/// A network of the table.
struct CheckedNetwork {
    line: u64,
    manifest: Value,
    excluded: Vec<Entry>,
}

/// A pool of the table.
struct CheckedPool {
    line: u64,
    manifest: Value,
    /// The network that the row names.
    network: Option<String>,
    gateways: Vec<IpAddr>,
    /// The blocks; `None` if the specification is not valid, which is a problem of the pool.
    usable: Option<UsableBlocks>,
}

/// Checks all rows. `unread` are the pools of rows that cannot be read.
pub(super) fn check(rows: Vec<(u64, Object)>, unread: &HashSet<PoolKey>) -> Checked {
    let mut checker = Checker {
        unread,
        networks: BTreeMap::new(),
        pools: BTreeMap::new(),
        lengths: HashMap::new(),
        reservations: BTreeMap::new(),
        claims: HashMap::new(),
        other_pools: BTreeMap::new(),
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
    networks: BTreeMap<String, CheckedNetwork>,
    pools: BTreeMap<PoolKey, CheckedPool>,
    /// The block length of each network and family, as the first pool has it.
    lengths: HashMap<(String, Family), (u8, PoolKey)>,
    /// The lines and the manifests of reservations.
    reservations: BTreeMap<Slot, (u64, Value)>,
    /// The lines of the claims that addresses are reserved for.
    claims: HashMap<NamespacedName, u64>,
    /// The pools of reservations that the table does not contain: the first line, and the number of
    /// reservations.
    other_pools: BTreeMap<PoolKey, (u64, usize)>,
    checked: Checked,
}

impl Checker<'_> {
    fn problem(&mut self, line: u64, column: &'static str, text: impl Into<String>) {
        let problem = Problem::of_cell(line, column, text);
        self.checked.problems.push(problem);
    }

    fn finish(mut self) -> Checked {
        for (key, (line, count)) in &self.other_pools {
            self.checked.warnings.push(format!(
                "line {line}: {key} is not in the table; {} in it: that of a pool without a network. If the pool is in \
                 a network, name it in the column network",
                counted(*count, "reservation", "reservations")
            ));
        }
        let networks = self.networks.into_values().map(|it| it.manifest);
        self.checked.objects.extend(networks);
        let pools = self.pools.into_values().map(|it| it.manifest);
        self.checked.objects.extend(pools);
        let reservations = self
            .reservations
            .into_values()
            .map(|(_, manifest)| manifest);
        self.checked.objects.extend(reservations);
        self.checked
    }

    fn network(&mut self, line: u64, name: String, manifest: Value) {
        self.check_network_name(line, "name", &name);
        if let Some(other) = self.networks.get(&name) {
            let text = format!("IPNetwork {name} is also in line {}", other.line);
            return self.problem(line, "name", text);
        }
        let mut excluded = Vec::new();
        let texts = manifest.pointer("/spec/excluded").and_then(Value::as_array);
        for text in texts.into_iter().flatten().filter_map(Value::as_str) {
            excluded.extend(parse_entry(text));
        }
        let network = CheckedNetwork {
            line,
            manifest,
            excluded,
        };
        self.networks.insert(name, network);
    }

    fn check_network_name(&mut self, line: u64, column: &'static str, name: &str) {
        if !is_dns_label(name) {
            let text = "must consist of at most 63 lower case letters, digits and dashes, with a letter or digit at both \
                        ends";
            self.problem(line, column, text);
        }
    }

    fn pool(&mut self, line: u64, pool: &Pool, manifest: Value) {
        let key = PoolKey::of(pool);
        if let Some(other) = self.pools.get(&key) {
            let text = format!("{key} is also in line {}", other.line);
            return self.problem(line, "name", text);
        }
        self.check_names(line, "name", &key);
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
        let checked = CheckedPool {
            line,
            manifest,
            network,
            gateways: pool.spec.readable_gateways(),
            usable,
        };
        self.pools.insert(key, checked);
    }

    /// Names that the API server refuses.
    fn check_names(&mut self, line: u64, column: &'static str, key: &PoolKey) {
        if !is_dns_subdomain(&key.name) {
            let text = "must consist of at most 253 lower case letters, digits, dashes and dots, with a letter or digit \
                        at both ends and beside each dot";
            self.problem(line, column, text);
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

    /// Finds pools with the same addresses of which one is in no network: both would allocate them. Two
    /// networks are different address spaces, perhaps by mistake.
    fn find_overlaps(&mut self) {
        let mut pools: Vec<(&PoolKey, &CheckedPool)> = self.pools.iter().collect();
        pools.sort_by_key(|(_, pool)| pool.line);
        let mut before = Extents::default();
        for (number, (_, pool)) in pools.iter().enumerate() {
            let Some(usable) = &pool.usable else { continue };
            let mut near: Vec<usize> = before.overlapping(usable).copied().collect();
            near.sort_unstable();
            let others = near.iter().filter_map(|number| pools.get(*number));
            let shared = others.filter_map(|(key, other)| Some((key, other, pool.shared(other)?)));
            let mut warnings = 0;
            for (key, other, address) in shared {
                if pool.network.is_some() && other.network.is_some() {
                    warnings += 1;
                    if warnings > MAX_OVERLAPS {
                        continue;
                    }
                    self.checked.warnings.push(format!(
                        "line {}: {address} is also in {key}, which is in another network: both allocate it",
                        pool.line
                    ));
                    continue;
                }
                let text = format!(
                    "{address} is also in {key}: both would allocate it; correct one of them, or put both into one network"
                );
                let problem = Problem::of_cell(pool.line, "addresses", text);
                self.checked.problems.push(problem);
            }
            before.insert(usable, number);
        }
    }

    fn reservation(&mut self, line: u64, wanted: &Wanted) {
        // The problem of the pool is reported.
        if self.unread.contains(&wanted.pool) {
            return;
        }
        if !self.pools.contains_key(&wanted.pool) {
            self.check_names(line, "pool", &wanted.pool);
            if let Some(network) = &wanted.network {
                self.check_network_name(line, "network", network);
            }
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
        if let Some(claim) = claim {
            match self.claims.get(claim) {
                Some(other) => {
                    let text = format!("{claim} is also in line {other}: a claim gets one address");
                    self.problem(line, "claim", text);
                }
                None => drop(self.claims.insert(claim.clone(), line)),
            }
        }
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
                self.note_other_pool(line, key);
                None
            }
        };
        match network {
            Some(network) => Scope::Network(network.into()),
            None => Scope::Pool(key.clone()),
        }
    }

    /// A pool that the table does not contain. One of this name and of another kind is probably meant.
    fn note_other_pool(&mut self, line: u64, key: &PoolKey) {
        let meant = self.pools.keys().find(|other| other.name == key.name);
        if let Some(meant) = meant {
            let text = format!(
                "{key} is not in the table; did you mean {}/{}?",
                short(meant.kind),
                meant.name
            );
            return self.problem(line, "pool", text);
        }
        let (_, count) = self.other_pools.entry(key.clone()).or_insert((line, 0));
        *count = count.saturating_add(1);
    }

    /// A pool of the table contains the addresses that are reserved in it.
    fn check_contained(&mut self, line: u64, key: &PoolKey, block: Block) {
        let pool = self.pools.get(key);
        // An invalid specification has its own problem.
        let usable = pool.and_then(|pool| pool.usable.as_ref());
        if usable.is_some_and(|usable| !usable.contains(block)) {
            let text = format!("{key} does not contain {block}");
            return self.problem(line, "addresses", text);
        }
        let network = pool.and_then(|pool| pool.network.as_deref());
        let Some(network) = network else {
            return;
        };
        let overlaps = |entry: &Entry| {
            let (one, other) = (entry.span, block.span());
            let is_there = one.first() <= other.last() && other.first() <= one.last();
            entry.family == block.family() && is_there
        };
        let is_excluded = match self.networks.get(network) {
            Some(network) => network.excluded.iter().any(overlaps),
            None => false,
        };
        let members = self.pools.values();
        let mut gateways = members
            .filter(|pool| pool.network.as_deref() == Some(network))
            .flat_map(|pool| &pool.gateways);
        let is_gateway = gateways.any(|gateway| block.overlaps(Block::address(*gateway)));
        if is_excluded {
            let text = format!("IPNetwork {network} excludes {block}");
            self.problem(line, "addresses", text);
        } else if is_gateway {
            let text = format!("{block} is the gateway of a pool of network {network}");
            self.problem(line, "addresses", text);
        }
    }
}

impl CheckedPool {
    /// The first address that another pool allocates, too. Those of one network share them.
    fn shared(&self, other: &Self) -> Option<IpAddr> {
        if self.network.is_some() && self.network == other.network {
            return None;
        }
        let shared = self.usable.as_ref()?.first_shared(other.usable.as_ref()?)?;
        Some(shared.family.address(shared.span.first()))
    }
}
