//! The manager: its lease, its replicas, and how many are active.

use super::*;

#[test]
fn missing_lease_is_a_note_without_leader_election() {
    let none = "lease 7bb7acb4.ipam.cluster.x-k8s.io: it does not exist: no manager runs with leader election";
    let old = "error lease a/7bb7acb4.ipam.cluster.x-k8s.io: nobody renews it, and it has expired after 15 s; pod-1 was \
               the last holder";
    // The lease states how long it is held without a renewal.
    let of_a_minute = LeaseRow {
        seconds: 60,
        ..lease("a", 50)
    };
    for (leases, deployments, expected) in [
        (vec![], vec![], vec![format!("note {none}")]),
        (
            vec![],
            vec![deployment(2, 2, true)],
            vec![format!("error {none}")],
        ),
        (vec![], vec![deployment(1, 1, false)], vec![]),
        (vec![lease("a", 15)], vec![], vec![]),
        (vec![lease("a", 16)], vec![], vec![old.to_owned()]),
        (vec![lease("a", 16), lease("b", 1)], vec![], vec![]),
        (vec![of_a_minute], vec![], vec![]),
    ] {
        let snapshot = Snapshot {
            leases: Readable::complete(leases),
            deployments: Readable::complete(deployments),
            ..empty()
        };
        assert_eq!(found(&snapshot, Check::NoLeader), expected);
    }
}

#[test]
fn running_manager_that_cannot_write_the_lease_is_named() {
    let pod = |name: &str, problem: Option<&str>| PodRow {
        name: name.to_owned(),
        problem: problem.map(str::to_owned),
    };
    let mut snapshot = empty();
    snapshot.leases = Readable::complete(vec![lease("system", 60)]);
    snapshot.running = vec![
        pod("system/m-0", None),
        pod(
            "system/m-1",
            Some("lease: etcdserver: mvcc: database space exceeded"),
        ),
    ];
    let text = "error lease system/7bb7acb4.ipam.cluster.x-k8s.io: nobody renews it, and it has expired after 15 s; pod-1 \
                was the last holder; 2 pods run, and cannot write the lease (system/m-0, system/m-1): lease: etcdserver: \
                mvcc: database space exceeded";
    assert_eq!(found(&snapshot, Check::NoLeader), [text]);
    let repair = &diagnosis(&snapshot).findings[0].repair;
    assert!(!repair.contains("start the provider"), "{repair}");
}

#[test]
fn replicas_that_are_not_ready_are_found() {
    for (deployment, expected) in [
        (deployment(2, 2, true), None),
        (
            deployment(2, 1, true),
            Some("warning deployment system/manager: 1 of 2 replicas are ready"),
        ),
        (
            deployment(2, 0, true),
            Some("error deployment system/manager: 0 of 2 replicas are ready"),
        ),
        (
            deployment(0, 0, true),
            Some(
                "error deployment system/manager: it is scaled to 0 replicas, so no claim is served",
            ),
        ),
    ] {
        let snapshot = Snapshot {
            deployments: Readable::complete(vec![deployment]),
            ..empty()
        };
        let found = found(&snapshot, Check::ReplicasNotReady);
        assert_eq!(found.first().map(String::as_str), expected);
    }
}

#[test]
fn several_active_managers_are_found() {
    let event = |instance: &str, age: i64| EventRow {
        instance: instance.to_owned(),
        time: ago(age),
    };
    let events = |all: &[(&str, i64)]| all.iter().map(|(it, age)| event(it, *age)).collect();
    let none: Vec<EventRow> = Vec::new();
    for (leases, deployments, events, expected) in [
        (vec![lease("a", 1)], vec![], none.clone(), None),
        (
            vec![lease("a", 1), lease("b", 1)],
            vec![],
            none.clone(),
            Some("note lease"),
        ),
        (
            vec![lease("a", 1), lease("b", 99)],
            vec![],
            none.clone(),
            None,
        ),
        (
            vec![],
            vec![deployment(2, 2, false)],
            none.clone(),
            Some("warning deployment system/manager"),
        ),
        (vec![], vec![deployment(2, 2, true)], none.clone(), None),
        (vec![], vec![deployment(1, 1, false)], none, None),
        // Restarts.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("y", 8), ("z", 7)]),
            None,
        ),
        (
            vec![],
            vec![],
            events(&[("x", 99), ("x", 9), ("y", 8), ("y", 7), ("z", 6)]),
            None,
        ),
        // A handover between nodes whose clocks differ.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("x", 8), ("y", 8), ("y", 7)]),
            None,
        ),
        // Restarts after it are not part of it.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("y", 8), ("x", 7), ("z", 6), ("v", 5)]),
            Some("warning managers: y and x both wrote events until 03:03:57 UTC"),
        ),
        (
            vec![],
            vec![],
            events(&[("x", 909), ("y", 908), ("x", 907), ("y", 906)]),
            None,
        ),
        // One of them may have been stopped.
        (
            vec![],
            vec![],
            events(&[("x", 69), ("y", 68), ("x", 67), ("x", 1)]),
            Some("note managers: y and x both wrote events until 03:02:57 UTC"),
        ),
    ] {
        let snapshot = Snapshot {
            leases: Readable::complete(leases),
            deployments: Readable::complete(deployments),
            events: Readable::complete(events),
            ..empty()
        };
        let found = found(&snapshot, Check::SeveralManagers);
        let is_expected = match expected {
            Some(start) => found.first().is_some_and(|text| text.starts_with(start)),
            None => found.is_empty(),
        };
        assert!(is_expected, "{found:?} instead of {expected:?}");
    }
}
