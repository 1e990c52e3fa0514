//! The records of a registry as the source of a controller.

use std::sync::Arc;

use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::{Change, EventHandler, Invalid, Opened, Source};
use futures::{Stream, StreamExt};

use crate::entry::Entry;

/// All records of a registry: a list, and then their changes. Created by
/// [`Backend::source`](crate::Backend::source).
pub struct RecordSource(Opened<Entry>);

impl RecordSource {
    /// A source with these changes. A failure is shown by the probes as long as there was no list.
    pub(crate) fn new(
        changes: impl Stream<Item = Change<Entry>> + Send + 'static,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Self {
        let gate = synced.clone();
        let changes = changes.inspect(move |change| {
            if let Change::Failed(reason) = change {
                gate.failing(reason);
            }
        });
        Self(Opened::new(changes, handler, synced))
    }
}

impl Source for RecordSource {
    type Object = Entry;

    fn open(self) -> Opened<Entry> {
        self.0
    }
}

/// Turns the changes of objects into those of entries. What cannot be decoded is an entry with a
/// problem, so that it counts as existing.
pub(crate) fn entries<K: 'static>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
    entry: impl Fn(K) -> Entry + Send + 'static,
    invalid_entry: impl Fn(Invalid) -> Entry + Send + 'static,
) -> impl Stream<Item = Change<Entry>> + Send + 'static {
    let mut is_listing = false;
    changes.map(move |change| match change {
        Change::Init => {
            is_listing = true;
            Change::Init
        }
        Change::InitDone => {
            is_listing = false;
            Change::InitDone
        }
        Change::InitApply(object) => Change::InitApply(entry(object)),
        Change::Apply(object) => Change::Apply(entry(object)),
        Change::Delete(object) => Change::Delete(entry(object)),
        Change::ApplyInvalid(invalid) if is_listing => Change::InitApply(invalid_entry(invalid)),
        Change::ApplyInvalid(invalid) => Change::Apply(invalid_entry(invalid)),
        Change::DeleteInvalid(invalid) => Change::Delete(invalid_entry(invalid)),
        Change::Failed(reason) => Change::Failed(reason),
    })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::executor::block_on;

    use super::*;
    use crate::entry::Version;
    use crate::record::Problem;

    fn entry(key: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            version: Version::Bucket {
                incarnation: None,
                revision: 1,
            },
            value: Err(Problem::Name),
        }
    }

    #[test]
    fn undecodable_object_is_a_part_of_the_list() {
        let invalid = || {
            Change::ApplyInvalid(Invalid {
                spec: serde_json::Value::Null,
                error: "bad".to_owned(),
                metadata: Box::default(),
            })
        };
        let changes: Vec<Change<&str>> = vec![
            Change::Init,
            invalid(),
            Change::InitApply("a"),
            Change::InitDone,
            invalid(),
        ];
        let mapped = entries(futures::stream::iter(changes), entry, |_| entry("bad"));
        let mapped: Vec<_> = block_on(mapped.collect());
        assert!(matches!(&mapped[1], Change::InitApply(entry) if entry.key == "bad"));
        assert!(matches!(&mapped[4], Change::Apply(entry) if entry.key == "bad"));
    }
}
