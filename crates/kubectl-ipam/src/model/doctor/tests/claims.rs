//! Claims that wait, and claims in deletion.

use capi_ipam_api::InClusterKind;
use capi_ipam_controller::namespaced_name::NamespacedName;

use super::*;
use crate::objects::Kind;

#[test]
fn waiting_claims_have_one_finding_for_each_cause() {
    let usual = || pool("p", &range("10.0.0.1-10.0.0.3"));
    let of_pool = |claims: &[Value], pool: Value| {
        let snapshot = with(&[pool], &[], claims);
        let waiting = diagnosis(&snapshot).waiting;
        assert_eq!(waiting, u64::try_from(claims.len()).ok());
        let findings = diagnosis(&snapshot).findings;
        let texts: Vec<String> = findings
            .iter()
            .map(|it| {
                format!(
                    "{} {:?} {}: {}",
                    word(it.severity),
                    it.check,
                    it.object,
                    it.problem
                )
            })
            .collect();
        texts
    };
    let two = |reason: &str| [claim("a", 60, reason), claim("b", 90, reason)];
    for (claims, pool, expected) in [
        (
            &two("PoolExhausted")[..],
            exhausted(usual()),
            "error PoolExhausted InClusterIPPool n/p: no free address (3 in total, 3 in use); 2 claims wait (n/a, n/b)",
        ),
        (
            &[],
            exhausted(usual()),
            "note PoolExhausted InClusterIPPool n/p: no free address (3 in total, 3 in use)",
        ),
        (
            &two("PoolExhausted"),
            usual(),
            "error ClaimsWait InClusterIPPool n/p: 2 claims wait (n/b, n/a) with the reason PoolExhausted: about it",
        ),
        (
            &two("ClusterNotFound"),
            usual(),
            "error ClusterNotFound Cluster n/prod: it does not exist; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("Paused"),
            usual(),
            "warning Paused Cluster n/prod: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("Paused"),
            paused(usual()),
            "warning Paused InClusterIPPool n/p: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("PoolNotReady"),
            paused(usual()),
            "warning Paused InClusterIPPool n/p: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &[paused(claim("a", 60, "Paused"))],
            usual(),
            "warning Paused ipaddressclaim n/a: it is paused; 1 claim waits (n/a)",
        ),
        (
            &[],
            paused(usual()),
            "note Paused InClusterIPPool n/p: it is paused",
        ),
        (
            &two(""),
            usual(),
            "error NotReconciled claims of InClusterIPPool n/p: 2 claims wait (n/a, n/b) without any condition: no \
          manager has processed them",
        ),
        (
            &[claim("a", 60, "PoolNotReady")],
            deleted(usual(), 30, &[]),
            "warning PoolDeleting InClusterIPPool n/p: it is being deleted, and no address is in use; 1 claim waits (n/a) \
          for a pool that allocates nothing",
        ),
    ] {
        assert_eq!(of_pool(claims, pool), [expected]);
    }
    assert_eq!(of_pool(&[claim("a", 5, "")], usual()), Vec::<String>::new());
}

#[test]
fn each_message_of_waiting_claims_is_named() {
    let with_message = |name: &str, message: &str| {
        let mut claim = claim(name, 60, "AllocationFailed");
        claim["status"]["conditions"][0]["message"] = json!(message);
        claim
    };
    let claims = [
        with_message("a", "denied by quota"),
        with_message("b", "webhook x failed"),
        with_message("c", "denied by quota"),
    ];
    let snapshot = with(&[pool("p", &range("10.0.0.1"))], &[], &claims);
    let text = "error InClusterIPPool n/p: 3 claims wait (n/a, n/b, n/c) with the reason AllocationFailed: denied by quota \
                (n/a, n/c); webhook x failed (n/b)";
    assert_eq!(found(&snapshot, Check::ClaimsWait), [text]);
}

#[test]
fn each_reason_of_waiting_claims_has_a_remedy() {
    for (reason, start, command) in [
        (
            "QuotaExceeded",
            "release claims, or ask the owner",
            "kubectl edit inclusterippools p",
        ),
        (
            "PoolNotAllowed",
            "allow the namespaces in spec.allowed",
            "kubectl edit inclusterippools p",
        ),
        (
            "AllocationFailed",
            "correct what the message names",
            "kubectl describe ipaddressclaims",
        ),
        (
            "WaitingForBlock",
            "wait while another block is taken",
            "kubectl ipam registry list",
        ),
        (
            "Unknown",
            "see what each claim reports",
            "kubectl describe ipaddressclaims",
        ),
    ] {
        let snapshot = with(
            &[pool("p", &range("10.0.0.1"))],
            &[],
            &[claim("a", 60, reason)],
        );
        let found = finding(&snapshot, Check::ClaimsWait);
        assert!(
            found.repair.starts_with(start),
            "{reason}: {}",
            found.repair
        );
        assert!(
            found.commands[0].starts_with(command),
            "{reason}: {:?}",
            found.commands
        );
    }
}

