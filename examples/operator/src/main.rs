//! An operator of two kinds: a Server gets a place in a Rack, and keeps the Rack from deletion.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_provider::advanced::Reported;
use capi_ipam_provider::api::conditions::{Condition, INVALID_SPEC};
use capi_ipam_provider::controller::client::{CallError, ResourceClient};
use capi_ipam_provider::controller::controller::{
    Action, Attempt, Reconciler, Store, reconcile_fn,
};
use capi_ipam_provider::controller::manager::{self, BoxError, Identity, Manager};
use capi_ipam_provider::controller::retry::Retry;
use capi_ipam_provider::controller::upgrade::StoredVersions;
use capi_ipam_provider::controller::watch::Keyed;
use capi_ipam_provider::controller::{trace_span, traces};
use capi_ipam_provider::references::{self, ReferenceError};
use kube::{Api, CustomResource};
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};

/// The finalizer of a Server, until it has left its Rack.
const PLACE: &str = "operator.example.com/place";
/// The finalizer of a Rack, until it is taken down.
const RACK: &str = "operator.example.com/rack";

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Rack")]
#[kube(status = "Status", schema = "disabled")]
struct RackSpec {
    /// The number of places.
    places: u32,
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Server")]
#[kube(status = "Status", schema = "disabled")]
struct ServerSpec {
    rack: String,
    /// Counted from 1.
    place: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

/// The reason that the status shows. A request that failed is retried, and shown if that lasts.
fn reason(error: &ReferenceError) -> Option<&'static str> {
    let is_refused = !matches!(error, ReferenceError::Request(_));
    is_refused.then_some("RackNotUsable")
}

struct Servers {
    racks: ResourceClient<Rack>,
    refused: Counter,
}

impl Reconciler for Servers {
    type Object = Server;
    type State = ();
    type Error = ReferenceError;

    /// Keeps the rack of a server.
    async fn reconcile(
        &self,
        server: Arc<Server>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, ReferenceError> {
        let name = server.spec.rack.as_str();
        let reference = references::name_of(&*server, &());
        let keep = references::set(&self.racks, std::slice::from_ref(&name), &reference);
        let kept = traces::in_span(trace_span!("keep_rack", rack = name), keep).await;
        let is_refused = kept.as_ref().is_err_and(|error| reason(error).is_some());
        self.refused.inc_by(is_refused.into());
        kept?;
        let places = self.racks.get(name).await?.map(|rack| rack.spec.places);
        if places.is_some_and(|places| server.spec.place > places) {
            let problem = "spec.place: not in the rack";
            return Ok(attempt.wait(INVALID_SPEC, problem, Duration::from_mins(5)));
        }
        Ok(Action::AwaitChange)
    }

    /// A rack can be created at any time.
    fn retry(&self, _: &ReferenceError, _: u32) -> Retry {
        Retry::After(Duration::from_secs(5))
    }
}

async fn set_up(manager: &mut Manager) -> Result<(), BoxError> {
    // Objects that an older version of the program has stored.
    let step = StoredVersions::new(manager.client.clone(), "servers.example.com");
    manager.upgrade(&step).await?;

    let servers = ResourceClient::<Server>::new(Api::all(manager.client.clone()), &());
    let racks = ResourceClient::<Rack>::new(Api::all(manager.client.clone()), &());
    let (refused, help) = (Counter::default(), "Attempts without a usable rack");
    let counter = refused.clone();
    manager.metrics.register("refused_places", help, counter);

    let mut controller = manager.controller("servers");
    let (placed, trigger) = (controller.store(), controller.trigger());
    placed.index("rack", |server: &Server| vec![server.spec.rack.clone()]);
    let of_rack = placed.clone();
    let (_, handler) = Store::<Rack>::watched(move |rack| {
        for server in of_rack.by("rack", rack.name()) {
            trigger.enqueue(server.key());
        }
    });
    let watched = manager.watch(Api::all(manager.client.clone()));
    controller.watch(watched.handler(handler));

    let left = racks.clone();
    let leave = move |server: Arc<Server>| leave(left.clone(), server);
    let place = Servers {
        racks: racks.clone(),
        refused,
    };
    let place = Reported::new(place, &manager.events, move |_| servers.clone(), reason);
    let controller = controller.wants(place.is_change_by_others());
    let watch = manager.watch(Api::all(manager.client.clone()));
    manager.run_controller(controller, watch, place.finalizer(PLACE, leave));

    let put_up = reconcile_fn(async |_: Arc<Rack>| Ok::<_, CallError>(Action::AwaitChange));
    let put_up = Reported::new(put_up, &manager.events, move |_| racks.clone(), |_| None);
    let put_up = put_up.users(move |rack| {
        let servers = placed.by("rack", rack.key().name());
        let servers: Vec<&Server> = servers.iter().map(AsRef::as_ref).collect();
        references::describe(rack, &servers, &())
    });
    let take_down = put_up.finalizer(RACK, async |_| Ok(Action::AwaitChange));
    let watch = manager.watch(Api::all(manager.client.clone()));
    manager.run("racks", watch, take_down);
    Ok(())
}

async fn leave(racks: ResourceClient<Rack>, server: Arc<Server>) -> Result<Action, ReferenceError> {
    references::clear(&racks, &references::name_of(&*server, &())).await?;
    Ok(Action::AwaitChange)
}

fn main() -> ExitCode {
    manager::main(Identity::new("operator", env!("CARGO_PKG_VERSION")), set_up)
}
