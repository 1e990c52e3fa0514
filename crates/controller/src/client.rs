//! ResourceClient to the API server: each has a deadline, and says afterwards whether it may have been applied.
//!
//! No call is repeated here. A write whose outcome is unknown ([`CallError::outcome_is_unknown`]) has to be read back
//! by the caller before anything is decided.

mod connection;

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use either::Either;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Uri};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::client::Body;
use kube::config::{Kubeconfig, KubeConfigOptions};
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::connection::Patience;

/// How long one call may take. It is told to the server as well, so that both give up at about the same time.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Objects asked for at once when many are listed.
const PAGE: u32 = 500;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be read.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// There is neither a usable kubeconfig nor a service account.
    #[error("no API server is configured: set --kubeconfig or KUBECONFIG, or run in a pod with a service account")]
    NotConfigured(#[source] kube::config::InferConfigError),
    /// The configuration was read, and no client can be made of it.
    #[error("cannot make a client for {server}")]
    Build {
        /// Address of the API server.
        server: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
}

/// A client for the API server that `kubeconfig` names; without one, for that of the environment: `KUBECONFIG`,
/// `~/.kube/config`, or the pod's service account. Nothing is sent yet.
///
/// `name` is who is asking: in audit logs, and in the managed fields of objects that are written.
pub async fn connect(kubeconfig: Option<&Path>, name: &str) -> Result<Client, ClientError> {
    connect_with(kubeconfig, name, Patience::default()).await
}

/// As [`connect`], with connections of its own and another patience.
pub async fn connect_with(kubeconfig: Option<&Path>, name: &str, patience: Patience) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        None => Config::infer().await.map_err(ClientError::NotConfigured)?,
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig { path: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
    };
    if let Ok(agent) = HeaderValue::from_str(&format!("{name}/{}", env!("CARGO_PKG_VERSION"))) {
        config.headers.push((USER_AGENT, agent));
    }
    let server = config.cluster_url.to_string();
    connection::client(&config, patience).map_err(|source| ClientError::Build { server, source })
}

/// The namespace that a flag gives; when it gives none, that of the pod or of the kubeconfig's context.
pub fn own_namespace(client: &Client, given: &str) -> String {
    if given.is_empty() { client.default_namespace().to_owned() } else { given.to_owned() }
}

/// Adds `timeout=` to every request but watches, which are long on purpose.
fn add_timeout_param(mut request: Request<Body>, deadline: Duration) -> Request<Body> {
    let query = request.uri().query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("watch=") || pair.starts_with("timeout=")) {
        return request;
    }
    let separator = if query.is_empty() { "" } else { "&" };
    let path = request.uri().path();
    if let Ok(uri) = format!("{path}?{query}{separator}timeout={deadline:?}").parse::<Uri>() {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = uri.path_and_query().cloned();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// A call to the API server that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused, or the connection broke.
    #[error("cannot {operation}")]
    Failed {
        /// What was to be done, with kind and name.
        operation: String,
        /// What the server or the connection said.
        #[source]
        source: Box<kube::Error>,
    },
    /// There was no answer in time.
    #[error("cannot {operation}: no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut {
        /// What was to be done, with kind and name.
        operation: String,
    },
    /// The request could not be written as JSON; a mistake in this program.
    #[error("cannot {operation}: the request cannot be written")]
    Unwritable {
        /// What was to be done, with kind and name.
        operation: String,
        /// What cannot be written.
        #[source]
        source: serde_json::Error,
    },
}

impl CallError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Failed { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    fn has_reason(&self, reason: &str) -> bool {
        self.status().is_some_and(|status| status.reason == reason)
    }

    /// The object, or the kind, is not there.
    pub fn is_not_found(&self) -> bool {
        self.has_code(404)
    }

    /// An object of that name exists.
    pub fn is_already_exists(&self) -> bool {
        self.has_code(409) && self.has_reason("AlreadyExists")
    }

    /// The object is no longer what it was when it was read. Ordinary: someone else was faster.
    pub fn is_conflict(&self) -> bool {
        self.has_code(409) && !self.has_reason("AlreadyExists")
    }

    /// The server does not allow it.
    pub fn is_forbidden(&self) -> bool {
        self.has_code(403)
    }

    /// The server, or an admission webhook, calls the object wrong.
    pub fn is_invalid(&self) -> bool {
        self.has_code(422) || self.has_code(400)
    }

