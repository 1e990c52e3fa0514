//! A proxy that reports when the program must be killed: before or after one of its writes.

use std::fmt::{Display, Formatter};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Request;
use hyper::body::Incoming;
use kube::Client;
use tokio::sync::watch;

use crate::control_plane::ControlPlane;
use crate::proxy::{ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb};

/// When a program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The write does not reach the API server.
    Before,
    /// The write is applied, and the program does not receive the response.
    After,
}

impl Display for Moment {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if *self == Self::Before {
            "before"
        } else {
            "after"
        })
    }
}

/// A running proxy.
pub(super) struct KillProxy {
    shared: Arc<Shared>,
    server: ProxyServer,
}

struct Shared {
    upstream: Client,
    state: Mutex<State>,
    /// The program must be killed: none of its requests is forwarded.
    dead: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    /// The number of writes until the program is killed.
    kill: Option<(usize, Moment)>,
    /// The write at which the program was killed.
    killed_at: Option<String>,
}

impl KillProxy {
    pub(super) async fn start(plane: &ControlPlane) -> Self {
        let upstream = ProxyServer::upstream(plane).await;
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::default(),
            dead: watch::Sender::new(false),
        });
        let handled = Arc::clone(&shared);
        let accept = move || {
            let shared = Arc::clone(&handled);
            move |request| handle(Arc::clone(&shared), request)
        };
        let server = ProxyServer::start(plane, "kill-proxy", accept).await;
        Self { shared, server }
    }

    /// The kubeconfig for the program.
    pub(super) fn kubeconfig(&self) -> &Path {
        self.server.kubeconfig()
    }

    /// Lets the program be killed at its n-th write from now on, from 1.
    pub(super) fn kill_at(&self, nth: usize, moment: Moment) {
        *self.shared.state() = State {
            kill: Some((nth, moment)),
            killed_at: None,
        };
    }

    /// The write at which the program was killed since the last call of [`Self::kill_at`]. No later
    /// write kills it.
    pub(super) fn end(&self) -> Option<String> {
        let mut state = self.shared.state();
        state.kill = None;
        state.killed_at.clone()
    }

    /// Waits until the program must be killed.
    pub(super) async fn crashed(&self) {
        // The sender outlives this receiver.
        let _ = self.shared.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Whether the program must be killed.
    pub(super) fn is_dead(&self) -> bool {
        *self.shared.dead.borrow()
    }

    /// Forwards requests again, after the program was killed.
    pub(super) fn revive(&self) {
        self.shared.dead.send_replace(false);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write, and returns when the program is killed at it.
    fn count(&self, write: &ApiRequest) -> Option<Moment> {
        let mut state = self.state();
        let (left, moment) = state.kill?;
        if left > 1 {
            state.kill = Some((left - 1, moment));
            return None;
        }
        state.kill = None;
        let ApiRequest {
            verb,
            resource,
            name,
            subresource,
        } = write;
        state.killed_at = Some(
            format!("{verb:?} {resource} {name} {subresource}")
                .trim_end()
                .to_owned(),
        );
        Some(moment)
    }

    async fn write(&self, write: ApiRequest, forward: Forward) -> Result<ProxyResponse, Broken> {
        let moment = if is_counted(&write) {
            self.count(&write)
        } else {
            None
        };
        match moment {
            None => forward.send().await,
            Some(moment) => {
                if moment == Moment::After {
                    let _ = forward.send().await;
                }
                self.dead.send_replace(true);
                Err(Broken)
            }
        }
    }
}

/// Whether a write belongs to the protocol: leases, events and reviews of permissions do not.
fn is_counted(write: &ApiRequest) -> bool {
    !["leases", "events"].contains(&write.resource.as_str()) && !write.resource.ends_with("reviews")
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<ProxyResponse, Broken> {
    let forward = Forward::receive(shared.upstream.clone(), request).await?;
    if *shared.dead.borrow() {
        return Err(Broken);
    }
    let parsed = ApiRequest::of(&forward.method, &forward.path);
    match parsed.verb {
        Verb::Watch => forward.stream().await,
        Verb::Read => forward.send().await,
        // In a separate task, which continues when the program is killed.
        _ => tokio::spawn(async move { shared.write(parsed, forward).await })
            .await
            .map_err(|_| Broken)?,
    }
}
