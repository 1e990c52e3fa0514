//! The alerts and the dashboard, with promtool and with a real Prometheus that scrapes real
//! managers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod claims;
mod manager;
mod registries;
mod server;
mod webhooks;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use support::{control_plane::ensure, ports::free_port, prelude::*, process::TemporaryFolder};

use crate::server::{Prometheus, scraped};

/// Panels that have no data in the first minutes, or without a failure.
const WITHOUT_DATA: [&str; 2] = ["Free addresses in 24 hours", "Failures of watches"];

/// Panels that have data if there is a registry.
const OF_REGISTRIES: [&str; 4] = [
    "Reachable registries",
    "Blocks of networks",
    "Claims that wait for a block",
    "Requests to registries",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The groups of rules.
fn rules() -> Value {
    let rule: Value =
        serde_saphyr::from_str(&read("config/prometheus/rules.yaml")).expect("the rules are YAML");
    rule["spec"].clone()
}

/// All alerts.
fn alerts(rules: &Value) -> Vec<Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups
        .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
        .collect()
}

fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

/// The titles and queries of the panels of the dashboard, with values for its variables.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&read("config/grafana/dashboard.json")).expect("it is JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = text(&target["expr"]).replace("$__rate_interval", "30s");
            let query = ["$kind", "$namespace", "$pool"]
                .iter()
                .fold(query, |query, name| query.replace(name, ".*"));
            queries.push((text(&panel["title"]).to_owned(), query));
        }
    }
    queries
}

fn program(name: &str) -> PathBuf {
    Path::new(&ensure(&["prometheus"])).join(name)
}

fn promtool(folder: &Path, arguments: &[&str]) {
    let output = Command::new(program("promtool"))
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.expect("promtool can be started");
    let printed =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        output.status.success(),
        "promtool {arguments:?}:\n{}",
        printed.join("\n")
    );
}

#[test]
fn each_alert_fires_and_stays_silent_as_intended() {
    let folder = TemporaryFolder::new("capi-ipam-alerts-");
    fs::write(folder.path().join("rules.yaml"), rules().to_string())
        .expect("a file can be written");
    let mut tests = vec!["test", "rules"];
    let names = [
        "claims.yaml",
        "manager.yaml",
        "pools.yaml",
        "registries.yaml",
        "webhooks.yaml",
    ];
    let mut expected = String::new();
    for name in names {
        let cases = read(&format!("tests/prometheus/alerts/{name}"));
        fs::write(folder.path().join(name), &cases).expect("a file can be written");
        expected += &cases;
        tests.push(name);
    }
    promtool(
        folder.path(),
        &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"],
    );
    promtool(folder.path(), &tests);
    for alert in alerts(&rules()) {
        let name = text(&alert["alert"]);
        assert!(
            expected.contains(&format!("{{alertname=\"{name}\"}}")),
            "no test expects {name} to fire"
        );
    }
}

#[test]
fn cause_of_each_alert_is_made_on_a_real_system() {
    let causes = [
        include_str!("claims.rs"),
        include_str!("manager.rs"),
        include_str!("registries.rs"),
        include_str!("webhooks.rs"),
    ];
    let causes = causes.concat();
    for alert in alerts(&rules()) {
        let name = text(&alert["alert"]);
        assert!(
            causes.contains(&format!("wait_for_alert(\"{name}\")")),
            "no test makes the cause of {name}"
        );
    }
}

#[test]
fn each_alert_has_a_section_of_the_runbook() {
    let runbook = read("docs/runbook.md");
    let sections: BTreeSet<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let (rules, mut named) = (rules(), BTreeSet::new());
    let alerts = alerts(&rules);
    for alert in &alerts {
        let name = text(&alert["alert"]);
        let link = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook_url"], link);
        assert!(
            ["critical", "warning", "info"].contains(&text(&alert["labels"]["severity"])),
            "{alert}"
        );
        named.insert(name);
    }
    assert_eq!(named, sections);
}

#[test]
fn metrics_of_alerts_and_dashboard_exist() {
    let documentation = read("docs/metrics.md");
    let expressions = alerts(&rules())
        .iter()
        .map(|alert| text(&alert["expr"]).to_owned())
        .collect::<Vec<_>>();
    let prefixes = [
        "capi_ipam_",
        "controller_",
        "apiserver_",
        "watch_",
        "webhook_",
        "cache_synced",
    ];
    for expression in expressions
        .into_iter()
        .chain(queries().into_iter().map(|(_, query)| query))
    {
        let words =
            expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let metrics: Vec<_> = words
            .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
            .collect();
        assert!(
            !metrics.is_empty() || expression.contains("leader"),
            "{expression}"
        );
        for metric in metrics {
            let base = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|suffix| metric.strip_suffix(suffix));
            let is_known = |name: &str| documentation.contains(&format!("| `{name}` |"));
            assert!(
                is_known(metric) || base.is_some_and(is_known),
                "{metric} in {expression}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_have_results_for_a_real_manager() {
    let plane = ControlPlane::new();
    let (metrics, webhooks) = (free_port(), Webhooks::new(&plane));
    let [address, plain] = scraped(metrics);
    let [port, certificates] = webhooks.flags();
    let flags = [
        &*address,
        &*plain,
        "--leader-elect",
        &*format!("--leader-election-namespace={NAMESPACE}"),
        &*port,
        &*certificates,
    ];
    let _manager = Manager::start(&plane, &flags);
    webhooks.register(&plane);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind("a", "web").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;

    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    for (title, query) in queries() {
        let title_in = |titles: &[&str]| titles.contains(&title.as_str());
        if title_in(&WITHOUT_DATA) || title_in(&OF_REGISTRIES) {
            let result =
                eventually("Prometheus answers", || async { prometheus.query(&query) }).await;
            result.unwrap_or_else(|error| panic!("{title}: {query}: {error}"));
        } else {
            prometheus.wait_for(&query).await;
        }
    }
    for alert in alerts(&rules()) {
        let query = text(&alert["expr"]);
        let result = eventually("Prometheus answers", || async { prometheus.query(query) }).await;
        result.unwrap_or_else(|error| panic!("{}: {error}", alert["alert"]));
    }
}
