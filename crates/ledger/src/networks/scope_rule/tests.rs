use capi_ipam_api::InClusterKind;

use super::*;

const STATES: [NetworkState; 5] = [
    NetworkState::Ready,
    NetworkState::Initializing,
    NetworkState::Deleting,
    NetworkState::Invalid,
    NetworkState::Missing,
];

fn network(name: &str, state: NetworkState, selects: bool, allows: bool) -> NetworkForPool {
    NetworkForPool {
        name: name.into(),
        state,
        selects,
        allows,
        lengths: None,
    }
}

fn recorded(name: &str, is_named: bool, is_inherited: bool) -> Record {
    Record::Network(NetworkRecord {
        name: name.into(),
        is_named,
        is_inherited,
    })
}

/// A pool with an address in use.
const IN_USE: PoolUsage<'static> = PoolUsage::Known {
    has_addresses: true,
    holds: &[],
};

/// The decision for a pool without addresses in use, in a cluster with these networks.
fn decide_with(
    record: &Record,
    named: Option<&str>,
    status: Option<&StatusRecord>,
    networks: &[NetworkForPool],
) -> Decision {
    decide_in_use(record, named, status, networks, PoolUsage::default(), None)
}

fn decide_in_use(
    record: &Record,
    named: Option<&str>,
    status: Option<&StatusRecord>,
    networks: &[NetworkForPool],
    usage: PoolUsage<'_>,
    leaves: Option<&str>,
) -> Decision {
    let leaves: Option<Arc<str>> = leaves.map(Into::into);
    let named: Option<Arc<str>> = named.map(Into::into);
    let selecting: Vec<NetworkForPool> = networks
        .iter()
        .filter(|network| network.selects)
        .cloned()
        .collect();
    let facts = Facts {
        record,
        named: named.as_ref(),
        status,
        reserved_in: None,
        selecting: &selecting,
        usage,
        leaves: leaves.as_ref(),
    };
    decide(&facts, |name| {
        let known = networks.iter().find(|network| network.name == *name);
        known
            .cloned()
            .unwrap_or_else(|| network(name, NetworkState::Missing, false, false))
    })
}

fn scope_of(decision: &Decision) -> String {
    decision
        .record
        .scope(&PoolKey::new(InClusterKind::GlobalIPPool, None, "p"))
        .name()
}

