//! The invariants, and the conditions that must be reachable.

use stateright::Property;

use super::Scope;
use super::state::{
    ADDRESSES, CLAIMS, Claim, Manager, Network, OF_OTHER_POOL, Pool, Start, State, index,
};

pub(super) fn of(model: &Scope) -> Vec<Property<Scope>> {
    let mut properties = vec![
        Property::always(
            "the address of a bound claim is reserved",
            |_, state: &State| {
                state
                    .claims
                    .iter()
                    .zip(0..)
                    .all(|(claim, holder)| match claim {
                        Claim::Bound(address) => state
                            .reservations
                            .iter()
                            .any(|scope| scope[*address] == Some(holder)),
                        _ => true,
                    })
            },
        ),
        // Nothing of a refused pool moves.
        Property::always(
            "in the end each reservation is in the scope of its pool",
            |model: &Scope, state: &State| {
                let is_in_place =
                    |manager: &Manager| manager.is_refused || is_in_scope(state, manager);
                !state.is_settled(model) || state.managers.iter().all(is_in_place)
            },
        ),
        Property::sometimes(
            "all claims are bound or gone",
            |model: &Scope, state: &State| {
                state.is_settled(model) && state.claims.iter().all(|claim| *claim != Claim::Waiting)
            },
        ),
    ];
    // Of two managers, one that has not observed a label yet allocates in the old scope.
    if model.managers == 1 || model.label_changes == 0 || model.current == model.managers {
        properties.push(Property::always(
            "no address is allocated twice in a network",
            |model: &Scope, state: &State| {
                (0..ADDRESSES).all(|address| is_unique(model, state, address))
            },
        ));
    }
    if model.start != Start::Outside && model.label_changes == 0 {
        properties.push(Property::always(
            "no reservation leaves the network unless the pool does",
            |_, state: &State| state.reservations[index(false)] == [None; ADDRESSES],
        ));
    }
    if model.start == Start::Member && model.managers == 1 {
        properties.push(Property::always(
            "a pool in use leaves the network only if it says so",
            |_, state: &State| {
                state.has_said_so
                    || state.claims[0] != Claim::Bound(0)
                    || state.reservations[index(true)][0] == Some(0)
            },
        ));
    }
    if model.managers > 1 {
        properties.push(agreement());
    }
    if model.has_other_length {
        properties.push(Property::always(
            "no pool with another block length has a reservation",
            |_, state: &State| {
                let of_other_pool =
                    |holder: &Option<u8>| holder.is_none_or(|holder| holder == OF_OTHER_POOL);
                state.reservations[index(true)].iter().all(of_other_pool)
            },
        ));
    } else if model.label_changes > 0 {
        properties.push(Property::sometimes(
            "the pool joins with an address in use",
            |model: &Scope, state: &State| {
                state.is_settled(model)
                    && state.managers.iter().all(Manager::is_member)
                    && matches!(state.claims[0], Claim::Bound(_))
            },
        ));
    }
    if model.network_changes > 1 {
        properties.push(Property::sometimes(
            "a network that is not valid has its pool",
            |model: &Scope, state: &State| {
                let keeps = |manager: &Manager| manager.is_member() && manager.is_refused;
                state.is_settled(model)
                    && state.network == Network::Missing
                    && state.managers.iter().all(keeps)
            },
        ));
    }
    properties
}

/// Two managers that have observed everything do not write the status of the pool in turns.
fn agreement() -> Property<Scope> {
    Property::always(
        "no two managers record different scopes in turns",
        |model: &Scope, state: &State| {
            let pairs = [(0, 1), (1, 0)];
            pairs.into_iter().all(|(one, other)| {
                agree(model, state, &state.managers[one], &state.managers[other])
            })
        },
    )
}

/// An address that both pools had in use when a manager observed that they are in one network is
/// reported.
fn is_unique(model: &Scope, state: &State, address: usize) -> bool {
    let has_it = |claim: &usize| state.claims[*claim] == Claim::Bound(address);
    let holders: Vec<usize> = (0..CLAIMS).filter(has_it).collect();
    if holders.len() < 2 {
        return true;
    }
    if model.label_changes == 0 || !holders.contains(&usize::from(OF_OTHER_POOL)) {
        return false;
    }
    let is_informed = holders
        .iter()
        .any(|&claim| state.is_informed[claim][address]);
    let is_member = state.pool.label && state.managers.iter().all(Manager::is_member);
    !(is_member && is_informed)
}

/// Whether two managers that have observed everything agree after they have written the status of
/// the pool in turns, and each has observed what both wrote.
fn agree(model: &Scope, state: &State, first: &Manager, second: &Manager) -> bool {
    let mut managers = [first.clone(), second.clone()];
    for manager in &managers {
        let has_observed = manager.network == state.network && manager.pool == state.pool;
        if !has_observed || manager.ledger != state.reservations {
            return true;
        }
    }
    let mut pool = state.pool;
    for writer in [0, 1, 0, 1] {
        pool = Pool {
            status: managers[writer].status(),
            ..pool
        };
        for manager in &mut managers {
            manager.see_pool(model, pool);
        }
    }
    let [first, second] = managers;
    first.is_member() == second.is_member()
}

fn is_in_scope(state: &State, manager: &Manager) -> bool {
    state.claims.iter().zip(0..).all(|(claim, holder)| {
        let Claim::Bound(address) = claim else {
            return true;
        };
        let present = state.reservations[index(manager.scope_of(usize::from(holder)))][*address];
        let is_bound_to_it = |other: u8| state.claims[usize::from(other)] == Claim::Bound(*address);
        present.is_some_and(|present| present == holder || is_bound_to_it(present))
    })
}
