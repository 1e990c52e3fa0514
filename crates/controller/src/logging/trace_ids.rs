//! The ids of the current trace and span at the end of a log line.

use std::fmt::{self, Write as _};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;

/// Adds the ids to the lines of another format.
pub(super) struct WithTraceIds<F> {
    pub(super) format: LogFormat,
    pub(super) inner: F,
}

impl<S, N, F> FormatEvent<S, N> for WithTraceIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let current = Context::current();
        let span = current.span();
        let span = span.span_context();
        if !span.is_valid() {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        add_ids(&mut line, self.format, span)?;
        writer.write_str(&line)
    }
}

/// Adds the ids to a line, before its end.
fn add_ids(line: &mut String, format: LogFormat, span: &SpanContext) -> fmt::Result {
    let (trace_id, span_id) = (span.trace_id(), span.span_id());
    line.truncate(line.trim_end().len());
    match format {
        LogFormat::Text => writeln!(line, " trace_id={trace_id} span_id={span_id}"),
        LogFormat::Json => {
            let is_object = line.pop() == Some('}');
            debug_assert!(is_object, "a line is a JSON object");
            writeln!(line, r#","trace_id":"{trace_id}","span_id":"{span_id}"}}"#)
        }
    }
}
