//! Logs on standard error, as text for people or JSON for machines. A line that is written in a
//! span of a trace has the ids of both.

mod trace_ids;

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::format::{self, JsonFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use self::trace_ids::WithTraceIds;
use crate::traces;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Readable text, coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be parsed.
    #[error(
        "invalid log level {filter:?} (--log-level); use for example info, debug, or info,capi_ipam=debug"
    )]
    Filter {
        /// The value of the flag.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// The target of the crate that implements leader election.
const ELECTION: &str = "k8s_controller::leader_election";

/// Whether an event is a line of the log. Spans of traces are none. Leader election warns at each
/// attempt: `leader` reports a failed request once and then at a growing interval, and that the
/// lease is lost is the error with which the process ends.
fn is_line(metadata: &Metadata<'_>) -> bool {
    let is_repeated_failure = metadata.target() == ELECTION && *metadata.level() <= Level::WARN;
    metadata.target() != traces::TARGET && !is_repeated_failure
}

/// Installs the global log subscriber. `filter` is a level (`info`) or a list of targets with
/// levels (`info,capi_ipam=debug`). `spans` receives the spans of traces. A second call in the same
/// process has no effect.
pub fn init(
    format: LogFormat,
    filter: &str,
    spans: Option<impl Layer<Registry> + Send + Sync>,
) -> Result<(), LoggingError> {
    // `watch` reports a failed watch with advice, so kube's own warning is left out.
    let own = if filter.contains("kube_runtime") {
        ""
    } else {
        "kube_runtime::watcher=error,"
    };
    let filter = EnvFilter::builder()
        .parse(format!("{own}{filter}"))
        .map_err(|source| LoggingError::Filter {
            filter: filter.to_owned(),
            source,
        })?;
    let is_coloured = format == LogFormat::Text && std::io::stderr().is_terminal();
    let lines = fmt::layer()
        .with_ansi(is_coloured)
        .with_writer(std::io::stderr);
    let inner = format::format().with_ansi(is_coloured);
    let lines = match format {
        LogFormat::Text => lines.event_format(WithTraceIds { format, inner }).boxed(),
        LogFormat::Json => {
            let inner = inner.json().flatten_event(true);
            lines
                .fmt_fields(JsonFields::new())
                .event_format(WithTraceIds { format, inner })
                .boxed()
        }
    };
    let filter = filter.and(filter_fn(is_line));
    let mut layers = vec![lines.with_filter(filter).boxed()];
    layers.extend(spans.map(Layer::boxed));
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(())
}
