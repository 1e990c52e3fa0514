use capi_ipam_api::{InClusterKind, Pool};
use capi_ipam_controller::namespaced_name::NamespacedName;
use serde_json::{Value, json};

use std::sync::Arc;

use super::*;
use capi_ipam_ledger::{BlockObstacle, PoolInfo};

/// The report of a pool without addresses in use.
fn report(pool: &Pool) -> PoolReport {
    PoolReport {
        key: PoolKey::of(pool),
        info: Arc::new(PoolInfo::of(pool)),
        counts: AddressCounts::default(),
        in_unusable_blocks: 0,
        cooldown_end: None,
        missing_block: None,
        overlapping: Vec::new(),
        shared: None,
        has_one_length: true,
        over_limit: None,
        slices: None,
        draining: None,
        network: None,
    }
}

fn conditions_of(
    change: &Value,
    counts: AddressCounts,
    overlapping: usize,
) -> Vec<(String, String, String)> {
    conditions_over_limit(change, counts, overlapping, None)
}

fn conditions_over_limit(
    change: &Value,
    counts: AddressCounts,
    overlapping: usize,
    over_limit: Option<OverLimit>,
) -> Vec<(String, String, String)> {
    let mut pool = json!({
        "kind": "InClusterIPPool", "metadata": {"namespace": "n", "name": "p"},
        "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24},
    });
    json_patch::merge(&mut pool, change);
    let pool = serde_json::from_value::<Pool>(pool).unwrap();
    let other = |index| PoolKey::new(InClusterKind::GlobalIPPool, None, &format!("o{index}"));
    let overlapping = (0..overlapping).map(other).collect();
    let blocker = Some(&DeletionBlocker::Addresses {
        count: 3,
        claims: vec![NamespacedName::new("n", "c")],
    });
    let report = PoolReport {
        counts,
        overlapping,
        over_limit,
        ..report(&pool)
    };
    let snapshot = PoolSnapshot {
        report: &report,
        finalizer_error: None,
        blocker,
        kept_in_network: None,
    };
    let describe = |condition: Condition| {
        assert!(!condition.reason.as_deref().unwrap_or_default().is_empty());
        let text = condition.message.unwrap_or_default();
        (
            format!("{}={}", condition.type_, condition.status),
            condition.reason.unwrap().into_owned(),
            text,
        )
    };
    let mut list = Vec::new();
    snapshot.update(&mut list, None, &capi_ipam_controller::clock::now());
    // Those that repeat Ready are the last ones.
    list.sort_by_key(|condition| {
        [conditions::RECONCILING, conditions::STALLED].contains(&&*condition.type_)
    });
    list.into_iter().map(describe).collect()
}

#[test]
fn each_condition_names_its_problem() {
    let some_free = AddressCounts {
        total: 4,
        free: 1,
        used: 3,
        ..AddressCounts::default()
    };
    let healthy = conditions_of(&json!({}), some_free, 0);
    let states: Vec<&str> = healthy.iter().map(|(state, _, _)| state.as_str()).collect();
    assert_eq!(
        states,
        [
            "Ready=True",
            "Exhausted=False",
            "Overlapping=False",
            "OutOfRange=False"
        ]
    );

    let unhealthy = conditions_of(
        &json!({}),
        AddressCounts {
            total: 3,
            free: 0,
            used: 3,
            out_of_range: 2,
            ..AddressCounts::default()
        },
        12,
    );
    assert_eq!(unhealthy[1].1, conditions::NO_FREE_ADDRESS);
    assert!(
        unhealthy[2].2.contains("GlobalInClusterIPPool o0, ")
            && unhealthy[2].2.contains(" and 7 more, so two machines"),
        "{}",
        unhealthy[2].2
    );
    assert!(
        unhealthy[3].2.starts_with("2 addresses"),
        "{}",
        unhealthy[3].2
    );

    let reasons = [
        (json!({"spec": {"prefix": 99}}), conditions::INVALID_SPEC),
        (
            json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
            conditions::PAUSED_REASON,
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            conditions::DELETING,
        ),
    ];
    for (change, reason) in reasons {
        let all = conditions_of(&change, some_free, 0);
        assert_eq!(all[0].1, reason);
        let progress: Vec<_> = all
            .iter()
            .skip(4)
            .map(|(state, reason, _)| (&**state, &**reason))
            .collect();
        let is_stalled = reason == conditions::INVALID_SPEC;
        assert_eq!(
            progress,
            is_stalled
                .then_some(("Stalled=True", reason))
                .into_iter()
                .collect::<Vec<_>>()
        );
    }
    let empty_and_invalid = conditions_of(
        &json!({"spec": {"prefix": 99}}),
        AddressCounts::default(),
        0,
    );
    assert_eq!(empty_and_invalid[1].0, "Exhausted=False");
}

