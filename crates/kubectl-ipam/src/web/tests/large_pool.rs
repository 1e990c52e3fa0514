//! How long the page takes to show changes of a pool with 100,000 addresses in use.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::InClusterKind;
use serde_json::json;

use super::browser::Browser;
use super::sample::{bind, pool, ready, reference};
use super::serve;
use crate::objects::ServedKinds;
use crate::web::state::State;

/// Measures the script of an update in a pool with 100,000 addresses in use.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement; run it in a release build"]
async fn update_of_100000_addresses_is_fast() {
    let state = Arc::new(State::new(
        "https://management.example.com:6443".to_owned(),
        None,
        ServedKinds::default(),
        false,
    ));
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
