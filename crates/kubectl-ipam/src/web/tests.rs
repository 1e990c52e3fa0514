//! The page in a real browser, with objects that do not come from an API server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use fantoccini::key::Key;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::guard::Guard;
use super::server::Page;
use super::state::{State, Table};
use crate::error::MissingRight;
use crate::load::Readable;
use crate::model::{Report, View, show};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow};
use crate::render::{self, Style};

#[path = "../../tests/browser/mod.rs"]
mod browser;

use browser::Browser;

fn ago(seconds: i64) -> String {
    Timestamp::now()
        .checked_sub(SignedDuration::from_secs(seconds))
        .unwrap()
        .to_string()
}

fn pool(
    state: &State,
    kind: InClusterKind,
    namespace: &str,
    name: &str,
    spec: &Value,
    status: &Value,
) {
    let object: Pool = serde_json::from_value(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(), "spec": spec, "status": status,
        "metadata": {
            "name": name, "namespace": if kind.is_global() { None } else { Some(namespace) },
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"],
        },
    }))
    .unwrap();
    state.update(|tables| {
        tables
            .pools
            .entry(kind)
            .or_default()
            .insert(namespace, name, PoolRow::from(&object))
    });
}

fn ready(counts: &Value) -> Value {
    json!({ "ipAddresses": counts, "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready",
            "message": "", "lastTransitionTime": ago(9000) }] })
}

fn claim(
    namespace: &str,
    name: &str,
    pool: &Value,
    seconds: i64,
    status: &Value,
) -> IPAddressClaim {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": ago(seconds),
            "labels": { "cluster.x-k8s.io/cluster-name": "prod" },
            "ownerReferences": [{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM",
                                  "name": format!("prod-{name}"), "uid": "1", "controller": true }],
        },
        "spec": { "poolRef": pool, "clusterName": "prod" }, "status": status,
    }))
    .unwrap()
}

/// A claim with its address.
fn bind(state: &State, namespace: &str, name: &str, pool: &Value, address: &str, prefix: u8) {
    let claim = claim(
        namespace,
        name,
        pool,
        86_400 * 3,
        &json!({ "addressRef": { "name": name } }),
    );
    let object: IPAddress = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace, "creationTimestamp": ago(86_400 * 3) },
        "spec": { "poolRef": pool, "claimRef": { "name": name }, "address": address, "prefix": prefix },
    }))
    .unwrap();
    state.update(|tables| {
        tables
            .claims
            .insert(namespace, name, ClaimRow::of(&claim).unwrap());
        tables
            .addresses
            .insert(namespace, name, AddressRow::of(&object).unwrap());
    });
}

fn wait(
    state: &State,
    namespace: &str,
    name: &str,
    pool: &Value,
    seconds: i64,
    reason: &str,
    message: &str,
) {
    let condition = json!({ "type": "Ready", "status": "False", "reason": reason, "message": message,
                            "lastTransitionTime": ago(seconds) });
    let claim = claim(
        namespace,
        name,
        pool,
        seconds,
        &json!({ "conditions": [condition] }),
    );
    state.update(|tables| {
        tables
            .claims
            .insert(namespace, name, ClaimRow::of(&claim).unwrap())
    });
}

fn reserve(state: &State, scope: &str, pool: &Value, address: &str, spec: &Value) {
    let name = format!("{scope}.{address}");
    let mut all = json!({ "scope": scope, "address": address, "poolRef": pool });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let object: IPReservation = serde_json::from_value(
        json!({ "metadata": { "name": name, "creationTimestamp": ago(600) }, "spec": all }),
    )
    .unwrap();
    let row = ReservationRow::of(&object).unwrap_or_else(|| panic!("{name} has no effect"));
    state.update(|tables| tables.reservations.insert("", &name, row));
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": name })
}

