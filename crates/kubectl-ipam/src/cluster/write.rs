//! Writes. Each has a precondition where another writer can exist.

use std::fmt::Debug;

use capi_ipam_api::{IPReservation, IPSlice, names};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::api::IPAddressClaim;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{
    DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, ValidationDirective,
};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::read::{Cluster, lacks_permission};
use crate::cli::DryRun;
use crate::error::{Error, MissingRight};
use crate::objects::{Kind, Shown};

/// Name of the field manager.
const FIELD_MANAGER: &str = "kubectl-ipam";

/// What a request to create an object results in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    New,
    /// An object of that name exists.
    Exists,
}

/// How often the deletion of a reservation is tried while others change its metadata.
const DELETE_ATTEMPTS: u32 = 5;

/// What identifies an object that was read: a request for it fails once the object is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
}

impl Identity {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
        }
    }

    /// The metadata of a patch that fails if the object has changed.
    fn preconditions(&self) -> Value {
        json!({"uid": self.uid, "resourceVersion": self.resource_version})
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "Cluster::call has the deadline; ResourceClient has no dry run"
)]
impl Cluster {
    /// The same API server, to which a dry run of the client sends no change.
    pub(crate) fn with_dry_run(mut self, dry_run: DryRun) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Whether reservations are served: the Go provider has none.
    pub(crate) fn has_reservations(&self) -> bool {
        self.served.contains_key(Kind::Reservation.plural())
    }

    /// Fails if reservations are not served.
    pub(crate) fn require_reservations(&self) -> Result<(), Error> {
        let (plural, group) = (
            Kind::Reservation.plural().to_owned(),
            names::GROUP.to_owned(),
        );
        if self.has_reservations() {
            Ok(())
        } else {
            Err(Error::NotInstalled { plural, group })
        }
    }

    /// Creates a reservation. Without an answer, it is read to find out whether it was created.
    pub(crate) async fn create_reservation(&self, new: &IPReservation) -> Result<Created, Error> {
        let dry_run = self.dry_run.is_dry_run();
        if self.dry_run == DryRun::Client {
            return Ok(Created::New);
        }
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let parameters = PostParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let operation = || "create ipreservations".to_owned();
        let created = self.call(operation, api.create(&parameters, new)).await;
        let error = match created {
            Ok(created) if created.spec == new.spec => return Ok(Created::New),
            Ok(_) => {
                let text = "the served definition of IPReservation lacks fields: install that of this version, and \
                            delete the reservation, which excludes the address";
                return Err(Error::Argument(text.to_owned()));
            }
            Err(error) if error.is_already_exists() => return Ok(Created::Exists),
            Err(error) => error,
        };
        if error.outcome_is_unknown() && !dry_run {
            let name = new.name_any();
            let operation = || format!("read IPReservation {name}");
            let found = self.call(operation, api.get(&name)).await;
            if found.is_ok_and(|found| found.spec == new.spec) {
                return Ok(Created::New);
            }
        }
        Err(self.call_error("create", Kind::Reservation, &error))
    }

    /// Marks a slice as empty since a time, if it is unchanged.
    pub(crate) async fn mark_slice(
        &self,
        name: &str,
        version: &Identity,
        empty_since: Timestamp,
    ) -> Result<(), Error> {
        let api: Api<IPSlice> = Api::all(self.client.clone());
        let change = json!({
            "metadata": version.preconditions(),
            "spec": {"emptySince": Time(empty_since)},
        });
        self.merge(&api, Kind::Slice, name, &change).await
    }

    /// Changes fields of the specification of a reservation, if it is unchanged.
    pub(crate) async fn change_reservation(
        &self,
        name: &str,
        version: &Identity,
        spec: &Value,
    ) -> Result<(), Error> {
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let change = json!({"metadata": version.preconditions(), "spec": spec});
        self.merge(&api, Kind::Reservation, name, &change).await
    }

    /// Sets annotations of the claim with this uid.
    pub(crate) async fn annotate_claim(
        &self,
        claim: &NamespacedName,
        uid: &str,
        annotations: &Value,
    ) -> Result<(), Error> {
        let kind = Kind::Claim;
        let version = self.version(kind)?.unwrap_or_default();
        let client = self.client.clone();
        let api = IPAddressClaim::api(client, kind, version, Some(claim.namespace()));
        let change = json!({"metadata": {"uid": uid, "annotations": annotations}});
        self.merge(&api, kind, claim.name(), &change).await
    }

    async fn merge<K: Clone + DeserializeOwned + Debug>(
        &self,
        api: &Api<K>,
        kind: Kind,
        name: &str,
        change: &Value,
    ) -> Result<(), Error> {
        let parameters = PatchParams {
            dry_run: self.dry_run.is_dry_run(),
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        if self.dry_run == DryRun::Client {
            return Ok(());
        }
        let operation = || format!("patch {} {name}", kind.plural());
        let patch = Patch::Merge(change);
        let patched = self.call(operation, api.patch(name, &parameters, &patch));
        match patched.await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.call_error("patch", kind, &error)),
        }
    }

    /// Deletes a reservation if its specification has not changed. The manager can change its
    /// labels meanwhile.
    pub(crate) async fn delete_reservation(
        &self,
        name: &str,
        version: &Identity,
    ) -> Result<(), Error> {
        if self.dry_run == DryRun::Client {
            return Ok(());
        }
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let mut version = version.clone();
        let mut attempt = 1_u32;
        loop {
            let preconditions = Preconditions {
                uid: Some(version.uid.clone()),
                resource_version: Some(version.resource_version.clone()),
            };
            let parameters = DeleteParams {
                dry_run: self.dry_run.is_dry_run(),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            let operation = || format!("delete ipreservations {name}");
            let error = match self.call(operation, api.delete(name, &parameters)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_conflict() && attempt < DELETE_ATTEMPTS => error,
                Err(error) => return Err(self.call_error("delete", Kind::Reservation, &error)),
            };
            let operation = || format!("read IPReservation {name}");
            let read = self.call(operation, api.get_opt(name)).await;
            let read = read.map_err(|error| self.call_error("get", Kind::Reservation, &error))?;
            let Some(found) = read.map(|found| Identity::of(&found.metadata)) else {
                return Ok(());
            };
            if (&found.uid, found.generation) != (&version.uid, version.generation) {
                return Err(self.call_error("delete", Kind::Reservation, &error));
            }
            version = found;
            attempt = attempt.saturating_add(1);
        }
    }

    fn call_error(&self, verb: &'static str, kind: Kind, error: &CallError) -> Error {
        if lacks_permission(error, verb) {
            return Error::Forbidden(MissingRight {
                verb,
                resource: format!("{}.{}", kind.plural(), names::GROUP),
                namespace: None,
            });
        }
        self.error(error)
    }
}
