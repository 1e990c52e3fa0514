//! Sources and handlers that are added to a running controller, and removed from it.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::health::ReadinessGate;
use crate::watch::{Change, EventHandler, Keyed, Opened, Source, read};

/// Number of changes that are buffered for the worker.
const MESSAGE_BUFFER: usize = 64;

/// Identifies a source of a controller, for as long as the controller exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

impl SourceId {
    /// The source with which the controller runs.
    pub const MAIN: Self = Self(0);

    #[cfg(test)]
    pub(super) const fn of(number: u32) -> Self {
        Self(number)
    }
}

/// Sees the changes of all reconciled objects of a controller, and from which source each comes.
/// Added to a running controller by [`Controller::add_handler`].
///
/// An object that several sources deliver is gone when none of them delivers it. The end of a list
/// says nothing about objects of other sources.
pub trait ChangeHandler<K>: Send + Sync + 'static {
    /// A source reports a change, which is cached and reconciled next. A handler that is added gets
    /// the cached objects of each source as a list first. Before [`Change::InitDone`], the objects
    /// that the list does not contain are reported as deleted. It must be fast.
    fn change(&self, source: SourceId, change: &Change<K>);

    /// The source was removed, and its objects are forgotten. They may still exist.
    fn source_removed(&self, _source: SourceId) {}
}

/// A message of the tasks of a controller to its worker. The sender of the confirmation is dropped
/// when a removal is complete.
pub(super) enum Message<K> {
    /// A source was added.
    Opened {
        source: SourceId,
        handler: Arc<dyn EventHandler<K>>,
        synced: ReadinessGate,
    },
    Change(SourceId, Change<K>),
    /// A source is closed.
    Removed(SourceId, oneshot::Sender<()>),
    AddHandler(HandlerId, Arc<dyn ChangeHandler<K>>),
    RemoveHandler(HandlerId, oneshot::Sender<()>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandlerId(u32);

/// The added handlers of a worker.
pub(super) type Handlers<K> = Vec<(HandlerId, Arc<dyn ChangeHandler<K>>)>;

/// A task of a controller.
pub(super) type Task = BoxFuture<'static, TaskEnd>;

/// Why a task of a controller has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskEnd {
    /// Its source has ended, which ends the controller.
    Ended,
    /// Its source or handler was removed.
    Removed,
}

/// Adds sources and handlers to a controller while it runs, and removes them. Created by
/// [`ControllerBuilder::controller`](super::ControllerBuilder::controller). What is added before
/// the controller runs is opened when it does; after its end nothing is opened. Clones are of the
/// same controller.
///
/// ```
/// use capi_ipam_controller::controller::Controller;
/// use capi_ipam_controller::watch::WatchSpec;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// async fn reconcile_for_a_while(controller: Controller<ConfigMap>, objects: WatchSpec<ConfigMap>) {
///     let source = controller.add(objects);
///     tokio::time::sleep(std::time::Duration::from_secs(60)).await;
///     // The objects are forgotten, unless another source delivers them.
///     source.remove().await;
/// }
/// ```
pub struct Controller<K> {
    tasks: mpsc::UnboundedSender<Task>,
    messages: mpsc::Sender<Message<K>>,
    /// Cancelled when the sources that the controller waits for are listed.
    gates_ready: CancellationToken,
    last_id: Arc<AtomicU32>,
}

impl<K> Clone for Controller<K> {
    fn clone(&self) -> Self {
        Self {
            tasks: self.tasks.clone(),
            messages: self.messages.clone(),
            gates_ready: self.gates_ready.clone(),
            last_id: Arc::clone(&self.last_id),
        }
    }
}

impl<K> Debug for Controller<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Controller")
    }
}

/// The ends of the channels of a controller that it reads itself.
pub(super) struct Receivers<K> {
    pub(super) tasks: mpsc::UnboundedReceiver<Task>,
    pub(super) messages: mpsc::Receiver<Message<K>>,
}

impl<K: Keyed> Controller<K> {
    pub(super) fn new() -> (Self, Receivers<K>) {
        let (tasks, new_tasks) = mpsc::unbounded_channel();
        let (messages, new_messages) = mpsc::channel(MESSAGE_BUFFER);
        let controller = Self {
            tasks,
            messages,
            gates_ready: CancellationToken::new(),
            last_id: Arc::default(),
        };
        let receivers = Receivers {
            tasks: new_tasks,
            messages: new_messages,
        };
        (controller, receivers)
    }

    /// Adds a source of reconciled objects. Those of its first list are
    /// [resumed](super::Cause::Resumed).
    pub fn add(&self, source: impl Source<Object = K>) -> AddedSource {
        let Opened {
            changes,
            handler,
            synced,
        } = source.open();
        let id = SourceId(self.next_id());
        let (removal, removed) = Removal::new();
        let opened = Message::Opened {
            source: id,
            handler,
            synced: synced.clone(),
        };
        let messages = self.messages.clone();
        let gates_ready = self.gates_ready.clone();
        let token = removal.token.clone();
        self.spawn(async move {
            let forward = async {
                gates_ready.cancelled().await;
                // It fails at the end of the controller only.
                let _ = messages.send(opened).await;
                forward(id, changes, &messages).await;
            };
            // Closes the source before it returns.
            if token.run_until_cancelled(forward).await.is_some() {
                return TaskEnd::Ended;
            }
            let _ = messages.send(Message::Removed(id, removed)).await;
            TaskEnd::Removed
        });
        AddedSource {
            id,
            synced,
            removal,
        }
    }

