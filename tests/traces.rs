//! Traces of a manager, exported to a real OpenTelemetry collector.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
};

use support::{control_plane::ensure, ports::free_port, prelude::*, process::Supervised};

/// A trace that is sampled, and one that is not.
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A collector that appends the spans it receives to a file.
struct Collector {
    _process: Supervised,
    port: u16,
    spans: PathBuf,
}

impl Collector {
    async fn start(folder: &Path) -> Self {
        let (port, spans) = (free_port(), folder.join("spans.json"));
        let configuration = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": format!("127.0.0.1:{port}")}}}},
            "exporters": {"file": {"path": spans, "flush_interval": "100ms"}},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let file = folder.join("collector.yaml");
        fs::write(&file, configuration.to_string()).expect("the folder is writable");
        let program = Path::new(&ensure(&["otel-collector"])).join("otel-collector");
        let arguments = [format!("--config=file:{}", file.display())];
        let process = Supervised::spawn(&program, &arguments, &[], &folder.join("collector.log"));
        eventually("the collector listens", || async {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        })
        .await;
        Self {
            _process: process,
            port,
            spans,
        }
    }

    fn flag(&self) -> String {
        format!("--otlp-endpoint=http://127.0.0.1:{}", self.port)
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Span> {
        let text = fs::read_to_string(&self.spans).unwrap_or_default();
        let batches = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        batches.flat_map(|batch| Span::of_batch(&batch)).collect()
    }

    /// Waits for a span with this name and attribute.
    async fn span(&self, name: &str, attribute: &str, value: &str) -> Span {
        eventually(
            &format!("a span {name} with {attribute}={value}"),
            || async {
                self.spans()
                    .into_iter()
                    .find(|span| span.name == name && span.attribute(attribute) == value)
            },
        )
        .await
    }

    /// Waits for the span of the attempt that succeeded for a claim.
    async fn done(&self, name: &str, claim: &str) -> Span {
        eventually(
            &format!("a span {name} of {claim} that is done"),
            || async {
                let is_done = |span: &Span| {
                    span.attribute("claim") == claim && span.attribute("outcome") == "done"
                };
                self.spans()
                    .into_iter()
                    .find(|span| span.name == name && is_done(span))
            },
        )
        .await
    }

    /// Waits for a step of the binding of a claim. An attempt does not repeat what a failed one has
    /// done.
    async fn step_of_bind(&self, claim: &str, step: &str) -> Span {
        eventually(&format!("a span {step} of {claim}"), || async {
            let all = self.spans();
            let is_bind =
                |span: &Span| span.name == "claim.bind" && span.attribute("claim") == claim;
            let is_step = |span: &Span| {
                span.name == step
                    && all
                        .iter()
                        .any(|parent| parent.id == span.parent && is_bind(parent))
            };
            all.iter().find(|span| is_step(span)).cloned()
        })
        .await
    }

    /// Waits for the child of a span.
    async fn child(&self, parent: &Span, name: &str) -> Span {
        eventually(&format!("a span {name} in {}", parent.name), || async {
            self.spans()
                .into_iter()
                .find(|span| span.name == name && span.parent == parent.id)
        })
        .await
    }
}

#[derive(Clone, Debug)]
struct Span {
    name: String,
    trace: String,
    id: String,
    parent: String,
    attributes: Value,
    resource: Value,
    status: Value,
}

impl Span {
    fn of_batch(batch: &Value) -> Vec<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut spans = Vec::new();
        for resource in list(&batch["resourceSpans"]) {
            for span in list(&resource["scopeSpans"])
                .iter()
                .flat_map(|scope| list(&scope["spans"]))
            {
                spans.push(Self {
                    name: text(&span["name"]),
                    trace: text(&span["traceId"]),
                    id: text(&span["spanId"]),
                    parent: text(&span["parentSpanId"]),
                    attributes: span["attributes"].clone(),
                    resource: resource["resource"]["attributes"].clone(),
                    status: span["status"].clone(),
                });
            }
        }
        spans
    }

    fn attribute(&self, name: &str) -> String {
        value_of(&self.attributes, name)
    }
}

/// The value of an attribute as text.
fn value_of(attributes: &Value, name: &str) -> String {
    let found = attributes
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["key"] == name);
    let value = found
        .and_then(|one| one["value"].as_object()?.values().next())
        .cloned()
        .unwrap_or_default();
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

async fn with_pool(plane: &ControlPlane) -> Consumer {
    let consumer = Consumer::new(plane).await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer
}

