//! Writes. Each has a precondition where another writer can exist.

use std::collections::BTreeMap;
use std::fmt::Debug;

use capi_ipam_api::{IPReservation, IPSlice, Pool, PoolKey, names};
use capi_ipam_controller::client::CallError;
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{
    DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective,
};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::read::{Cluster, error_text, lacks_permission};
use crate::cli::DryRun;
use crate::error::{Error, MissingRight};

/// Labels or annotations.
type Texts = BTreeMap<String, String>;

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

#[expect(
    clippy::disallowed_methods,
    reason = "Cluster::call has the deadline; ResourceClient has no dry run"
)]
impl Cluster {
    /// The same API server, to which a dry run of the client sends no change.
    pub(crate) fn with_dry_run(mut self, dry_run: DryRun) -> Self {
        self.sends_changes = dry_run != DryRun::Client;
        self
    }

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

    pub(crate) async fn create_reservation(
        &self,
        new: &IPReservation,
        dry_run: bool,
    ) -> Result<Created, Error> {
        let body = serde_json::to_value(new).map_err(|error| Error::Output(error.to_string()))?;
        let created = self
            .create(&IPReservation::url_path(&(), None), &body, dry_run)
            .await;
        created.map_err(|error| self.call_error("create", Kind::Reservation, None, &error))
    }

    /// Lets the API server check a reservation in a pool that an import changes before: that the
    /// pool has another scope now, or does not contain the address yet, is no problem.
    pub(crate) async fn check_reservation(&self, new: &IPReservation) -> Result<Created, Error> {
        let body = serde_json::to_value(new).map_err(|error| Error::Output(error.to_string()))?;
        match self
            .create(&IPReservation::url_path(&(), None), &body, true)
            .await
        {
            Err(error) if is_about(&error, &["spec.scope", "spec.address"]) => Ok(Created::New),
            created => {
                created.map_err(|error| self.call_error("create", Kind::Reservation, None, &error))
            }
        }
    }

    /// Creates a pool from the document of a user.
    pub(crate) async fn create_pool(
        &self,
        key: &PoolKey,
        new: &Value,
        dry_run: bool,
    ) -> Result<Created, Error> {
        let namespace = key.namespace.as_deref();
        let created = self
            .create(&Pool::url_path(&key.kind, namespace), new, dry_run)
            .await;
        created.map_err(|error| self.call_error("create", Kind::Pool(key.kind), namespace, &error))
    }