    /// Adds a source whose objects only its handler needs, like
    /// [`ControllerBuilder::watch`](super::ControllerBuilder::watch). Reconciles do not wait for
    /// its first list.
    pub fn watch(&self, source: impl Source) -> AddedSource {
        let opened = source.open();
        let id = SourceId(self.next_id());
        let (removal, removed) = Removal::new();
        let synced = opened.synced.clone();
        let token = removal.token.clone();
        self.spawn(async move {
            let read = read(opened).for_each(|()| std::future::ready(()));
            if token.run_until_cancelled(read).await.is_some() {
                return TaskEnd::Ended;
            }
            drop(removed);
            TaskEnd::Removed
        });
        AddedSource {
            id,
            synced,
            removal,
        }
    }

    /// Adds a handler for the changes of all sources of reconciled objects.
    pub fn add_handler(&self, handler: Arc<dyn ChangeHandler<K>>) -> AddedHandler {
        let id = HandlerId(self.next_id());
        let (removal, removed) = Removal::new();
        let messages = self.messages.clone();
        let token = removal.token.clone();
        self.spawn(async move {
            // These fail at the end of the controller only.
            let _ = messages.send(Message::AddHandler(id, handler)).await;
            token.cancelled().await;
            let _ = messages.send(Message::RemoveHandler(id, removed)).await;
            TaskEnd::Removed
        });
        AddedHandler { removal }
    }

    /// The task of the main source: opens it when all of `gates` are ready. A source is requested
    /// at its first poll, so it is not listed before.
    pub(super) fn main_task(
        &self,
        changes: BoxStream<'static, Change<K>>,
        gates: Vec<ReadinessGate>,
    ) -> Task {
        let messages = self.messages.clone();
        let gates_ready = self.gates_ready.clone();
        async move {
            join_all(gates.iter().map(ReadinessGate::wait)).await;
            gates_ready.cancel();
            forward(SourceId::MAIN, changes, &messages).await;
            TaskEnd::Ended
        }
        .boxed()
    }

    fn spawn(&self, task: impl Future<Output = TaskEnd> + Send + 'static) {
        // The receiver is dropped when the controller stops, and the task with it.
        let _ = self.tasks.send(task.boxed());
    }

    fn next_id(&self) -> u32 {
        // 0 is the main source.
        self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

/// Forwards the changes of a source until its end, or that of the controller.
async fn forward<K>(
    source: SourceId,
    mut changes: BoxStream<'static, Change<K>>,
    messages: &mpsc::Sender<Message<K>>,
) {
    while let Some(change) = changes.next().await {
        if messages
            .send(Message::Change(source, change))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Ends the task of something that was added.
#[derive(Debug)]
struct Removal {
    token: CancellationToken,
    /// Ends when the removal is complete, or when the controller has ended.
    removed: oneshot::Receiver<()>,
}

impl Removal {
    /// A removal, and what its task drops when the removal is complete.
    fn new() -> (Self, oneshot::Sender<()>) {
        let (sender, removed) = oneshot::channel();
        let removal = Self {
            token: CancellationToken::new(),
            removed,
        };
        (removal, sender)
    }

    async fn run(self) {
        self.token.cancel();
        let _ = self.removed.await;
    }
}

/// A source of a running controller. It stays if this value is dropped.
#[derive(Debug)]
pub struct AddedSource {
    id: SourceId,
    synced: ReadinessGate,
    removal: Removal,
}

impl AddedSource {
    /// What a [`ChangeHandler`] gets with each change of this source.
    pub fn id(&self) -> SourceId {
        self.id
    }

    /// The gate of the source, which becomes ready when its first list has been processed.
    pub fn synced(&self) -> &ReadinessGate {
        &self.synced
    }

    /// Removes the source. When it returns, the source is closed, no handler gets anything of it,
    /// its gate is no longer a part of the readiness of the process, and the objects that only it
    /// delivered are forgotten: no reconcile of them is in progress, and none starts. They are not
    /// reconciled as deleted.
    ///
    /// It waits for reconciles in progress, so a reconcile must not wait for the removal of the
    /// source of the object that it handles. The removal continues if the future is dropped after
    /// its first poll.
    pub async fn remove(self) {
        self.synced.remove();
        self.removal.run().await;
    }
}

/// A handler of a running controller. It stays if this value is dropped.
#[derive(Debug)]
pub struct AddedHandler {
    removal: Removal,
}

impl AddedHandler {
    /// Removes the handler. It gets nothing after the return of this function.
    pub async fn remove(self) {
        self.removal.run().await;
    }
}

#[cfg(test)]
mod tests;
