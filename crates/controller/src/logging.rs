//! Logs on standard error, as text for people or JSON for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
    #[error("invalid log level {filter:?} (--log-level); use for example info, debug, or info,capi_ipam=debug")]
    Filter {
        /// The value of the flag.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Installs the global log subscriber. `filter` is a level (`info`) or a list of targets with levels
/// (`info,capi_ipam=debug`). A second call in the same process has no effect.
pub fn init(format: LogFormat, filter: &str) -> Result<(), LoggingError> {
    // `watch` reports a failed watch with advice, so kube's own warning is left out.
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
