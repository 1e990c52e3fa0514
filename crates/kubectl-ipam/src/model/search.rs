use capi_ipam_ip::Block;
use serde::Serialize;

use super::{ClaimLine, Holder, PoolMatch, PoolName, claims, holders, matches_of};
use crate::objects::{AddressRow, ClaimRow, Key, PoolRow, ReservationRow};

/// Maximum number of results of each type.
const MAX_RESULTS: usize = 100;

/// What a search has found.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchResult {
    /// The pools and networks that contain the address.
    pub(crate) matches: Vec<PoolMatch>,
    /// The pools whose name or network contains the text.
    pub(crate) pools: Vec<PoolName>,
    /// What holds the address or a part of the prefix; for a text, what is held for a claim that no longer exists.
    pub(crate) holders: Vec<Holder>,
    /// The claims whose name, machine or Cluster contains the text.
    pub(crate) claims: Vec<ClaimLine>,
    /// Whether more was found than is listed.
    pub(crate) is_limited: bool,
}

/// The objects that are searched.
pub(crate) struct Searched<'a, A, R, C> {
    pub(crate) pools: &'a [PoolRow],
    pub(crate) addresses: A,
    pub(crate) reservations: R,
    pub(crate) claims: C,
}

impl<'a, A, R, C> Searched<'a, A, R, C>
where
    A: Iterator<Item = &'a AddressRow>,
    R: Iterator<Item = &'a ReservationRow>,
    C: Iterator<Item = &'a ClaimRow>,
{
    /// Searches an address or prefix.
    pub(crate) fn address(self, block: Block, claim_of: impl Fn(&Key) -> Option<&'a ClaimRow>) -> SearchResult {
        let (addresses, more) = take(self.addresses.filter(|row| overlap(row.block, block)));
        let (reservations, others) = take(self.reservations.filter(|row| overlap(row.slot.block, block)));
        let mut found = holders(self.pools, addresses.iter().copied(), reservations.iter().copied(), {
            let owners = addresses.iter().filter_map(|row| claim_of(&(row.key.0.clone(), row.claim.clone())));
            owners.chain(reservations.iter().filter_map(|row| claim_of(row.claim.as_ref()?))).collect::<Vec<_>>()
        });
        found.truncate(MAX_RESULTS);
        let matches = matches_of(self.pools, block);
        SearchResult { matches, holders: found, is_limited: more || others, ..SearchResult::default() }
    }

    /// Searches a part of a name.
    pub(crate) fn text(
        self,
        text: &str,
        claim_of: impl Fn(&Key) -> Option<&'a ClaimRow>,
        address_of: impl Fn(&Key) -> Option<&'a AddressRow>,
    ) -> SearchResult {
        let has = |name: &str| contains(name, text);
        let has_key = |(namespace, name): &Key| contains_joined(namespace, name, text);
        let is_found = |claim: &&ClaimRow| {
            has_key(&claim.key)
                || claim.machine.as_deref().is_some_and(has)
                || claim.cluster.as_deref().is_some_and(has)
        };
        let (found, more) = take(self.claims.filter(is_found));
        let bound = found.iter().filter_map(|claim| address_of(&(claim.key.0.clone(), claim.bound.clone()?)));
        let bound: Vec<AddressRow> = bound.cloned().collect();
        let named = self.pools.iter().filter(|pool| {
            let namespace = pool.key.namespace.as_deref().unwrap_or_default();
            contains_joined(namespace, &pool.key.name, text) || pool.network.as_deref().is_some_and(has)
        });
        let (named, other_pools) = take(named);
        let is_left = |claim: &Key| has_key(claim) && claim_of(claim).is_none();
        let (reserved, others) =
            take(self.reservations.filter(|row| row.released.is_some() && row.claim.as_ref().is_some_and(&is_left)));
        let orphans = self.addresses.filter(|row| {
            has_key(&(row.key.0.clone(), row.claim.clone()))
                && claim_of(&(row.key.0.clone(), row.claim.clone())).is_none()
        });
        let (orphans, other_orphans) = take(orphans);
        SearchResult {
            matches: Vec::new(),
            pools: named.into_iter().map(|pool| (&pool.key).into()).collect(),
            holders: holders(self.pools, orphans, reserved, []),
            claims: claims(found.into_iter().cloned().collect(), &bound),
            is_limited: more || other_pools || others || other_orphans,
        }
    }
}

/// The first results, and whether there are more.
fn take<T>(mut all: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let found = all.by_ref().take(MAX_RESULTS).collect();
    (found, all.next().is_some())
}

fn overlap(one: Block, other: Block) -> bool {
    let (a, b) = (one.span(), other.span());
    one.family() == other.family() && a.first() <= b.last() && b.first() <= a.last()
}

/// Whether a name contains a text, ignoring the case of ASCII letters.
fn contains(name: &str, text: &str) -> bool {
    let (name, text) = (name.as_bytes(), text.as_bytes());
    text.is_empty() || name.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Whether a name, or `namespace/name`, contains a text.
fn contains_joined(namespace: &str, name: &str, text: &str) -> bool {
    if !text.contains('/') {
        return contains(name, text) || contains(namespace, text);
    }
    contains(&format!("{namespace}/{name}"), text)
}
