use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use schemars::JsonSchema;
use serde::Serialize;

use super::claims::{ClaimLine, claims};
use super::holders::{Holder, PoolMatch, holders, matches_of};
use super::pool_name::PoolName;
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
    /// The pools whose name or network contains the text.
    pub(crate) pools: Vec<PoolName>,
    /// What holds the address or a part of the prefix; for a text, what is held for a claim that no
    /// longer exists.
    pub(crate) holders: Vec<Holder>,
    /// The claims whose name, machine or Cluster contains the text.
    pub(crate) claims: Vec<ClaimLine>,
    /// Whether more was found than is listed.
    pub(crate) is_limited: bool,
    /// Whether everything that was searched could be read. Otherwise there can be more pools,
    /// holders and claims.
    pub(crate) is_complete: bool,
}

/// The objects that are searched.
pub(crate) struct Searched<'a, A, R, C> {
    pub(crate) pools: Readable<&'a [PoolRow]>,
    pub(crate) addresses: Readable<A>,
    pub(crate) reservations: Readable<R>,
    pub(crate) claims: Readable<C>,
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

    /// Searches an address or prefix.
    pub(crate) fn address(
        self,
        block: Block,
        claim_of: impl Fn(&NamespacedName) -> Option<&'a ClaimRow>,
    ) -> SearchResult {
        let is_complete = self.is_complete();
        let addresses = self
            .addresses
            .map(|rows| take(rows.filter(|row| overlap(row.block, block))));
        let reservations = self
            .reservations
            .map(|rows| take(rows.filter(|row| overlap(row.slot.block, block))));
        let more = addresses.seen().1 || reservations.seen().1;
        let owners = addresses
            .seen()
            .0
            .iter()
            .filter_map(|row| claim_of(&row.claim_key()));
        let promised = reservations
            .seen()
            .0
            .iter()
            .filter_map(|row| claim_of(row.claim.as_ref()?));
        let owners: Vec<_> = owners.chain(promised).collect();
        let claims = self.claims.map(|_| owners);
        let mut found = holders(
            &self.pools,
            addresses.map(|(rows, _)| rows),
            reservations.map(|(rows, _)| rows),
            claims,
        );
        found.truncate(MAX_RESULTS);
        let matches = matches_of(self.pools.seen(), block);
        SearchResult {
            matches,
            holders: found,
            is_limited: more,
            is_complete,
            ..SearchResult::default()
        }
    }

    /// Searches a part of a name.
    pub(crate) fn text(
        self,
        text: &str,
        claim_of: impl Fn(&NamespacedName) -> Option<&'a ClaimRow>,
        address_of: impl Fn(&NamespacedName) -> Option<&'a AddressRow>,
    ) -> SearchResult {
        let is_complete = self.is_complete();
        let owners = self.claims.as_ref().map(|_| []);
        let has = |name: &str| contains(name, text);
        let has_key = |key: &NamespacedName| contains_joined(key.namespace(), key.name(), text);
        let is_found = |claim: &&ClaimRow| {
            has_key(&claim.key)
                || claim.machine.as_deref().is_some_and(has)
                || claim.cluster.as_deref().is_some_and(has)
        };
        let (found, more) = take(self.claims.into_seen().filter(is_found));
        let bound = found
            .iter()
            .filter_map(|claim| address_of(&claim.address_key()?));
        let bound: Vec<AddressRow> = bound.cloned().collect();
        let named = self.pools.seen().iter().filter(|pool| {
            let namespace = pool.key.namespace.as_deref().unwrap_or_default();
            contains_joined(namespace, &pool.key.name, text)
                || pool.network.as_deref().is_some_and(has)
        });
        let (named, other_pools) = take(named);
        // Without all claims it is unknown which ones no longer exist: what has the text is listed.
        let is_left = |claim: &NamespacedName| has_key(claim) && claim_of(claim).is_none();
        let is_reserved = |row: &&ReservationRow| {
            row.released.is_some() && row.claim.as_ref().is_some_and(&is_left)
        };
        let reserved = self.reservations.map(|rows| take(rows.filter(is_reserved)));
        let is_orphan = |row: &&AddressRow| is_left(&row.claim_key());
        let bound_rows = self.addresses.as_ref().map(|_| bound.as_slice());
        let lines = claims(found.into_iter().cloned().collect(), &[], &bound_rows);
        let orphans = self.addresses.map(|rows| take(rows.filter(is_orphan)));
        let others = reserved.seen().1 || orphans.seen().1;
        SearchResult {
            matches: Vec::new(),
            pools: named.into_iter().map(|pool| (&pool.key).into()).collect(),
            holders: holders(
                &self.pools,
                orphans.map(|(rows, _)| rows),
                reserved.map(|(rows, _)| rows),
                owners,
            ),
            claims: lines,
            is_limited: more || other_pools || others,
            is_complete,
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
    text.is_empty()
        || name
            .windows(text.len())
            .any(|part| part.eq_ignore_ascii_case(text))
}

/// Whether a name, or `namespace/name`, contains a text.
fn contains_joined(namespace: &str, name: &str, text: &str) -> bool {
    if !text.contains('/') {
        return contains(name, text) || contains(namespace, text);
    }
    contains(&format!("{namespace}/{name}"), text)
}
