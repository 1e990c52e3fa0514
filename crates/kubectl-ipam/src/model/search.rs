use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::claims::{ClaimLine, claims};
use super::holders::{Holder, PoolMatch, holders, matches_of};
use super::ranking::{Fit, Natural, best, fit};
use crate::objects::{AddressRow, ClaimRow, Kind, Objects, PoolRow, ReservationRow};

/// Maximum number of results of each type.
const MAX_RESULTS: usize = 100;

/// What a search has found.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchResult {
    /// The pools and networks that contain the address.
    pub(crate) matches: Vec<PoolMatch>,
    /// The pools whose name, network or addresses contain the text, the best ones.
    pub(crate) pools: Vec<PoolName>,
    /// What holds the address or a part of the prefix; for a text, the addresses that contain it,
    /// and what is held for a claim that no longer exists.
    pub(crate) holders: Vec<Holder>,
    /// The claims whose name, machine or Cluster contains the text, the best ones.
    pub(crate) claims: Vec<ClaimLine>,
    /// The numbers of all that was found.
    pub(crate) totals: SearchTotals,
    /// The networks that contain the address and share blocks: another management cluster can have
    /// it in use.
    pub(crate) shared_networks: Vec<String>,
    /// Whether everything that was searched could be read. Otherwise there can be more pools,
    /// holders and claims.
    pub(crate) is_complete: bool,
}

/// How much a search has found; at most 100 of each are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SearchTotals {
    /// Pools, those that contain the address included.
    pub(crate) pools: usize,
    /// Addresses.
    pub(crate) holders: usize,
    /// Claims.
    pub(crate) claims: usize,
}

/// Whether everything that is searched is known.
fn is_complete(objects: &Objects) -> bool {
    objects.has(&Kind::POOLS) && objects.has(&[Kind::Address, Kind::Reservation, Kind::Claim])
}

/// Searches an address or prefix, in all namespaces.
pub(crate) fn search_address(objects: &Objects, block: Block) -> SearchResult {
    let matches = matches_of(objects, block);
    let addresses = objects.addresses.iter();
    let addresses = addresses.filter(|row| row.block.overlaps(block));
    let reservations = objects.reservations.iter();
    let reservations = reservations.filter(|row| row.slot.block.overlaps(block));
    let (holders, held) = held(objects, addresses, reservations, "");
    let mut shared_networks = Vec::new();
    for found in &matches {
        let network = found.network.as_deref().and_then(|it| objects.network(it));
        if let Some(network) = network.filter(|it| it.registry().is_some())
            && !shared_networks.contains(&network.name)
        {
            shared_networks.push(network.name.clone());
        }
    }
    let has_network = matches.iter().any(|it| it.network.is_some());
    SearchResult {
        totals: SearchTotals {
            pools: matches.len(),
            holders: held,
            claims: 0,
        },
        matches,
        holders,
        is_complete: is_complete(objects) && (!has_network || objects.has(&[Kind::Network])),
        shared_networks,
        ..SearchResult::default()
    }
}

/// Searches a part of a name, or of an address. `lists` says whether the pools and claims of a namespace
/// are searched by name.
pub(crate) fn search_text(
    objects: &Objects,
    text: &str,
    lists: impl Fn(Option<&str>) -> bool,
) -> SearchResult {
    let pools = best_of(objects.pools(), |pool| {
        if !lists(pool.key.namespace.as_deref()) {
            return None;
        }
        let fit = pool_fit(pool, text)?;
        Some((fit, Natural(pool.key.name.to_string()), pool.key.clone()))
    });
    let found = best_of(objects.served(), |claim| {
        if !lists(Some(claim.key.namespace())) {
            return None;
        }
        let fit = claim_fit(claim, text)?;
        Some((fit, Natural(claim.key.name().to_owned()), claim.key.clone()))
    });
    // Without all claims it is unknown which ones no longer exist: what has the text is listed.
    let is_left = |claim: &NamespacedName| {
        let is_named = lists(Some(claim.namespace())) && name_fit(claim, text).is_some();
        is_named && !objects.claims.contains(claim)
    };
    let has_text = |block: Block| is_part_of_address(text) && block.to_string().contains(text);
    let addresses = objects.addresses.iter();
    let addresses = addresses.filter(|row| has_text(row.block) || is_left(&row.claim_key()));
    let reservations = objects.reservations.iter().filter(|row| {
        let claim = row.claim.as_ref().filter(|_| row.released.is_some());
        has_text(row.slot.block) || claim.is_some_and(is_left)
    });
    let (holders, held) = held(objects, addresses, reservations, text);
    SearchResult {
        totals: SearchTotals {
            pools: pools.total,
            holders: held,
            claims: found.total,
        },
        pools: pools.rows.iter().map(|pool| (&pool.key).into()).collect(),
        holders,
        claims: claims(found.rows, objects),
        is_complete: is_complete(objects),
        ..SearchResult::default()
    }
}

