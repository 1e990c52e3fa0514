//! `doctor` and `status`.

use capi_ipam_api::NamedPool;

use super::*;

#[test]
fn each_fault_has_a_finding_with_its_repair() {
    let spec = json!({ "addresses": ["10.0.0.2-10.0.0.41"], "prefix": 24 });
    let mut pools = all_pools();
    pools.push(pool("InClusterIPPool", "copy", &spec, &Value::Null));
    let refused = |reason: &str, message: &str| json!([{ "type": "Ready", "status": "False", "reason": reason, "message": message }]);
    let named = json!({ "addresses": ["10.9.0.2"], "prefix": 24, "network": "none" });
    for (name, reason) in [
        ("lost", "NetworkNotFound"),
        ("stranger", "NetworkNotAllowed"),
        ("choice", "NetworkNotReady"),
    ] {
        let status =
            json!({ "conditions": refused(reason, "about the network"), "observedGeneration": 1 });
        pools.push(pool("InClusterIPPool", name, &named, &status));
    }
    let moving = json!({ "observedGeneration": 1, "network": { "name": "backbone", "phase": "Joining", "remaining": 2 } });
    pools.push(pool(
        "InClusterIPPool",
        "slow",
        &json!({ "addresses": ["10.8.0.2"], "prefix": 24 }),
        &moving,
    ));
    let mut addresses = addresses();
    addresses.push(address("vm-9", "10.0.0.4"));
    let mut claims = claim_rows();
    claims.push(claim("vm-9", &json!({ "addressRef": { "name": "vm-9" } })));
    claims.push(claim("vm-5", &json!({ "addressRef": { "name": "vm-5" } })));
    let in_use = |status: &str| json!({ "type": "AddressInUse", "status": status, "message": "Machine vm-6 reports 10.0.0.9" });
    let ready = json!({ "type": "Ready", "status": "True" });
    claims.push(claim(
        "vm-6",
        &json!({ "conditions": [ready, in_use("False")] }),
    ));
    claims.push(claim(
        "vm-7",
        &json!({ "conditions": [ready, in_use("True")] }),
    ));
    let early = json!({ "type": "Ready", "status": "False", "reason": "ReleasedEarly", "message": "left: example.com/a" });
    let mut released = claim("vm-8", &json!({ "conditions": [early] }));
    released.deletion = Some(Box::new(Deletion {
        since: style().now,
        uid: "u-8".to_owned(),
        blockers: vec!["example.com/a".to_owned()],
    }));
    claims.push(released);
    let mut reservations = reservations();
    reservations.extend(reservations.first().cloned().map(|mut row| {
        row.claim = Some(NamespacedName::new("team-a", "gone"));
        row.slot.block = Block::address("10.0.0.8".parse().unwrap());
        row
    }));
    let mut snapshot = healthy();
    snapshot.objects = Objects::of(pools, addresses, reservations, []);
    claims.push(unserved());
    snapshot.objects.set_claims(claims);
    network_rows()
        .into_iter()
        .for_each(|row| snapshot.objects.add_network(row));
    snapshot.unreadable =
        vec!["skipped 1 ipaddresses that cannot be decoded: team-a/x (no spec)".to_owned()];
    let expired = Some("2026-01-05T02:04:05Z".parse().unwrap());
    snapshot.leases = Readable::complete(vec![lease(expired)]);
    let webhook = WebhookRow {
        name: "hooks".to_owned(),
        has_authority: false,
        service: Some(("system".to_owned(), "webhook".to_owned())),
        ready: Readable::complete(Some(0)),
        answer: Readable::complete(Ok(())),
        certificates: Readable::complete(Vec::new()),
    };
    snapshot.webhooks = Readable::complete(vec![webhook]);
    let report = findings_of(&snapshot);
    golden("doctor.txt", &text(&report, style()));

    snapshot.objects.pools.clear();
    let missing: Vec<_> = diagnosis(&snapshot)
        .findings
        .into_iter()
        .map(|finding| finding.object)
        .collect();
    assert!(
        missing.contains(&"InClusterIPPool team-a/web".to_owned()),
        "{missing:?}"
    );
}

