//! What the tests share: records of a registry.

use capi_ipam_controller::watch::EventHandler;
use capi_ipam_registry::{Entry, RecordCache, Version, decode};
use jiff::Timestamp;
use serde_json::Value;

/// The time of the tests.
pub(crate) const NOW: &str = "2026-01-05T03:04:05Z";

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A registry with these records, by name. What is not valid is there, too.
pub(crate) fn entries(records: &[(&str, Value)]) -> RecordCache {
    let cache = RecordCache::default();
    for (key, record) in records {
        cache.apply(&Entry {
            key: (*key).to_owned(),
            version: Version::Bucket {
                incarnation: None,
                revision: 1,
            },
            value: decode(key, &record.to_string()),
        });
    }
    cache
}
