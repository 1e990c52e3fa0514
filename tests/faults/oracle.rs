//! The invariants: at every moment, at rest, and over a whole run. Pure functions of the observed
//! changes.

mod slices;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::world::{Address, Change, Claim, Object, Pool, PoolName, Reservation, World, in_order};

pub use slices::in_another_slice;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: Rule,
    /// The observation.
    pub text: String,
}

/// The invariants, with their numbers in the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// I1: no two IPAddress objects of one scope have the same address. An unbound duplicate may
    /// exist temporarily.
    OneObject,
    /// I2: no two claims are bound to the same address.
    OneClaim,
    /// I3: a bound claim has its IPAddress, always with the same address.
    Lasting,
    /// The address of a bound claim is reserved for it, from before the binding until the deletion
    /// of its IPAddress.
    Reserved,
    /// I4: a claim has at most one IPAddress and one reservation.
    OneEach,
    /// I5: an address is in the range of its pool.
    InRange,
    /// I6: no objects of a deleted claim remain.
    NoLeak,
    /// I7: a claim is deleted after its IPAddress, and a pool after all its IPAddresses.
    Order,
    /// I8: the counts of a pool are correct.
    Counts,
    /// I10: no object is written more often than needed, and none at rest.
    Quiet,
    /// Every claim is bound or reports a reason.
    Served,
    /// A reservation is in a scope that its pool has asked for. Its pool changes the scope, and
    /// nothing else does.
    Placed,
    /// Of two reservations of a bound claim for one address, the one that was written first is
    /// deleted: two processes that each delete one of them cannot both do it.
    Moved,
    /// An address in a slice belongs to the owner of the slice, and an owner keeps no slice without
    /// an address.
    Sliced,
    /// A claim gets one IPAddress in its life, which is deleted with it.
    Once,
    /// In a pool with a cool-down no reservation of a claim is deleted before it is released.
    CooledDown,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.rule, self.text)
    }
}

fn violation(rule: Rule, text: impl Into<String>) -> Violation {
    Violation {
        rule,
        text: text.into(),
    }
}

/// The violations at any moment of a history, in their order. `overtaken` allows the creation of an
/// IPAddress at the moment of the release of its claim.
pub fn ever(changes: &[Change], overtaken: bool) -> Vec<Violation> {
    let mut world = World::default();
    let mut found: Vec<Violation> = Vec::new();
    for change in in_order(changes) {
        let mut now = before(&world, change, overtaken);
        now.extend(without_cooldown(&world, change));
        now.extend(misplaced(&world, change));
        now.extend(moved_unmarked(&world, change));
        world.apply(change);
        now.extend(created(&world, change));
        now.extend(bound_twice(&world));
        now.extend(bound_to_nothing(&world));
        now.extend(bound_and_not_held(&world));
        now.extend(bound_unreserved(&world));
        for violation in now {
            if !found.contains(&violation) {
                found.push(violation);
            }
        }
    }
    found
}

/// I7: the objects that must be deleted before this change.
fn before(world: &World, change: &Change, overtaken: bool) -> Vec<Violation> {
    let held_up = |rule: &str, objects: Vec<String>| {
        objects
            .into_iter()
            .map(move |object| violation(Rule::Order, format!("{rule} before {object}")))
            .collect()
    };
    match &change.object {
        Object::Claim(name, claim) => {
            let was_held = world
                .claims
                .get(name)
                .is_some_and(|before| before.uid == claim.uid && before.held);
            // The API server removes an unreleased claim when it is deleted while it gets its first
            // finalizer.
            let vanished = change.gone && claim.held && !claim.deleting;
            if !was_held || vanished || (claim.held && !change.gone) {
                return Vec::new();
            }
            let of_claim = world.addresses.iter().filter(|(_, address)| {
                let excused = overtaken && world.too_late.contains(&address.uid);
                address.owner.as_ref() == Some(&claim.uid) && !excused
            });
            held_up(
                &format!("claim {}/{} was deleted", name.0, name.1),
                of_claim.map(|(_, a)| a.value.clone()).collect(),
            )
        }
        Object::Pool(name, _) if change.gone => {
            let of_pool = world
                .addresses
                .values()
                .filter(|address| address.pool == *name);
            held_up(
                &format!("pool {} was deleted", name.1.1),
                of_pool.map(|address| address.value.clone()).collect(),
            )
        }
        _ => Vec::new(),
    }
}

