//! Writes. Each has a precondition where another writer can exist.

use std::fmt::Debug;

use capi_ipam::api::{IPReservation, Pool, PoolKey, names};
use capi_ipam_controller::client::{CallError, with_timeout};
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, ReplaceOperation, TestOperation};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Cluster, Kind};
use crate::error::{Error, MissingRight};

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
    pub(crate) fn of(metadata: &kube::api::ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "with_timeout is the deadline; ResourceClient has no dry run")]
impl Cluster {
    fn pools(&self, pool: &PoolKey) -> Api<Pool> {
        match &pool.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &pool.kind),
            None => Api::all_with(self.client.clone(), &pool.kind),
        }
    }

    /// Whether reservations are served: the Go provider has none.
    pub(crate) fn has_reservations(&self) -> bool {
        self.served.contains_key(Kind::Reservation.plural())
    }

    /// Fails if reservations are not served.
    pub(crate) fn require_reservations(&self) -> Result<(), Error> {
        let (plural, group) = (Kind::Reservation.plural().to_owned(), names::GROUP.to_owned());
        if self.has_reservations() { Ok(()) } else { Err(Error::NotInstalled { plural, group }) }
    }

    pub(crate) async fn create_reservation(&self, new: &IPReservation, dry_run: bool) -> Result<Created, Error> {
        let kind = Kind::Reservation;
        self.create(&Api::all(self.client.clone()), kind, None, new, dry_run).await
    }

    pub(crate) async fn create_pool(&self, key: &PoolKey, new: &Pool, dry_run: bool) -> Result<Created, Error> {
        self.create(&self.pools(key), Kind::Pool(key.kind), key.namespace.as_deref(), new, dry_run).await
    }

    async fn create<K>(
        &self,
        api: &Api<K>,
        kind: Kind,
        namespace: Option<&str>,
        new: &K,
        dry_run: bool,
    ) -> Result<Created, Error>
    where
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        let parameters = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let operation = || format!("create {}", kind.plural());
        match with_timeout(operation, api.create(&parameters, new)).await {
            Ok(_) => Ok(Created::New),
            Err(error) if error.is_already_exists() => Ok(Created::Exists),
            Err(error) => Err(self.call_error("create", kind, namespace, &error)),
        }
    }

    /// Replaces the specification of a pool if nobody has changed it.
    pub(crate) async fn replace_spec(
        &self,
        key: &PoolKey,
        version: &Identity,
        spec: &Value,
        dry_run: bool,
    ) -> Result<(), Error> {
        let test = |path: [&str; 2], value: Value| {
            PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value })
        };
        let replace = ReplaceOperation { path: PointerBuf::from_tokens(["spec"]), value: spec.clone() };
        let patch = JsonPatch(vec![
            test(["metadata", "uid"], json!(version.uid)),
            test(["metadata", "generation"], json!(version.generation)),
            PatchOperation::Replace(replace),
        ]);
        let parameters =
            PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let (api, kind) = (self.pools(key), Kind::Pool(key.kind));
        let operation = || format!("patch {}", kind.plural());
        let result = with_timeout(operation, api.patch(&key.name, &parameters, &Patch::<Pool>::Json(patch))).await;
        result.map(drop).map_err(|error| self.call_error("patch", kind, key.namespace.as_deref(), &error))
    }

    pub(crate) async fn delete_pool(&self, key: &PoolKey, version: &Identity, dry_run: bool) -> Result<(), Error> {
        // The status changes the resource version all the time, and deletion waits for the finalizer.
        let preconditions = Preconditions { uid: Some(version.uid.clone()), resource_version: None };
        let kind = Kind::Pool(key.kind);
        self.delete(&self.pools(key), kind, key.namespace.as_deref(), &key.name, preconditions, dry_run).await
    }

    /// Deletes a reservation if its specification has not changed. The manager can change its labels meanwhile.
    pub(crate) async fn delete_reservation(&self, name: &str, version: &Identity, dry_run: bool) -> Result<(), Error> {
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let mut version = version.clone();
        let mut attempt = 1_u32;
        loop {
            let (uid, resource_version) = (Some(version.uid.clone()), Some(version.resource_version.clone()));
            let preconditions = Preconditions { uid, resource_version };
            let error = match self.try_delete(&api, Kind::Reservation, name, preconditions, dry_run).await {
                Err(error) if error.is_conflict() && attempt < DELETE_ATTEMPTS => error,
                done => return done.map_err(|error| self.call_error("delete", Kind::Reservation, None, &error)),
            };
            let read = with_timeout(|| format!("read IPReservation {name}"), api.get_opt(name)).await;
            let read = read.map_err(|error| self.call_error("get", Kind::Reservation, None, &error))?;
            let Some(found) = read.map(|found| Identity::of(&found.metadata)) else { return Ok(()) };
            if (&found.uid, found.generation) != (&version.uid, version.generation) {
                return Err(self.call_error("delete", Kind::Reservation, None, &error));
            }
            version = found;
            attempt = attempt.saturating_add(1);
        }
    }

    async fn delete<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        preconditions: Preconditions,
        dry_run: bool,
    ) -> Result<(), Error> {
        let deleted = self.try_delete(api, kind, name, preconditions, dry_run).await;
        deleted.map_err(|error| self.call_error("delete", kind, namespace, &error))
    }

    /// Deletes an object. One that does not exist counts as deleted.
    async fn try_delete<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        kind: Kind,
        name: &str,
        preconditions: Preconditions,
        dry_run: bool,
    ) -> Result<(), CallError> {
        let parameters = DeleteParams { dry_run, preconditions: Some(preconditions), ..DeleteParams::default() };
        let operation = || format!("delete {} {name}", kind.plural());
        match with_timeout(operation, api.delete(name, &parameters)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn call_error(&self, verb: &'static str, kind: Kind, namespace: Option<&str>, error: &CallError) -> Error {
        let resource = format!("{}.{}", kind.plural(), names::GROUP);
        let namespace = namespace.map(str::to_owned);
        // A webhook or a quota refuses with the same status code.
        match error_text(error) {
            Some(reason) if error.is_forbidden() && !reason.contains(&format!("cannot {verb} resource")) => {
                Error::Request { operation: format!("{verb} {}", kind.plural()), reason }
            }
            _ if error.is_forbidden() => Error::Forbidden(MissingRight { verb, resource, namespace }),
            _ => self.error(error),
        }
    }
}

/// The message of the API server.
fn error_text(error: &CallError) -> Option<String> {
    match error {
        CallError::Failed { source, .. } => match source.as_ref() {
            kube::Error::Api(status) => Some(super::one_line(&status.message)),
            _ => None,
        },
        _ => None,
    }
}
