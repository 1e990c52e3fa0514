use capi_ipam_objects::maybe_invalid::Invalid;
use kube::core::ObjectMeta;
use tokio::sync::Semaphore;

use crate::controller::Cause;
use crate::controller::tests::{Recorder, Running, item, key, marker, until};
use crate::retry::Retry;
use crate::watch::Change;

fn invalid(name: &str) -> Invalid {
    Invalid {
        spec: serde_json::Value::Null,
        error: "not a number".to_owned(),
        metadata: Box::new(ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        }),
    }
}

#[tokio::test]
async fn deleted_object_is_reconciled_once_with_its_last_state() {
    let running = Running::start(Recorder::default());
    running.main.list(vec![item("a", 1)]);
    running.expect(&[("a 1", Cause::Resumed)]).await;
    running.main.send(Change::Delete(item("a", 2)));
    running.main.list(Vec::new());
    running.main.send(Change::Apply(item("b", 3)));
    running
        .expect(&[
            ("a 1", Cause::Resumed),
            ("a 2", Cause::Deleted),
            ("b 3", Cause::Created),
        ])
        .await;
    assert!(running.store.get(None, "a").is_none());
}

#[tokio::test]
async fn deleted_object_is_forgotten_by_default() {
    let running = Running::start(Recorder {
        wants_deleted: false,
        ..Recorder::default()
    });
    running.main.list(vec![item("a", 1), marker("b", 1)]);
    running.expect(&[("a 1", Cause::Resumed)]).await;
    running.main.send(Change::Apply(marker("a", 2)));
    running.main.send(Change::Apply(item("c", 3)));
    running
        .expect(&[("a 1", Cause::Resumed), ("c 3", Cause::Created)])
        .await;
    assert!(running.store.get(None, "a").is_none());
}

#[tokio::test]
async fn failed_deletion_is_retried_before_the_next_object() {
    let running = Running::start(Recorder::default());
    running.main.list(vec![item("a", 1)]);
    running.expect(&[("a 1", Cause::Resumed)]).await;
    *running.reconciler.failures.lock() = 2;
    running.main.send(Change::Delete(item("a", 1)));
    running.main.send(Change::Apply(item("a", 2)));
    // The reconciler does not know this one.
    running.main.send(Change::Delete(item("a", 3)));
    running.main.send(Change::Apply(item("a", 4)));
    running
        .expect(&[
            ("a 1", Cause::Resumed),
            ("a 1", Cause::Deleted),
            ("a 1", Cause::Deleted),
            ("a 1", Cause::Deleted),
            ("a 4", Cause::Created),
        ])
        .await;
    assert_eq!(running.failures(), [0, 0, 1, 2, 0]);
}

#[tokio::test]
async fn deletion_is_not_given_up() {
    let running = Running::start(Recorder {
        retry: Retry::GiveUp,
        ..Recorder::default()
    });
    *running.reconciler.failures.lock() = 1;
    running.main.list(vec![marker("a", 1)]);
    running.expect(&[("a 1", Cause::Deleted)]).await;
    running.trigger.enqueue(key("a"));
    running
        .expect(&[("a 1", Cause::Deleted), ("a 1", Cause::Deleted)])
        .await;
    // It is done.
    running.trigger.enqueue(key("a"));
    running.main.send(Change::Apply(item("b", 2)));
    let b = ("b 2", Cause::Created);
    running
        .expect(&[("a 1", Cause::Deleted), ("a 1", Cause::Deleted), b])
        .await;
}

#[tokio::test]
async fn last_marker_of_a_key_counts() {
    let running = Running::start(Recorder {
        permits: Semaphore::new(0),
        ..Recorder::default()
    });
    running.main.list(vec![marker("a", 1)]);
    running.expect(&[("a 1", Cause::Deleted)]).await;
    running.main.send(Change::Apply(item("a", 2)));
    running.main.send(Change::Apply(marker("a", 3)));
    running.main.send(Change::Apply(item("b", 4)));
    until(|| running.store.get(None, "b").is_some()).await;
    running.reconciler.permits.add_permits(10);
    running
        .expect(&[
            ("a 1", Cause::Deleted),
            ("b 4", Cause::Created),
            ("a 3", Cause::Deleted),
        ])
        .await;
}

#[tokio::test]
async fn object_missing_in_a_list_is_reconciled_as_deleted() {
    let running = Running::start(Recorder::default());
    running
        .main
        .list(vec![item("a", 1), item("b", 1), item("c", 1)]);
    let resumed = ["a 1", "b 1", "c 1"].map(|object| (object, Cause::Resumed));
    running.expect(&resumed).await;
    // What cannot be decoded exists.
    running.main.send(Change::Init);
    running.main.send(Change::ApplyInvalid(invalid("b")));
    running.main.send(Change::InitApply(item("c", 1)));
    running.main.send(Change::InitDone);
    let mut expected = resumed.to_vec();
    expected.extend([("c 1", Cause::Changed), ("a 1", Cause::Deleted)]);
    running.expect(&expected).await;
    running.main.send(Change::DeleteInvalid(invalid("b")));
    expected.push(("b 1", Cause::Deleted));
    running.expect(&expected).await;
}