async fn create_claim(consumer: &Consumer, name: &str, parent: &str) {
    let metadata = json!({"annotations": {"traceparent": parent, "large": "x".repeat(1000)}});
    consumer
        .create_claim_with_metadata(name, "web", metadata)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_a_claim_belong_to_its_trace() {
    let plane = ControlPlane::new();
    let collector = Collector::start(plane.folder()).await;
    let flags = [
        &collector.flag(),
        "--log-format=json",
        "--sweep-interval=1s",
    ];
    let manager = Manager::start(&plane, &flags);
    let consumer = with_pool(&plane).await;
    create_claim(&consumer, "a", SAMPLED).await;
    consumer.wait_for_address("a").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer.release("a").await;
    consumer.wait_for_address("b").await;

    let bind = collector.done("claim.bind", "a").await;
    let [_, trace, parent, _] =
        <[&str; 4]>::try_from(SAMPLED.split('-').collect::<Vec<_>>()).expect("it has 4 parts");
    assert_eq!((bind.trace.as_str(), bind.parent.as_str()), (trace, parent));
    for (attribute, value) in [
        ("namespace", &*consumer.namespace),
        ("pool", "web"),
        ("address", "10.0.0.1"),
    ] {
        assert_eq!(bind.attribute(attribute), value, "{attribute} of {bind:?}");
    }
    assert!(
        bind.attribute("attempt")
            .parse()
            .is_ok_and(|attempt: u32| attempt >= 1),
        "{bind:?}"
    );
    assert_eq!(
        value_of(&bind.resource, "service.name"),
        "capi-ipam-in-cluster"
    );
    assert_eq!(
        value_of(&bind.resource, "service.version"),
        env!("CARGO_PKG_VERSION")
    );
    for step in ["finalizer", "allocate", "create_address", "commit"] {
        assert_eq!(
            collector.step_of_bind("a", step).await.trace,
            trace,
            "{step}"
        );
    }
    let allocate = collector.step_of_bind("a", "allocate").await;
    let reserve = collector.child(&allocate, "reserve").await;
    assert_eq!(reserve.attribute("candidate"), "1");

    let release = collector.done("claim.release", "a").await;
    assert_eq!(
        (release.trace.as_str(), release.parent.as_str()),
        (trace, parent)
    );
    for step in ["delete_address", "release_address", "finalizer"] {
        collector.child(&release, step).await;
    }

    // Without a parent each attempt is a trace. The first one found no address.
    let failed = collector.span("claim.bind", "claim", "b").await;
    assert_eq!(
        (failed.parent.as_str(), failed.status["code"].as_i64()),
        ("", Some(2)),
        "{failed:?}"
    );
    assert!(
        failed.status["message"]
            .as_str()
            .is_some_and(|text| text.contains("no free address")),
        "{failed:?}"
    );
    collector.span("pool.reconcile", "pool", "web").await;
    collector.span("sweep", "what", "ipreservations").await;
    collector.span("sweep", "what", "ipaddresses").await;

    let log = manager.log();
    let line = log
        .lines()
        .find(|line| line.contains("claim is bound"))
        .expect("the manager logs it");
    let line: Value = serde_json::from_str(line).expect("a line is JSON");
    assert_eq!(line["trace_id"], trace, "{line}");
    let commit = collector.child(&bind, "commit").await;
    assert_eq!(line["span_id"], commit.id.as_str(), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ratio_applies_to_traces_without_a_parent() {
    let plane = ControlPlane::new();
    let collector = Collector::start(plane.folder()).await;
    let mut manager = Manager::start(&plane, &[&collector.flag(), "--trace-ratio=0"]);
    let consumer = with_pool(&plane).await;
    consumer.bind("b", "web").await;
    consumer.release("b").await;
    create_claim(&consumer, "c", NOT_SAMPLED).await;
    consumer.wait_for_address("c").await;
    consumer.release("c").await;
    create_claim(&consumer, "a", SAMPLED).await;
    consumer.wait_for_address("a").await;
    let bind = collector.done("claim.bind", "a").await;
    collector.child(&bind, "commit").await;
    // Exports the rest.
    manager.stop();
    let traces: Vec<_> = collector
        .spans()
        .into_iter()
        .filter(|span| span.trace != bind.trace)
        .collect();
    assert!(traces.is_empty(), "{traces:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_traced() {
    let plane = ControlPlane::new();
    let collector = Collector::start(plane.folder()).await;
    let webhooks = Webhooks::new(&plane);
    let [port, certificates] = webhooks.flags();
    let _manager = Manager::start(&plane, &[&*collector.flag(), &*port, &*certificates]);
    webhooks.register(&plane);
    for outcome in ["allowed", "converted"] {
        collector.span("webhook.review", "outcome", outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_is_down_does_not_delay_claims() {
    let plane = ControlPlane::new();
    let endpoint = format!("--otlp-endpoint=http://127.0.0.1:{}", free_port());
    let mut manager = Manager::start(&plane, &[&endpoint]);
    let consumer = with_pool(&plane).await;
    consumer.bind("a", "web").await;
    manager.wait_for_log("cannot export spans to the collector");
    manager.stop();
    assert!(manager.log().contains("stopped"), "{}", manager.log());
}

#[test]
fn invalid_endpoint_is_an_error_at_the_start() {
    let plane = ControlPlane::new();
    for (flag, expected) in [
        (
            "--otlp-endpoint=collector:4318",
            "invalid URL \"collector:4318/v1/traces\" of the collector (--otlp-endpoint",
        ),
        ("--trace-ratio=2", "\"2\" is not a number from 0 to 1"),
    ] {
        let manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[flag]);
        manager.wait_for_log(expected);
    }
}