/// The deletion of a reservation that was not released before, in a pool with a cool-down. A
/// reservation that moves to another scope has a copy there.
fn without_cooldown(world: &World, change: &Change) -> Option<Violation> {
    let Object::Reservation(name, deleted) = &change.object else {
        return None;
    };
    let holder = deleted
        .holder
        .as_ref()
        .filter(|_| change.gone && !deleted.released)?;
    let pool = world
        .pools
        .get(&deleted.pool)
        .filter(|pool| pool.has_cooldown && !pool.deleting)?;
    let is_copy =
        |(other, made): (&String, &Reservation)| other != name && made.value == deleted.value;
    let is_lost = pool.network.is_none() && !world.reservations.iter().any(is_copy);
    is_lost.then(|| {
        violation(
            Rule::CooledDown,
            format!("reservation {name} of {holder} was deleted, not released"),
        )
    })
}

/// The deletion of a reservation of a bound claim, which has another one in the scope to which it
/// was moved.
fn moved_unmarked(world: &World, change: &Change) -> Option<Violation> {
    let Object::Reservation(name, deleted) = &change.object else {
        return None;
    };
    let holder = deleted
        .holder
        .as_ref()
        .filter(|_| change.gone && !deleted.released)?;
    let is_bound = |claim: &Claim| claim.uid == *holder && claim.bound.is_some() && !claim.deleting;
    world.claims.values().find(|claim| is_bound(claim))?;
    let is_kept = |(other, made): &(&String, &Reservation)| {
        *other != name && made.holder == deleted.holder && made.value == deleted.value
    };
    let (kept, _) = world.reservations.iter().find(is_kept)?;
    let text =
        || format!("reservation {name} of {holder} was deleted, which was written after {kept}");
    (world.written.get(kept) < world.written.get(name)).then(|| violation(Rule::Moved, text()))
}

/// The scope of a new reservation. A network that is deleted or invalid, or that has another block
/// length, moves nothing: only a state of the pool itself permits a scope. The pool may have
/// changed during the creation.
fn misplaced(world: &World, change: &Change) -> Option<Violation> {
    let Object::Reservation(name, made) = &change.object else {
        return None;
    };
    let is_new = !change.gone
        && world
            .reservations
            .get(name)
            .is_none_or(|known| known.uid != made.uid);
    let past = world
        .past
        .get(&made.pool)
        .filter(|past| is_new && !past.is_empty())?;
    let is_permitted = past.iter().any(|pool| pool.network == made.network);
    (!is_permitted).then(|| {
        violation(
            Rule::Placed,
            format!("reservation {name} is not in a scope of its pool"),
        )
    })
}

/// I5: the range of a new IPAddress. The pool may have changed during its creation.
fn created(world: &World, change: &Change) -> Option<Violation> {
    let Object::Address(name, address) = &change.object else {
        return None;
    };
    let past = world
        .past
        .get(&address.pool)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let fits = past.iter().any(|pool| pool.contains(&address.value));
    (!fits).then(|| {
        violation(
            Rule::InRange,
            format!("{} of {} is not of its pool", address.value, name.1),
        )
    })
}

/// I1 and I2.
fn bound_twice(world: &World) -> Vec<Violation> {
    let mut holders: HashMap<_, Vec<(&str, &Claim)>> = HashMap::new();
    for (name, address) in &world.addresses {
        if let Some(claim) = world.bound_to(name, address) {
            holders
                .entry(world.slot(address))
                .or_default()
                .push((&name.1, claim));
        }
    }
    let shared = holders.into_iter().filter(|(_, holders)| holders.len() > 1);
    shared
        .map(|((scope, address), holders)| {
            let rule = if holders.iter().filter(|(_, claim)| !claim.deleting).count() > 1 {
                Rule::OneClaim
            } else {
                Rule::OneObject
            };
            let names: Vec<&str> = holders.iter().map(|(name, _)| *name).collect();
            violation(
                rule,
                format!("{address} of {scope} is bound to {}", names.join(" and ")),
            )
        })
        .collect()
}