/// Serves the page, and returns its address.
async fn serve(state: &Arc<State>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let guard = Guard::new(listener.local_addr().unwrap().port());
    let address = guard.address();
    tokio::spawn(Page::new(guard, Arc::clone(state)).serve(listener));
    address
}

fn sample() -> Arc<State> {
    let state = Arc::new(State::new("https://management.example.com:6443".to_owned()));
    let web = reference("InClusterIPPool", "web");
    let data = reference("GlobalInClusterIPPool", "data-center");
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.250"], "prefix": 24, "gateway": "10.0.0.1",
                       "excludedAddresses": ["10.0.0.100-10.0.0.109"], "addressReuseGracePeriodSeconds": 3600 });
    let counts = json!({ "total": 231, "used": 120, "free": 99, "outOfRange": 0, "reserved": 5, "coolingDown": 7 });
    for number in 0..120 {
        let last = if number < 90 {
            10 + number
        } else {
            110 + number - 90
        };
        bind(
            &state,
            "team-a",
            &format!("web-{number}"),
            &web,
            &format!("10.0.0.{last}"),
            24,
        );
    }
    for last in 150..157 {
        reserve(
            &state,
            "p.team-a.web",
            &json!({ "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" }),
            &format!("10.0.0.{last}"),
            &json!({ "releasedAt": ago(900), "claimRef": { "namespace": "team-a", "name": format!("old-{last}"), "uid": "u" } }),
        );
    }
    for last in 200..205 {
        reserve(
            &state,
            "p.team-a.web",
            &json!({ "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" }),
            &format!("10.0.0.{last}"),
            &json!({}),
        );
    }
    pool(
        &state,
        InClusterKind::IPPool,
        "team-a",
        "web",
        &spec,
        &ready(&counts),
    );
    let spec = json!({ "addresses": ["172.16.0.0/16"], "prefix": 16, "gateway": "172.16.0.1", "network": "backbone" });
    let counts = json!({ "total": 65_533, "used": 6_000, "free": 59_533, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalIPPool,
        "",
        "data-center",
        &spec,
        &ready(&counts),
    );
    for number in 2_u32..6_002 {
        let number = number + (number / 700) * 3_000;
        let address = format!("172.16.{}.{}", number / 256, number % 256);
        bind(
            &state,
            "team-b",
            &format!("node-{number}"),
            &data,
            &address,
            16,
        );
    }
    let spec = json!({ "addresses": ["192.168.7.20-192.168.7.27"], "prefix": 24, "gateway": "192.168.7.1" });
    let counts = json!({ "total": 8, "used": 8, "free": 0, "outOfRange": 1, "reserved": 0, "coolingDown": 0 });
    let mut status = ready(&counts);
    let exhausted = json!({ "type": "Exhausted", "status": "True", "reason": "Exhausted", "lastTransitionTime": ago(60),
                            "message": "All 8 addresses are in use." });
    status["conditions"].as_array_mut().unwrap().push(exhausted);
    pool(
        &state,
        InClusterKind::IPPool,
        "team-b",
        "edge",
        &spec,
        &status,
    );
    let edge = reference("InClusterIPPool", "edge");
    for number in 0..8 {
        bind(
            &state,
            "team-b",
            &format!("edge-{number}"),
            &edge,
            &format!("192.168.7.{}", 20 + number),
            24,
        );
    }
    bind(&state, "team-b", "edge-old", &edge, "192.168.7.99", 24);
    let message = "The pool InClusterIPPool team-b/edge has no free address.";
    wait(
        &state,
        "team-b",
        "edge-8",
        &edge,
        7_300,
        "PoolExhausted",
        message,
    );
    wait(
        &state,
        "team-b",
        "edge-9",
        &edge,
        610,
        "PoolExhausted",
        message,
    );
    let none = reference("InClusterIPPool", "storage");
    wait(
        &state,
        "team-c",
        "disk-0",
        &none,
        95,
        "PoolNotFound",
        "The pool InClusterIPPool team-c/storage does not exist.",
    );
    let spec = json!({ "prefixes": ["fd00:10::/40"], "allocationPrefixLength": 64, "network": "backbone" });
    let counts = json!({ "total": 16_777_216, "used": 3, "free": 16_777_213, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalPrefixPool,
        "",
        "pods",
        &spec,
        &ready(&counts),
    );
    let pods = reference("GlobalInClusterPrefixPool", "pods");
    for number in 0..3 {
        bind(
            &state,
            "team-b",
            &format!("pods-{number}"),
            &pods,
            &format!("fd00:10:0:{number}::"),
            64,
        );
    }
    let spec = json!({ "addresses": ["10.9.0.0/33"], "prefix": 24 });
    let status = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "InvalidSpec",
                         "message": "", "lastTransitionTime": ago(60) }] });
    pool(
        &state,
        InClusterKind::IPPool,
        "team-c",
        "broken",
        &spec,
        &status,
    );
    state.finish_lists();
    for used in [104, 108, 107, 112, 112, 113, 115, 114, 118, 119, 120] {
        state.sample_of("web", used);
    }
    state
}

fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/screenshots")
        .join(format!("{name}.png"))
}

/// Writes a picture of the page, of its first 3,000 pixels if it is longer.
async fn take_picture(browser: &Browser, width: u32, name: &str) {
    let height = browser
        .run("return document.documentElement.scrollHeight")
        .await
        .as_u64()
        .unwrap_or_default();
    browser
        .resize(
            width,
            u32::try_from(height).unwrap_or(u32::MAX).clamp(600, 3_000),
        )
        .await;
    let path = picture(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, browser.driver.screenshot().await.unwrap()).unwrap();
    browser.resize(width, 900).await;
}

/// Writes pictures of all views to `target/screenshots`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files; run it to look at the page"]
async fn screenshots() {
    let state = sample();
    let address = serve(&state).await;
    let browser = Browser::start().await;
    let base = address.split("/?").next().unwrap().to_owned();
    browser.resize(1280, 900).await;
    browser.open(&address).await;
    browser
        .wait_for("document.querySelectorAll('.pools tbody tr').length === 5")
        .await;
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme).await;
        for (width, size) in [(1280, "wide"), (390, "phone")] {
            browser.resize(width, 900).await;
            let shot = async |name: &str| {
                let scroll = browser
                    .run("return document.documentElement.scrollWidth")
                    .await;
                assert!(
                    scroll.as_u64().unwrap() <= u64::from(width),
                    "{name} {size} scrolls: {scroll}"
                );
                take_picture(&browser, width, &format!("{name}-{size}-{scheme}")).await;
            };
            browser.open(&format!("{base}/#/")).await;
            browser
                .wait_for("document.querySelectorAll('.pools tbody tr').length === 5")
                .await;
            shot("overview").await;
            browser
                .open(&format!(
                    "{base}/#/pool/InClusterIPPool/team-a/web?at=10.0.0.12"
                ))
                .await;
            browser
                .wait_for("document.querySelectorAll('.cell.allocated').length > 100")
                .await;
            shot("pool").await;
            browser
                .open(&format!(
                    "{base}/#/pool/GlobalInClusterIPPool/-/data-center"
                ))
                .await;
            browser
                .wait_for("document.querySelectorAll('.map .cell').length === 1024")
                .await;
            shot("map").await;
            browser
                .run("document.querySelector('.map .cell').focus()")
                .await;
            browser
                .press(&format!("{r}{r}{e}", r = &*Key::Right, e = &*Key::Enter))
                .await;
            browser
                .wait_for("document.querySelector('.trail:not([hidden])')")
                .await;
            shot("zoomed").await;
            browser
                .open(&format!("{base}/#/pool/InClusterIPPool/team-b/edge"))
                .await;
            browser
                .wait_for("document.querySelectorAll('.map .cell').length === 32")
                .await;
            shot("exhausted").await;
            browser.open(&format!("{base}/#/search?q=10.0.0.12")).await;
            browser
                .wait_for("document.querySelectorAll('.holders tbody tr').length === 1")
                .await;
            shot("address").await;
            browser.open(&format!("{base}/#/search?q=web-11")).await;
            browser
                .wait_for("document.querySelectorAll('.claims tbody tr').length === 11")
                .await;
            shot("search").await;
            browser.open(&format!("{base}/#/waiting")).await;
            browser
                .wait_for("document.querySelectorAll('.claims tbody tr').length === 3")
                .await;
            shot("waiting").await;
        }
    }
    assert_eq!(
        browser.log().await,
        "",
        "no violation of the policy, no error"
    );
    browser.close().await;
}