#[test]
fn selected_pool_stays_unless_a_valid_selector_excludes_it() {
    for state in STATES {
        for selects in [false, true] {
            for allows in [false, true] {
                for is_inherited in [false, true] {
                    let record = recorded("lab", false, is_inherited);
                    let decision = decide_with(
                        &record,
                        None,
                        None,
                        &[network("lab", state, selects, allows)],
                    );
                    let is_valid = matches!(
                        state,
                        NetworkState::Ready | NetworkState::Initializing | NetworkState::Deleting
                    );
                    let case =
                        format!("{state:?} selects: {selects} allows: {allows}: {decision:?}");
                    let leaves = is_valid && !selects;
                    assert_eq!(
                        scope_of(&decision),
                        if leaves { "g.p" } else { "n.lab" },
                        "{case}"
                    );
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
    for state in STATES
        .into_iter()
        .filter(|state| *state != NetworkState::Ready)
    {
        for named in [None, Some("lab")] {
            let networks = [network("lab", state, true, true)];
            let networks = if state == NetworkState::Missing {
                &[][..]
            } else {
                &networks
            };
            let decision = decide_with(&Record::Unknown, named, None, networks);
            assert_eq!(scope_of(&decision), "g.p", "{state:?} {named:?}");
            let can_allocate = decision.can_allocate();
            assert_eq!(
                can_allocate,
                state == NetworkState::Missing && named.is_none(),
                "{state:?} {named:?}"
            );
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
fn pool_in_use_leaves_only_by_an_explicit_word() {
    let networks = [
        network("lab", NetworkState::Ready, false, true),
        network("other", NetworkState::Ready, true, true),
    ];
    let known = [PoolUsage::Unknown, IN_USE];
    for (record, usage) in [recorded("lab", true, false), recorded("lab", false, false)]
        .into_iter()
        .flat_map(|record| known.map(|usage| (record.clone(), usage)))
    {
        let kept = decide_in_use(&record, None, None, &networks, usage, None);
        assert_eq!(kept.record, record, "{usage:?}");
        assert!(kept.is_kept && kept.can_allocate(), "{kept:?}");
        let by_annotation = decide_in_use(&record, None, None, &networks, usage, Some("lab"));
        assert_eq!(scope_of(&by_annotation), "n.other");
        assert!(!by_annotation.is_kept);
        let of_another = decide_in_use(&record, None, None, &networks, usage, Some("other"));
        assert_eq!(of_another, kept);
        let by_name = decide_in_use(&record, Some("other"), None, &networks, usage, None);
        assert_eq!(scope_of(&by_name), "n.other");
    }
    let holds = [(Scope::Network("lab".into()), 1)];
    for (name, is_kept) in [("lab", true), ("other", false)] {
        let usage = PoolUsage::Known {
            has_addresses: false,
            holds: &holds,
        };
        let states = [network(name, NetworkState::Ready, false, true)];
        let decision = decide_in_use(
            &recorded(name, true, false),
            None,
            None,
            &states,
            usage,
            None,
        );
        assert_eq!(decision.is_kept, is_kept, "{name}");
    }
}

#[test]
fn kept_pool_does_not_allocate_in_an_unusable_network() {
    for state in STATES
        .into_iter()
        .filter(|state| !matches!(state, NetworkState::Ready | NetworkState::Initializing))
    {
        let networks = [network("lab", state, false, true)];
        let networks = if state == NetworkState::Missing {
            &[][..]
        } else {
            &networks
        };
        let record = recorded("lab", true, false);
        let decision = decide_in_use(&record, None, None, networks, IN_USE, None);
        assert_eq!(scope_of(&decision), "n.lab", "{state:?}");
        assert!(decision.refusal.is_some(), "{state:?}");
    }
    let denied = [network("lab", NetworkState::Ready, false, false)];
    let record = recorded("lab", false, false);
    let decision = decide_in_use(&record, None, None, &denied, IN_USE, None);
    assert_eq!(
        decision.refusal,
        Some(NetworkRefusal::NotAllowed("lab".into()))
    );
}

#[test]
fn pool_moves_only_to_a_network_that_accepts_it() {
    let lab = network("lab", NetworkState::Missing, false, false);
    for (other, expected) in [
        (
            network("other", NetworkState::Ready, false, true),
            "n.other",
        ),
        (
            network("other", NetworkState::Initializing, false, true),
            "n.lab",
        ),
        (
            network("other", NetworkState::Deleting, false, true),
            "n.lab",
        ),
        (
            network("other", NetworkState::Invalid, false, true),
            "n.lab",
        ),
        (network("other", NetworkState::Ready, false, false), "n.lab"),
        (
            NetworkForPool {
                lengths: Some((32, 28)),
                ..network("other", NetworkState::Ready, false, true)
            },
            "n.lab",
        ),
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
    for state in [
        NetworkState::Missing,
        NetworkState::Invalid,
        NetworkState::Deleting,
        NetworkState::Ready,
    ] {
        let first = network("lab", state, state != NetworkState::Missing, true);
        let decision = decide_with(
            &recorded("lab", false, false),
            None,
            None,
            &[first, second.clone()],
        );
        assert_eq!(scope_of(&decision), "n.lab", "{state:?}");
        assert!(decision.refusal.is_some(), "{state:?}");
    }
    let first = network("lab", NetworkState::Ready, false, true);
    let decision = decide_with(&recorded("lab", false, false), None, None, &[first, second]);
    assert_eq!(
        (scope_of(&decision).as_str(), decision.refusal),
        ("n.other", None)
    );
}

#[test]
fn status_and_reservations_show_the_scope_after_a_restart() {
    let member = StatusRecord::Member("lab".into());
    let left = StatusRecord::Left("lab".into());
    assert_eq!(
        scope_of(&decide_with(&Record::Unknown, None, Some(&member), &[])),
        "n.lab"
    );
    assert_eq!(
        scope_of(&decide_with(&Record::Unknown, None, Some(&left), &[])),
        "g.p"
    );
    let reserved_in = "lab".into();
    let facts = Facts {
        record: &Record::Unknown,
        named: None,
        status: None,
        reserved_in: Some(&reserved_in),
        selecting: &[],
        usage: PoolUsage::default(),
        leaves: None,
    };
    let missing = |name: &Arc<str>| network(name, NetworkState::Missing, false, false);
    assert_eq!(scope_of(&decide(&facts, missing)), "n.lab");
    let facts = Facts {
        record: &Record::LEFT,
        ..facts
    };
    assert_eq!(
        scope_of(&decide(&facts, missing)),
        "g.p",
        "it has left the network"
    );
}

#[test]
fn managers_that_observed_other_states_agree_by_the_status() {
    // One has observed that the pool was unlabelled for a moment, the other one has not.
    let networks = [network("lab", NetworkState::Invalid, true, true)];
    let member = StatusRecord::Member("lab".into());
    assert_eq!(
        scope_of(&decide_with(&Record::LEFT, None, None, &networks)),
        "g.p"
    );
    assert_eq!(
        scope_of(&decide_with(&Record::LEFT, None, Some(&member), &networks)),
        "n.lab"
    );
    // What a manager knows from the status only, another one knows better.
    let left = StatusRecord::Left("lab".into());
    assert_eq!(
        scope_of(&decide_with(
            &recorded("lab", false, true),
            None,
            Some(&left),
            &[]
        )),
        "g.p"
    );
    assert_eq!(
        scope_of(&decide_with(
            &recorded("lab", false, false),
            None,
            Some(&left),
            &[]
        )),
        "n.lab"
    );
}

/// Two networks in all states, each of which selects the pool or does not.
fn two_networks() -> Vec<[NetworkForPool; 2]> {
    let mut all = Vec::new();
    for (one, two) in STATES
        .into_iter()
        .flat_map(|one| STATES.map(|two| (one, two)))
    {
        for (one_selects, two_selects) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let lab = network(
                "lab",
                one,
                one_selects && one != NetworkState::Missing,
                true,
            );
            let other = network(
                "other",
                two,
                two_selects && two != NetworkState::Missing,
                true,
            );
            all.push([lab, other]);
        }
    }
    all
}

/// What two managers record in the end that write the status of a pool in turns, each with what it
/// has recorded before.
/// One of them may not have observed that addresses of the pool are in use.
fn agreed(
    mut records: [Record; 2],
    usages: [PoolUsage<'_>; 2],
    status: Option<&StatusRecord>,
    networks: &[NetworkForPool],
) -> Vec<Record> {
    let mut status = status.cloned();
    let mut writes = 0;
    for writer in [0, 1].into_iter().cycle().take(12) {
        let known = status.clone();
        let written = match &records[writer] {
            Record::Network(network) => StatusRecord::Member(network.name.clone()),
            Record::Unknown | Record::Left { .. } => StatusRecord::Left("lab".into()),
        };
        if known.as_ref() == Some(&written) {
            continue;
        }
        writes += 1;
        status = Some(written);
        for (record, usage) in records.iter_mut().zip(usages) {
            record.note_status_change(known.as_ref(), status.as_ref());
            let status = status.as_ref();
            *record = decide_in_use(record, None, status, networks, usage, None).record;
        }
    }
    assert!(
        writes <= 4,
        "the managers write the status in turns: {records:?}"
    );
    records.into_iter().collect()
}

#[test]
fn two_managers_agree_whatever_each_has_recorded() {
    let members = || ["lab", "other"].map(|name| StatusRecord::Member(name.into()));
    let statuses = || {
        [None, Some(StatusRecord::Left("lab".into()))]
            .into_iter()
            .chain(members().map(Some))
    };
    let records = || {
        let networks = ["lab", "other"]
            .map(|name| [recorded(name, false, false), recorded(name, false, true)]);
        [Record::LEFT, Record::Left { is_contested: true }]
            .into_iter()
            .chain(networks.into_iter().flatten())
    };
    for networks in two_networks() {
        for (one, two) in records().flat_map(|one| records().map(move |two| (one.clone(), two))) {
            let usages = [PoolUsage::default(), IN_USE];
            let usages = usages
                .into_iter()
                .flat_map(|one| usages.map(|two| [one, two]));
            for (status, usages) in statuses()
                .flat_map(|status| usages.clone().map(move |usages| (status.clone(), usages)))
            {
                let scopes: Vec<Scope> = agreed(
                    [one.clone(), two.clone()],
                    usages,
                    status.as_ref(),
                    &networks,
                )
                .iter()
                .map(|record| record.scope(&PoolKey::new(InClusterKind::GlobalIPPool, None, "p")))
                .collect();
                assert_eq!(
                    scopes[0], scopes[1],
                    "{one:?} {two:?} {usages:?} {status:?} {networks:?}"
                );
            }
        }
    }
}

#[test]
fn manager_that_can_allocate_does_not_follow_the_status() {
    let networks = [network("lab", NetworkState::Invalid, false, true)];
    let member = StatusRecord::Member("lab".into());
    // It has observed that the pool left the network; another manager has observed that only
    // afterwards.
    let contested = Record::Left { is_contested: true };
    let decision = decide_with(&contested, None, Some(&member), &networks);
    assert_eq!((decision.record, decision.refusal), (Record::LEFT, None));
    // The other one follows, also if the status names another network in which the pool still has
    // reservations.
    let left = StatusRecord::Left("other".into());
    let mut record = recorded("lab", false, false);
    assert_eq!(
        decide_with(&record, None, Some(&left), &networks).record,
        record,
        "the status can be older"
    );
    record.note_status_change(Some(&member), Some(&left));
    assert_eq!(
        decide_with(&record, None, Some(&left), &networks).record,
        Record::LEFT
    );
}

#[test]
fn refused_managers_agree_on_the_network_of_the_pool() {
    let networks = [
        network("lab", NetworkState::Deleting, true, true),
        network("other", NetworkState::Ready, false, true),
    ];
    let member = StatusRecord::Member("other".into());
    let mut record = Record::LEFT;
    assert_eq!(
        decide_with(&record, None, Some(&member), &networks).record,
        record,
        "the status can be older"
    );
    record.note_status_change(None, Some(&member));
    let decision = decide_with(&record, None, Some(&member), &networks);
    assert_eq!(decision.record, recorded("other", false, true));
    assert!(decision.refusal.is_some());
}

#[test]
fn decision_is_the_same_when_it_is_repeated() {
    for networks in two_networks() {
        for named in [None, Some("lab"), Some("other")] {
            let members = [false, true].map(|is_named| recorded("lab", is_named, false));
            for record in [Record::Unknown, Record::LEFT].into_iter().chain(members) {
                for usage in [PoolUsage::default(), IN_USE] {
                    let decide =
                        |record| decide_in_use(record, named, None, &networks, usage, None);
                    let decision = decide(&record);
                    let repeated = decide(&decision.record);
                    assert_eq!(decision, repeated, "{record:?} {named:?} {networks:?}");
                }
            }
        }
    }
}
