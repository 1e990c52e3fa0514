//! Addresses that several claims have. An IPAddress counts whether its pool exists or not: a pool
//! can be removed by force while machines use its addresses.

use std::collections::{BTreeMap, HashMap};

use capi_ipam_api::{PoolKey, Scope, advice};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use super::examination::Examination;
use super::names::first_names;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit, full};
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
        findings.extend(overlapping(&users, objects));
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
    let mut reserved: HashMap<(&NamespacedName, Block), &Scope> = HashMap::new();
    for row in objects.reservations.iter() {
        if let Some(claim) = &row.claim
            && objects.pool(&row.pool).is_none()
        {
            reserved.insert((claim, row.slot.block), &row.slot.scope);
        }
    }
    let scope_of = |address: &AddressRow| -> Scope {
        let claim = address.claim_key();
        let reserved = reserved.get(&(&claim, address.block));
        match reserved {
            Some(scope) if objects.pool(&address.pool).is_none() => (*scope).clone(),
            _ => objects.scope_of(&address.pool),
        }
    };
    let addresses = objects.addresses.iter();
    let mut users: Vec<User<'_>> = addresses
        .map(|address| User {
            address,
            scope: scope_of(address),
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
    users
}

/// Addresses that two IPAddresses of one pool or network have.
fn equal_in_one_scope(users: &[User<'_>]) -> Vec<Finding> {
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
            let pools = users.iter().map(|user| &user.address.pool);
            finding(block, pools, problem, advice::DUPLICATE.to_owned())
        })
        .collect()
}

fn finding<'a>(
    block: Block,
    pools: impl IntoIterator<Item = &'a PoolKey>,
    problem: String,
    repair: String,
) -> Finding {
    let subject = Subject::from(format!("address {block}"));
    let subject = pools.into_iter().fold(subject, Subject::of_pool);
    Check::DuplicateAddress
        .finding(subject, problem, repair)
        .with_commands(vec![format!("kubectl ipam who {block}")])
}

/// Addresses in use in two scopes, and prefixes that contain others in use. If two pools name
/// different networks, the administrator has declared that their addresses do not meet. One finding
/// for two pools.
fn overlapping(users: &[User<'_>], objects: &Objects) -> Vec<Finding> {
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
            if can_meet(outer, user) {
                let pair = pair(&outer.address.pool, &user.address.pool);
                let entry = shared
                    .entry(pair)
                    .or_insert_with(|| Shared::new(outer, user));
                entry.blocks.push(user.address.block);
            }
        }
        enclosing.push(user);
    }
    let finding = |((one, other), shared): ((&PoolKey, &PoolKey), Shared<'_>)| {
        shared.finding(objects.pool(one), objects.pool(other))
    };
    shared.into_iter().map(finding).collect()
}

/// Whether two machines can have the same address. Equal addresses of one scope are found
/// separately.
fn can_meet(one: &User<'_>, other: &User<'_>) -> bool {
    if one.scope == other.scope {
        return one.address.block != other.address.block;
    }
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
    /// Whether the pools, or the one pool, have one scope: then they need not be separated.
    is_one_scope: bool,
    blocks: Vec<Block>,
}

impl<'a> Shared<'a> {
    fn new(outer: &User<'a>, inner: &User<'a>) -> Self {
        Self {
            outer: outer.address,
            inner: inner.address,
            is_one_scope: outer.scope == inner.scope,
            blocks: Vec::new(),
        }
    }

    /// The finding, with the two pools if they exist.
    fn finding(&self, one: Option<&PoolRow>, other: Option<&PoolRow>) -> Finding {
        let Self {
            outer,
            inner,
            is_one_scope,
            blocks,
        } = self;
        let end_overlap = match (one, other) {
            _ if *is_one_scope => None,
            (Some(one), Some(other)) => end_overlap(one, other),
            (Some(left), None) | (None, Some(left)) => {
                let text =
                    "exclude the addresses of the pool that does not exist from the other one";
                Some((text, left))
            }
            (None, None) => None,
        };
        let overlap = match (one, other) {
            (Some(_), Some(_)) if end_overlap.is_none() => "",
            (Some(_), Some(_)) => ", whose pools overlap",
            (None, None) => "; these pools do not exist",
            _ => "; one of these pools does not exist",
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
        let pools = [&outer.pool, &inner.pool];
        let mut found = finding(inner.block, pools, problem, DUPLICATES.to_owned());
        if let Some((end_overlap, pool)) = end_overlap {
            found.repair = format!(
                "1. end the overlap, otherwise the pools allocate more of these addresses: {end_overlap}; 2. {DUPLICATES}"
            );
            found.commands.insert(0, edit(&pool.key));
        }
        found
    }
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
