//! Requests to the API server. Each has a timeout, and its error says whether a write may have been
//! applied.
//!
//! Writes are never repeated here. After a write whose outcome is unknown
//! ([`CallError::outcome_is_unknown`]) the caller has to read the object before it decides
//! anything.

mod call_error;
mod connection;
mod kubeconfig;
mod pruned_fields;

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use either::Either;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Uri};
use kube::api::{
    DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions,
};
use kube::client::{Body, RustlsTlsError};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::call_error::{CallError, error_chain, error_text};
pub(crate) use self::call_error::{NOT_SERVED, explain_unserved, status_message};
pub use self::connection::RequestPolicy;
pub use self::kubeconfig::KubeconfigError;
pub use self::pruned_fields::PrunedFields;
use crate::metrics::RequestMetrics;
use crate::priority;
use capi_ipam_objects::finalizer;
use capi_ipam_objects::maybe_invalid::MaybeInvalid;

/// How long one request may take. The API server gets the same limit (`timeout=`), so both give up
/// at about the same time.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of objects in one page of a list.
const PAGE_SIZE: u32 = 500;
/// The same for a list of low priority. The API server needs a tenth of a second for a large page,
/// and does not interrupt it.
const LOW_PRIORITY_PAGE_SIZE: u32 = 200;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be read.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// Path of the file.
        path: String,
        /// Why it cannot be read.
        #[source]
        source: KubeconfigError,
    },
    /// There is neither a usable kubeconfig nor a service account.
    #[error(
        "no API server is configured: set --kubeconfig or KUBECONFIG, or run in a pod with a service account"
    )]
    NotConfigured(#[source] kube::config::InferConfigError),
    /// The content of a kubeconfig cannot be read, or its context is incomplete.
    #[error("cannot use the content of the kubeconfig")]
    Content(#[source] KubeconfigError),
    /// The content of a kubeconfig names something outside of it, or turns a protection off.
    #[error("the kubeconfig must not contain {field}: {advice}")]
    NotAllowed {
        /// The field.
        field: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// The client certificate or its key is not PEM. The error of the parser is not a source: it
    /// shows a part of the text, which can be the key.
    #[error(
        "the client certificate or key for {server} is not PEM: set client-certificate-data and client-key-data"
    )]
    Identity {
        /// Address of the API server, without a user name.
        server: String,
    },
    /// The configuration was read, but it is unusable.
    #[error("cannot create a client for {server}")]
    Build {
        /// Address of the API server, without a user name.
        server: String,
        /// What is wrong with the configuration.
        #[source]
        source: kube::Error,
    },
}

/// Creates a client for the API server that `kubeconfig` names; without one, for that of the
/// environment: `KUBECONFIG`, `~/.kube/config`, or the pod's service account. Sends no request.
///
/// `user_agent` has the form `name/version`. Audit logs show it, and the managed fields of written
/// objects show its name.
pub async fn connect(kubeconfig: Option<&Path>, user_agent: &str) -> Result<Client, ClientError> {
    connect_with(
        kubeconfig,
        user_agent,
        RequestPolicy::default(),
        RequestMetrics::default(),
    )
    .await
}

/// Like [`connect`], with another policy, and with the metrics of its requests. The client has its
/// own connections.
pub(crate) async fn connect_with(
    kubeconfig: Option<&Path>,
    user_agent: &str,
    policy: RequestPolicy,
    metrics: RequestMetrics,
) -> Result<Client, ClientError> {
    // As with Go's flag, an empty path is no path.
    let config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        None => Config::infer().await.map_err(ClientError::NotConfigured)?,
        Some(path) => {
            let failed = |source: kube::config::KubeconfigError| ClientError::Kubeconfig {
                path: path.display().to_string(),
                source: source.into(),
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(failed)?
        }
    };
    build(config, user_agent, policy, metrics)
}

