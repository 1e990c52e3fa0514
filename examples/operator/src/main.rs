//! An operator of two kinds: a Server gets a place in a Rack, and keeps the Rack from deletion.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_provider::advanced::{STATUS_INTERVAL, StatusWriter};
use capi_ipam_provider::api::conditions::{self, Condition, INVALID_SPEC, READY};
use capi_ipam_provider::controller::client::ResourceClient;
use capi_ipam_provider::controller::controller::{Action, Attempt, Reconciler, Store};
use capi_ipam_provider::controller::manager::{self, BoxError, Identity, Manager};
use capi_ipam_provider::controller::retry::Retry;
use capi_ipam_provider::controller::upgrade::StoredVersions;
use capi_ipam_provider::controller::watch::Keyed;
use capi_ipam_provider::controller::{clock, trace_span, traces};
use capi_ipam_provider::references::{self, ReferenceError};
use kube::{Api, CustomResource};
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};

/// The finalizer of a Server, until it has left its Rack.
const FINALIZER: &str = "operator.example.com/place";

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Rack")]
#[kube(schema = "disabled")]
struct RackSpec {
    /// The number of places.
    places: u32,
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Server")]
#[kube(status = "ServerStatus", schema = "disabled")]
struct ServerSpec {
    rack: String,
    /// Counted from 1.
    place: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerStatus {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

struct Servers {
    client: ResourceClient<Server>,
    racks: ResourceClient<Rack>,
    status: StatusWriter<Server>,
    refused: Counter,
}

impl Reconciler for Servers {
    type Object = Server;
    type State = ();
    type Error = ReferenceError;

    /// Keeps the rack of a server, and reports whether the server has its place.
    async fn reconcile(
        &self,
        server: Arc<Server>,
        _: &mut Attempt<()>,
    ) -> Result<Action, ReferenceError> {
        let name = server.spec.rack.as_str();
        let reference = references::name_of(&*server, &());
        let keep = references::set(&self.racks, std::slice::from_ref(&name), &reference);
        let kept = traces::in_span(trace_span!("keep_rack", rack = name), keep).await;
        let places = self.racks.get(name).await?.map(|rack| rack.spec.places);
        let ready = match &kept {
            Err(error) => Condition::new(READY, false, "RackNotUsable", error.to_string()),
            Ok(()) if places.is_some_and(|places| server.spec.place > places) => {
                Condition::new(READY, false, INVALID_SPEC, "spec.place: not in the rack")
            }
            Ok(()) => Condition::new(READY, true, "Placed", ""),
        };
        self.report(&server, ready).await?;
        kept.map(|()| Action::AwaitChange)
    }

    /// A rack can be created at any time.
    fn retry(&self, error: &ReferenceError, _: u32) -> Retry {
        let is_refused = !matches!(error, ReferenceError::Request(_));
        self.refused.inc_by(is_refused.into());
        Retry::After(Duration::from_secs(5))
    }
}

impl Servers {
    async fn report(&self, server: &Server, ready: Condition) -> Result<(), ReferenceError> {
        let mut wanted = server.clone();
        let status = wanted.status.get_or_insert_default();
        status.observed_generation = server.metadata.generation;
        let ready = ready.with_observed_generation(server.metadata.generation);
        conditions::set_ready(&mut status.conditions, ready, clock::now());
        self.status.write(&self.client, server, &wanted).await?;
        Ok(())
    }
}

async fn set_up(manager: &mut Manager) -> Result<(), BoxError> {
    // Objects that an older version of the program has stored.
    let step = StoredVersions::new(manager.client.clone(), "servers.example.com");
    manager.upgrade(&step).await?;

    let client = &manager.client;
    let (all_servers, all_racks) = (Api::all(client.clone()), Api::all(client.clone()));
    let events = manager.events.clone();
    let conditions_of = |server: &Server| server.status.clone().unwrap_or_default().conditions;
    let servers = Servers {
        client: ResourceClient::new(all_servers, &()),
        racks: ResourceClient::new(all_racks, &()),
        status: StatusWriter::new(events, (), STATUS_INTERVAL, conditions_of, |_| false),
        refused: Counter::default(),
    };
    let (refused, help) = (servers.refused.clone(), "Attempts without a usable rack");
    manager.metrics.register("refused_places", help, refused);

    let controller = manager.controller("servers");
    let mut controller = controller.wants(servers.status.is_change_by_others());
    let (placed, trigger) = (controller.store(), controller.trigger());
    placed.index("rack", |server: &Server| vec![server.spec.rack.clone()]);
    let (_, handler) = Store::<Rack>::watched(move |rack| {
        for server in placed.by("rack", rack.name()) {
            trigger.enqueue(server.key());
        }
    });
    let racks = manager.watch(Api::all(manager.client.clone()));
    controller.watch(racks.handler(handler));

    let (of_server, racks) = (servers.client.clone(), servers.racks.clone());
    let clean_up = move |server: Arc<Server>| {
        let racks = racks.clone();
        async move { leave(&racks, &server).await }
    };
    let servers = servers.finalizer(FINALIZER, move |_| of_server.clone(), clean_up);
    let watch = manager.watch(Api::all(manager.client.clone()));
    manager.run_controller(controller, watch, servers);
    Ok(())
}

async fn leave(racks: &ResourceClient<Rack>, server: &Server) -> Result<Action, ReferenceError> {
    references::clear(racks, &references::name_of(server, &())).await?;
    Ok(Action::AwaitChange)
}

fn main() -> ExitCode {
    manager::main(Identity::new("operator", env!("CARGO_PKG_VERSION")), set_up)
}
