//! Visits the states of a model.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, CheckerBuilder, Expectation, HasDiscoveries, Model};

/// A checker that ends when a property is violated.
pub(crate) fn checker<M>(model: M) -> CheckerBuilder<M>
where
    M: Model<State: Hash + Send + Sync> + Send + Sync + 'static,
{
    let checker = model.checker().threads(2);
    checker.finish_when(HasDiscoveries::AnyFailures)
}

/// Visits all states, and panics with the shortest path to a violation, or when a condition is
/// never reached: it proves nothing.
pub(crate) fn assert_holds<M>(scope: &impl Debug, model: M)
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync> + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let started = Instant::now();
    let checker = checker(model).spawn_bfs().join();
    assert_no_violation(scope, &checker, started);
    checker.assert_properties();
}

/// Prints statistics, and panics with a path to a violation.
pub(crate) fn assert_no_violation<M>(
    scope: &impl Debug,
    checker: &impl Checker<M>,
    started: Instant,
) where
    M: Model<State: Clone + Debug + Hash + PartialEq, Action: Clone + Debug + PartialEq>,
{
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let took = started.elapsed();
    println!("{states} states, depth {depth}, {took:.1?}: {scope:?}");
    for property in checker.model().properties() {
        if property.expectation == Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
}

/// Asserts that a model with an injected error violates a property.
pub(crate) fn assert_violated<M>(mutation: &impl Debug, model: M)
where
    M: Model<State: Clone + Hash + PartialEq + Send + Sync> + Send + Sync + 'static,
    M::Action: Clone + PartialEq,
{
    let checker = checker(model).spawn_bfs().join();
    let is_failure = |name: &&'static str| {
        let property = checker.model().property(name);
        property.expectation.discovery_is_failure()
    };
    let violated: Vec<_> = checker
        .discoveries()
        .into_keys()
        .filter(is_failure)
        .collect();
    println!("{mutation:?}: {violated:?}");
    assert!(!violated.is_empty(), "{mutation:?} violates no property");
}
