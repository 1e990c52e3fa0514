//! Addresses that several claims have.

use std::collections::{BTreeMap, HashMap};

use capi_ipam_api::{PoolKey, Scope, advice};
use capi_ipam_ip::Block;

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, full};
use crate::objects::{AddressRow, PoolRow};

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
            finding(block, problem)
        })
        .collect()
}

fn finding(block: Block, problem: String) -> Finding {
    let repair = format!("{}; kubectl ipam who {block} shows them", advice::DUPLICATE);
    Check::DuplicateAddress.finding(format!("address {block}"), problem, repair)
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
                entry.count = entry.count.saturating_add(1);
            }
        }
        enclosing.push(user);
    }
    // A pool that does not exist is another finding.
    let exists = |key: &PoolKey| pools.iter().any(|pool| pool.key == *key);
    shared
        .into_iter()
        .filter(|((one, other), _)| exists(one) && exists(other))
        .map(|(_, shared)| shared.finding())
        .collect()
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

/// The addresses that two pools share, with the first one.
struct Shared<'a> {
    outer: &'a AddressRow,
    inner: &'a AddressRow,
    count: usize,
}

impl<'a> Shared<'a> {
    fn new(outer: &User<'a>, inner: &User<'a>) -> Self {
        Self {
            outer: outer.address,
            inner: inner.address,
            count: 0,
        }
    }

    fn finding(&self) -> Finding {
        let Self {
            outer,
            inner,
            count,
        } = self;
        let more = match count.saturating_sub(1) {
            0 => String::new(),
            more => format!("; so are {more} more of their addresses"),
        };
        let problem = format!(
            "{} is in use by {} ({}) and {} ({}), whose pools overlap{more}",
            inner.block,
            outer.key,
            full(&outer.pool),
            inner.key,
            full(&inner.pool)
        );
        finding(inner.block, problem)
    }
}
