//! Clients of a process that is killed at one of its writes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tower::service_fn;

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// Before the write with this number, counted from 0, reaches the API server.
    Before(usize),
    /// After it, before its answer arrives.
    After(usize),
}

impl Kill {
    /// All moments at which a process can be killed that sends `writes` writes.
    pub(crate) fn at_each_of(writes: usize) -> impl Iterator<Item = Self> {
        (0..writes).flat_map(|number| [Self::Before(number), Self::After(number)])
    }
}

/// Runs `work` with a client until it ends or is killed. Returns its result if it ended, and the
/// number of writes that it sent.
pub(crate) async fn run_until_killed<T, F>(
    client: &Client,
    kill: Option<Kill>,
    work: impl FnOnce(Client) -> F,
) -> (Option<T>, usize)
where
    F: Future<Output = T>,
{
    let (writes, killed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let counting = {
        let (client, writes, killed) = (client.clone(), Arc::clone(&writes), Arc::clone(&killed));
        service_fn(
            move |request: Request<Body>| -> BoxFuture<'static, kube::Result<Response<Body>>> {
                let (client, killed) = (client.clone(), Arc::clone(&killed));
                let is_write = request.method() != Method::GET;
                let number = is_write.then(|| writes.fetch_add(1, Ordering::Relaxed));
                async move {
                    let die = async || {
                        killed.notify_one();
                        std::future::pending::<()>().await;
                    };
                    if number.is_some_and(|number| kill == Some(Kill::Before(number))) {
                        die().await;
                    }
                    let response = client.send(request).await;
                    if number.is_some_and(|number| kill == Some(Kill::After(number))) {
                        die().await;
                    }
                    response
                }
                .boxed()
            },
        )
    };
    let client = Client::new(counting, client.default_namespace());
    let result = match select(pin!(work(client)), pin!(killed.notified())).await {
        Either::Left((result, _)) => Some(result),
        Either::Right(_) => None,
    };
    (result, writes.load(Ordering::Relaxed))
}