#[test]
fn counts_of_a_full_pool_add_up() {
    let mut full = exhausted(pool("p", &range("10.0.0.1-10.0.0.9")));
    full["status"]["ipAddresses"] = json!({
        "total": 9, "used": 3, "free": 0, "outOfRange": 0, "reserved": 3, "drained": 2, "coolingDown": 1,
    });
    let text = "note InClusterIPPool n/p: no free address (9 in total, 3 in use, 3 reserved or being allocated, 2 not \
                allocated because of spec.draining, 1 cooling down)";
    let snapshot = with(&[full], &[], &[]);
    assert_eq!(found(&snapshot, Check::PoolExhausted), [text]);
}

#[test]
fn paused_pool_names_the_claims_that_it_keeps() {
    let mut kept = claim("a", 60, "");
    kept["status"]["addressRef"] = json!({"name": "a"});
    let kept = deleted(kept, 60, &["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    let snapshot = with(&[paused(pool("p", &range("10.0.0.1")))], &[], &[kept]);
    let text =
        "warning InClusterIPPool n/p: it is paused; 1 claim in deletion is not released (n/a)";
    assert_eq!(found(&snapshot, Check::Paused), [text]);
    let none = Vec::<String>::new();
    assert_eq!(found(&snapshot, Check::NotReconciled), none);
}

#[test]
fn restored_claim_keeps_its_address_by_a_reservation() {
    // Finalizers of other controllers stay, wherever they stand.
    let own = "ipam.cluster.x-k8s.io/ReleaseAddress";
    let mut first = claim("a", 90, "AwaitingAddress");
    first["metadata"]["finalizers"] = json!(["example.com/a", own, "example.com/b"]);
    let mut claims = vec![first];
    for name in ["b", "c", "d", "e"] {
        let mut other = claim(name, 60, "AwaitingAddress");
        other["metadata"]["finalizers"] = json!([own]);
        claims.push(other);
    }
    let snapshot = with(&[pool("p", &range("10.0.0.1"))], &[], &claims);
    let findings = diagnosis(&snapshot).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    let Finding {
        repair, commands, ..
    } = &findings[0];
    assert!(
        repair.ends_with(
            "(for all claims: kubectl ipam claims --namespace n --pool InClusterIPPool/p --waiting)"
        ),
        "{repair}"
    );
    let commands_of = |name: &str, place: usize| {
        let path = format!("/metadata/finalizers/{place}");
        [
            format!("kubectl ipam reserve InClusterIPPool/p ADDRESS --namespace n --for n/{name}"),
            format!(
                "kubectl patch ipaddressclaims.ipam.cluster.x-k8s.io {name} --namespace n --type json --patch \
                 '[{{\"op\":\"test\",\"path\":\"{path}\",\"value\":\"{own}\"}},{{\"op\":\"remove\",\"path\":\"{path}\"}}]'"
            ),
        ]
    };
    let expected = [
        commands_of("a", 1),
        commands_of("b", 0),
        commands_of("c", 0),
    ];
    assert_eq!(commands, &expected.concat());
}

#[test]
fn oldest_claim_is_the_age_of_a_finding() {
    let claims = [
        claim("a", 60, "PoolExhausted"),
        claim("b", 90, "PoolExhausted"),
    ];
    let snapshot = with(
        &[exhausted(pool("p", &range("10.0.0.1-10.0.0.3")))],
        &[],
        &claims,
    );
    let findings = diagnosis(&snapshot).findings;
    assert_eq!(findings[0].since, Some(ago(90)));
}

#[test]
fn deletions_name_what_keeps_the_object() {
    let used = [address("x", "p", "10.0.0.1"), address("y", "p", "10.0.0.2")];
    let pools = [deleted(pool("p", &range("10.0.0.1-10.0.0.3")), 30, &[])];
    let bound = |name: &str| {
        let mut claim = claim(name, 60, "");
        claim["status"]["addressRef"] = json!({"name": name});
        claim["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        claim
    };
    let snapshot = with(&pools, &used, &[bound("x"), bound("y")]);
    assert_eq!(
        found(&snapshot, Check::PoolDeleting),
        [
            "warning InClusterIPPool n/p: it is being deleted, and waits until 2 claims release its addresses (n/x, n/y)"
        ]
    );
    let own = [
        "ipam.cluster.x-k8s.io/ReleaseAddress",
        "ipam.cluster.x-k8s.io/ProtectAddress",
    ];
    let foreign = ["example.com/b", own[0], own[1], "example.com/a"];
    let text = "it is being deleted, and its address stays allocated until other controllers remove 2 finalizers: \
                example.com/b, example.com/a";
    for (object, expected) in [
        (
            deleted(bound("x"), 60, &foreign),
            Some(format!("note ipaddressclaim n/x: {text}")),
        ),
        (
            deleted(bound("x"), 6000, &foreign),
            Some(format!("warning ipaddressclaim n/x: {text}")),
        ),
        (deleted(bound("x"), 6000, &own), None),
    ] {
        let snapshot = with(&[], &used, &[object]);
        assert_eq!(
            found(&snapshot, Check::ReleaseBlocked).first(),
            expected.as_ref()
        );
    }
    let snapshot = with(&[], &[deleted(used[0].clone(), 60, &foreign)], &[]);
    assert_eq!(
        found(&snapshot, Check::ReleaseBlocked),
        [format!("note ipaddress n/x: {text}")]
    );
    let mut snapshot = with(&[], &[], &[deleted(bound("x"), 60, &foreign)]);
    snapshot.deleted_namespaces = ["n".to_owned()].into();
    let waits = "; the namespace, which is being deleted, waits for it";
    assert_eq!(
        found(&snapshot, Check::ReleaseBlocked),
        [format!("note ipaddressclaim n/x: {text}{waits}")]
    );
    let blocked = finding(&snapshot, Check::ReleaseBlocked);
    assert!(
        blocked
            .repair
            .contains("; this does not end the deletion of the namespace, since the claim stays: "),
        "{}",
        blocked.repair
    );
    let resource = "ipaddressclaims.ipam.cluster.x-k8s.io x --namespace n";
    let commands = [
        format!("kubectl annotate {resource} ipam.cluster.x-k8s.io/release-now=uid-of-x"),
        format!("kubectl edit {resource}"),
    ];
    assert_eq!(blocked.commands, commands);
    // A claim without an address holds nothing, and needs no pool.
    let waiting = deleted(claim("x", 9000, ""), 6000, &foreign);
    let snapshot = with(&[], &[], &[waiting]);
    let text = "note ipaddressclaim n/x: it is being deleted, has no address, and stays until other controllers remove 2 \
                finalizers: example.com/b, example.com/a";
    assert_eq!(found(&snapshot, Check::ReleaseBlocked), [text]);
    assert!(found(&snapshot, Check::MissingPool).is_empty());
    let commands = diagnosis(&snapshot).findings.remove(0).commands;
    let show = "kubectl get ipaddressclaims.ipam.cluster.x-k8s.io x --namespace n --output yaml";
    assert_eq!(commands, [show]);
    let unreleased = with(&[], &[], &[deleted(bound("x"), 60, &own)]);
    assert_eq!(
        found(&unreleased, Check::NotReconciled),
        ["error ipaddressclaim n/x: it is being deleted, and no manager has released its address"]
    );
}

#[test]
fn object_that_cannot_be_decoded_exists() {
    let bound = |name: &str| {
        let mut claim = claim(name, 60, "");
        claim["status"]["addressRef"] = json!({"name": name});
        claim
    };
    let pools = [pool("p", &range("10.0.0.1-10.0.0.3"))];
    let used = [address("a", "p", "10.0.0.1")];
    let mut snapshot = with(&pools, &used, &[bound("b")]);
    let checks = [Check::OrphanAddress, Check::LostAddress, Check::MissingPool];
    let counts = |snapshot: &Snapshot| checks.map(|check| found(snapshot, check).len());
    assert_eq!(counts(&snapshot), [1, 1, 0]);
    let key = |name: &str| NamespacedName::new("n", name);
    let objects = &mut snapshot.objects;
    objects.claims.insert_invalid(&key("a"));
    objects.addresses.insert_invalid(&key("b"));
    let table = objects.pools.get_mut(&InClusterKind::IPPool).unwrap();
    table.insert_invalid(&key("p"));
    assert_eq!(counts(&snapshot), [0, 0, 0]);
}

#[test]
fn deletions_of_unknown_objects_are_not_checked() {
    let mut snapshot = with(&[pool("p", &range("10.0.0.1"))], &[], &[]);
    for kind in [Kind::Claim, Kind::Address] {
        snapshot.objects.deny(kind);
    }
    let diagnosis = diagnosis(&snapshot);
    assert!(!diagnosis.checks.contains(&Check::ReleaseBlocked));
}
