//! Addresses that several claims have. An IPAddress counts whether its pool exists or not: a pool
//! can be removed by force while machines use its addresses.

use std::collections::HashMap;

use capi_ipam_api::{PoolKey, Scope, advice};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use super::examination::Examination;
use super::names::{first_names, grouped};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit};
use crate::objects::{AddressRow, Kind, Objects, PoolRow};

/// About all addresses that two pools share.
const DUPLICATES: &str = "for each of these addresses, delete the machine of one of its two claims; its controller replaces \
                          it (the machine keeps the address if only the IPAddress is deleted)";

pub(super) fn duplicates(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Address]);
    Examination::compare(lacking, || {
        let users = users(objects);
        let mut findings = equal_in_one_scope(&users);
        let shared = grouped(meetings(&users), |(outer, inner)| {
            let (one, other) = (&outer.address.pool, &inner.address.pool);
            (one.min(other), one.max(other))
        });
        for ((one, other), meetings) in &shared {
            findings.extend(in_two_pools(
                meetings,
                objects.pool(one),
                objects.pool(other),
            ));
        }
        findings
    })
}

/// An IPAddress in its scope.
struct User<'a> {
    address: &'a AddressRow,
    scope: Scope,
}

/// The IPAddresses in the order of their addresses, larger prefixes first. The scope is that of the
/// pool. If the pool does not exist, it is that of the reservation, or else the pool itself.
fn users(objects: &Objects) -> Vec<User<'_>> {
    let mut reserved: HashMap<(&PoolKey, &NamespacedName, Block), &Scope> = HashMap::new();
    for row in objects.reservations.iter() {
        if let Some(claim) = &row.claim
            && objects.pool(&row.pool).is_none()
        {
            reserved.insert((&row.pool, claim, row.slot.block), &row.slot.scope);
        }
    }
    let mut users = Vec::new();
    for address in objects.addresses.iter() {
        let claim = address.claim_key();
        let reserved = reserved.get(&(&address.pool, &claim, address.block));
        let scope = match reserved {
            Some(scope) => (*scope).clone(),
            None => objects.scope_of(&address.pool),
        };
        users.push(User { address, scope });
    }
    users.sort_by_key(|user| {
        let block = user.address.block;
        let first = block.span().first();
        (block.family(), first, block.length(), &user.address.key)
    });
    users
}

/// Addresses that two IPAddresses of one pool or network have.
fn equal_in_one_scope(users: &[User<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let of_slot = grouped(users, |user| (&user.scope, user.address.block));
    for ((_, block), users) in of_slot {
        if users.len() < 2 {
            continue;
        }
        let names: Vec<String> = users.iter().map(|it| it.address.key.to_string()).collect();
        let pools: Vec<&PoolKey> = users.iter().map(|it| &it.address.pool).collect();
        let problem = format!(
            "{} IPAddresses have this address: {}",
            users.len(),
            names.join(", ")
        );
        findings.push(finding(block, &pools, problem, advice::DUPLICATE));
    }
    findings
}

fn finding(block: Block, pools: &[&PoolKey], problem: String, repair: &str) -> Finding {
    let subject = Subject::from(format!("address {block}"));
    let subject = pools
        .iter()
        .fold(subject, |subject, pool| subject.of_pool(pool));
    Check::DuplicateAddress
        .finding(subject, problem, repair)
        .with_commands([format!("kubectl ipam who {block}")])
}

/// An IPAddress, and another one that contains its address.
type Meeting<'a> = (&'a User<'a>, &'a User<'a>);

/// Addresses in use in two scopes, and prefixes that contain others in use. If two pools name
/// different networks, the administrator has declared that their addresses do not meet.
fn meetings<'a>(users: &'a [User<'a>]) -> Vec<Meeting<'a>> {
    let mut found = Vec::new();
    // The addresses and prefixes that contain the next one, the smallest last.
    let mut enclosing: Vec<&User<'_>> = Vec::new();
    for user in users {
        let block = user.address.block;
        while enclosing
            .pop_if(|outer| !outer.address.block.overlaps(block))
            .is_some()
        {}
        let outer = enclosing.iter().filter(|outer| can_meet(outer, user));
        found.extend(outer.map(|outer| (*outer, user)));
        enclosing.push(user);
    }
    found
}

/// Whether two machines can have the same address. Equal addresses of one scope are found
/// separately.
fn can_meet(one: &User<'_>, other: &User<'_>) -> bool {
    if one.scope == other.scope {
        return one.address.block != other.address.block;
    }
    one.scope.network().is_none() || other.scope.network().is_none()
}

/// The addresses in use that two pools share, or one pool twice, with the holders of the first one.
/// The pools are those that exist.
fn in_two_pools(
    meetings: &[Meeting<'_>],
    one: Option<&PoolRow>,
    other: Option<&PoolRow>,
) -> Option<Finding> {
    let ((outer, inner), more) = meetings.split_first()?;
    // In one scope, they need not be separated.
    let is_one_scope = outer.scope == inner.scope;
    let end_overlap = match (one, other) {
        _ if is_one_scope => None,
        (Some(one), Some(other)) => end_overlap(one, other),
        (Some(left), None) | (None, Some(left)) => Some((
            "exclude the addresses of the pool that does not exist from the other one",
            left,
        )),
        (None, None) => None,
    };
    let overlap = match (one, other) {
        (Some(_), Some(_)) if end_overlap.is_none() => "",
        (Some(_), Some(_)) => ", whose pools overlap",
        (None, None) => "; these pools do not exist",
        _ => "; one of these pools does not exist",
    };
    let blocks = more.iter().map(|(_, inner)| inner.address.block);
    let more = match more.len() {
        0 => String::new(),
        1 => format!(
            "; so is 1 more of their addresses ({})",
            first_names(blocks)
        ),
        count => format!(
            "; so are {count} more of their addresses ({})",
            first_names(blocks)
        ),
    };
    let (outer, inner) = (outer.address, inner.address);
    let problem = format!(
        "{} is in use by {} ({}) and {} ({}){overlap}{more}",
        inner.block, outer.key, outer.pool, inner.key, inner.pool
    );
    let mut found = finding(
        inner.block,
        &[&outer.pool, &inner.pool],
        problem,
        DUPLICATES,
    );
    if let Some((end_overlap, pool)) = end_overlap {
        found.repair = format!(
            "1. end the overlap, otherwise the pools allocate more of these addresses: {end_overlap}; 2. {DUPLICATES}"
        );
        found.commands.insert(0, edit(&pool.key));
    }
    Some(found)
}

/// What ends the overlap of two pools, with the pool to edit; `None` if they do not overlap any
/// more.
fn end_overlap<'a>(one: &'a PoolRow, other: &PoolRow) -> Option<(&'static str, &'a PoolRow)> {
    let (Ok(ours), Ok(theirs)) = (&one.usable, &other.usable) else {
        return None;
    };
    let has_one_length = ours.length == theirs.length;
    ours.overlaps(theirs)
        .then(|| (advice::overlap(&one.scope, has_one_length), one))
}
