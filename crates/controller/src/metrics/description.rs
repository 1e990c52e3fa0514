//! What a metric is, for its registration and for the documentation.

/// Name, type, labels and meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name, as in queries: that of a counter ends with `_total`.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels. A label with a few fixed values lists them: `state: due, delayed, running`.
    pub labels: &'static [&'static str],
    /// What it counts or measures, without a full stop at its end.
    pub help: &'static str,
}