    /// The namespace is being deleted and takes no new objects.
    pub fn is_namespace_terminating(&self) -> bool {
        let cause = "NamespaceTerminating";
        let details = self.status().and_then(|status| status.details.as_ref());
        self.is_forbidden() && details.is_some_and(|details| details.causes.iter().any(|entry| entry.reason == cause))
    }

    /// The call may or may not have been applied, now or later: only a read can tell.
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::Unwritable { .. } => false,
            Self::Failed { .. } => self.status().is_none_or(|status| status.code >= 500),
        }
    }
}

/// What became of a deletion.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The object is gone.
    Gone,
    /// The object is marked as deleted and waits for finalizers.
    Waiting(Box<K>),
}

/// The calls of one kind, in one namespace or in the whole cluster.
#[derive(Clone, Debug)]
pub struct ResourceClient<K> {
    api: Api<K>,
    api_version: String,
    kind: String,
}

impl<K> ResourceClient<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    /// Wraps an [`Api`]; `version` is the kind's dynamic type.
    pub fn new(api: Api<K>, version: &K::DynamicType) -> Self {
        Self { api, api_version: K::api_version(version).into_owned(), kind: K::kind(version).into_owned() }
    }

    /// The wrapped [`Api`], to watch.
    pub fn api(&self) -> &Api<K> {
        &self.api
    }

    /// Reads an object as it is now, not from the server's cache. `None` when it is not there.
    pub async fn get(&self, name: &str) -> Result<Option<K>, CallError> {
        within(|| format!("read {} {name}", self.kind), self.api.get_opt(name)).await
    }

    /// Reads all objects as they are now, page by page.
    pub async fn list(&self) -> Result<Vec<K>, CallError> {
        let mut all = Vec::new();
        self.for_each_page(|page| all.extend(page)).await?;
        Ok(all)
    }

    /// Reads all objects as they are now and hands on each page of them: no more than one page is in memory.
    pub async fn for_each_page(&self, mut use_page: impl FnMut(Vec<K>)) -> Result<(), CallError> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = within(|| format!("list {}", self.kind), self.api.list(&params)).await?;
            use_page(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Creates an object if its name is free.
    pub async fn create(&self, object: &K) -> Result<K, CallError> {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let params = PostParams::default();
        #[expect(clippy::disallowed_methods, reason = "this is the one place that calls it")]
        within(|| format!("create {} {name}", self.kind), self.api.create(&params, object)).await
    }

    /// Applies a JSON patch (RFC 6902).
    pub async fn patch(&self, name: &str, patch: json_patch::Patch) -> Result<K, CallError> {
        let (params, patch) = (PatchParams::default(), Patch::Json::<()>(patch));
        #[expect(clippy::disallowed_methods, reason = "this is the one place that calls it")]
        within(|| format!("change {} {name}", self.kind), self.api.patch(name, &params, &patch)).await
    }

    /// Applies a JSON patch (RFC 6902) to the status.
    pub async fn patch_status(&self, name: &str, patch: json_patch::Patch) -> Result<K, CallError> {
        let (params, patch) = (PatchParams::default(), Patch::Json::<()>(patch));
        #[expect(clippy::disallowed_methods, reason = "this is the one place that calls it")]
        within(|| format!("change the status of {} {name}", self.kind), self.api.patch_status(name, &params, &patch))
            .await
    }

    /// Writes the object whole, outside of its status, if it still has the uid and the resource version that it carries.
    /// Fields that the type does not know are dropped.
    pub async fn replace(&self, object: &K) -> Result<K, CallError> {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let operation = || format!("replace {} {name}", self.kind);
        let unwritable = |source| CallError::Unwritable { operation: operation(), source };
        let mut body = serde_json::to_value(object).map_err(unwritable)?;
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), self.api_version.clone().into());
            fields.insert("kind".to_owned(), self.kind.clone().into());
        }
        let body = serde_json::to_vec(&body).map_err(unwritable)?;
        within(operation, async {
            let request = kube::core::Request::new(self.api.resource_url());
            let request = request.replace(name, &PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
            self.api.clone().into_client().request(request).await
        })
        .await
    }

    /// Deletes the object with that uid, and no successor of its name. An object that is not there counts as gone.
    pub async fn delete(&self, name: &str, uid: &str) -> Result<Deleted<K>, CallError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        self.delete_with(name, preconditions).await
    }

    /// Deletes the object with that uid if it is still at that resource version.
    pub async fn delete_unchanged(&self, name: &str, uid: &str, version: &str) -> Result<Deleted<K>, CallError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
        self.delete_with(name, preconditions).await
    }

    async fn delete_with(&self, name: &str, preconditions: Preconditions) -> Result<Deleted<K>, CallError> {
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        #[expect(clippy::disallowed_methods, reason = "this is the one place that calls it")]
        let answer = within(|| format!("delete {} {name}", self.kind), self.api.delete(name, &params)).await;
        match answer {
            Ok(Either::Left(object)) if waits_for_finalizers(&object) => Ok(Deleted::Waiting(Box::new(object))),
            Ok(_) => Ok(Deleted::Gone),
            Err(error) if error.is_not_found() => Ok(Deleted::Gone),
            Err(error) => Err(error),
        }
    }
}

