//! The first lists of the source and of others.

use std::task::Poll;

use futures::StreamExt;
use futures::stream::poll_fn;

use super::*;
use crate::controller::forward;

#[tokio::test]
async fn main_kind_is_listed_last_and_reconciled_while_listed() {
    let (reconciler, polled) = (Arc::new(Recorder::default()), Arc::new(Mutex::new(false)));
    let (sender, mut list) = mpsc::unbounded_channel();
    let events = poll_fn({
        let polled = Arc::clone(&polled);
        move |context| {
            *polled.lock().unwrap() = true;
            match list.poll_recv(context) {
                Poll::Ready(None) => Poll::Pending,
                event => event,
            }
        }
    });
    sender.send(Change::Init).unwrap();
    sender.send(Change::InitApply(named("a"))).unwrap();
    let (other, stop) = (
        Health::default().register_watch("another kind"),
        CancellationToken::new(),
    );
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let worker = Worker::new(
        settings(2),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    let (forwarded, changes) = mpsc::channel(8);
    tokio::spawn(forward(events.boxed(), vec![other.clone()], forwarded));
    let worker = tokio::spawn(worker.run(changes, triggered, stop.clone()));
    tokio::task::yield_now().await;
    assert!(
        !*polled.lock().unwrap(),
        "it is listed before another kind is synced"
    );

    other.ready();
    // The list never completes.
    while reconciler.names.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*reconciler.names.lock().unwrap(), ["a"]);
    stop.cancel();
    worker.await.unwrap();
}

#[tokio::test]
async fn gate_is_ready_when_the_store_has_the_list() {
    let (synced, store, stop) = (synced(), Store::default(), CancellationToken::new());
    let (sender, events) = mpsc::channel(8);
    for event in [
        Change::Init,
        Change::InitApply(named("a")),
        Change::InitApply(named("b")),
    ] {
        sender.send(event).await.unwrap();
    }
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let reconciler = Arc::new(Recorder::default());
    let worker = Worker::new(
        settings(2),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        store.clone(),
        synced.clone(),
    );
    let worker = tokio::spawn(worker.run(events, triggered, stop.clone()));
    while reconciler.names.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!synced.is_ready(), "the list is not complete");

    sender.send(Change::InitApply(named("c"))).await.unwrap();
    sender.send(Change::InitDone).await.unwrap();
    assert!(!synced.is_ready(), "the event is not handled yet");
    synced.wait().await;
    assert!(store.get(None, "c").is_some());
    stop.cancel();
    worker.await.unwrap();
}