/// Creates a client for another API server, from the content of a kubeconfig, such as that of a
/// Secret. Sends no request. The client has its own connections. Returns the client and, for
/// messages, the address of the server without a user name.
///
/// # Errors
/// When the content is no kubeconfig with a current context. When it names a file or a program,
/// since who writes a Secret must not be able to read files of the manager or to run programs
/// there; or when it does not verify the certificate of the server.
pub async fn connect_to(
    kubeconfig: &str,
    user_agent: &str,
) -> Result<(Client, String), ClientError> {
    let unusable = |error: kube::config::KubeconfigError| ClientError::Content(error.into());
    let content = Kubeconfig::from_yaml(kubeconfig).map_err(unusable)?;
    kubeconfig::check(&content)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(content, &options).await;
    let config = config.map_err(unusable)?;
    let server = address_of(&config.cluster_url);
    let (policy, metrics) = (RequestPolicy::default(), RequestMetrics::default());
    Ok((build(config, user_agent, policy, metrics)?, server))
}

/// The address in a URL: scheme, host and port.
fn address_of(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let host = url.host().unwrap_or_default();
    match url.port_u16() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }
}

/// Creates the client of a configuration.
fn build(
    mut config: Config,
    user_agent: &str,
    policy: RequestPolicy,
    metrics: RequestMetrics,
) -> Result<Client, ClientError> {
    if let Ok(agent) = HeaderValue::from_str(user_agent) {
        config.headers.push((USER_AGENT, agent));
    }
    let server = address_of(&config.cluster_url);
    connection::client(&config, policy, metrics).map_err(|error| match error {
        kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) => {
            ClientError::Identity { server }
        }
        source => ClientError::Build { server, source },
    })
}

/// The value of a namespace flag; if it is empty, the namespace of the pod or of the kubeconfig's
/// context.
pub fn own_namespace(client: &Client, flag: &str) -> String {
    if flag.is_empty() {
        client.default_namespace().to_owned()
    } else {
        flag.to_owned()
    }
}