fn waits_for_finalizers<K: Resource>(object: &K) -> bool {
    object.meta().finalizers.as_ref().is_some_and(|all| !all.is_empty())
}

/// Runs one call under [`REQUEST_TIMEOUT`]. `operation` completes the sentence "cannot …".
pub async fn within<T>(
    operation: impl Fn() -> String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(CallError::Failed { operation: operation(), source: Box::new(source) }),
        Err(_) => Err(CallError::TimedOut { operation: operation() }),
    }
}

/// The error and all its sources in one line, without saying anything twice.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // A refusal says all there is to say.
    let source_of = |error| if refusal(error).is_some() { None } else { std::error::Error::source(error) };
    let mut text = plain(error);
    let mut next = source_of(error);
    while let Some(source) = next {
        let part = plain(source);
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = source_of(source);
    }
    text.replace('\n', " ")
}

/// What the API server said, if that is what the error is about.
fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a kube::core::Status> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    match error.downcast_ref().or_else(boxed) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// What an error says itself. kube prints a refusal with all its fields; code and reason are enough.
fn plain(error: &(dyn std::error::Error + 'static)) -> String {
    refusal(error).map_or_else(|| error.to_string(), status_message)
}

/// What the API server said, with code and reason.
pub(super) fn status_message(status: &kube::core::Status) -> String {
    let outcome = format!("{} {}", status.code, status.reason);
    match status.message.trim() {
        "" => outcome.trim().to_owned(),
        message => format!("{message} ({})", outcome.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uri: &str) -> String {
        let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
        add_timeout_param(request, REQUEST_TIMEOUT).uri().to_string()
    }

    fn failed(code: u16, reason: &str) -> CallError {
        let status = kube::core::Status::failure("text", reason).with_code(code);
        CallError::Failed { operation: "test".to_owned(), source: Box::new(kube::Error::Api(Box::new(status))) }
    }

    #[test]
    fn the_server_is_told_the_deadline_of_all_but_watches() {
        assert_eq!(told("https://a/api/v1/x"), "https://a/api/v1/x?timeout=10s");
        assert_eq!(told("https://a/api/v1/x?&limit=5"), "https://a/api/v1/x?&limit=5&timeout=10s");
        assert_eq!(told("https://a/x?&watch=true&timeoutSeconds=290"), "https://a/x?&watch=true&timeoutSeconds=290");
    }

    #[test]
    fn only_answers_below_500_are_certain() {
        for (code, reason, unknown) in
            [(409, "AlreadyExists", false), (422, "Invalid", false), (429, "TooManyRequests", false)]
                .into_iter()
                .chain([(500, "InternalError", true), (503, "x", true), (504, "Timeout", true)])
        {
            assert_eq!(failed(code, reason).outcome_is_unknown(), unknown, "{code}");
        }
        assert!(CallError::TimedOut { operation: String::new() }.outcome_is_unknown());
    }

    #[test]
    fn refusals_are_short() {
        let said = chain(&failed(429, "TooManyRequests"));
        assert_eq!(said, "cannot test: text (429 TooManyRequests)");
    }

    #[test]
    fn a_taken_name_is_no_conflict() {
        assert!(failed(409, "AlreadyExists").is_already_exists() && !failed(409, "AlreadyExists").is_conflict());
        assert!(failed(409, "Conflict").is_conflict() && !failed(409, "Conflict").is_already_exists());
    }
}