/// I3. The address of a claim that another controller keeps may be released if a user requests it,
/// after the claim reports it.
fn bound_to_nothing(world: &World) -> Vec<Violation> {
    let bound = world
        .claims
        .iter()
        .filter(|(_, claim)| claim.bound.is_some() && !claim.is_let_go());
    bound
        .filter_map(|(name, claim)| {
            let uid = &claim.uid;
            let Some(address) = world.addresses.get(name) else {
                return Some(violation(
                    Rule::Lasting,
                    format!("bound claim {} ({uid}) has no IPAddress", name.1),
                ));
            };
            if address.owner.as_ref() != Some(&claim.uid) {
                return Some(violation(
                    Rule::Lasting,
                    format!(
                        "bound claim {} ({uid}) has the IPAddress of another claim",
                        name.1
                    ),
                ));
            }
            let first = world.given.get(&claim.uid)?;
            (*first != address.value).then(|| {
                violation(
                    Rule::Lasting,
                    format!(
                        "bound claim {} had {first} and has {}",
                        name.1, address.value
                    ),
                )
            })
        })
        .collect()
}

/// I7: a claim without a finalizer could be deleted before its IPAddress.
fn bound_and_not_held(world: &World) -> impl Iterator<Item = Violation> {
    let loose = world
        .claims
        .iter()
        .filter(|(_, claim)| claim.bound.is_some() && !claim.held && !claim.deleting);
    loose.map(|(name, _)| {
        violation(
            Rule::Order,
            format!("bound claim {} has no finalizer", name.1),
        )
    })
}

/// The address of a bound claim without a reservation could be allocated to another claim.
fn bound_unreserved(world: &World) -> Vec<Violation> {
    let bound = world
        .addresses
        .iter()
        .filter(|(name, address)| world.bound_to(name, address).is_some());
    let unreserved = bound.filter(|(_, address)| {
        let holds = |made: &Reservation| {
            !made.released && made.holder == address.owner && made.value == address.value
        };
        !world.reservations.values().any(holds)
    });
    unreserved
        .map(|(name, address)| {
            violation(
                Rule::Reserved,
                format!("{} of {} is not reserved", address.value, name.1),
            )
        })
        .collect()
}

/// The violations at rest.
pub fn at_rest(world: &World) -> Vec<Violation> {
    let mut found = bound_twice(world);
    found.extend(bound_to_nothing(world));
    found.extend(bound_and_not_held(world));
    found.extend(bound_unreserved(world));
    found.extend(doubled(world));
    found.extend(leaked(world));
    found.extend(not_served(world));
    found.extend(miscounted(world));
    found.extend(slices::unused(world));
    found.extend(slices::miscounted(world));
    found
}

/// I1, and I4.
fn doubled(world: &World) -> Vec<Violation> {
    let mut slots: BTreeMap<_, usize> = BTreeMap::new();
    let mut owned: BTreeMap<&str, usize> = BTreeMap::new();
    for address in world.addresses.values() {
        *slots.entry(world.slot(address)).or_default() += 1;
        *owned
            .entry(address.owner.as_deref().unwrap_or_default())
            .or_default() += 1;
    }
    let mut reserved: BTreeMap<&str, usize> = BTreeMap::new();
    for uid in world
        .reservations
        .values()
        .filter(|made| !made.released)
        .filter_map(|made| made.holder.as_deref())
    {
        *reserved.entry(uid).or_default() += 1;
    }
    let twice = slots.into_iter().filter(|(_, count)| *count > 1);
    let twice = twice.map(|((scope, address), _)| {
        violation(
            Rule::OneObject,
            format!("{address} of {scope} is there twice"),
        )
    });
    let many = owned.into_iter().map(|entry| ("IPAddress objects", entry));
    let many = many.chain(reserved.into_iter().map(|entry| ("reservations", entry)));
    let many = many.filter(|(_, (_, count))| *count > 1);
    twice
        .chain(many.map(|(what, (uid, count))| {
            violation(Rule::OneEach, format!("claim {uid} has {count} {what}"))
        }))
        .collect()
}

/// I6, and whether addresses in use stay.
fn leaked(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, address) in &world.addresses {
        if !address.owner.as_ref().is_some_and(|uid| world.lives(uid)) {
            found.push(violation(
                Rule::NoLeak,
                format!("IPAddress {} with {} has no claim", name.1, address.value),
            ));
        }
        if address.deleting && world.claims.get(name).is_some_and(|claim| !claim.deleting) {
            found.push(violation(
                Rule::Lasting,
                format!(
                    "IPAddress {} is being deleted, and its claim is not",
                    name.1
                ),
            ));
        }
    }
    for (name, made) in &world.reservations {
        let Some(uid) = &made.holder else { continue };
        if !world.lives(uid) {
            found.push(violation(
                Rule::NoLeak,
                format!("reservation {name} belongs to a deleted claim ({uid})"),
            ));
        }
    }
    found
}

