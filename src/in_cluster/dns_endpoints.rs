//! The controller of DNSEndpoints: one for each IPAddress with a DNS name, for ExternalDNS.
//!
//! The name is an annotation of the IPAddress, see `allocation`. The IPAddress owns its DNSEndpoint, so
//! that the garbage collector deletes it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{conditions, names};
use capi_ipam_controller::client::{CallError, Creation, ResourceClient};
use capi_ipam_controller::controller::{
    Action, Attempt, Cached, ControllerBuilder, Reconciler, Store, retry_write,
};
use capi_ipam_controller::patch;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::{Keyed, WatchApi, WatchSpec};
use capi_ipam_provider::advanced::ProviderSetup;
use capi_ipam_provider::api::{ContractVersion, IPAddress, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, ObjectMeta};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::context::Context;
use super::gates::Gates;
use super::kinds::wait_for_optional_kind;

/// The delay before a name that is in use, or not in the zone, is checked again.
const REFUSED_DELAY: Duration = Duration::from_mins(1);

/// The DNS records of one IPAddress, for ExternalDNS.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "externaldns.k8s.io",
    version = "v1alpha1",
    kind = "DNSEndpoint",
    namespaced,
    schema = "disabled"
)]
pub(super) struct DNSEndpointSpec {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    dns_name: String,
    record_type: String,
    targets: Vec<String>,
}

/// Adds the controller. It starts when the API server serves DNSEndpoints.
pub(super) fn start(setup: &mut ProviderSetup<'_>, context: &Arc<Context>, gates: &Gates) {
    let version = setup.contract.ipam;
    let manager = &mut *setup.manager;
    let mut controller: ControllerBuilder<IPAddress> = manager.controller("DNSEndpoint");
    // The zone of its pool decides whether an IPAddress may have its name.
    for gate in gates.of_ledger() {
        controller.wait_for(gate);
    }
    let trigger = controller.trigger();
    let (endpoints, handler) = Store::watched(move |name| trigger.enqueue(name.clone()));
    let reconciler = Arc::new(EndpointReconciler {
        client: manager.client.clone(),
        context: Arc::clone(context),
        version,
        endpoints,
    });
    let (client, stop) = (manager.client.clone(), manager.stop.clone());
    let (health, options) = (manager.health.optional(), manager.options.clone());
    let run = async move {
        let kind = ApiResource::erase::<DNSEndpoint>(&());
        let served = wait_for_optional_kind(&client, &kind);
        if stop.run_until_cancelled(served).await.is_none() {
            return;
        }
        let namespace = options.watched_namespace();
        let gates = ["DNSEndpoint", "IPAddress"].map(|kind| health.register_watch(kind));
        let [endpoints_listed, addresses_listed] = gates;
        let api = WatchApi::all_with(client.clone(), &()).constrain(namespace);
        let endpoints = WatchSpec::new(api, (), handler, endpoints_listed);
        controller.watch(endpoints.labels(names::DNS_NAME_ANNOTATION));
        let api = WatchApi::all_with(client, &version).constrain(namespace);
        let main = WatchSpec {
            trim: trim_address,
            ..WatchSpec::new(api, version, Arc::new(()), addresses_listed)
        };
        controller.run(main, stop, reconciler).await;
    };
    manager.add("the controller of DNSEndpoints", run);
}

/// Removes what is not read: the addresses are cached a second time.
fn trim_address(address: &mut IPAddress) {
    let metadata = &mut address.metadata;
    metadata.managed_fields = None;
    metadata.labels = None;
    metadata.finalizers = None;
    if let Some(annotations) = &mut metadata.annotations {
        let is_read = |name: &str| {
            [names::DNS_NAME_ANNOTATION, names::MEMBER_POOL_ANNOTATION].contains(&name)
        };
        annotations.retain(|name, _| is_read(name));
    }
}

struct EndpointReconciler {
    client: Client,
    context: Arc<Context>,
    version: ContractVersion,
    endpoints: Store<DNSEndpoint>,
}

