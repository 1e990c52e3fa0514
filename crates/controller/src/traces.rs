//! Traces in the format of OpenTelemetry, exported to a collector with OTLP over HTTP.
//!
//! Code creates spans with [`trace_span!`](crate::trace_span). Without a collector they are
//! disabled and cost one atomic read each. They never appear in the log, but its lines have the ids
//! of the trace and of the span.
//!
//! ```
//! use capi_ipam_controller::{trace_span, traces};
//!
//! async fn reconcile(name: &str) -> Result<(), std::io::Error> {
//!     traces::in_span(trace_span!("node.reconcile", name), async { Ok(()) }).await
//! }
//! # futures::executor::block_on(reconcile("a")).unwrap();
//! ```

mod export;

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::time::Duration;

use clap::Args;
use futures::TryFutureExt;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};

use self::export::ExportClient;
use crate::client::error_chain;
use crate::identity::Identity;

/// The target of all spans of traces.
pub const TARGET: &str = "capi_ipam_trace";

/// The annotation with the parent of the trace of an object, in the format of W3C Trace Context.
pub const PARENT_ANNOTATION: &str = "traceparent";

/// The length of a valid [`PARENT_ANNOTATION`] of version 00.
pub const PARENT_LENGTH: usize = 55;

/// The path of traces at a collector.
const TRACES_PATH: &str = "v1/traces";

/// Limit for the export of the last spans when the process ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The variables that name a collector.
const ENDPOINT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// The flags for traces.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct TraceOptions {
    /// URL of an OpenTelemetry collector for traces, such as http://collector:4318 (OTLP over
    /// HTTP). By default that of the variable OTEL_EXPORTER_OTLP_ENDPOINT; without both there are
    /// no traces.
    #[arg(
        long,
        value_name = "URL",
        default_value = "",
        hide_default_value = true
    )]
    pub otlp_endpoint: String,

    /// Share of the traces that are exported, from 0 to 1; by default as in OTEL_TRACES_SAMPLER, or
    /// all. A trace with a parent is exported if its parent is.
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    pub trace_ratio: Option<f64>,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text
        .parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
}

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The URL of the collector has no scheme or another one than HTTP.
    #[error("invalid URL {url:?} of the collector (--otlp-endpoint or {}); use for example http://collector:4318",
            ENDPOINT_VARIABLES[1])]
    Endpoint {
        /// The value of the flag or the variable.
        url: String,
    },
    /// The certificates of the machine, which the certificate of a collector is verified with,
    /// cannot be read.
    #[error("cannot read the root certificates of the machine, which traces over HTTPS require")]
    Certificates(#[source] std::io::Error),
    /// The variables of OpenTelemetry contradict each other.
    #[error("cannot start the export of traces")]
    Exporter(#[from] ExporterBuildError),
}

/// The provider that exports the spans of a process: that of the program, or one for the collector
/// that the flags or the environment name. `runtime` sends the requests.
pub(crate) fn provider(
    options: &TraceOptions,
    identity: &Identity,
    runtime: &Handle,
) -> Result<Option<SdkTracerProvider>, TraceError> {
    if let Some(provider) = identity.tracer {
        return Ok(Some(provider.clone()));
    }
    let Some(url) = endpoint(options, |name| std::env::var(name).ok()) else {
        return Ok(None);
    };
    if !is_http_url(&url) {
        return Err(TraceError::Endpoint { url });
    }
    let client = ExportClient::new(&url, runtime.clone()).map_err(TraceError::Certificates)?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(url);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build()?;
    let version = KeyValue::new("service.version", identity.version);
    let mut resource = Resource::builder().with_attribute(version);
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(identity.name);
    }
    let mut provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build());
    if let Some(ratio) = options.trace_ratio {
        let sampler = Sampler::TraceIdRatioBased(ratio);
        provider = provider.with_sampler(Sampler::ParentBased(Box::new(sampler)));
    }
    Ok(Some(provider.build()))
}

/// The layer that passes spans to a provider.
pub(crate) fn layer(provider: &SdkTracerProvider) -> impl Layer<Registry> + use<> {
    let tracer = provider.tracer("capi-ipam");
    let layer = tracing_opentelemetry::layer().with_tracer(tracer);
    let layer = layer
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    layer.with_filter(filter_fn(|metadata| {
        metadata.is_span() && metadata.target() == TARGET
    }))
}

