//! Warnings: what is not wrong and yet probably not meant is said to whoever writes a pool, and the pool is written.

use capi_ipam::api::InClusterKind::{self, GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use capi_ipam::ask::{ask, Asker, JSON};
use capi_ipam::support::consumer::{Consumer, eventually, unique};
use capi_ipam::wired;
use serde_json::{json, Value};

async fn asker() -> Asker {
    Asker::new(&Consumer::new(&wired().plane).await)
}

/// Makes sure that these warnings, and no others, are said to the creation of a pool, and to the change of one that had
/// nothing to warn of.
async fn warns(kind: InClusterKind, spec: Value, expected: &[&str]) {
    let asker = asker().await;
    let (name, other) = (unique("warned"), unique("warned"));
    let created = asker.create(kind, &name, &spec).await;
    assert!(created.is_ok(), "{created:?}");
    assert_eq!(created.warnings, expected);
    let direct = ask(&wired().webhooks, kind, "CREATE", &Value::Null, &asker.pool(kind, &name, &spec)).await;
    assert_eq!(direct.warnings, expected);
    // What leaves the specification alone is not worth a word.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(asker.change(kind, &name, &labels).await.warnings, [""; 0]);
    asker.delete(kind, &name).await.done();

    let mut before = spec.clone();
    for field in ["gateway", "excludedAddresses", "excludedPrefixes"] {
        before.as_object_mut().expect("a specification is an object").remove(field);
    }
    asker.create(kind, &other, &before).await.done();
    let change = json!({"spec": spec});
    if before != spec {
        eventually("the first pool is forgotten, and there are just these warnings", || async {
            (asker.try_change(kind, &other, &change).await.warnings == expected).then_some(())
        })
        .await;
    }
    asker.change(kind, &other, &change).await.done();
    asker.delete(kind, &other).await.done();
}

#[tokio::test]
async fn a_pool_that_is_as_meant_gets_none() {
    for (kind, third) in [(IPPool, 0), (GlobalIPPool, 1)] {
        let spec = json!({"addresses": [format!("100.64.{third}.0/24")], "prefix": 24,
                          "gateway": format!("100.64.{third}.1"), "excludedAddresses": [format!("100.64.{third}.200")]});
        warns(kind, spec, &[]).await;
    }
    for (kind, second) in [(PrefixPool, 1), (GlobalPrefixPool, 2)] {
        let spec = json!({"prefixes": [format!("fd64:{second}::/48")], "gateway": "fe80::1",
                          "excludedPrefixes": [format!("fd64:{second}::/60")]});
        warns(kind, spec, &[]).await;
    }
}

#[tokio::test]
async fn a_gateway_outside_of_the_subnet() {
    for (kind, third) in [(IPPool, 2), (GlobalIPPool, 3)] {
        let addresses = format!("100.64.{third}.10-100.64.{third}.20");
        let spec = json!({"addresses": [addresses], "prefix": 24, "gateway": "192.168.0.1"});
        let expected = format!("spec.gateway: 192.168.0.1 is outside of the subnet 100.64.{third}.0/24");
        warns(kind, spec, &[&expected]).await;
    }
}

#[tokio::test]
async fn exclusions_that_exclude_nothing() {
    for (kind, third) in [(IPPool, 4), (GlobalIPPool, 5)] {
        let spec = json!({"addresses": [format!("100.64.{third}.10-100.64.{third}.20")], "prefix": 24,
                          "excludedAddresses": [format!("100.64.{third}.20"), "10.99.0.0/16"]});
        let expected = "spec.excludedAddresses[1]: 10.99.0.0/16 excludes nothing, it is not in the pool";
        warns(kind, spec, &[expected]).await;
    }
    for (kind, second) in [(PrefixPool, 4), (GlobalPrefixPool, 5)] {
        let spec = json!({"prefixes": [format!("fd64:{second}::/48")], "excludedPrefixes": ["fd99::/64"]});
        let expected = "spec.excludedPrefixes[0]: fd99::/64 excludes nothing, it is not in the pool";
        warns(kind, spec, &[expected]).await;
    }
}

#[tokio::test]
async fn prefixes_that_are_single_addresses() {
    for (kind, second) in [(PrefixPool, 6), (GlobalPrefixPool, 7)] {
        let spec = json!({"prefixes": [format!("fd64:{second}::/120")], "allocationPrefixLength": 128});
        let expected =
            "spec.allocationPrefixLength: 128 gives single addresses; a pool of addresses may be what you want";
        warns(kind, spec, &[expected]).await;
    }
}

#[tokio::test]
async fn a_gateway_within_the_prefixes() {
    for (kind, second) in [(PrefixPool, 8), (GlobalPrefixPool, 9)] {
        let gateway = format!("fd64:{second}::1");
        let spec = json!({"prefixes": [format!("fd64:{second}::/48")], "gateway": gateway});
        let expected = format!("spec.gateway: {gateway} is within the pool and is not kept out of it");
        warns(kind, spec, &[&expected]).await;
    }
}

#[tokio::test]
async fn an_overlap_with_another_pool() {
    let asker = asker().await;
    let (first, second) = (unique("overlapping"), unique("overlapping"));
    asker.create(GlobalIPPool, &first, &json!({"addresses": ["100.64.10.0/24"], "prefix": 24})).await.done();
    let spec = json!({"addresses": ["100.64.10.200-100.64.10.210"], "prefix": 24});
    let said = eventually("the overlap is noticed", || async {
        let said = asker.try_create(IPPool, &second, &spec).await;
        (!said.warnings.is_empty()).then_some(said)
    })
    .await;
    let text = format!(
        "the same addresses can be given out by GlobalInClusterIPPool {first}; pools with the same spec.network never do"
    );
    assert_eq!((said.code, &said.warnings), (201, &vec![text.clone()]));
    // A pool of prefixes overlaps with pools of addresses too.
    let prefixes = json!({"prefixes": ["100.64.0.0/18"], "allocationPrefixLength": 24});
    let said = asker.try_create(PrefixPool, &second, &prefixes).await;
    assert!(said.warnings.iter().any(|warning| warning.contains("pools with the same spec.network")), "{said:?}");
    // A pool does not overlap with itself, and not with one of its network.
    let more = json!({"spec": {"addresses": ["100.64.10.0/25"]}});
    assert_eq!(asker.try_change(GlobalIPPool, &first, &more).await.warnings, [""; 0]);
    let (lab, third) = (unique("lab"), unique("overlapping"));
    let networked = |addresses: &str| json!({"addresses": [addresses], "prefix": 24, "network": lab});
    asker.create(IPPool, &third, &networked("100.64.11.0/24")).await.done();
    let said = asker.create(GlobalIPPool, &unique("overlapping"), &networked("100.64.11.0/25")).await;
    assert_eq!((said.code, said.warnings), (201, Vec::new()));
}

#[tokio::test]
async fn the_old_version_is_warned_of_the_same() {
    let asker = asker().await;
    for (kind, second) in [(IPPool, 12), (GlobalIPPool, 13)] {
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(), "metadata": {"name": unique("old")},
            "spec": {"subnet": format!("100.64.{second}.0/24"), "gateway": "192.168.0.1"},
        });
        let said = asker.call("POST", &asker.path(kind, "v1alpha1", ""), JSON, &pool).await;
        let text = |what: &str| said.warnings.iter().any(|warning| warning.contains(what));
        assert!(said.code == 201 && text("192.168.0.1 is outside of the subnet") && text("deprecated"), "{said:?}");
    }
}

#[test]
fn kubectl_prints_them() {
    let plane = &wired().plane;
    let file = plane.folder().join("warned.json");
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
        "metadata": {"name": unique("kubectl")},
        "spec": {"addresses": ["100.64.14.0/24"], "prefix": 24, "gateway": "192.168.0.1"},
    });
    std::fs::write(&file, pool.to_string()).expect("a file can be written");
    // With this flag a warning is a failure, whose text is what kubectl prints.
    let said = plane.try_kubectl(&["create", "--warnings-as-errors", "-f", &file.display().to_string()]);
    let text = said.expect_err("there is a warning");
    assert!(text.contains("Warning: spec.gateway: 192.168.0.1 is outside of the subnet 100.64.14.0/24"), "{text}");
}