fn not_served(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, claim) in &world.claims {
        if claim.deleting && !claim.in_use {
            found.push(violation(
                Rule::Served,
                format!("claim {} is still being deleted", name.1),
            ));
        } else if claim.bound.is_none() && !claim.deleting {
            let full = |pool: &Pool| {
                let used = world
                    .addresses
                    .values()
                    .filter(|address| pool.contains(&address.value));
                let scopes = world.networks.get(&claim.pool);
                let same = used.filter(|other| {
                    other.pool == claim.pool
                        || scopes.is_some() && world.networks.get(&other.pool) == scopes
                });
                i64::try_from(same.count()).unwrap_or_default() >= pool.size()
            };
            let pool = world.pools.get(&claim.pool);
            let excused = pool.is_none_or(|pool| pool.paused || pool.deleting || full(pool));
            if !excused {
                found.push(violation(
                    Rule::Served,
                    format!("claim {} is not bound: {:?}", name.1, claim.reason),
                ));
            } else if claim.reason.is_none() {
                found.push(violation(
                    Rule::Served,
                    format!("claim {} does not report why it is not bound", name.1),
                ));
            }
        }
    }
    found
}

/// I8.
fn miscounted(world: &World) -> Vec<Violation> {
    let truth = |(name, pool): (&PoolName, &Pool)| {
        let count = |wanted: &dyn Fn(&Address) -> bool| {
            i64::try_from(
                world
                    .addresses
                    .values()
                    .filter(|address| wanted(address))
                    .count(),
            )
            .unwrap_or_default()
        };
        let network = world.networks.get(name);
        let in_scope = |address: &Address| {
            address.pool == *name
                || network.is_some() && world.networks.get(&address.pool) == network
        };
        let taken = count(&|address| in_scope(address) && pool.contains(&address.value));
        let used = count(&|address| address.pool == *name && pool.contains(&address.value));
        let outside = count(&|address| address.pool == *name && !pool.contains(&address.value));
        let resting = world.reservations.values().any(|made| made.released);
        let expected = (pool.size(), pool.size() - taken, used, outside);
        let right = pool.counts == Some(expected) || resting;
        (!right).then(|| {
            violation(
                Rule::Counts,
                format!(
                    "pool {} counts {:?} instead of {expected:?}",
                    name.1.1, pool.counts
                ),
            )
        })
    };
    world.pools.iter().filter_map(truth).collect()
}

/// The violations of a whole history: how often addresses were created and deleted. Not applicable
/// with late writes or several managers: then a claim may have had an address that it was never
/// bound to, or have adopted one.
pub fn overall(changes: &[Change]) -> Vec<Violation> {
    let mut world = World::default();
    let mut made: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    // A pool that joins or leaves a network has one reservation for each address in either scope.
    let mut reserved: BTreeMap<(String, String), usize> = BTreeMap::new();
    for change in in_order(changes) {
        match &change.object {
            Object::Address(name, address) => {
                let uid = address.owner.clone().unwrap_or_default();
                let new = world
                    .addresses
                    .get(name)
                    .is_none_or(|known| known.uid != address.uid);
                let counts = made.entry(uid).or_default();
                counts.0 += usize::from(new);
                counts.1 += usize::from(change.gone);
            }
            Object::Reservation(name, reservation) => {
                let new = world
                    .reservations
                    .get(name)
                    .is_none_or(|known| known.uid != reservation.uid);
                if let Some(uid) = reservation.holder.as_ref().filter(|_| new) {
                    let scope = name.strip_suffix(&reservation.value).unwrap_or(name);
                    *reserved.entry((uid.clone(), scope.to_owned())).or_default() += 1;
                }
            }
            Object::Claim(..) | Object::Pool(..) | Object::Slice(..) => {}
        }
        world.apply(change);
    }
    let mut found = Vec::new();
    for (uid, (created, deleted)) in &made {
        let bound = world
            .claims
            .values()
            .any(|claim| claim.uid == *uid && claim.bound.is_some());
        let left = usize::from(bound);
        if *created > 1 || *created != deleted + left {
            let now = if bound { "bound" } else { "gone" };
            let text = format!(
                "{now} claim {uid} had {created} IPAddress objects made and {deleted} deleted"
            );
            found.push(violation(Rule::Once, text));
        }
    }
    let often = reserved.into_iter().filter(|(_, count)| *count > 1);
    found.extend(often.map(|((uid, _), count)| {
        violation(
            Rule::Once,
            format!("claim {uid} had {count} reservations created"),
        )
    }));
    found
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