/// The best holders of some addresses and reservations, and the number of all.
fn held<'a>(
    objects: &Objects,
    addresses: impl Iterator<Item = &'a AddressRow>,
    reservations: impl Iterator<Item = &'a ReservationRow>,
    text: &str,
) -> (Vec<Holder>, usize) {
    let place = |block: Block| {
        let fit = fit(&block.to_string(), text).unwrap_or(Fit::Part);
        Some((fit, block.span().first(), block.length()))
    };
    let has_address = |row: &ReservationRow| {
        let claim = row.claim.as_ref();
        let address = claim.and_then(|claim| objects.addresses.get(claim));
        address.is_some_and(|address| address.block == row.slot.block)
    };
    let addresses = best_of(addresses, |row| place(row.block));
    let mut others = 0_usize;
    let counted = reservations.inspect(|row| {
        let is_other = !has_address(row);
        others = others.saturating_add(usize::from(is_other));
    });
    let reservations = best_of(counted, |row| place(row.slot.block));
    let total = addresses.total.saturating_add(others);
    let mut found = holders(objects, addresses.rows, reservations.rows);
    // They are in the order of their addresses.
    found.sort_by_key(|holder| fit(&holder.address, text).unwrap_or(Fit::Part));
    found.truncate(MAX_RESULTS);
    (found, total)
}

/// The best of what was found, and the number of all.
struct Found<T> {
    rows: Vec<T>,
    total: usize,
}

/// The best rows. `place` returns the place of a row; `None` if it is not found.
fn best_of<T, K: Ord>(
    rows: impl IntoIterator<Item = T>,
    place: impl Fn(&T) -> Option<K>,
) -> Found<T> {
    let rows = rows.into_iter();
    let mut found: Vec<(K, T)> = rows.filter_map(|row| Some((place(&row)?, row))).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let total = found.len();
    let rows = found.into_iter().take(MAX_RESULTS).map(|(_, row)| row);
    Found {
        rows: rows.collect(),
        total,
    }
}

fn pool_fit(pool: &PoolRow, text: &str) -> Option<Fit> {
    let namespace = pool.key.namespace.as_deref().unwrap_or_default();
    let full = format!("{namespace}/{}", pool.key.name);
    let names = [&*pool.key.name, namespace, &full];
    let entries = pool.entries();
    let others = pool.network.iter().chain(&entries).map(String::as_str);
    best(names.into_iter().chain(others), text)
}

fn claim_fit(claim: &ClaimRow, text: &str) -> Option<Fit> {
    let others = [claim.machine.as_deref(), claim.cluster.as_deref()];
    let other = best(others.into_iter().flatten(), text);
    name_fit(&claim.key, text).into_iter().chain(other).min()
}

fn name_fit(key: &NamespacedName, text: &str) -> Option<Fit> {
    best(
        [key.name(), key.namespace(), &key.to_string()].into_iter(),
        text,
    )
}

/// Whether a text can be a part of an address: `10.50`, `fd00:`, `10.0.0.0/2`.
fn is_part_of_address(text: &str) -> bool {
    let has_separator = text.contains(['.', ':']);
    let is_letter = |letter: char| letter.is_ascii_hexdigit() || ".:/".contains(letter);
    has_separator && text.chars().all(is_letter)
}