#[test]
fn pool_that_gets_another_block_is_not_exhausted() {
    let missing = |obstacle| MissingBlock {
        network: "lab".into(),
        registry: Some("site".to_owned()),
        obstacle,
    };
    let next = exhausted_in_blocks("3 in total, 3 in use", &missing(None));
    assert_eq!(next.status, "False");
    assert_eq!(next.reason.as_deref(), Some(conditions::BLOCK_NEEDED));
    for (obstacle, reason) in [
        (BlockObstacle::AllTaken, conditions::WAITING_FOR_BLOCK),
        (BlockObstacle::Unreachable, conditions::REGISTRY_UNREACHABLE),
    ] {
        let none = exhausted_in_blocks("3 in total, 3 in use", &missing(Some(obstacle)));
        assert_eq!(
            (&*none.status, none.reason.as_deref()),
            ("True", Some(reason))
        );
        assert!(is_warning(&none));
    }
}

#[test]
fn addresses_in_other_blocks_are_not_called_removed() {
    let pool = json!({"kind": "InClusterIPPool", "metadata": {"namespace": "n", "name": "p"}});
    let pool = serde_json::from_value::<Pool>(pool).unwrap();
    for (out_of_range, in_unusable_blocks, reason, start) in [
        (
            2,
            0,
            "AddressesOutOfRange",
            "2 addresses in use are no longer in the pool; they stay",
        ),
        (
            1,
            1,
            "AddressesInOtherBlocks",
            "1 address in use is in a block of the network that this management cluster does not have to itself; it \
             stays",
        ),
        (
            3,
            2,
            "AddressesOutOfRange",
            "1 address in use is no longer in the pool; 2 addresses in use are in blocks of the network",
        ),
    ] {
        let report = PoolReport {
            counts: AddressCounts {
                out_of_range,
                ..AddressCounts::default()
            },
            in_unusable_blocks,
            ..report(&pool)
        };
        let snapshot = snapshot(&report);
        let condition = snapshot.out_of_range();
        assert_eq!(condition.reason.as_deref(), Some(reason));
        let message = condition.message.unwrap_or_default();
        assert!(message.starts_with(start), "{message}");
    }
}

fn snapshot(report: &PoolReport) -> PoolSnapshot<'_> {
    PoolSnapshot {
        report,
        finalizer_error: None,
        blocker: None,
        kept_in_network: None,
    }
}

#[test]
fn draining_parts_name_claims_of_their_own_namespace_only() {
    let condition = |pool: serde_json::Value, addresses: usize| {
        let pool = serde_json::from_value::<Pool>(pool).unwrap();
        let claims = ["a", "b"].map(|name| NamespacedName::new("n", name));
        let draining = DrainingUse {
            addresses,
            claims: claims.into_iter().take(addresses).collect(),
        };
        let report = PoolReport {
            draining: Some(draining),
            ..report(&pool)
        };
        let snapshot = snapshot(&report);
        let condition = snapshot.draining().unwrap();
        (
            condition.status.clone(),
            condition.message.unwrap_or_default(),
        )
    };
    let own = |addresses| {
        condition(
            json!({"kind": "InClusterIPPool", "metadata": {"namespace": "n"}}),
            addresses,
        )
    };
    let global = |addresses| condition(json!({"kind": "GlobalInClusterIPPool"}), addresses);
    assert_eq!(own(0).0, "False");
    let text = "9 addresses of spec.draining are in use by the claims n/a, n/b and 7 more; waiting for their release";
    assert_eq!((&*own(9).0, &*own(9).1), ("True", text));
    assert_eq!(
        global(2).1,
        "2 addresses of spec.draining are in use; waiting for their release"
    );
}

#[test]
fn pool_in_deletion_names_the_claims_it_waits_for() {
    let claims: Vec<_> = ["a", "b", "c"]
        .map(|name| NamespacedName::new("n", name))
        .into();
    let text = |kind, namespace| {
        let blocker = DeletionBlocker::Addresses {
            count: 25,
            claims: claims.clone(),
        };
        deletion_message(&PoolKey::new(kind, namespace, "p"), &blocker)
    };
    assert_eq!(
        text(InClusterKind::IPPool, Some("n")),
        "waiting for 25 addresses to be released (claims n/a, n/b, n/c and 22 more); delete the machines of these \
         claims, since a deletion cannot be undone; to list them: kubectl ipam claims --namespace n --pool \
         InClusterIPPool/p"
    );
    assert_eq!(
        text(InClusterKind::GlobalIPPool, None),
        "waiting for 25 addresses to be released; delete the machines of these claims, since a deletion cannot be \
         undone; to list them: kubectl ipam claims --all-namespaces --pool GlobalInClusterIPPool/p"
    );
}

#[test]
fn addresses_beyond_the_limits_are_reported() {
    let over_limit =
        |over| conditions_over_limit(&json!({}), AddressCounts::default(), 0, over).split_off(4);
    assert!(over_limit(None).is_empty());
    assert_eq!(
        over_limit(Some(OverLimit::default()))[0].0,
        "OverLimit=False"
    );
    let reported = over_limit(Some(OverLimit {
        groups: 2,
        addresses: 7,
        not_allowed: 3,
    }));
    assert_eq!(
        (&*reported[0].0, &*reported[0].1),
        ("OverLimit=True", conditions::LIMITS_EXCEEDED)
    );
    assert!(
        reported[0].2.contains("7 addresses more")
            && reported[0].2.contains("3 addresses are in namespaces")
    );
}
