//! Single values as text.

use jiff::Timestamp;

use crate::model::{Fact, PoolName};

/// What stands for a value that may not be read.
pub(super) const UNKNOWN: &str = "?";

/// A number that can be unknown.
pub(super) fn number_or_unknown(number: Option<u64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| number.to_string())
}

/// A cell of a table.
pub(super) fn fact(value: &Fact<String>) -> String {
    match value {
        Fact::Known(value) => value.clone(),
        Fact::Absent => "-".to_owned(),
        Fact::Unknown => UNKNOWN.to_owned(),
    }
}

/// `InClusterIPPool team-a/web`.
pub(super) fn full(pool: &PoolName) -> String {
    let namespace = pool
        .namespace
        .as_deref()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    format!("{} {namespace}{}", pool.kind, pool.name)
}

/// An age as kubectl shows it: `45s`, `12m`, `5h`, `3d`.
pub(super) fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else {
        return "-".to_owned();
    };
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