/// Writes the pictures of the documentation: the page, and a command in a terminal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files of the documentation"]
async fn documentation_pictures() {
    let state = sample();
    let address = serve(&state).await;
    let base = address.split("/?").next().unwrap().to_owned();
    let images = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let browser = Browser::start().await;
    browser.open(&address).await;
    for (name, view, cells) in [
        ("web-overview", "", ".pools tbody tr:nth-child(5)"),
        (
            "web-pool",
            "pool/InClusterIPPool/team-a/web?at=10.0.0.12",
            ".cell.allocated",
        ),
    ] {
        browser.resize(1180, 780).await;
        browser.open(&format!("{base}/#/{view}")).await;
        browser
            .wait_for(&format!("document.querySelector('{cells}')"))
            .await;
        std::fs::write(
            images.join(format!("{name}.png")),
            browser.driver.screenshot().await.unwrap(),
        )
        .unwrap();
    }
    browser.resize(860, 560).await;
    browser.open("about:blank").await;
    let lines = [
        ["$ kubectl ipam show web -n team-a".to_owned()].as_slice(),
        &shown(&state),
    ]
    .concat();
    let script = format!("({})({})", include_str!("tests/terminal.js"), json!(lines));
    browser.run(&script).await;
    std::fs::write(
        images.join("kubectl-ipam-show.png"),
        browser.driver.screenshot().await.unwrap(),
    )
    .unwrap();
    browser.close().await;
}

#[test]
fn what_may_not_be_listed_is_unknown() {
    let state = sample();
    let right = |resource: &str| MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    };
    let web = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
    let all = state.overview();
    assert!(all.waiting.is_some() && all.bound.is_some() && state.search("10.0.0.10").is_complete);
    assert!(
        state
            .pool(&web, View::All)
            .unwrap()
            .unwrap()
            .window
            .is_some()
    );

    state.update(|tables| {
        tables.claims.missing(MissingRight {
            verb: "watch",
            ..right("claims")
        })
    });
    assert!(
        state.overview().waiting.is_some(),
        "a list that is not watched is read again"
    );
    state.update(|tables| tables.claims.missing(right("claims")));
    let unknown = state.overview();
    assert_eq!((unknown.waiting, unknown.bound), (None, None));
    assert!(unknown.pools.iter().all(|pool| pool.line.waiting.is_none()));
    assert_eq!(
        state.pool(&web, View::All).unwrap().unwrap().waiting_count,
        None
    );
    assert!(!state.search("web-1").is_complete);

    state.update(|tables| tables.reservations.missing(right("reservations")));
    let pool = state.pool(&web, View::All).unwrap().unwrap();
    assert!(
        pool.window.is_none() && pool.details.counts.free.is_none(),
        "what is free is unknown"
    );
    let missing = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "none");
    assert!(state.pool(&missing, View::All).unwrap().is_none());
    state.update(|tables| {
        tables
            .pools
            .entry(InClusterKind::IPPool)
            .or_default()
            .missing(right("pools"))
    });
    assert!(
        state.pool(&missing, View::All).is_err(),
        "it is unknown whether there is such a pool"
    );
}

