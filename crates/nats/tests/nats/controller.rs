//! A controller of keys.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use capi_ipam_controller::controller::{Action, Attempt, Cause, ControllerBuilder, Reconciler};
use capi_ipam_controller::health::Health;
use capi_ipam_nats::KvObject;
use capi_ipam_testing::wait::eventually;
use tokio_util::sync::CancellationToken;

use crate::support::{Item, connect, create, node_with_bucket, open, settings, single};
use crate::writes::delete_bucket;

/// Records the reconciles.
#[derive(Default)]
struct Recorder(Mutex<Vec<(String, Cause)>>);

impl Recorder {
    fn calls(&self) -> Vec<(String, Cause)> {
        self.0.lock().expect("no panic").clone()
    }

    async fn wait_for(&self, key: &str, cause: Cause) {
        let expected = (key.to_owned(), cause);
        eventually(&format!("{expected:?}"), || async {
            self.calls().contains(&expected).then_some(())
        })
        .await;
    }
}

impl Reconciler for Recorder {
    type Object = KvObject<Item>;
    type State = ();
    type Error = Infallible;

    async fn reconcile(
        &self,
        object: Arc<KvObject<Item>>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, Infallible> {
        let call = (object.key.clone(), attempt.cause);
        self.0.lock().expect("no panic").push(call);
        Ok(Action::AwaitChange)
    }
}

/// The keys of a lost bucket are forgotten, and not reconciled as deleted.
#[tokio::test]
async fn only_markers_are_reconciled_as_deleted() {
    let (node, bucket) = node_with_bucket().await;
    let before = create(&bucket, "before", 1).await;
    bucket.delete(&before).await.expect("it is ours");
    create(&bucket, "lost", 1).await;
    let health = Health::default();
    let source = bucket.source("", Arc::new(()), health.register_watch("Item"));
    let source = source.expect("it is a prefix");
    let (recorder, stop) = (Arc::new(Recorder::default()), CancellationToken::new());
    let controller = ControllerBuilder::new("items");
    let store = controller.store();
    let run = controller.run(source, stop.clone(), Arc::clone(&recorder));
    let running = tokio::spawn(run);
    recorder.wait_for("before", Cause::Deleted).await;
    recorder.wait_for("lost", Cause::Resumed).await;

    delete_bucket(&node).await;
    let connection = connect(&settings(vec![node.url()])).await;
    let again = open(&connection, &single()).await;
    let after = create(&again, "after", 1).await;
    recorder.wait_for("after", Cause::Created).await;
    eventually("the lost key is forgotten", || async {
        store.get(None, "lost").is_none().then_some(())
    })
    .await;
    again.delete(&after).await.expect("it is ours");
    recorder.wait_for("after", Cause::Deleted).await;
    stop.cancel();
    running.await.expect("no panic");
    let calls = recorder.calls();
    assert!(
        !calls.contains(&("lost".to_owned(), Cause::Deleted)),
        "{calls:?}"
    );
}