    /// Creates an object. The API server refuses fields that it does not know. If it does not
    /// answer, the object is read to find out whether it was created.
    async fn create(&self, folder: &str, new: &Value, dry_run: bool) -> Result<Created, CallError> {
        if !self.sends_changes {
            return Ok(Created::New);
        }
        let name = new
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let operation = || format!("create {}", plural_of(folder));
        let parameters = PostParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let body = new.to_string().into_bytes();
        let request = Request::new(folder)
            .create(&parameters, body)
            .map(with_strict_fields);
        let request =
            request.map_err(|error| failed(&operation(), kube::Error::BuildRequest(error)))?;
        match self
            .call(operation, self.client.request::<Value>(request))
            .await
        {
            Ok(_) => Ok(Created::New),
            Err(error) if error.is_already_exists() => Ok(Created::Exists),
            Err(error) if error.outcome_is_unknown() && !dry_run => {
                if self.is_stored(folder, name, new).await {
                    Ok(Created::New)
                } else {
                    Err(error)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an object has everything that was written. Without an answer it is not known to
    /// have.
    async fn is_stored(&self, folder: &str, name: &str, written: &Value) -> bool {
        let Ok(request) = Request::new(folder).get(name, &GetParams::default()) else {
            return false;
        };
        let operation = || format!("read {} {name}", plural_of(folder));
        let found = self
            .call(operation, self.client.request::<Value>(request))
            .await;
        found.is_ok_and(|found| contains(&found, written))
    }

    /// Replaces the specification of a pool if it is unchanged. The API server refuses fields that
    /// it does not know.
    pub(crate) async fn replace_spec(
        &self,
        key: &PoolKey,
        version: &Identity,
        spec: &Value,
        dry_run: bool,
    ) -> Result<(), Error> {
        let test = |path: [&str; 2], value: Value| {
            PatchOperation::Test(TestOperation {
                path: PointerBuf::from_tokens(path),
                value,
            })
        };
        let replace = ReplaceOperation {
            path: PointerBuf::from_tokens(["spec"]),
            value: spec.clone(),
        };
        let patch = Patch::<Pool>::Json(JsonPatch(vec![
            test(["metadata", "uid"], json!(version.uid)),
            test(["metadata", "generation"], json!(version.generation)),
            PatchOperation::Replace(replace),
        ]));
        let (kind, namespace) = (Kind::Pool(key.kind), key.namespace.as_deref());
        let folder = Pool::url_path(&key.kind, namespace);
        let result = self
            .patch(&self.pools(key), kind, &key.name, &patch, dry_run)
            .await;
        let result = self
            .unless_stored(
                result,
                &folder,
                &key.name,
                &json!({ "spec": spec }),
                dry_run,
            )
            .await;
        result.map_err(|error| self.call_error("patch", kind, namespace, &error))
    }

    /// Sets labels and annotations of a pool.
    pub(crate) async fn label_pool(
        &self,
        key: &PoolKey,
        version: &Identity,
        labels: &Texts,
        annotations: &Texts,
        dry_run: bool,
    ) -> Result<(), Error> {
        let (kind, namespace) = (Kind::Pool(key.kind), key.namespace.as_deref());
        let change = metadata_change(version, labels, annotations);
        let result = self
            .patch(
                &self.pools(key),
                kind,
                &key.name,
                &Patch::Merge(&change),
                dry_run,
            )
            .await;
        let folder = Pool::url_path(&key.kind, namespace);
        let result = self
            .unless_stored(result, &folder, &key.name, &change, dry_run)
            .await;
        result.map_err(|error| self.call_error("patch", kind, namespace, &error))
    }

    /// Sets labels and annotations of a reservation.
    pub(crate) async fn label_reservation(
        &self,
        name: &str,
        version: &Identity,
        labels: &Texts,
        annotations: &Texts,
        dry_run: bool,
    ) -> Result<(), Error> {
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let change = metadata_change(version, labels, annotations);
        let result = self
            .patch(
                &api,
                Kind::Reservation,
                name,
                &Patch::Merge(&change),
                dry_run,
            )
            .await;
        let result = self
            .unless_stored(
                result,
                &IPReservation::url_path(&(), None),
                name,
                &change,
                dry_run,
            )
            .await;
        result.map_err(|error| self.call_error("patch", Kind::Reservation, None, &error))
    }

    /// Marks a slice as empty since a time, if it is unchanged.
    pub(crate) async fn mark_slice(
        &self,
        name: &str,
        version: &Identity,
        empty_since: Timestamp,
        dry_run: bool,
    ) -> Result<(), Error> {
        let api: Api<IPSlice> = Api::all(self.client.clone());
        let change = json!({
            "metadata": {"uid": version.uid, "resourceVersion": version.resource_version},
            "spec": {"emptySince": Time(empty_since)},
        });
        let marked = self
            .patch(&api, Kind::Slice, name, &Patch::Merge(&change), dry_run)
            .await;
        marked.map_err(|error| self.call_error("patch", Kind::Slice, None, &error))
    }

    async fn patch<K, P>(
        &self,
        api: &Api<K>,
        kind: Kind,
        name: &str,
        patch: &Patch<P>,
        dry_run: bool,
    ) -> Result<(), CallError>
    where
        K: Clone + Debug + DeserializeOwned,
        P: Debug + Serialize,
    {
        if !self.sends_changes {
            return Ok(());
        }
        let parameters = PatchParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let operation = || format!("patch {}", kind.plural());
        self.call(operation, api.patch(name, &parameters, patch))
            .await
            .map(drop)
    }

    /// A change with an unknown outcome is done if the object has what was written.
    async fn unless_stored(
        &self,
        result: Result<(), CallError>,
        folder: &str,
        name: &str,
        written: &Value,
        dry_run: bool,
    ) -> Result<(), CallError> {
        match result {
            Err(error) if error.outcome_is_unknown() && !dry_run => {
                if self.is_stored(folder, name, written).await {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            result => result,
        }
    }

    pub(crate) async fn delete_pool(
        &self,
        key: &PoolKey,
        version: &Identity,
        dry_run: bool,
    ) -> Result<(), Error> {
        // The status changes the resource version all the time, and deletion waits for the
        // finalizer.
        let preconditions = Preconditions {
            uid: Some(version.uid.clone()),
            resource_version: None,
        };
        let kind = Kind::Pool(key.kind);
        self.delete(
            &self.pools(key),
            kind,
            key.namespace.as_deref(),
            &key.name,
            preconditions,
            dry_run,
        )
        .await
    }

    /// Deletes a reservation if its specification has not changed. The manager can change its
    /// labels meanwhile.
    pub(crate) async fn delete_reservation(
        &self,
        name: &str,
        version: &Identity,
        dry_run: bool,
    ) -> Result<(), Error> {
        let api: Api<IPReservation> = Api::all(self.client.clone());
        let mut version = version.clone();
        let mut attempt = 1_u32;
        loop {
            let (uid, resource_version) = (
                Some(version.uid.clone()),
                Some(version.resource_version.clone()),
            );
            let preconditions = Preconditions {
                uid,
                resource_version,
            };
            let error = match self
                .try_delete(&api, Kind::Reservation, name, preconditions, dry_run)
                .await
            {
                Err(error) if error.is_conflict() && attempt < DELETE_ATTEMPTS => error,
                done => {
                    return done.map_err(|error| {
                        self.call_error("delete", Kind::Reservation, None, &error)
                    });
                }
            };
            let read = self
                .call(|| format!("read IPReservation {name}"), api.get_opt(name))
                .await;
            let read =
                read.map_err(|error| self.call_error("get", Kind::Reservation, None, &error))?;
            let Some(found) = read.map(|found| Identity::of(&found.metadata)) else {
                return Ok(());
            };
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
        let deleted = self
            .try_delete(api, kind, name, preconditions, dry_run)
            .await;
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
        if !self.sends_changes {
            return Ok(());
        }
        let parameters = DeleteParams {
            dry_run,
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let operation = || format!("delete {} {name}", kind.plural());
        match self.call(operation, api.delete(name, &parameters)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn call_error(
        &self,
        verb: &'static str,
        kind: Kind,
        namespace: Option<&str>,
        error: &CallError,
    ) -> Error {
        let resource = format!("{}.{}", kind.plural(), names::GROUP);
        let namespace = namespace.map(str::to_owned);
        match error_text(error) {
            Some(reason) if error.is_forbidden() && !lacks_permission(error, verb) => {
                Error::Server {
                    operation: format!("{verb} {}", kind.plural()),
                    reason,
                }
            }
            _ if lacks_permission(error, verb) => Error::Forbidden(MissingRight {
                verb,
                resource,
                namespace,
            }),
            _ => self.error(error),
        }
    }
}

/// Adds the query parameter with which the API server refuses unknown and duplicate fields.
/// `PostParams` lacks it.
fn with_strict_fields(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    if let Ok(uri) = format!("{}&fieldValidation=Strict", request.uri()).parse() {
        *request.uri_mut() = uri;
    }
    request
}

/// The plural of a kind, which ends the path of its objects.
fn plural_of(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or_default()
}

fn failed(operation: &str, source: kube::Error) -> CallError {
    CallError::Failed {
        operation: operation.to_owned(),
        source: Box::new(source),
    }
}

/// Labels and annotations to set on the object with this uid.
fn metadata_change(version: &Identity, labels: &Texts, annotations: &Texts) -> Value {
    let mut metadata = json!({ "uid": version.uid });
    if let Some(fields) = metadata.as_object_mut() {
        for (name, texts) in [("labels", labels), ("annotations", annotations)] {
            if !texts.is_empty() {
                fields.insert(name.to_owned(), json!(texts));
            }
        }
    }
    json!({ "metadata": metadata })
}

/// Whether a value has all fields of another one with their values.
fn contains(found: &Value, written: &Value) -> bool {
    match (found, written) {
        (Value::Object(found), Value::Object(written)) => written
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value))),
        _ => found == written,
    }
}

/// Whether an object is refused because of these fields only.
fn is_about(error: &CallError, fields: &[&str]) -> bool {
    let CallError::Failed { source, .. } = error else {
        return false;
    };
    let kube::Error::Api(status) = source.as_ref() else {
        return false;
    };
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice())
        .unwrap_or_default();
    error.is_invalid()
        && !causes.is_empty()
        && causes
            .iter()
            .all(|cause| fields.contains(&cause.field.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_object_contains_what_was_written() {
        let written = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "list": ["x"] } });
        let mut found = json!({ "metadata": { "uid": "u", "labels": { "a": "1", "b": "2" } },
                                "spec": { "list": ["x"], "default": 64 } });
        assert!(contains(&found, &written));
        found["spec"]["list"] = json!(["x", "y"]);
        assert!(!contains(&found, &written));
    }

    #[test]
    fn denial_is_about_the_place_of_a_reservation() {
        let denied = |fields: &[&str], code: u16| {
            let cause = |field: &&str| json!({ "reason": "FieldValueInvalid", "message": "no", "field": field });
            let causes: Vec<Value> = fields.iter().map(cause).collect();
            let status = json!({ "status": "Failure", "code": code, "reason": "Invalid", "message": "denied",
                                 "details": { "causes": causes } });
            let status = serde_json::from_value(status).unwrap();
            is_about(
                &failed("create", kube::Error::Api(Box::new(status))),
                &["spec.scope", "spec.address"],
            )
        };
        assert!(denied(&["spec.scope"], 422) && denied(&["spec.address", "spec.scope"], 422));
        assert!(
            !denied(&["spec.scope", "spec.claimRef.name"], 422)
                && !denied(&[], 422)
                && !denied(&["spec.scope"], 409)
        );
    }

    #[test]
    fn creation_is_strict() {
        let request = Request::new("/apis/g/v/kinds")
            .create(&PostParams::default(), Vec::new())
            .unwrap();
        let query = with_strict_fields(request)
            .uri()
            .query()
            .unwrap()
            .to_owned();
        assert!(query.ends_with("&fieldValidation=Strict"), "{query}");
    }
}
