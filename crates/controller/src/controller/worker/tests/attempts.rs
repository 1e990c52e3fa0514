//! The cause of each attempt, and its span.

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::identity::Identity;
use crate::traces::{self, TraceOptions};

#[tokio::test]
async fn attempt_has_the_cause_of_the_event() {
    let reconciler = Arc::new(Faulty::default());
    let mut deleting = named("old");
    deleting.metadata.deletion_timestamp = Some(crate::clock::now());
    let events = vec![
        Change::Init,
        Change::InitApply(named("old")),
        Change::InitDone,
        Change::Apply(named("old")),
        Change::Apply(named("new")),
        Change::Apply(deleting),
        Change::Init,
        Change::InitApply(named("new")),
        Change::InitApply(named("newest")),
        Change::InitDone,
    ];
    let mut worker = run_faulty(&reconciler, events).await;
    worker.handle_trigger(Triggered {
        object: NamespacedName::new("", "new"),
        cause: Cause::Triggered,
    });
    settle(&mut worker, &mut JoinSet::new()).await;
    let causes = |name: &str| {
        reconciler
            .of(name)
            .into_iter()
            .map(|(cause, _)| cause)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        causes("old"),
        [Cause::Resumed, Cause::Changed, Cause::Deleting]
    );
    assert_eq!(
        causes("new"),
        [Cause::Created, Cause::Changed, Cause::Triggered]
    );
    assert_eq!(causes("newest"), [Cause::Created]);
}

/// Records the ended spans: their name and attributes.
#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        for span in batch {
            let attributes = span.attributes.iter();
            let mut attributes: Vec<String> = attributes
                .map(|attribute| format!("{}={}", attribute.key, attribute.value))
                .collect();
            attributes.sort_unstable();
            let text = format!("{} {}", span.name, attributes.join(" "));
            self.0.lock().unwrap().push(text);
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_reconcile_has_a_span() {
    let spans = Spans::default();
    let builder = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
    let identity = Identity::new("test", "0.0.1").with_tracer(builder.build());
    let options = TraceOptions::default();
    let provider = traces::provider(&options, &identity, &Handle::current()).unwrap();
    let subscriber = tracing_subscriber::registry().with(traces::layer(&provider.unwrap()));
    let _guard = tracing::subscriber::set_default(subscriber);

    let events = |names: &[&'static str]| {
        let mut events = vec![Change::Init, Change::InitDone];
        events.extend(names.iter().map(|name| Change::Apply(named(name))));
        events
    };
    // Another test can register the span at the same time, for no subscriber. Once it is
    // registered, this subscriber is asked.
    run_faulty(&Arc::default(), events(&["good"])).await;
    tracing::callsite::rebuild_interest_cache();
    run_faulty(&Arc::default(), events(&["good", "panics"])).await;
    let expected = ["good done", "panics panic"].map(|object| {
        let (name, outcome) = object.split_once(' ').unwrap();
        format!("reconcile attempt=1 cause=Created controller=test object={name} outcome={outcome}")
    });
    let spans = spans.0.lock().unwrap();
    for expected in expected {
        assert!(spans.contains(&expected), "{expected} in {spans:#?}");
    }
}

/// An object whose metadata alone can be decoded.
fn undecodable(name: &str, is_deleting: bool) -> Change<ConfigMap> {
    let mut metadata = named(name).metadata;
    metadata.deletion_timestamp = is_deleting.then(crate::clock::now);
    Change::ApplyInvalid(Invalid {
        spec: serde_json::Value::Null,
        error: String::new(),
        metadata: Box::new(metadata),
    })
}

#[tokio::test]
async fn undecodable_object_in_deletion_is_reconciled() {
    let reconciler = Arc::new(Faulty::default());
    let known = Change::Apply(named("known"));
    let mut changes = vec![Change::Init, Change::InitDone, known];
    for is_deleting in [false, true] {
        changes.extend(["known", "unknown", "other"].map(|name| undecodable(name, is_deleting)));
    }
    run_faulty(&reconciler, changes).await;
    let deleting = (Cause::Deleting, 0);
    assert_eq!(reconciler.of("known"), [(Cause::Created, 0), deleting]);
    assert_eq!(reconciler.of("unknown"), [deleting]);
    assert_eq!(reconciler.of("other"), []);
}
