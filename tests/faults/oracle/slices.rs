//! The invariants of slices.

use super::{Rule, Violation, violation};
use crate::world::{Address, Change, Claim, Name, Slice, World, in_order};

/// The bound claims with an address in the slice of another owner, at any moment of a history. Not
/// applicable if a reservation is late.
pub fn in_another_slice(changes: &[Change]) -> Vec<Violation> {
    let mut world = World::default();
    let mut found: Vec<Violation> = Vec::new();
    for change in in_order(changes) {
        world.apply(change);
        for violation in misplaced(&world) {
            if !found.contains(&violation) {
                found.push(violation);
            }
        }
    }
    found
}

fn misplaced(world: &World) -> Vec<Violation> {
    let bound = world.addresses.iter().filter_map(|(name, address)| {
        let claim = world
            .bound_to(name, address)
            .filter(|claim| !claim.deleting)?;
        Some((name, address, claim))
    });
    bound
        .filter_map(|(name, address, claim)| misplacement(world, name, address, claim))
        .collect()
}

fn misplacement(world: &World, name: &Name, address: &Address, claim: &Claim) -> Option<Violation> {
    let owner = claim.label.as_ref()?;
    let slice = world
        .slices
        .values()
        .find(|slice| slice.pool == address.pool && slice.contains(&address.value));
    let text = match slice {
        Some(slice) if slice.owner == *owner => return None,
        Some(slice) => format!(
            "{} of {} ({owner}) is in a slice of {}",
            address.value, name.1, slice.owner
        ),
        None => format!("{} of {} ({owner}) is in no slice", address.value, name.1),
    };
    Some(violation(Rule::Sliced, text))
}

/// The slices that their owners keep without an address, although the pools keep them for a short
/// time only.
pub fn unused(world: &World) -> Vec<Violation> {
    let is_used = |slice: &Slice| {
        let in_slice =
            |address: &&Address| address.pool == slice.pool && slice.contains(&address.value);
        world.addresses.values().any(|address| in_slice(&address))
    };
    let unused = world.slices.iter().filter(|(_, slice)| !is_used(slice));
    let unused =
        unused.map(|(name, slice)| format!("slice {name} of {} has no address", slice.owner));
    let marked = world
        .slices
        .iter()
        .filter(|(_, slice)| slice.is_marked && is_used(slice));
    let marked =
        marked.map(|(name, _)| format!("slice {name} is marked as empty and has an address"));
    unused
        .chain(marked)
        .map(|text| violation(Rule::Sliced, text))
        .collect()
}

/// The pools whose status does not count their slices.
pub fn miscounted(world: &World) -> Vec<Violation> {
    let counted = world
        .pools
        .iter()
        .filter_map(|(name, pool)| Some((name, pool.slices?)));
    counted
        .filter_map(|(name, count)| {
            let assigned = world
                .slices
                .values()
                .filter(|slice| slice.pool == *name)
                .count();
            let is_right = i64::try_from(assigned) == Ok(count);
            let text = || {
                format!(
                    "pool {} counts {count} slices instead of {assigned}",
                    name.1.1
                )
            };
            (!is_right).then(|| violation(Rule::Counts, text()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::world::{Object, Pool, PoolName};

    fn pool_name() -> PoolName {
        (
            "InClusterIPPool".to_owned(),
            ("n".to_owned(), "p".to_owned()),
        )
    }

    fn slice(owner: &str, is_marked: bool) -> Object {
        let block = Some((Ipv4Addr::new(10, 0, 0, 4), Ipv4Addr::new(10, 0, 0, 7)));
        let slice = Slice {
            uid: owner.into(),
            pool: pool_name(),
            block,
            owner: owner.into(),
            is_marked,
        };
        Object::Slice("s".to_owned(), slice)
    }

    /// A claim of owner `a` with an address in a slice.
    fn history(slice: Object, address: &str) -> Vec<Change> {
        let name = ("n".to_owned(), "a".to_owned());
        let (bound, label) = (Some("a".to_owned()), Some("a".to_owned()));
        let claim = Claim {
            uid: "1".into(),
            pool: pool_name(),
            bound,
            label,
            ..Claim::default()
        };
        let (owner, value) = (Some("1".to_owned()), address.to_owned());
        let address = Address {
            owner,
            pool: pool_name(),
            value,
            ..Address::default()
        };
        let unbound = Claim {
            bound: None,
            ..claim.clone()
        };
        let pool = Pool {
            slices: Some(1),
            ..Pool::default()
        };
        let objects = [
            Object::Pool(pool_name(), pool),
            slice,
            Object::Claim(name.clone(), unbound),
            Object::Address(name.clone(), address),
            Object::Claim(name, claim),
        ];
        let change = |(version, object)| Change {
            version,
            object,
            gone: false,
        };
        (1..).zip(objects).map(change).collect()
    }

    #[test]
    fn address_in_the_slice_of_another_owner_is_detected() {
        let texts = |slice, address: &str| {
            let found = in_another_slice(&history(slice, address));
            found
                .into_iter()
                .map(|violation| violation.text)
                .collect::<Vec<_>>()
        };
        assert!(texts(slice("a", false), "10.0.0.5").is_empty());
        assert_eq!(
            texts(slice("b", false), "10.0.0.5"),
            ["10.0.0.5 of a (a) is in a slice of b"]
        );
        assert_eq!(
            texts(slice("a", false), "10.0.0.8"),
            ["10.0.0.8 of a (a) is in no slice"]
        );
    }

    #[test]
    fn slice_without_an_address_and_wrong_mark_are_detected() {
        let rules = |slice, address: &str| unused(&World::after(&history(slice, address))).len();
        assert_eq!(rules(slice("a", false), "10.0.0.7"), 0);
        assert_eq!(rules(slice("a", true), "10.0.0.7"), 1);
        assert_eq!(rules(slice("a", true), "10.0.0.8"), 1);
    }

    #[test]
    fn wrong_count_of_slices_is_detected() {
        let mut world = World::after(&history(slice("a", false), "10.0.0.5"));
        assert!(miscounted(&world).is_empty());
        world.slices.clear();
        assert_eq!(miscounted(&world)[0].rule, Rule::Counts);
    }
}
