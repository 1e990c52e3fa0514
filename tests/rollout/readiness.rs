//! The probes, and when a manager that cannot work exits.

use std::collections::HashSet;

use support::{control_plane::ACCOUNT, manager::scrape, ports::free_port, prelude::*};

/// The kinds that the manager does not need without a flag or a field of a pool.
const NOT_NEEDED: [&str; 2] = ["ClusterAddressing", "Machine"];

fn is_ok(manager: &Manager, path: &str) -> bool {
    manager
        .probe(path)
        .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The first list of pools needs a conversion, and no webhook responds: the manager may have to
/// serve it itself.
#[tokio::test(flavor = "multi_thread")]
async fn unsynced_caches_do_not_fail_readiness() {
    let control_plane = ControlPlane::new();
    let definition = [
        "patch",
        "crd",
        "inclusterippools.ipam.cluster.x-k8s.io",
        "--type=json",
        "-p",
    ];
    let change = |conversion: Value| {
        let stored = |version| format!("/spec/versions/{version}/storage");
        let patch = json!([
            {"op": "replace", "path": "/spec/conversion", "value": conversion},
            {"op": "replace", "path": stored(0), "value": true},
            {"op": "replace", "path": stored(1), "value": false},
        ]);
        control_plane.kubectl(&[&definition[..], &[&patch.to_string()]].concat());
    };
    change(json!({"strategy": "None"}));
    // Until the API server stores pools in the old version.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}});
    change(json!({"strategy": "Webhook", "webhook": webhook}));

    let manager = Manager::launch(&control_plane, control_plane.provider_kubeconfig(), &[]);
    eventually("the manager is ready", || async {
        is_ok(&manager, "/readyz").then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let missing = manager.probe("/readyz/caches").unwrap_or_default();
    assert!(
        missing.starts_with("HTTP/1.1 503") && missing.contains("- InClusterIPPool: "),
        "{missing}"
    );
    assert!(is_ok(&manager, "/readyz"), "{:?}", manager.probe("/readyz"));
    change(json!({"strategy": "None"}));
    eventually("all caches are synced", || async {
        is_ok(&manager, "/readyz/caches").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_that_lacks_a_permission_is_not_ready() {
    let control_plane = ControlPlane::new();
    let manager = Manager::start(&control_plane, &[]).may_lack_permissions();
    assert!(is_ok(&manager, "/readyz"));
    let bindings = control_plane.kubectl(&["get", "clusterrolebindings", "-o=json"]);
    let bindings: Value = serde_json::from_str(&bindings).expect("kubectl writes JSON");
    let ours = bindings["items"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|item| {
            item["subjects"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|subject| subject["name"] == json!(ACCOUNT))
        });
    let name = ours
        .and_then(|item| item["metadata"]["name"].as_str())
        .expect("there is a binding")
        .to_owned();
    let saved = control_plane.kubectl(&["get", "clusterrolebinding", &name, "-o=json"]);
    control_plane.kubectl(&["delete", "clusterrolebinding", &name]);
    // Open watches continue until they are restarted.
    until_within(
        Duration::from_mins(2),
        "the manager is not ready",
        || async {
            let answer = manager.probe("/readyz")?;
            Some(
                answer.starts_with("HTTP/1.1 503")
                    && answer.contains("IPAddressClaim: ")
                    && answer.contains("is forbidden"),
            )
        },
    )
    .await;
    let mut saved: Value = serde_json::from_str(&saved).expect("kubectl writes JSON");
    saved["metadata"] = json!({"name": name});
    control_plane.kubectl_apply(&saved.to_string());
    eventually("the manager is ready again", || async {
        is_ok(&manager, "/readyz").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_exits_when_a_kind_is_no_longer_served() {
    let control_plane = ControlPlane::new();
    let mut manager = Manager::start(&control_plane, &["--leader-elect"]).may_lack_permissions();
    manager.wait_for_log("acquired leadership lease");
    eventually("all caches are synced", || async {
        manager.is_ready().then_some(())
    })
    .await;
    let started = Instant::now();
    control_plane.kubectl(&[
        "delete",
        "crd",
        "clusters.cluster.x-k8s.io",
        "--timeout=120s",
    ]);
    let status = eventually_within(Duration::from_mins(3), "the manager exits", || {
        let status = manager.exit_status();
        async move { status }
    })
    .await;
    assert!(
        started.elapsed() > Duration::from_secs(25),
        "the CRD may be installed again: {:?}",
        started.elapsed()
    );
    assert_eq!(status.code(), Some(1));
    let log = manager.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.starts_with(
            "error: cannot continue: Cluster: the API server no longer serves this kind in"
        ),
        "{last}"
    );
    assert!(
        log.contains("released leadership lease"),
        "other replicas do not have to wait:\n{log}"
    );
}

/// Kind and name of each CRD that the manager needs, and the CRDs without what the API server adds.
fn needed_definitions(control_plane: &ControlPlane) -> (Vec<(String, String)>, Vec<Value>) {
    let installed = control_plane.kubectl(&["get", "crds", "-o=json"]);
    let installed: Value = serde_json::from_str(&installed).expect("kubectl writes JSON");
    let (mut names, mut definitions) = (Vec::new(), Vec::new());
    for item in installed["items"].as_array().expect("it is a list") {
        let kind = item["spec"]["names"]["kind"]
            .as_str()
            .expect("a CRD has a kind")
            .to_owned();
        if NOT_NEEDED.contains(&kind.as_str()) {
            continue;
        }
        let mut definition = item.clone();
        definition["metadata"] =
            json!({"name": item["metadata"]["name"], "labels": item["metadata"]["labels"]});
        definition["status"] = json!(null);
        names.push((
            kind,
            item["metadata"]["name"]
                .as_str()
                .expect("it has a name")
                .to_owned(),
        ));
        definitions.push(definition);
    }
    (names, definitions)
}

/// A manager that waits for kinds leads and is not ready, and reports each of them.
#[tokio::test(flavor = "multi_thread")]
async fn manager_without_its_kinds_is_not_ready() {
    let control_plane = ControlPlane::new();
    let (needed, definitions) = needed_definitions(&control_plane);
    assert_eq!(
        needed.len(),
        13,
        "three kinds of Cluster API, four kinds of pools, two of sets and four others: {needed:?}"
    );
    let names: Vec<&str> = needed.iter().map(|(_, name)| name.as_str()).collect();
    control_plane.kubectl(&[&["delete", "crd", "--timeout=120s"], &names[..]].concat());

    let metrics = free_port();
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{metrics}");
    let flags = ["--leader-elect", &*diagnostics, "--insecure-diagnostics"];
    let manager = Manager::launch(&control_plane, control_plane.provider_kubeconfig(), &flags);
    for path in ["/readyz", "/readyz/caches"] {
        until(&format!("{path} reports all kinds"), async || {
            let answer = manager
                .probe(path)
                .filter(|answer| answer.starts_with("HTTP/1.1 503"))?;
            let is_reported = |(kind, name): &(String, String)| {
                let text =
                    "the API server does not serve this kind; install the CustomResourceDefinition";
                answer.contains(&format!("\n- {kind}: {text} {name} in version v1"))
            };
            Some(needed.iter().all(is_reported))
        })
        .await;
    }
    let text = eventually("the manager leads", || async {
        let text = scrape(metrics)?;
        text.lines()
            .any(|line| line.starts_with("leader{") && line.ends_with(" 1"))
            .then_some(text)
    })
    .await;
    let caches = needed
        .iter()
        .map(|(kind, _)| kind.as_str())
        .chain(["start of the manager"]);
    for cache in caches {
        assert!(
            text.contains(&format!("cache_synced{{cache=\"{cache}\"}} 0\n")),
            "{cache}: {text}"
        );
    }

    let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
    control_plane.kubectl_apply(&list.to_string());
    eventually("all caches are synced", || async {
        is_ok(&manager, "/readyz/caches").then_some(())
    })
    .await;
    let text = scrape(metrics).unwrap_or_default();
    assert!(
        !text.contains("cache_synced{") || !text.lines().any(is_unsynced),
        "{text}"
    );
}

fn is_unsynced(line: &str) -> bool {
    line.starts_with("cache_synced{") && line.ends_with(" 0")
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_that_never_had_a_permission_is_not_ready() {
    let control_plane = ControlPlane::new();
    control_plane.kubectl(&["create", "serviceaccount", "nobody", "--namespace=default"]);
    let kubeconfig = control_plane.kubeconfig_of_account("default", "nobody");
    let leaderless =
        Manager::launch(&control_plane, &kubeconfig, &["--leader-elect"]).may_lack_permissions();
    let alone = Manager::launch(&control_plane, &kubeconfig, &[]).may_lack_permissions();
    for (manager, reported) in [
        (
            &leaderless,
            &["\n- Lease: GET is not allowed for the lease in namespace default"][..],
        ),
        (
            &alone,
            &[
                "\n- IPAddress: ",
                "\n- IPReservation: ",
                "\n- Namespace: ",
                "is forbidden",
            ],
        ),
    ] {
        for path in ["/readyz", "/readyz/caches"] {
            eventually_ok(&format!("{path} reports {reported:?}"), || async {
                let answer = manager.probe(path).unwrap_or_default();
                let is_complete = reported.iter().all(|text| answer.contains(text));
                if answer.starts_with("HTTP/1.1 503") && is_complete {
                    Ok(())
                } else {
                    Err(answer)
                }
            })
            .await;
        }
    }
}

/// The watches are retried all the time.
#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_is_logged_once_for_each_kind() {
    let control_plane = ControlPlane::new();
    control_plane.kubectl(&["create", "serviceaccount", "nobody", "--namespace=default"]);
    let kubeconfig = control_plane.kubeconfig_of_account("default", "nobody");
    let managers = [&["--leader-elect"][..], &[]]
        .map(|flags| Manager::launch(&control_plane, &kubeconfig, flags).may_lack_permissions());
    managers[0].wait_for_log("GET is not allowed for the lease");
    managers[1].wait_for_log("not allowed to list and watch");
    tokio::time::sleep(Duration::from_secs(20)).await;
    for manager in &managers {
        let log = manager.log();
        let mut seen = HashSet::new();
        for line in log
            .lines()
            .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        {
            // The time comes first.
            let text = line.split_once(' ').map_or(line, |(_, text)| text);
            assert!(seen.insert(text), "logged twice: {line}\n{log}");
        }
        assert!(!seen.is_empty(), "{log}");
    }
}

/// Longer than a watch that begins with a list, and the silence after which one counts as dead.
const QUIET: Duration = Duration::from_secs(80);

#[tokio::test(flavor = "multi_thread")]
async fn quiet_api_server_causes_no_reconnect() {
    let control_plane = ControlPlane::new();
    let manager = Manager::start(&control_plane, &["--leader-elect"]);
    tokio::time::sleep(QUIET).await;
    let log = manager.log();
    assert!(!log.contains("the API server was silent"), "{log}");
}
