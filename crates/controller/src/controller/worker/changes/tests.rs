use std::time::Duration;

use crate::controller::tests::{Recorder, Running, item};
use crate::controller::{Action, Cause};
use crate::watch::Change;

#[tokio::test]
async fn unwanted_change_is_cached_and_not_reconciled() {
    let running = Running::start(Recorder {
        unwanted: Some(2),
        ..Recorder::default()
    });
    // A new object is always wanted.
    running.main.list(vec![item("a", 1), item("b", 2)]);
    let resumed = ["a 1", "b 2"].map(|object| (object, Cause::Resumed));
    running.expect(&resumed).await;
    for change in [item("a", 2), item("c", 3)] {
        running.main.send(Change::Apply(change));
    }
    let created = ("c 3", Cause::Created);
    running.expect(&[resumed[0], resumed[1], created]).await;
    let cached = running.store.get(None, "a");
    assert!(format!("{cached:?}").contains("revision: 2"), "{cached:?}");
    running.main.send(Change::Apply(item("a", 3)));
    let changed = ("a 3", Cause::Changed);
    running
        .expect(&[resumed[0], resumed[1], created, changed])
        .await;
}

#[tokio::test]
async fn object_that_waits_for_a_change_gets_it() {
    let running = Running::start(Recorder {
        unwanted: Some(2),
        action: Action::Requeue(Duration::from_hours(1)),
        ..Recorder::default()
    });
    running.main.list(vec![item("a", 1)]);
    running.expect(&[("a 1", Cause::Resumed)]).await;
    running.main.send(Change::Apply(item("a", 2)));
    running
        .expect(&[("a 1", Cause::Resumed), ("a 2", Cause::Changed)])
        .await;
}