/// The first lines of `show` with colors.
fn shown(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    state.update(|tables| {
        let pools: Vec<PoolRow> = tables
            .pools
            .values()
            .flat_map(Table::iter)
            .cloned()
            .collect();
        let pool = pools
            .iter()
            .find(|pool| pool.key.name.as_ref() == "web")
            .unwrap();
        let addresses: Vec<_> = tables
            .addresses
            .iter()
            .filter(|row| row.pool == pool.key)
            .cloned()
            .collect();
        let reservations: Vec<_> = tables.reservations.iter().cloned().collect();
        let (addresses, reservations) = (
            Readable::complete(addresses),
            Readable::complete(reservations),
        );
        let claims = Readable::complete(tables.claims.iter().cloned().collect());
        let slices = Readable::complete(Vec::new());
        let all = Readable::complete(pools.as_slice());
        let details = show(pool, &all, &addresses, &reservations, &slices, &claims);
        let style = Style {
            color: true,
            wide: false,
            namespaces: false,
            headers: true,
            now: Timestamp::now(),
        };
        lines = render::text(&Report::PoolDetails(Box::new(details)), style)
            .lines()
            .take(24)
            .map(str::to_owned)
            .collect();
    });
    lines
}

/// Measures the script of an update in a pool with 100,000 addresses in use.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement; run it in a release build"]
async fn update_of_100000_addresses_is_fast() {
    let state = Arc::new(State::new("https://management.example.com:6443".to_owned()));
    let large = reference("GlobalInClusterIPPool", "large");
    let spec = json!({ "addresses": ["10.0.0.0/15"], "prefix": 15, "gateway": "10.0.0.1" });
    let counts = |used: u32| json!({ "total": 131_069, "used": used, "free": 131_069 - used, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalIPPool,
        "",
        "large",
        &spec,
        &ready(&counts(100_000)),
    );
    let address = |number: u32| std::net::Ipv4Addr::from(0x0a00_0002 + number).to_string();
    for number in 0..100_000 {
        bind(
            &state,
            "team",
            &format!("node-{number}"),
            &large,
            &address(number),
            15,
        );
    }
    state.finish_lists();
    let entry = serve(&state).await;
    let base = entry.split("/?").next().unwrap().to_owned();
    let browser = Browser::start().await;
    browser.open(&entry).await;
    browser
        .wait_for("document.querySelectorAll('.pools tbody tr').length === 1")
        .await;
    // The browser reports tasks of more than 50 ms.
    let observe = "new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
    }).observe({ type: 'longtask' })";
    browser.run(observe).await;
    for (name, hash, cells) in [
        ("overview", "", 0),
        ("whole map", "?", 1024),
        ("1024 single addresses", "?start=98304&length=1024", 1024),
    ] {
        let path = if name == "overview" {
            String::new()
        } else {
            format!("pool/GlobalInClusterIPPool/-/large{hash}")
        };
        browser.open(&format!("{base}/#/{path}")).await;
        if cells > 0 {
            browser
                .wait_for(&format!(
                    "document.querySelectorAll('.map .cell').length === {cells}"
                ))
                .await;
        }
        browser.run("window.longest = 0").await;
        for round in 0..20_u32 {
            for number in 0..50 {
                let number = 99_000 + round * 50 + number;
                bind(
                    &state,
                    "team",
                    &format!("later-{number}"),
                    &large,
                    &address(number + 1_000),
                    15,
                );
            }
            pool(
                &state,
                InClusterKind::GlobalIPPool,
                "",
                "large",
                &spec,
                &ready(&counts(100_000 + round * 50)),
            );
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let longest = browser.run("return window.longest").await;
        let longest = longest.as_f64().unwrap();
        println!("{name}: the longest task of more than 50 ms takes {longest:.1} ms");
        assert!(longest <= 100.0, "{name}: an update takes {longest} ms");
    }
    assert_eq!(browser.log().await, "");
    browser.close().await;
}