/// Exports the last spans. Blocks for up to 3 s, and needs the runtime.
pub(crate) fn shut_down(provider: &SdkTracerProvider) {
    // A collector that does not respond is reported by the client.
    let _ = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
}

/// The URL of the collector's path for traces.
fn endpoint(options: &TraceOptions, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let with_path = |url: String| format!("{}/{TRACES_PATH}", url.trim_end_matches('/'));
    let [for_traces, for_all] = ENDPOINT_VARIABLES;
    if options.otlp_endpoint.is_empty() {
        // The variable for traces alone has the whole path.
        return variable(for_traces).or_else(|| variable(for_all).map(with_path));
    }
    Some(with_path(options.otlp_endpoint.clone()))
}

fn is_http_url(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    })
}

/// Creates a span of a trace: a name, and attributes in the syntax of [`tracing::span!`].
#[macro_export]
macro_rules! trace_span {
    ($name:literal $($attributes:tt)*) => {
        $crate::traces::__private::span!(
            target: $crate::traces::TARGET,
            $crate::traces::__private::Level::INFO,
            $name
            $($attributes)*
        )
    };
}

#[doc(hidden)]
pub mod __private {
    pub use tracing::{Level, span};
}

/// Runs a future in a span. An error becomes the status of the span.
pub fn in_span<T, E: Error + 'static>(
    span: Span,
    run: impl Future<Output = Result<T, E>>,
) -> impl Future<Output = Result<T, E>> {
    // An `async fn` would contain the other future twice.
    run.instrument(span.clone()).inspect_err(move |error| {
        if !span.is_disabled() {
            span.set_status(Status::error(error_chain(error)));
        }
    })
}

/// Sets the parent of a span to that in the annotation [`PARENT_ANNOTATION`], if there is a valid
/// one.
pub fn set_parent(span: &Span, annotations: Option<&BTreeMap<String, String>>) {
    let Some(annotations) =
        annotations.filter(|all| !span.is_disabled() && all.contains_key(PARENT_ANNOTATION))
    else {
        return;
    };
    let carrier: HashMap<_, _> = annotations.clone().into_iter().collect();
    let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    if parent.span().span_context().is_valid() {
        let _ = span.set_parent(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_of(flag: &str, variables: &[(&str, &str)]) -> Option<String> {
        let options = TraceOptions {
            otlp_endpoint: flag.to_owned(),
            ..TraceOptions::default()
        };
        endpoint(&options, |name| {
            variables
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, url)| (*url).to_owned())
        })
    }

    #[test]
    fn endpoint_is_that_of_the_flag_or_the_environment() {
        let [for_traces, for_all] = ENDPOINT_VARIABLES;
        for (flag, variables, expected) in [
            ("", &[][..], None),
            ("", &[(for_all, "")], None),
            ("http://a:4318", &[], Some("http://a:4318/v1/traces")),
            (
                "http://a:4318/",
                &[(for_all, "http://b")],
                Some("http://a:4318/v1/traces"),
            ),
            (
                "",
                &[(for_all, "http://b/base")],
                Some("http://b/base/v1/traces"),
            ),
            (
                "",
                &[(for_all, "http://b"), (for_traces, "http://c/x")],
                Some("http://c/x"),
            ),
            ("http://a:4318", &[("OTEL_SDK_DISABLED", "true")], None),
        ] {
            assert_eq!(
                endpoint_of(flag, variables).as_deref(),
                expected,
                "{flag} {variables:?}"
            );
        }
    }

    #[test]
    fn url_of_the_collector_is_validated() {
        for url in ["http://a:4318/v1/traces", "https://a/v1/traces"] {
            assert!(is_http_url(url), "{url}");
        }
        for url in [
            "collector:4318/v1/traces",
            "ftp://a/v1/traces",
            "/v1/traces",
            "http://",
            "grpc://a:4317/x",
            "a b",
        ] {
            assert!(!is_http_url(url), "{url}");
        }
    }

    #[test]
    fn ratio_is_between_0_and_1() {
        assert_eq!(
            ["0", "0.25", "1"].map(parse_ratio),
            [Ok(0.0), Ok(0.25), Ok(1.0)]
        );
        for invalid in ["", "-0.1", "1.1", "NaN", "half"] {
            assert!(parse_ratio(invalid).is_err(), "{invalid}");
        }
    }
}