#[test]
fn healthy_system_is_ok() {
    let snapshot = healthy();
    golden(
        "doctor-healthy.txt",
        &text(&findings_of(&snapshot), style()),
    );
    // What -o name has instead of names.
    assert_eq!(nothing(&findings_of(&snapshot)), "51 checks, no problem.");
}

fn findings_of(snapshot: &Snapshot) -> Report {
    let mut list = diagnosis(snapshot);
    list.parts = parts(&list, snapshot);
    list.healthy = health(&list.parts);
    Report::FindingList(list)
}

/// The paragraphs below the parts, and the last line.
fn paragraphs_of(snapshot: &Snapshot) -> String {
    let text = text(&findings_of(snapshot), style());
    let mut paragraphs = String::new();
    for line in text.lines() {
        let is_continued = line.starts_with("                      ");
        if let Some(line) = line.strip_prefix("  ")
            && !is_continued
        {
            paragraphs.push_str(line);
            paragraphs.push('\n');
        }
    }
    paragraphs.push_str(text.lines().last().unwrap());
    paragraphs
}

fn lease(renewed: Option<Timestamp>) -> LeaseRow {
    LeaseRow {
        namespace: "system".to_owned(),
        holder: Some("pod-1".to_owned()),
        renewed,
        seconds: 15,
    }
}

fn healthy() -> Snapshot {
    let deployment = DeploymentRow {
        namespace: "system".to_owned(),
        name: "manager".to_owned(),
        replicas: 2,
        ready: 2,
        image: "localhost/capi-ipam:v2".to_owned(),
        elects: true,
        webhooks: WebhookMode::Off,
        account: "manager".to_owned(),
        rules: Readable::complete(Some(vec![all_permissions()])),
    };
    let definition = DefinitionRow {
        group: "ipam.cluster.x-k8s.io",
        plural: "inclusterippools",
        is_of_contract: false,
        versions: vec!["v1alpha2".to_owned()],
        is_supported: true,
    };
    Snapshot {
        now: style().now,
        is_go_provider: false,
        definitions: vec![definition],
        deployments: Readable::complete(vec![deployment]),
        leases: Readable::complete(vec![lease(Some(style().now))]),
        running: Vec::new(),
        served: Readable::complete(Vec::new()),
        webhooks: Readable::complete(Vec::new()),
        events: Readable::complete(Vec::new()),
        objects: Objects::of([web()], [], [], []),
        registries: Readable::complete(Vec::new()),
        addressings: Readable::complete(Vec::new()),
        untrusted_mutations: Readable::complete(Vec::new()),
        deleted_namespaces: BTreeSet::new(),
        unreadable: Vec::new(),
    }
}

fn all_permissions() -> Rule {
    let all: BTreeSet<String> = ["*".to_owned()].into();
    Rule {
        api_groups: all.clone(),
        resources: all.clone(),
        verbs: all,
        ..Rule::default()
    }
}

/// A claim whose pool has a kind that does not exist.
fn unserved() -> ClaimRow {
    let claim: IPAddressClaim = serde_json::from_value(json!({
        "metadata": { "name": "m2", "namespace": "team-a", "creationTimestamp": CREATED },
        "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIpPool", "name": "web" } },
    }))
    .unwrap();
    let own = ["InClusterIPPool", "GlobalInClusterIPPool"]
        .map(str::to_owned)
        .into();
    let served = ServedKinds {
        groups: ["ipam.cluster.x-k8s.io".to_owned()].into(),
        own,
        ..ServedKinds::default()
    };
    ClaimRow::unserved(&claim, &served)
}

#[test]
fn claim_of_an_unknown_kind_is_unserved() {
    let objects = Objects::of([], addresses(), [], []);
    let lines = claims(claim_rows().iter().chain([&unserved()]), &objects);
    let table = text(&Report::ClaimList { claims: lines }, style());
    let line = table.lines().find(|line| line.starts_with("m2")).unwrap();
    assert!(
        line.contains("InClusterIpPool/web") && line.contains("Unserved  UnknownPoolKind"),
        "{table}"
    );
    let mut snapshot = healthy();
    snapshot.objects.set_claims([unserved()]);
    let findings = paragraphs_of(&snapshot);
    let expected = "error UnknownPoolKind: ipaddressclaim team-a/m2\n  kind InClusterIpPool is not served; did you mean \
                    InClusterIPPool?\n  Age:    3d\n  Repair: a claim cannot be changed: correct the pool";
    assert!(findings.starts_with(expected), "{findings}");
    assert!(
        findings
            .contains("kubectl delete ipaddressclaims.ipam.cluster.x-k8s.io m2 --namespace team-a"),
        "{findings}"
    );
}

