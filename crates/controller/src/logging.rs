//! Logs on standard error, as text for people or JSON for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter is not one.
    #[error("cannot understand the log level {filter:?} (--log-level); try info, debug, or info,capi_ipam=debug")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Starts logging. `filter` is a level (`info`) or a list of targets with levels (`info,capi_ipam=debug`). A second call
/// in the same process changes nothing.
pub fn start(format: LogFormat, filter: &str) -> Result<(), LoggingError> {
    // A broken watch is told by `watch`, with what to do about it.
    let own = if filter.contains("kube_runtime") { "" } else { "kube_runtime::watcher=error," };
    let filter = EnvFilter::builder()
        .parse(format!("{own}{filter}"))
        .map_err(|source| LoggingError::Filter { filter: filter.to_owned(), source })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(())
}
