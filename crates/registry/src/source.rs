//! The changes of the objects of a backend as those of records.

use std::sync::Arc;

use capi_ipam_controller::watch::{Change, EventHandler, Invalid};
use futures::{Stream, StreamExt};

use crate::backend::RecordChanges;
use crate::entry::Entry;

/// Turns the changes of objects into those of entries, which the handler sees first. What cannot be
/// decoded is an entry with a problem, so that it counts as existing.
pub(crate) fn entries<K: 'static>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
    entry: impl Fn(K) -> Entry + Send + 'static,
    invalid_entry: impl Fn(Invalid) -> Entry + Send + 'static,
    handler: Arc<dyn EventHandler<Entry>>,
) -> RecordChanges {
    let mut is_listing = false;
    let changes = changes.map(move |change| {
        let change = match change {
            Change::Init => Change::Init,
            Change::InitDone => Change::InitDone,
            Change::InitApply(object) => Change::InitApply(entry(object)),
            Change::Apply(object) => Change::Apply(entry(object)),
            Change::Delete(object) => Change::Delete(entry(object)),
            Change::ApplyInvalid(invalid) if is_listing => {
                Change::InitApply(invalid_entry(invalid))
            }
            Change::ApplyInvalid(invalid) => Change::Apply(invalid_entry(invalid)),
            Change::DeleteInvalid(invalid) => Change::Delete(invalid_entry(invalid)),
            Change::Failed(reason) => Change::Failed(reason),
        };
        match change {
            Change::Init => is_listing = true,
            Change::InitDone => is_listing = false,
            _ => {}
        }
        change.pass_to(handler.as_ref());
        change
    });
    changes.boxed()
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
        let mapped = entries(
            futures::stream::iter(changes),
            entry,
            |_| entry("bad"),
            Arc::new(()),
        );
        let mapped: Vec<_> = block_on(mapped.collect());
        assert!(matches!(&mapped[1], Change::InitApply(entry) if entry.key == "bad"));
        assert!(matches!(&mapped[4], Change::Apply(entry) if entry.key == "bad"));
    }
}
