use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use schemars::JsonSchema;
use serde::Serialize;

use super::claims::{ClaimLine, claims};
use super::holders::{Holder, PoolMatch, holders, matches_of};
use super::pool_name::PoolName;
use super::ranking::{Fit, Natural, best, fit};
use crate::load::Readable;
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow};

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

/// The objects that are searched.
pub(crate) struct Searched<'a, A, R, C> {
    pub(crate) pools: Readable<&'a [PoolRow]>,
    pub(crate) addresses: Readable<A>,
    pub(crate) reservations: Readable<R>,
    pub(crate) claims: Readable<C>,
}

/// How the objects of a search are found by their names.
pub(crate) struct Lookup<Claim, Address, Lists> {
    pub(crate) claim: Claim,
    pub(crate) address: Address,
    /// Whether pools and claims of a namespace are searched by name.
    pub(crate) lists: Lists,
}

impl<'a, A, R, C> Searched<'a, A, R, C>
where
    A: Iterator<Item = &'a AddressRow>,
    R: Iterator<Item = &'a ReservationRow>,
    C: Iterator<Item = &'a ClaimRow>,
{
    fn is_complete(&self) -> bool {
        let kinds = [
            self.pools.is_complete(),
            self.addresses.is_complete(),
            self.reservations.is_complete(),
            self.claims.is_complete(),
        ];
        kinds.iter().all(|is_complete| *is_complete)
    }

    /// Searches an address or prefix, in all namespaces.
    pub(crate) fn address(
        self,
        block: Block,
        lookup: &Lookup<
            impl Fn(&NamespacedName) -> Option<&'a ClaimRow>,
            impl Fn(&NamespacedName) -> Option<&'a AddressRow>,
            impl Fn(Option<&str>) -> bool,
        >,
    ) -> SearchResult {
        let is_complete = self.is_complete();
        let matches = matches_of(self.pools.seen(), block);
        let addresses = self
            .addresses
            .map(|rows| rows.filter(|row| overlap(row.block, block)));
        let reservations = self
            .reservations
            .map(|rows| rows.filter(|row| overlap(row.slot.block, block)));
        let claims = self.claims.map(|_| ());
        let (holders, held) = held(&self.pools, addresses, reservations, &claims, lookup, "");
        SearchResult {
            totals: SearchTotals {
                pools: matches.len(),
                holders: held,
                claims: 0,
            },
            matches,
            holders,
            is_complete,
            ..SearchResult::default()
        }
    }

    /// Searches a part of a name, or of an address.
    pub(crate) fn text(
        self,
        text: &str,
        lookup: &Lookup<
            impl Fn(&NamespacedName) -> Option<&'a ClaimRow>,
            impl Fn(&NamespacedName) -> Option<&'a AddressRow>,
            impl Fn(Option<&str>) -> bool,
        >,
    ) -> SearchResult {
        let is_complete = self.is_complete();
        let pools = best_of(self.pools.seen().iter(), |pool| {
            if !(lookup.lists)(pool.key.namespace.as_deref()) {
                return None;
            }
            let fit = pool_fit(pool, text)?;
            Some((fit, Natural(pool.key.name.to_string()), &pool.key))
        });
        let known_claims = self.claims.as_ref().map(|_| ());
        let found = best_of(self.claims.into_seen(), |claim| {
            if !(lookup.lists)(Some(claim.key.namespace())) {
                return None;
            }
            let fit = claim_fit(claim, text)?;
            Some((fit, Natural(claim.key.name().to_owned()), &claim.key))
        });
        let mut rows = Vec::new();
        let mut bound = Vec::new();
        for claim in &found.rows {
            rows.push((*claim).clone());
            if let Some(key) = claim.address_key()
                && let Some(address) = (lookup.address)(&key)
            {
                bound.push(address.clone());
            }
        }
        let bound = self.addresses.as_ref().map(|_| bound.as_slice());
        let mut lines = claims(rows, &[], &bound);
        // Without all claims it is unknown which ones no longer exist: what has the text is listed.
        let is_left = |claim: &NamespacedName| {
            (lookup.lists)(Some(claim.namespace()))
                && name_fit(claim, text).is_some()
                && (lookup.claim)(claim).is_none()
        };
        let has_text = |block: Block| is_part_of_address(text) && block.to_string().contains(text);
        let addresses = self
            .addresses
            .map(|rows| rows.filter(|row| has_text(row.block) || is_left(&row.claim_key())));
        let reservations = self.reservations.map(|rows| {
            rows.filter(|row| {
                let claim = row.claim.as_ref().filter(|_| row.released.is_some());
                has_text(row.slot.block) || claim.is_some_and(is_left)
            })
        });
        let (holders, held) = held(
            &self.pools,
            addresses,
            reservations,
            &known_claims,
            lookup,
            text,
        );
        let place = |line: &ClaimLine| {
            let mut rows = found.rows.iter();
            rows.position(|row| {
                *line.name == *row.key.name() && *line.namespace == *row.key.namespace()
            })
        };
        lines.sort_by_key(place);
        SearchResult {
            matches: Vec::new(),
            totals: SearchTotals {
                pools: pools.total,
                holders: held,
                claims: found.total,
            },
            pools: pools
                .rows
                .into_iter()
                .map(|pool| (&pool.key).into())
                .collect(),
            holders,
            claims: lines,
            shared_networks: Vec::new(),
            is_complete,
        }
    }
}

/// The best holders of some addresses and reservations, and the number of all.
fn held<'a>(
    pools: &Readable<&[PoolRow]>,
    addresses: Readable<impl Iterator<Item = &'a AddressRow>>,
    reservations: Readable<impl Iterator<Item = &'a ReservationRow>>,
    claims: &Readable<()>,
    lookup: &Lookup<
        impl Fn(&NamespacedName) -> Option<&'a ClaimRow>,
        impl Fn(&NamespacedName) -> Option<&'a AddressRow>,
        impl Fn(Option<&str>) -> bool,
    >,
    text: &str,
) -> (Vec<Holder>, usize) {
    let place = |block: Block| {
        let fit = fit(&block.to_string(), text).unwrap_or(Fit::Part);
        Some((fit, block.span().first(), block.length()))
    };
    let has_address = |row: &ReservationRow| {
        if let Some(claim) = &row.claim
            && let Some(address) = (lookup.address)(claim)
        {
            return address.block == row.slot.block;
        }
        false
    };
    let addresses = addresses.map(|rows| best_of(rows, |row| place(row.block)));
    let mut others = 0_usize;
    let reservations = reservations.map(|rows| {
        let counted = rows.inspect(|row| {
            let is_other = !has_address(row);
            others = others.saturating_add(usize::from(is_other));
        });
        best_of(counted, |row| place(row.slot.block))
    });
    let total = addresses.seen().total.saturating_add(others);
    let addresses = addresses.map(|found| found.rows);
    let reservations = reservations.map(|found| found.rows);
    let mut owners = Vec::new();
    for row in addresses.seen() {
        owners.extend((lookup.claim)(&row.claim_key()));
    }
    for row in reservations.seen() {
        if let Some(claim) = &row.claim {
            owners.extend((lookup.claim)(claim));
        }
    }
    let claims = claims.as_ref().map(|()| owners);
    let mut found = holders(pools, addresses, reservations, claims);
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
fn best_of<T, K: Ord>(rows: impl Iterator<Item = T>, place: impl Fn(&T) -> Option<K>) -> Found<T> {
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

fn overlap(one: Block, other: Block) -> bool {
    let (a, b) = (one.span(), other.span());
    one.family() == other.family() && a.first() <= b.last() && b.first() <= a.last()
}