#[test]
fn claims_of_another_provider_are_a_note_while_they_wait() {
    let of_other = |name: &str, created: &str, status: &Value| {
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "team-a", "creationTimestamp": created },
            "spec": { "poolRef": { "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p" } },
            "status": status,
        }))
        .unwrap();
        let served = ServedKinds {
            groups: ["ipam.metal3.io".to_owned()].into(),
            ..ServedKinds::default()
        };
        ClaimRow::unserved(&claim, &served)
    };
    let mut snapshot = healthy();
    let bound = json!({ "addressRef": { "name": "bound" } });
    let unserved = [
        of_other("bound", CREATED, &bound),
        of_other("old-1", CREATED, &json!({})),
        of_other("old-2", CREATED, &json!({})),
        of_other("new", &style().now.to_string(), &json!({})),
    ];
    snapshot.objects.set_claims(unserved);
    let findings = paragraphs_of(&snapshot);
    let expected = "note UnknownPoolKind: claims of kind IPPool of ipam.metal3.io\n  2 claims wait (team-a/old-1, \
                    team-a/old-2): kind IPPool of ipam.metal3.io is of another provider; this one serves \
                    InClusterIPPool, ";
    assert!(findings.starts_with(expected), "{findings}");
    assert!(
        findings.contains("no problem; 1 note. 3 claims wait"),
        "{findings}"
    );
}

#[test]
fn check_that_is_not_possible_is_no_good_result() {
    let mut snapshot = healthy();
    snapshot.objects.deny(Kind::Address);
    let text_of = |snapshot: &Snapshot| text(&findings_of(snapshot), style());
    let partly = text_of(&snapshot);
    for check in [
        "DuplicateAddress",
        "LostAddress",
        "OrphanAddress",
        "MissingPool",
    ] {
        let mut lines = partly.lines();
        let line = lines.find(|line| line.starts_with("unknown ")).unwrap();
        assert!(line.contains(check), "{partly}");
    }
    assert!(
        partly.contains("  not checked: you may not list ipaddresses in all namespaces"),
        "{partly}"
    );
    assert!(
        partly.ends_with(
            "43 checks, no problem. Not possible: 8 checks. Only for the objects that you may list: 1 check.\n"
        ),
        "{partly}"
    );
    let mut objects = Objects::default();
    for kind in Kind::ALL {
        objects.deny(kind);
    }
    let nothing = Snapshot {
        objects,
        registries: unreadable("registries"),
        addressings: unreadable("addressings"),
        untrusted_mutations: unreadable("mutations"),
        leases: unreadable("leases"),
        served: unreadable("definitions"),
        webhooks: unreadable("webhooks"),
        deployments: unreadable("deployments"),
        events: unreadable("events"),
        ..healthy()
    };
    assert_eq!(diagnosis(&nothing).checks, [Check::MissingDefinition]);
    let text = text_of(&nothing);
    assert!(
        text.starts_with(
            "It is unknown whether the provider works: nothing could be checked.\nunknown "
        ),
        "{text}"
    );
    // Each permission is named once, although most are missing for several checks.
    assert_eq!(text.lines().count(), 4, "{text}");
    for resource in [
        "inclusterippools",
        "ipnetworks",
        "ipaddresses",
        "ipaddressclaims",
        "leases",
        "events",
    ] {
        assert_eq!(
            text.matches(&format!(" {resource},")).count(),
            1,
            "{resource}: {text}"
        );
    }
    let parts = parts(&diagnosis(&nothing), &nothing);
    let known: Vec<_> = parts
        .iter()
        .filter(|line| line.state != PartState::Unknown)
        .map(|line| line.part)
        .collect();
    assert!(known.is_empty(), "{known:?}");
}

