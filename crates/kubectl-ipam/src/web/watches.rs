//! Watches of all kinds that the page shows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, IPSlice, Pool, PoolSet, names};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use futures::StreamExt;
use kube::Client;
use kube::runtime::watcher::{self, Config, Event, watcher as start_watch};
use tokio::task::JoinSet;

use super::heartbeat;
use super::records;
use super::state::{State, Tables};
use crate::cluster::{Cluster, PAGE_SIZE, WATCH_TIMEOUT};
use crate::error::{Error, MissingRight};
use crate::objects::{Kind, ListState, Shown};

/// Time before a failed watch is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Time before a list or a watch that the permissions do not allow is tried again.
const REFUSED_DELAY: Duration = Duration::from_secs(15);

/// Starts the watches. They end when the set is dropped.
pub(super) fn start(cluster: &Arc<Cluster>, state: &Arc<State>) -> Result<JoinSet<()>, Error> {
    let mut watches = JoinSet::new();
    watches.spawn(heartbeat::run(cluster.client.clone(), Arc::clone(state)));
    watches.spawn(records::run(Arc::clone(cluster), Arc::clone(state)));
    for kind in Kind::ALL {
        let Some(version) = cluster.version(kind)? else {
            state.update(|tables| tables.objects.list_mut(kind).finish());
            continue;
        };
        let watch = Watch {
            client: cluster.client.clone(),
            kind,
            version,
            own_namespace: cluster.namespace.clone(),
            state: Arc::clone(state),
        };
        match kind {
            Kind::Pool(_) => watches.spawn(watch.run::<Pool>()),
            Kind::PoolSet(_) => watches.spawn(watch.run::<PoolSet>()),
            Kind::Address => watches.spawn(watch.run::<IPAddress>()),
            Kind::Claim => watches.spawn(watch.run::<IPAddressClaim>()),
            Kind::Network => watches.spawn(watch.run::<IPNetwork>()),
            Kind::Registry => watches.spawn(watch.run::<IPRegistry>()),
            Kind::Reservation => watches.spawn(watch.run::<IPReservation>()),
            Kind::Slice => watches.spawn(watch.run::<IPSlice>()),
        };
    }
    Ok(watches)
}

/// The watch of one kind.
struct Watch {
    client: Client,
    kind: Kind,
    version: &'static str,
    /// The namespace that is watched if the permissions do not allow the whole cluster.
    own_namespace: String,
    state: Arc<State>,
}

/// What the permissions do not allow.
enum Refused {
    List,
    Watch,
}

impl Watch {
    /// Watches the whole cluster. Without the permission, watches the namespace of the caller.
    async fn run<K: Shown>(self) {
        let mut namespace: Option<&str> = None;
        self.update(|_| ());
        loop {
            let config = Config::default()
                .page_size(PAGE_SIZE)
                .timeout(WATCH_TIMEOUT);
            let api = K::api(self.client.clone(), self.kind, self.version, namespace);
            let mut events = pin!(start_watch(api, config));
            while let Some(event) = events.next().await {
                let error = match event {
                    Ok(event) => {
                        self.receive::<K>(event, namespace);
                        continue;
                    }
                    Err(error) => error,
                };
                let Some(refused) = refused(&error) else {
                    let problem = format!(
                        "cannot watch {}: {}",
                        self.kind.plural(),
                        error_chain(&error)
                    );
                    self.update(|list| list.failed(problem));
                    self.state.suspect();
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                };
                let right = self.right(&refused, namespace);
                self.update(|list| list.missing(right));
                if matches!(refused, Refused::List) && namespace.is_none() && !self.kind.is_global()
                {
                    namespace = Some(&self.own_namespace);
                } else {
                    // The ledger computes nothing before all lists that have begun are complete.
                    if matches!(refused, Refused::List) {
                        let ended = Event::<MaybeInvalid<K>>::InitDone;
                        self.state
                            .update(|tables| K::feed(&mut tables.ledger, self.kind, &ended));
                    }
                    // The rows of a list stay; it is read again, since there is no watch.
                    self.update(ListState::finish);
                    tokio::time::sleep(REFUSED_DELAY).await;
                }
                break;
            }
        }
    }

    /// Changes what is known of the list.
    fn update(&self, change: impl FnOnce(&mut ListState)) {
        self.state
            .update(|tables| change(tables.objects.list_mut(self.kind)));
    }

    fn receive<K: Shown>(&self, event: Event<MaybeInvalid<K>>, namespace: Option<&str>) {
        if let (Event::InitDone, Some(namespace)) = (&event, namespace) {
            self.update(|list| list.only(namespace));
        }
        // kube sends `Init` before its request.
        let is_answer = !matches!(event, Event::Init);
        let apply = |tables: &mut Tables| tables.apply(self.kind, event);
        if is_answer {
            self.state.receive(apply);
        } else {
            self.state.update(apply);
        }
    }

    fn right(&self, refused: &Refused, namespace: Option<&str>) -> MissingRight {
        let verb = match refused {
            Refused::List => "list",
            Refused::Watch => "watch",
        };
        let resource = format!("{}.{}", self.kind.plural(), names::GROUP);
        MissingRight {
            verb,
            resource,
            namespace: namespace.map(str::to_owned),
        }
    }
}

/// Whether the permissions do not allow a request.
fn refused(error: &watcher::Error) -> Option<Refused> {
    let is_forbidden =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(error) if is_forbidden(error) => Some(Refused::List),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error)
            if is_forbidden(error) =>
        {
            Some(Refused::Watch)
        }
        watcher::Error::WatchError(status) if status.code == 403 => Some(Refused::Watch),
        _ => None,
    }
}
