use super::*;
use crate::api::InClusterKind;

const STATES: [NetworkState; 6] = [
    NetworkState::Ready,
    NetworkState::Initializing,
    NetworkState::Deleting,
    NetworkState::Invalid,
    NetworkState::Missing,
    NetworkState::Upgrading,
];

fn network(name: &str, state: NetworkState, selects: bool, allows: bool) -> NetworkForPool {
    NetworkForPool { name: name.into(), state, selects, allows, lengths: None }
}

fn recorded(name: &str, is_named: bool, is_inherited: bool) -> Record {
    Record::Network(NetworkRecord { name: name.into(), is_named, is_inherited })
}

/// The decision for a pool, in a cluster with these networks.
fn decide_with(
    record: &Record,
    named: Option<&str>,
    status: Option<&StatusRecord>,
    networks: &[NetworkForPool],
) -> Decision {
    let named: Option<Arc<str>> = named.map(Into::into);
    let selecting: Vec<NetworkForPool> = networks.iter().filter(|network| network.selects).cloned().collect();
    let facts = Facts { record, named: named.as_ref(), status, reserved_in: None, selecting: &selecting };
    decide(&facts, |name| {
        let known = networks.iter().find(|network| network.name == *name);
        known.cloned().unwrap_or_else(|| network(name, NetworkState::Missing, false, false))
    })
}

fn scope_of(decision: &Decision) -> String {
    decision.record.scope(&PoolKey::new(InClusterKind::GlobalIPPool, None, "p")).name()
}

#[test]
fn selected_pool_stays_unless_a_valid_selector_excludes_it() {
    for state in STATES {
        for selects in [false, true] {
            for allows in [false, true] {
                for is_inherited in [false, true] {
                    let record = recorded("lab", false, is_inherited);
                    let decision = decide_with(&record, None, None, &[network("lab", state, selects, allows)]);
                    let is_valid =
                        matches!(state, NetworkState::Ready | NetworkState::Initializing | NetworkState::Deleting);
                    let case = format!("{state:?} selects: {selects} allows: {allows}: {decision:?}");
                    let leaves = is_valid && !selects;
                    assert_eq!(scope_of(&decision), if leaves { "g.p" } else { "n.lab" }, "{case}");
                    let can_allocate = decision.can_allocate();
                    let is_member = state == NetworkState::Ready && allows;
                    assert_eq!(can_allocate, leaves || is_member, "{case}");
                }
            }
        }
    }
}

#[test]
fn unusable_network_is_not_joined_and_refuses_the_pool() {
    for state in STATES.into_iter().filter(|state| *state != NetworkState::Ready) {
        for named in [None, Some("lab")] {
            let networks = [network("lab", state, true, true)];
            let networks = if state == NetworkState::Missing { &[][..] } else { &networks };
            let decision = decide_with(&Record::Unknown, named, None, networks);
            let is_upgrade = state == NetworkState::Upgrading && named.is_some();
            assert_eq!(scope_of(&decision), if is_upgrade { "n.lab" } else { "g.p" }, "{state:?} {named:?}");
            let can_allocate = decision.can_allocate();
            assert_eq!(can_allocate, state == NetworkState::Missing && named.is_none(), "{state:?} {named:?}");
        }
    }
}

#[test]
fn pool_that_no_longer_names_a_lost_network_leaves_it() {
    for state in [NetworkState::Missing, NetworkState::Invalid] {
        let networks = [network("lab", state, false, false)];
        let named = decide_with(&recorded("lab", true, false), None, None, &networks);
        assert_eq!((scope_of(&named).as_str(), named.refusal), ("g.p", None));
        let selected = decide_with(&recorded("lab", false, false), None, None, &networks);
        assert_eq!(scope_of(&selected), "n.lab");
        assert!(selected.refusal.is_some());
    }
    // The network still selects it: it belongs to it for another reason.
    let networks = [network("lab", NetworkState::Invalid, true, true)];
    let decision = decide_with(&recorded("lab", true, false), None, None, &networks);
    assert_eq!(decision.record, recorded("lab", false, false));
}

#[test]
fn pool_moves_only_to_a_network_that_accepts_it() {
    let lab = network("lab", NetworkState::Missing, false, false);
    for (other, expected) in [
        (network("other", NetworkState::Ready, false, true), "n.other"),
        (network("other", NetworkState::Initializing, false, true), "n.lab"),
        (network("other", NetworkState::Deleting, false, true), "n.lab"),
        (network("other", NetworkState::Invalid, false, true), "n.lab"),
        (network("other", NetworkState::Ready, false, false), "n.lab"),
        (NetworkForPool { lengths: Some((32, 28)), ..network("other", NetworkState::Ready, false, true) }, "n.lab"),
    ] {
        for record in [recorded("lab", false, false), recorded("lab", true, true)] {
            let decision = decide_with(&record, Some("other"), None, &[lab.clone(), other.clone()]);
            assert_eq!(scope_of(&decision), expected, "{other:?}");
            let can_allocate = decision.can_allocate();
            assert_eq!(can_allocate, expected == "n.other", "{other:?}");
        }
    }
}

#[test]
fn network_of_a_selected_pool_wins_over_a_second_selection() {
    let second = network("other", NetworkState::Ready, true, true);
    for state in [NetworkState::Missing, NetworkState::Invalid, NetworkState::Deleting, NetworkState::Ready] {
        let first = network("lab", state, state != NetworkState::Missing, true);
        let decision = decide_with(&recorded("lab", false, false), None, None, &[first, second.clone()]);
        assert_eq!(scope_of(&decision), "n.lab", "{state:?}");
        assert!(decision.refusal.is_some(), "{state:?}");
    }
    let first = network("lab", NetworkState::Ready, false, true);
    let decision = decide_with(&recorded("lab", false, false), None, None, &[first, second]);
    assert_eq!((scope_of(&decision).as_str(), decision.refusal), ("n.other", None));
}

#[test]
fn status_and_reservations_show_the_scope_after_a_restart() {
    let member = StatusRecord::Member("lab".into());
    let left = StatusRecord::Left("lab".into());
    assert_eq!(scope_of(&decide_with(&Record::Unknown, None, Some(&member), &[])), "n.lab");
    assert_eq!(scope_of(&decide_with(&Record::Unknown, None, Some(&left), &[])), "g.p");
    let reserved_in = "lab".into();
    let facts =
        Facts { record: &Record::Unknown, named: None, status: None, reserved_in: Some(&reserved_in), selecting: &[] };
    let missing = |name: &Arc<str>| network(name, NetworkState::Missing, false, false);
    assert_eq!(scope_of(&decide(&facts, missing)), "n.lab");
    let facts = Facts { record: &Record::Left, ..facts };
    assert_eq!(scope_of(&decide(&facts, missing)), "g.p", "it has left the network");
}

#[test]
fn managers_that_observed_other_states_agree_by_the_status() {
    // One has observed that the pool was unlabelled for a moment, the other one has not.
    let networks = [network("lab", NetworkState::Invalid, true, true)];
    let member = StatusRecord::Member("lab".into());
    assert_eq!(scope_of(&decide_with(&Record::Left, None, None, &networks)), "g.p");
    assert_eq!(scope_of(&decide_with(&Record::Left, None, Some(&member), &networks)), "n.lab");
    // What a manager knows from the status only, another one knows better.
    let left = StatusRecord::Left("lab".into());
    assert_eq!(scope_of(&decide_with(&recorded("lab", false, true), None, Some(&left), &[])), "g.p");
    assert_eq!(scope_of(&decide_with(&recorded("lab", false, false), None, Some(&left), &[])), "n.lab");
}