#[test]
fn each_object_of_a_group_has_its_commands() {
    let mut snapshot = healthy();
    let orphan = |number: usize| address(&format!("vm-{number}"), "10.0.0.9");
    let restored = |number: usize| {
        let mut claim = claim(&format!("vm-{number}"), &json!({}));
        claim.bound = Some(claim.key.name().into());
        claim.replaced = Some("it has a new address".into());
        claim
    };
    let (addresses, claims) = ((0..7).map(orphan), (0..7).map(restored));
    snapshot.objects = Objects::of([web()], addresses, [], claims);
    let table = paragraphs_of(&snapshot);
    let command = "kubectl get ipaddresses.ipam.cluster.x-k8s.io vm-";
    let expected = ["0", "1", "2", "3", "4"];
    for number in expected {
        assert_eq!(
            table.matches(&format!("{command}{number} ")).count(),
            1,
            "{table}"
        );
    }
    assert!(!table.contains(&format!("{command}5")), "{table}");
    assert!(
        table.contains("\n          and 2 more: kubectl ipam doctor --output json\n"),
        "{table}"
    );
}

#[test]
fn full_pools_are_one_paragraph() {
    let full = |number: usize| {
        let spec = json!({ "addresses": [format!("10.{number}.0.2")], "prefix": 24 });
        let counts = json!({ "total": 1, "used": 1, "free": 0, "outOfRange": 0 });
        let status =
            json!({ "ipAddresses": counts, "conditions": [{ "type": "Ready", "status": "True" }] });
        pool("InClusterIPPool", &format!("p{number:02}"), &spec, &status)
    };
    let waiting = |number: usize| {
        let mut claim = claim(&format!("vm-{number:02}"), &Value::Null);
        claim.pool = Ok(NamedPool::Pool(full(number).key));
        claim.reason = Some("PoolExhausted".into());
        claim
    };
    let mut snapshot = healthy();
    snapshot.objects = Objects::of((0..60).map(full), [], [], (0..60).map(waiting));
    let table = paragraphs_of(&snapshot);
    assert!(
        table.starts_with("error PoolExhausted: 60 objects\n"),
        "{table}"
    );
    let line = "  InClusterIPPool team-a/p04: no free address (1 in total, 1 in use); 1 claim waits (team-a/vm-04)\n";
    assert!(table.contains(line), "{table}");
    assert!(
        table.contains("  and 55 more: kubectl ipam doctor --output json\n"),
        "{table}"
    );
    assert!(table.lines().count() < 20, "{table}");
}

#[test]
fn cause_is_shown_with_what_it_causes() {
    let mut snapshot = healthy();
    let expired = Some("2026-01-05T02:04:05Z".parse().unwrap());
    snapshot.leases = Readable::complete(vec![lease(expired)]);
    let unprocessed = |number: usize| claim(&format!("vm-{number:02}"), &Value::Null);
    snapshot.objects.set_claims((0..3).map(unprocessed));
    let table = paragraphs_of(&snapshot);
    assert!(
        table.starts_with("error NoLeader: lease system/"),
        "{table}"
    );
    let effect = "\n  Causes: NotReconciled: claims of InClusterIPPool team-a/web: 3 claims wait (";
    assert!(table.contains(effect), "{table}");
    assert_eq!(table.matches("NotReconciled").count(), 1, "{table}");
}

#[test]
fn many_findings_of_one_kind_are_grouped() {
    let mut snapshot = healthy();
    let waiting = |number: usize| claim(&format!("vm-{number:02}"), &Value::Null);
    snapshot.objects = Objects::of([], [], [], (0..40).map(waiting));
    let table = paragraphs_of(&snapshot);
    assert_eq!(table.lines().count(), 6, "{table}");
    let problem =
        "it does not exist; 40 claims wait (team-a/vm-00, team-a/vm-01, team-a/vm-02 and 37 more)";
    assert!(table.contains(problem), "{table}");
    let entries: Vec<String> = (0..63)
        .map(|number| format!("10.0.0.{}", 300 + number))
        .collect();
    let wrong = pool(
        "InClusterIPPool",
        "wrong",
        &json!({ "addresses": entries, "prefix": 24 }),
        &Value::Null,
    );
    let mut snapshot = healthy();
    snapshot.objects = Objects::of([wrong], [], [], []);
    let table = paragraphs_of(&snapshot);
    assert!(
        table.contains("10.0.0.302") && !table.contains("10.0.0.303"),
        "{table}"
    );
    assert!(
        table.contains("more problems") && table.lines().count() == 5,
        "{table}"
    );
}
