//! Addresses that several claims have.

use std::collections::{BTreeMap, HashMap};

use capi_ipam_api::{PoolKey, Scope, advice};
use capi_ipam_ip::Block;

use super::examination::Examination;
use super::names::first_names;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, edit, full};
use crate::objects::{AddressRow, PoolRow};

/// About all addresses that two pools share.
const DUPLICATES: &str = "for each of these addresses, delete the machine of one of its two claims; its controller replaces \
                          it (the machine keeps the address if only the IPAddress is deleted)";

pub(super) fn duplicates(snapshot: &Snapshot) -> Examination {
    let users = snapshot.pools.as_ref().and(snapshot.addresses.as_ref());
    Examination::compare(&users, |(pools, addresses)| {
        let scopes: HashMap<&PoolKey, &Scope> =
            pools.iter().map(|pool| (&pool.key, &pool.scope)).collect();
        let mut users: Vec<User<'_>> = addresses
            .iter()
            .map(|address| User {
                address,
                scope: scope_of(address, &scopes),
            })
            .collect();
        users.sort_by_key(|user| {
            let block = user.address.block;
            let span = block.span();
            (
                block.family(),
                span.first(),
                block.length(),
                &user.address.key,
            )
        });
        let mut findings = in_one_scope(&users);
        findings.extend(of_several_scopes(&users, pools));
        findings
    })
}

/// An IPAddress in the scope of its pool.
struct User<'a> {
    address: &'a AddressRow,
    scope: Scope,
}

fn scope_of(address: &AddressRow, scopes: &HashMap<&PoolKey, &Scope>) -> Scope {
    let known = scopes.get(&address.pool).copied().cloned();
    known.unwrap_or_else(|| Scope::Pool(address.pool.clone()))
}

/// Addresses that two IPAddresses of one pool or network have.
fn in_one_scope(users: &[User<'_>]) -> Vec<Finding> {
    let mut of_slot: HashMap<(&Scope, Block), Vec<&User<'_>>> = HashMap::new();
    for user in users {
        let slot = (&user.scope, user.address.block);
        of_slot.entry(slot).or_default().push(user);
    }
    let several = of_slot.into_iter().filter(|(_, users)| users.len() > 1);
    several
        .map(|((_, block), users)| {
            let names: Vec<String> = users
                .iter()
                .map(|user| user.address.key.to_string())
                .collect();
            let problem = format!(
                "{} IPAddresses have this address: {}",
                users.len(),
                names.join(", ")
            );
            finding(block, problem, advice::DUPLICATE.to_owned())
        })
        .collect()
}

fn finding(block: Block, problem: String, repair: String) -> Finding {
    let show = format!("kubectl ipam who {block}");
    Check::DuplicateAddress
        .finding(format!("address {block}"), problem, repair)
        .with_commands(vec![show])
}

/// Addresses in use in two pools that contain them both, unless both pools name a network: then the
/// administrator has declared that their addresses do not meet. One finding for two pools.
fn of_several_scopes(users: &[User<'_>], pools: &[PoolRow]) -> Vec<Finding> {
    let mut shared: BTreeMap<(&PoolKey, &PoolKey), Shared<'_>> = BTreeMap::new();
    // The addresses and prefixes that contain the next one, the smallest last.
    let mut enclosing: Vec<&User<'_>> = Vec::new();
    for user in users {
        let span = user.address.block.span();
        let ends_before = |outer: &mut &User<'_>| {
            let block = outer.address.block;
            block.family() != user.address.block.family() || block.span().last() < span.first()
        };
        while enclosing.pop_if(ends_before).is_some() {}
        for outer in &enclosing {
            if outer.scope != user.scope && can_meet(outer, user) {
                let pair = pair(&outer.address.pool, &user.address.pool);
                let entry = shared
                    .entry(pair)
                    .or_insert_with(|| Shared::new(outer, user));
                entry.blocks.push(user.address.block);
            }
        }
        enclosing.push(user);
    }
    let by_key: HashMap<&PoolKey, &PoolRow> = pools.iter().map(|pool| (&pool.key, pool)).collect();
    let mut findings = Vec::new();
    for ((one, other), shared) in shared {
        // A pool that does not exist is another finding.
        if let (Some(one), Some(other)) = (by_key.get(one), by_key.get(other)) {
            findings.push(shared.finding(one, other));
        }
    }
    findings
}

fn can_meet(one: &User<'_>, other: &User<'_>) -> bool {
    one.scope.network().is_none() || other.scope.network().is_none()
}

fn pair<'a>(one: &'a PoolKey, other: &'a PoolKey) -> (&'a PoolKey, &'a PoolKey) {
    if one <= other {
        (one, other)
    } else {
        (other, one)
    }
}

/// The addresses in use that two pools share, with the holders of the first one.
struct Shared<'a> {
    outer: &'a AddressRow,
    inner: &'a AddressRow,
    blocks: Vec<Block>,
}

impl<'a> Shared<'a> {
    fn new(outer: &User<'a>, inner: &User<'a>) -> Self {
        Self {
            outer: outer.address,
            inner: inner.address,
            blocks: Vec::new(),
        }
    }

    fn finding(&self, one: &PoolRow, other: &PoolRow) -> Finding {
        let Self {
            outer,
            inner,
            blocks,
        } = self;
        let end_overlap = end_overlap(one, other);
        let overlap = if end_overlap.is_some() {
            ", whose pools overlap"
        } else {
            ""
        };
        let more = match blocks.split_first() {
            None | Some((_, [])) => String::new(),
            Some((_, [one])) => format!("; so is 1 more of their addresses ({one})"),
            Some((_, more)) => format!(
                "; so are {} more of their addresses ({})",
                more.len(),
                first_names(more)
            ),
        };
        let problem = format!(
            "{} is in use by {} ({}) and {} ({}){overlap}{more}",
            inner.block,
            outer.key,
            full(&outer.pool),
            inner.key,
            full(&inner.pool)
        );
        let mut found = finding(inner.block, problem, DUPLICATES.to_owned());
        if let Some(end_overlap) = end_overlap {
            found.repair = format!(
                "1. end the overlap, otherwise the pools allocate more of these addresses: {end_overlap}; 2. {DUPLICATES}"
            );
            found.commands.insert(0, edit(&one.key));
        }
        found
    }
}

/// What ends the overlap of two pools; `None` if they do not overlap any more.
fn end_overlap(one: &PoolRow, other: &PoolRow) -> Option<&'static str> {
    let (Ok(ours), Ok(theirs)) = (&one.usable, &other.usable) else {
        return None;
    };
    let has_one_length = ours.length == theirs.length;
    ours.overlaps(theirs)
        .then(|| advice::overlap(&one.scope, has_one_length))
}