/// Adds `timeout=` to every request except watches, which are long-lived.
fn add_timeout_param(mut request: Request<Body>, limit: Duration) -> Request<Body> {
    let query = request.uri().query().unwrap_or_default();
    if query
        .split('&')
        .any(|pair| pair.starts_with("watch=") || pair.starts_with("timeout="))
    {
        return request;
    }
    let separator = if query.is_empty() { "" } else { "&" };
    let path = request.uri().path();
    let Ok(with_limit) = format!("{path}?{query}{separator}timeout={limit:?}").parse() else {
        return request;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(with_limit);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

/// The state of an object after a deletion.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The object no longer exists.
    Gone,
    /// The object has a deletionTimestamp and waits for its finalizers.
    Terminating(Box<K>),
}

/// How often the outcome of a write without an answer is read, and the time before each read: a
/// server that is slow to answer may process the write after the first read.
const MAX_READS: u32 = 5;
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The result of [`ResourceClient::create_or_find`].
#[derive(Debug)]
pub enum Creation<K> {
    /// The object is created.
    Created(K),
    /// An object has the name: another writer has created it, or this request, whose answer was
    /// lost.
    Found(MaybeInvalid<K>),
}

/// The fields of the specification without which an object must not be written.
#[derive(Clone, Debug, Default)]
pub(crate) enum RequiredFields {
    #[default]
    None,
    /// Those of the object that was read.
    Read,
    /// Those with these names, such as `spec.network`.
    Named(Vec<String>),
}

/// An object that a [`ResourceClient`] reads and writes. It can be watched, too.
pub trait ApiObject:
    Resource<DynamicType: Clone + Debug + Send + Sync>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> ApiObject for K
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Send + Sync,
{
}

/// A client for the objects of one kind, in one namespace or in the whole cluster.
#[derive(Clone, Debug)]
pub struct ResourceClient<K> {
    api: Api<K>,
    api_version: String,
    kind: String,
    /// Selects the objects that are listed; all if it is empty.
    labels: String,
    pub(crate) pruned_fields: PrunedFields,
    pub(crate) required_fields: RequiredFields,
    is_dry_run: bool,
}

impl<K: ApiObject> ResourceClient<K> {
    /// Wraps an [`Api`]. `version` is the kind's dynamic type, `()` for types of k8s-openapi.
    pub fn new(api: Api<K>, version: &K::DynamicType) -> Self {
        Self {
            api,
            api_version: K::api_version(version).into_owned(),
            kind: K::kind(version).into_owned(),
            labels: String::new(),
            pruned_fields: PrunedFields::default(),
            required_fields: RequiredFields::default(),
            is_dry_run: false,
        }
    }

    /// The API server checks a patch of the main resource, and does not apply it. Other writes are
    /// applied.
    #[must_use]
    pub fn with_dry_run_patches(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Lists only the objects that a label selector selects, such as `app=web`.
    #[must_use]
    pub fn with_labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.labels);
        self
    }

    /// Shares what other clients of this kind learn about status fields that the API server does
    /// not store. For a program that creates a client for each request.
    #[must_use]
    pub fn with_pruned_fields(mut self, pruned_fields: PrunedFields) -> Self {
        self.pruned_fields = pruned_fields;
        self
    }

    /// [`patch::write`](crate::patch::write), and a write of finalizers, fail with a conflict if
    /// the API server no longer has a field of the specification that was read: a text, a list or
    /// an object. A definition that lacks the field hides it, and every write of such an object
    /// removes it for good, also one of the status.
    ///
    /// Not for kinds with such fields that have another default than an empty one.
    #[must_use]
    pub fn requiring_fields(mut self) -> Self {
        self.required_fields = RequiredFields::Read;
        self
    }

    /// Like [`requiring_fields`](Self::requiring_fields), for a client whose objects are read
    /// without their specification: a write fails with a conflict if the API server does not have
    /// one of these fields, such as `spec.network`.
    #[must_use]
    pub fn requiring<'a>(mut self, fields: impl IntoIterator<Item = &'a str>) -> Self {
        let fields = fields.into_iter().map(str::to_owned).collect();
        self.required_fields = RequiredFields::Named(fields);
        self
    }

    /// The kind of the objects.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns `wanted` as the API server would store it: without the status fields that the served
    /// schema does not have, as far as earlier writes of such clients show. Compare the result with
    /// `before` to find out whether a write of the status changes anything.
    pub fn storable(&self, before: &K, wanted: K) -> K {
        if self.pruned_fields.is_empty() {
            return wanted;
        }
        let Ok(mut value) = serde_json::to_value(&wanted) else {
            return wanted;
        };
        let before = serde_json::to_value(before).ok();
        let before = before.as_ref().and_then(|before| before.get("status"));
        let Some(status) = value.get_mut("status") else {
            return wanted;
        };
        let pruned = &self.pruned_fields;
        if !pruned.remove_from(status, before, Instant::now()) {
            return wanted;
        }
        serde_json::from_value(value).unwrap_or(wanted)
    }

    /// Reads the current state of an object from etcd, not from the API server's cache. `None` if
    /// it does not exist.
    pub async fn get(&self, name: &str) -> Result<Option<K>, CallError> {
        // Typed, kube would log the whole object if it cannot be decoded.
        let found = self.get_maybe_invalid(name).await?;
        found.map(|found| self.decoded(found)).transpose()
    }

    /// The object that was read.
    ///
    /// # Errors
    /// If it cannot be decoded, with its name.
    pub fn decoded(&self, object: MaybeInvalid<K>) -> Result<K, CallError> {
        object.0.map_err(|source| {
            let name = source.metadata.name.as_deref().unwrap_or_default();
            CallError::Undecodable {
                operation: format!("read {} {name}", self.kind),
                source,
            }
        })
    }

    /// Like [`ResourceClient::get`], but an object that cannot be decoded is no error: it exists,
    /// and has metadata.
    pub async fn get_maybe_invalid(
        &self,
        name: &str,
    ) -> Result<Option<MaybeInvalid<K>>, CallError> {
        self.get_as(name).await
    }

    /// Reads an object as a type, such as JSON for all its fields. `None` if it does not exist.
    pub(crate) async fn get_as<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, CallError> {
        let request = self.requests().get(name, &GetParams::default());
        let read = self.send(|| format!("read {} {name}", self.kind), request);
        // Not `get_opt`: it could take a kind that is not served for an object that does not exist.
        if_found(read.await)
    }

    /// Reads the metadata of an object, including `managedFields`, which most types leave out.
    /// `None` if it does not exist.
    pub async fn get_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, CallError> {
        let read = with_timeout(
            || format!("read the metadata of {} {name}", self.kind),
            self.api.get_metadata(name),
        );
        if_found(read.await.map(|found| found.metadata))
    }

    /// Reads the object of this name, or creates it if it does not exist. Returns the object that
    /// the API server has.
    pub async fn get_or_create(&self, object: &K) -> Result<K, CallError> {
        if let Some(found) = self.get(&object.name_any()).await? {
            return Ok(found);
        }
        match self.create_or_find(object).await? {
            Creation::Created(created) => Ok(created),
            Creation::Found(found) => self.decoded(found),
        }
    }

    /// Reads the current state of all objects from etcd, in pages. Fails if one of them cannot be
    /// decoded: the error names it. Callers that can go on without it use
    /// [`ResourceClient::for_each_page`].
    pub async fn list(&self) -> Result<Vec<K>, CallError> {
        let (mut all, mut first_invalid) = (Vec::new(), None);
        self.for_each_page(|page| {
            for object in page {
                match object.0 {
                    Ok(object) => all.push(object),
                    Err(invalid) => drop(first_invalid.get_or_insert(invalid)),
                }
            }
        })
        .await?;
        match first_invalid {
            Some(invalid) => self.decoded(MaybeInvalid(Err(invalid))).map(|_| all),
            None => Ok(all),
        }
    }

    /// Like [`ResourceClient::list`], but passes the pages to a function one by one: only one page
    /// is in memory. An object that cannot be decoded does not fail the others. It exists, so it
    /// counts as whatever its metadata allows.
    pub async fn for_each_page(
        &self,
        mut use_page: impl FnMut(Vec<MaybeInvalid<K>>),
    ) -> Result<(), CallError> {
        let mut token = None;
        loop {
            let (page, next) = self.list_page(token.as_deref()).await?;
            use_page(page);
            match next {
                Some(next) => token = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Reads one page of all objects, the first one without a `token`. Returns the token of the
    /// next page, `None` after the last one. A token is valid for some minutes.
    pub async fn list_page(
        &self,
        token: Option<&str>,
    ) -> Result<(Vec<MaybeInvalid<K>>, Option<String>), CallError> {
        let size = if priority::is_low() {
            LOW_PRIORITY_PAGE_SIZE
        } else {
            PAGE_SIZE
        };
        let mut params = ListParams::default().limit(size);
        if !self.labels.is_empty() {
            params = params.labels(&self.labels);
        }
        if let Some(token) = token {
            params = params.continue_token(token);
        }
        // Typed, kube would log a whole page of which one object cannot be decoded.
        let request = self.requests().list(&params);
        let page: ObjectList<MaybeInvalid<K>> =
            self.send(|| format!("list {}", self.kind), request).await?;
        Ok((
            page.items,
            page.metadata.continue_.filter(|token| !token.is_empty()),
        ))
    }

    /// Creates an object. Fails with [`CallError::is_already_exists`] if the name is in use.
    pub async fn create(&self, object: &K) -> Result<K, CallError> {
        let operation = || format!("create {} {}", self.kind, object.name_any());
        let body = self.value(object)?.to_string().into_bytes();
        let request = self.requests().create(&PostParams::default(), body);
        self.send(operation, request).await
    }

    /// Creates an object. If the name is in use, or if there is no answer, returns what has the
    /// name.
    ///
    /// # Errors
    /// If the request is rejected, if the read fails, or if nothing has the name: then the error is
    /// that of the creation, whose outcome may still be unknown.
    pub async fn create_or_find(&self, object: &K) -> Result<Creation<K>, CallError> {
        let name = object.name_any();
        let error = match self.create(object).await {
            Ok(created) => return Ok(Creation::Created(created)),
            Err(error) => error,
        };
        if error.is_already_exists() {
            let found = self.get_maybe_invalid(&name).await?;
            return found.map(Creation::Found).ok_or(error);
        }
        self.settle(&name, error, |found| found.map(Creation::Found))
            .await
    }

    /// Finds out what a write has done that has failed with `error`: reads the object of this name
    /// up to five times, until `outcome` knows. It gets what has the name, and returns `None` if
    /// the write may still be applied.
    ///
    /// # Errors
    /// `error`, if it says that nothing was written, or if the outcome stays unknown.
    pub async fn settle<T>(
        &self,
        name: &str,
        error: CallError,
        outcome: impl Fn(Option<MaybeInvalid<K>>) -> Option<T>,
    ) -> Result<T, CallError> {
        if !error.outcome_is_unknown() {
            return Err(error);
        }
        for _ in 0..MAX_READS {
            tokio::time::sleep(READ_INTERVAL).await;
            let Ok(found) = self.get_maybe_invalid(name).await else {
                break;
            };
            if let Some(known) = outcome(found) {
                return Ok(known);
            }
        }
        Err(error)
    }

    /// Applies a JSON patch (RFC 6902) to everything except the status.
    pub async fn patch(&self, name: &str, patch: json_patch::Patch) -> Result<K, CallError> {
        let params = PatchParams {
            dry_run: self.is_dry_run,
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(patch);
        let request = self.requests().patch(name, &params, &patch);
        self.send(|| format!("patch {} {name}", self.kind), request)
            .await
    }

    /// Applies a JSON patch (RFC 6902) to the status.
    pub async fn patch_status(&self, name: &str, patch: json_patch::Patch) -> Result<K, CallError> {
        let (params, patch) = (PatchParams::default(), Patch::Json::<()>(patch));
        let request = self
            .requests()
            .patch_subresource("status", name, &params, &patch);
        let operation = || format!("patch the status of {} {name}", self.kind);
        self.send(operation, request).await
    }

    /// Replaces the object except its status, if it still has the uid and the resourceVersion that
    /// `object` carries. Drops fields that the type does not know.
    pub async fn replace(&self, object: &K) -> Result<K, CallError> {
        self.replace_json(&object.name_any(), &self.value(object)?)
            .await
    }

    /// Replaces the object of this name except its status, if it still has the uid and the
    /// resourceVersion in `body`.
    pub(crate) async fn replace_json<T: DeserializeOwned>(
        &self,
        name: &str,
        body: &Value,
    ) -> Result<T, CallError> {
        let operation = || format!("replace {} {name}", self.kind);
        let body = body.to_string().into_bytes();
        let request = self.requests().replace(name, &PostParams::default(), body);
        self.send(operation, request).await
    }

    /// An object as it is sent: the objects of a list have no `kind` and `apiVersion`.
    fn value(&self, object: &K) -> Result<Value, CallError> {
        let value = serde_json::to_value(object);
        let mut value = value.map_err(|source| CallError::Serialize {
            operation: format!("write {} {}", self.kind, object.name_any()),
            source,
        })?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".to_owned(), self.api_version.clone().into());
            fields.insert("kind".to_owned(), self.kind.clone().into());
        }
        Ok(value)
    }

    fn requests(&self) -> kube::core::Request {
        kube::core::Request::new(self.api.resource_url())
    }

    async fn send<T: DeserializeOwned>(
        &self,
        operation: impl Fn() -> String,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        with_timeout(operation, async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api.clone().into_client().request(request).await
        })
        .await
    }

    /// Deletes the object if it has that uid, so never a newer object of that name. An object that
    /// does not exist counts as gone.
    pub async fn delete(&self, name: &str, uid: &str) -> Result<Deleted<K>, CallError> {
        self.delete_with(name, uid, None).await
    }

    /// Deletes the object if it has that uid and that resourceVersion.
    pub async fn delete_unchanged(
        &self,
        name: &str,
        uid: &str,
        version: &str,
    ) -> Result<Deleted<K>, CallError> {
        self.delete_with(name, uid, Some(version)).await
    }

    async fn delete_with(
        &self,
        name: &str,
        uid: &str,
        version: Option<&str>,
    ) -> Result<Deleted<K>, CallError> {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
        });
        #[expect(clippy::disallowed_methods, reason = "the wrapper adds the timeout")]
        let deleted = with_timeout(
            || format!("delete {} {name}", self.kind),
            self.api.delete(name, &params),
        )
        .await;
        match deleted {
            Ok(Either::Left(object)) if finalizer::all(&object).next().is_some() => {
                Ok(Deleted::Terminating(Box::new(object)))
            }
            Ok(_) => Ok(Deleted::Gone),
            Err(error) if error.is_not_found() => Ok(Deleted::Gone),
            Err(error) => Err(error),
        }
    }
}

/// What was read; `None` if it does not exist.
fn if_found<T>(read: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends one request with [`REQUEST_TIMEOUT`]; one of [low priority](crate::priority) waits before.
/// `operation` completes the error message "cannot …".
pub async fn with_timeout<T>(
    operation: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    let _admitted = priority::admit().await;
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(mut source)) => {
            explain_unserved(&mut source);
            Err(CallError::Failed {
                operation: operation(),
                source: Box::new(source),
            })
        }
        Err(_) => Err(CallError::TimedOut {
            operation: operation(),
        }),
    }
}

#[cfg(test)]
mod tests;