impl Reconciler for EndpointReconciler {
    type Object = IPAddress;
    type State = ();
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        retry_write(error, failures)
    }

    async fn reconcile(
        &self,
        address: Arc<IPAddress>,
        _: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let key = address.key();
        let known = self.endpoints.get(Some(key.namespace()), key.name());
        let known = known.map(|Cached::Full(known)| known);
        let api = Api::namespaced(self.client.clone(), key.namespace());
        let endpoints = ResourceClient::<DNSEndpoint>::new(api, &());
        let wanted = self.endpoint_of(&address);
        match (known, wanted) {
            (Some(known), Some(_)) if !is_owned(&known, &address) => {
                Ok(self.refuse_owner(&address, &known))
            }
            // The garbage collector deletes the one of an IPAddress that does not exist.
            (Some(known), None) if !is_owned(&known, &address) => Ok(Action::AwaitChange),
            // It stays if the zone of the pool has changed.
            (Some(known), Some(wanted)) if known.spec == wanted.spec => Ok(Action::AwaitChange),
            (_, Some(_)) if !self.is_in_zone(&address) => {
                let note = "its DNS name is not in the zone of the pool; no DNSEndpoint is created or changed";
                Ok(self.refuse(&address, note))
            }
            (Some(known), Some(wanted)) => {
                let mut changed = DNSEndpoint::clone(&known);
                changed.spec = wanted.spec;
                patch::write(&endpoints, &known, &changed).await?;
                Ok(Action::AwaitChange)
            }
            (Some(known), None) => {
                let uid = known.uid().unwrap_or_default();
                endpoints.delete(key.name(), &uid).await?;
                Ok(Action::AwaitChange)
            }
            (None, Some(wanted)) => self.create(&endpoints, &address, &wanted).await,
            (None, None) => Ok(Action::AwaitChange),
        }
    }
}

impl EndpointReconciler {
    async fn create(
        &self,
        endpoints: &ResourceClient<DNSEndpoint>,
        address: &IPAddress,
        wanted: &DNSEndpoint,
    ) -> Result<Action, CallError> {
        let found = match endpoints.create_or_find(wanted).await? {
            Creation::Created(_) => return Ok(Action::AwaitChange),
            Creation::Found(found) => endpoints.decoded(found)?,
        };
        if is_owned(&found, address) {
            // A user has removed its label.
            let mut changed = found.clone();
            changed.labels_mut().extend(wanted.labels().clone());
            changed.spec.clone_from(&wanted.spec);
            patch::write(endpoints, &found, &changed).await?;
            return Ok(Action::AwaitChange);
        }
        Ok(self.refuse_owner(address, &found))
    }

    /// The name of the DNSEndpoint is in use by another owner.
    fn refuse_owner(&self, address: &IPAddress, found: &DNSEndpoint) -> Action {
        let name = address.name_any();
        let mut owners = found.owner_references().iter();
        // The garbage collector deletes that of a former IPAddress of the name.
        if owners.any(|owner| owner.kind == "IPAddress" && owner.name == name) {
            return Action::Requeue(REFUSED_DELAY);
        }
        let note = format!("another DNSEndpoint has the name {name}; delete it");
        self.refuse(address, &note)
    }

    fn refuse(&self, address: &IPAddress, note: &str) -> Action {
        let reason = conditions::DNS_NAME_REFUSED;
        self.context
            .events
            .warning(address, &self.version, reason, "Create", note);
        Action::Requeue(REFUSED_DELAY)
    }

    /// A user can change the annotation, and may have no permission to change the zone.
    fn is_in_zone(&self, address: &IPAddress) -> bool {
        let Some(dns_name) = address.annotations().get(names::DNS_NAME_ANNOTATION) else {
            return false;
        };
        let claim_uid = address.claim_uid().map(Uid::of);
        let info = self.context.ledger.read(|ledger| {
            let pool = ledger.member_of_address(address, claim_uid)?;
            ledger.pools().pool_info(&pool)
        });
        let Some(info) = info else {
            return false;
        };
        let names = info.dns.as_ref().and_then(|dns| dns.names.as_ref());
        names.is_some_and(|names| names.contains(dns_name))
    }

    /// The DNSEndpoint of an IPAddress; `None` if it has no DNS name.
    fn endpoint_of(&self, address: &IPAddress) -> Option<DNSEndpoint> {
        if address.spec.pool_ref.api_group != names::GROUP {
            return None;
        }
        let name = address.annotations().get(names::DNS_NAME_ANNOTATION)?;
        let target: IpAddr = address.spec.address.parse().ok()?;
        let record_type = if target.is_ipv4() { "A" } else { "AAAA" };
        let endpoint = Endpoint {
            dns_name: name.clone(),
            record_type: record_type.to_owned(),
            targets: vec![target.to_string()],
        };
        let owner = OwnerReference {
            api_version: IPAddress::api_version(&self.version).into_owned(),
            kind: IPAddress::kind(&self.version).into_owned(),
            name: address.name_any(),
            uid: address.uid()?,
            ..OwnerReference::default()
        };
        let labels = [(names::DNS_NAME_ANNOTATION.to_owned(), String::new())];
        Some(DNSEndpoint {
            metadata: ObjectMeta {
                namespace: address.namespace(),
                name: Some(address.name_any()),
                labels: Some(labels.into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: DNSEndpointSpec {
                endpoints: vec![endpoint],
            },
        })
    }
}

fn is_owned(endpoint: &DNSEndpoint, address: &IPAddress) -> bool {
    let uid = address.uid();
    let mut owners = endpoint.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == uid.as_ref())
}
