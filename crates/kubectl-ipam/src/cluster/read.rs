//! The connection to the API server: the served versions, and lists in pages.

use std::collections::BTreeMap;
use std::time::Duration;

use capi_ipam_api::names;
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::watch::MaybeInvalid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, ListMeta};
use kube::Client;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::client::ClientBuilder;
use kube::core::{Request, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tower::util::MapResponseLayer;

use super::config::config;
use super::failure::{cause, one_line};
use super::warnings;
use crate::cli::{DryRun, Global};
use crate::error::{Error, MissingRight};
use crate::objects::{Kind, ServedKinds, Shown};

/// Number of objects in one page of a list.
pub(crate) const PAGE_SIZE: u32 = 500;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a service of the cluster may take to answer: less than `--request-timeout`, since the
/// API server is well although a service hangs.
const POD_TIMEOUT: Duration = Duration::from_secs(4);
/// Duration of a watch in seconds, after which it is opened again.
pub(crate) const WATCH_TIMEOUT: u32 = 30;
/// Silence after which a connection is dead. Requests have their own deadline, so this is longer
/// than a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_TIMEOUT as u64 + 5);

/// The API server of the caller.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// URL of the API server.
    pub(crate) server: String,
    /// Namespace of the flag, or else of the context.
    pub(crate) namespace: String,
    /// How long a request may take; `None` without a limit.
    timeout: Option<Duration>,
    /// Served versions by plural.
    pub(super) served: BTreeMap<String, Vec<String>>,
    /// The API groups and kinds that are served.
    pub(crate) kinds: ServedKinds,
    /// Whether the caller acts as another user.
    pub(crate) impersonates: bool,
    /// Whether changes are sent to the API server.
    pub(crate) dry_run: DryRun,
}

#[derive(Deserialize)]
struct Items<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<T>,
}

/// A kind of another API group.
pub(crate) trait OtherKind: Resource<DynamicType = ()> + DeserializeOwned {}

impl<T: Resource<DynamicType = ()> + DeserializeOwned> OtherKind for T {}

/// The plural of the kind Cluster, which the program does not read.
pub(crate) const CLUSTERS: &str = "clusters";

/// Selects the Deployments and the pods in the manifests of both providers.
pub(crate) fn provider_selector() -> ListParams {
    ListParams::default().labels("cluster.x-k8s.io/provider=ipam-in-cluster")
}

/// Selects the lease for which the replicas of the provider compete, in all namespaces.
pub(crate) fn lease_selector() -> ListParams {
    named(names::IN_CLUSTER_LEASE)
}

/// Selects the objects with a name.
pub(crate) fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

impl Cluster {
    /// Reads the kubeconfig and the served versions.
    pub(crate) async fn connect(flags: &Global) -> Result<Self, Error> {
        let mut config = config(flags).await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_static(concat!("kubectl-ipam/", env!("CARGO_PKG_VERSION"))),
        ));
        let timeout = Some(flags.request_timeout).filter(|timeout| !timeout.is_zero());
        if timeout.is_none_or(|timeout| timeout > READ_TIMEOUT) {
            config.read_timeout = timeout;
        }
        let server = config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned();
        let namespace = flags
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = ClientBuilder::try_from(config).map_err(|error| Error::Kubeconfig {
            reason: format!(
                "the client for {server} cannot be created: {}",
                cause(&error)
            ),
        })?;
        let with_warnings = MapResponseLayer::new(warnings::collect);
        let client = client.with_layer(&with_warnings).build();
        let kinds = ServedKinds::default();
        let mut cluster = Self {
            client,
            server,
            namespace,
            timeout,
            served: BTreeMap::new(),
            kinds,
            impersonates: flags.impersonate.is_some(),
            dry_run: DryRun::None,
        };
        cluster.discover().await?;
        Ok(cluster)
    }

    /// Sends one request with the deadline of the flags.
    pub(crate) async fn call<T>(
        &self,
        operation: impl Fn() -> String,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let result = match self.timeout {
            Some(timeout) => match tokio::time::timeout(timeout, request).await {
                Ok(result) => result,
                Err(_) => {
                    return Err(CallError::TimedOut {
                        operation: operation(),
                    });
                }
            },
            None => request.await,
        };
        result.map_err(|source| CallError::Failed {
            operation: operation(),
            source: Box::new(source),
        })
    }

    async fn discover(&mut self) -> Result<(), Error> {
        let groups = self.groups().await?;
        self.kinds.groups = groups.iter().map(|group| group.name.clone()).collect();
        for (version, resource) in self.resources_of(groups, names::GROUP).await? {
            self.kinds.own.insert(resource.kind);
            let versions = self.served.entry(resource.name).or_default();
            versions.push(version);
        }
        Ok(())
    }

    async fn groups(&self) -> Result<Vec<APIGroup>, Error> {
        let operation = || "list the API groups".to_owned();
        let groups = self.call(operation, self.client.list_api_groups()).await;
        Ok(groups.map_err(|error| self.error(&error))?.groups)
    }

    /// The resources of an API group, each with a version in which it is served.
    async fn resources_of(
        &self,
        groups: Vec<APIGroup>,
        name: &str,
    ) -> Result<Vec<(String, APIResource)>, Error> {
        let mut found = Vec::new();
        for version in groups
            .into_iter()
            .filter(|group| group.name == name)
            .flat_map(|group| group.versions)
        {
            let operation = || format!("list the resources of {}", version.group_version);
            let request = self.client.list_api_group_resources(&version.group_version);
            let list = self.call(operation, request).await;
            for resource in list.map_err(|error| self.error(&error))?.resources {
                found.push((version.version.clone(), resource));
            }
        }
        Ok(found)
    }

    /// The versions in which the API server serves the kind Cluster of Cluster API.
    pub(crate) async fn versions_of_clusters(&self) -> Result<Vec<String>, Error> {
        let groups = self.groups().await?;
        let mut resources = self.resources_of(groups, names::CLUSTER_GROUP).await?;
        resources.retain(|(_, resource)| resource.name == CLUSTERS);
        Ok(resources.into_iter().map(|(version, _)| version).collect())
    }

    /// Whether the definitions are those of the Go provider, which has only pools of addresses. If
    /// one of the other kinds is served, all have to be.
    pub(crate) fn is_go_provider(&self) -> bool {
        for kind in Kind::ALL {
            if kind.is_optional() && self.served.contains_key(kind.plural()) {
                return false;
            }
        }
        true
    }

    /// Whether a kind of the API group of the provider is served.
    pub(crate) fn serves(&self, plural: &str) -> bool {
        self.served.contains_key(plural)
    }

    /// The served versions of a kind.
    pub(crate) fn served_versions(&self, kind: Kind) -> &[String] {
        self.served.get(kind.plural()).map_or(&[], Vec::as_slice)
    }

    /// The version in which a kind is read; `None` if the provider does not have it.
    pub(crate) fn version(&self, kind: Kind) -> Result<Option<&'static str>, Error> {
        let (plural, group) = (kind.plural().to_owned(), names::GROUP.to_owned());
        let Some(served) = self.served.get(kind.plural()) else {
            let is_absent = kind.is_optional() && self.is_go_provider();
            return if is_absent {
                Ok(None)
            } else {
                Err(Error::NotInstalled { plural, group })
            };
        };
        for version in kind.versions() {
            if served.iter().any(|served| served == version) {
                return Ok(Some(version));
            }
        }
        Err(Error::OtherVersion {
            plural,
            group,
            served: served.join(", "),
            supported: kind.versions().join(" and "),
        })
    }

    /// Calls `each` for the selected objects of a kind, in a namespace or in the whole cluster. None exist
    /// if the provider does not have the kind.
    pub(crate) async fn list<K: Shown>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        parameters: ListParams,
        mut each: impl FnMut(MaybeInvalid<K>),
    ) -> Result<(), Error> {
        let Some(version) = self.version(kind)? else {
            return Ok(());
        };
        let api = K::api(self.client.clone(), kind, version, namespace);
        let mut parameters = parameters.limit(PAGE_SIZE);
        loop {
            let operation = || format!("list {}", kind.plural());
            let page = self.call(operation, api.list(&parameters)).await;
            let page = page.map_err(|error| {
                let resource = format!("{}.{}", kind.plural(), names::GROUP);
                self.denied(resource, namespace, &error)
            })?;
            page.items.into_iter().for_each(&mut each);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Returns the selected objects of another API group.
    pub(crate) async fn list_other<T: OtherKind>(
        &self,
        namespace: Option<&str>,
        parameters: &ListParams,
    ) -> Result<Vec<T>, Error> {
        let kind = ApiResource::erase::<T>(&());
        self.list_kind(&kind, namespace, parameters).await
    }

    /// As [`Cluster::list_other`], in all namespaces. None without the permission: another guess is
    /// left.
    pub(crate) async fn list_if_allowed<T: OtherKind>(
        &self,
        parameters: &ListParams,
    ) -> Result<Vec<T>, Error> {
        match self.list_other(None, parameters).await {
            Err(Error::Forbidden(_)) => Ok(Vec::new()),
            found => found,
        }
    }

    /// Returns the selected objects of a kind of another API group, in pages.
    pub(crate) async fn list_kind<T: DeserializeOwned>(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        parameters: &ListParams,
    ) -> Result<Vec<T>, Error> {
        let plural = &kind.plural;
        let operation = || format!("list {plural}");
        let mut parameters = parameters.clone().limit(PAGE_SIZE);
        let mut items = Vec::new();
        loop {
            let request = Request::new(DynamicObject::url_path(kind, namespace)).list(&parameters);
            let request = request.map_err(|error| rejected(operation(), &error))?;
            let text = self.call(operation, self.client.request_text(request));
            let resource = || match kind.group.as_str() {
                "" => plural.clone(),
                group => format!("{plural}.{group}"),
            };
            let text = text.await;
            let text = text.map_err(|error| self.denied(resource(), namespace, &error))?;
            let page: Items<T> =
                serde_json::from_str(&text).map_err(|error| rejected(operation(), &error))?;
            items.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(items),
            }
        }
    }

    /// Returns the objects of a kind of another API group. Fails if the kind is not served.
    pub(crate) async fn list_plural<T: DeserializeOwned>(
        &self,
        group: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        let kinds = self.kinds_of(group).await?;
        let kind = kinds.iter().find(|kind| kind.plural == plural);
        let kind = kind.ok_or_else(|| Error::NotServed {
            resource: format!("{plural}.{group}"),
        })?;
        self.list_kind(kind, namespace, &ListParams::default())
            .await
    }

    /// The kinds of an API group, in all served versions: the one that the API server prefers is
    /// first. None if the group is not served.
    pub(crate) async fn kinds_of(&self, group: &str) -> Result<Vec<ApiResource>, Error> {
        let resources = self.resources_of(self.groups().await?, group).await?;
        let kind = |(version, resource): (String, APIResource)| ApiResource {
            api_version: format!("{group}/{version}"),
            group: group.to_owned(),
            version,
            kind: resource.kind,
            plural: resource.name,
        };
        Ok(resources.into_iter().map(kind).collect())
    }

    /// The answer of a pod to a GET request. The pod is named with its port: `manager-0:8081`. The API server
    /// forwards the request.
    ///
    /// The inner error is the reason why the pod does not answer.
    pub(crate) async fn get_from_pod(
        &self,
        namespace: &str,
        pod: &str,
        path: &str,
    ) -> Result<Result<String, String>, Error> {
        let folder = format!("/api/v1/namespaces/{namespace}/pods/{pod}/proxy");
        let operation = || format!("get {path} from pods {namespace}/{pod}");
        let request = http::Request::get(format!("{folder}{path}")).body(Vec::new());
        let request = request.map_err(|error| rejected(operation(), &error))?;
        let answer = self.call(operation, self.client.request_text(request));
        let Ok(answer) = tokio::time::timeout(POD_TIMEOUT, answer).await else {
            return Ok(Err(format!("no answer within {POD_TIMEOUT:?}")));
        };
        match answer {
            Ok(text) => Ok(Ok(text)),
            Err(error) if lacks_permission(&error, "get") => Err(Error::Forbidden(MissingRight {
                verb: "get",
                resource: "pods/proxy".to_owned(),
                namespace: Some(namespace.to_owned()),
            })),
            // The status is that of the pod, or the API server does not reach it.
            Err(error) => match error_text(&error) {
                Some(reason) => Ok(Err(reason)),
                None => Err(self.error(&error)),
            },
        }
    }

    fn denied(&self, resource: String, namespace: Option<&str>, error: &CallError) -> Error {
        if error.is_forbidden() {
            let namespace = namespace.map(str::to_owned);
            return Error::Forbidden(MissingRight {
                verb: "list",
                resource,
                namespace,
            });
        }
        self.error(error)
    }

    pub(super) fn error(&self, error: &CallError) -> Error {
        let server = self.server.clone();
        match error {
            CallError::Failed { operation, source } => match source.as_ref() {
                kube::Error::Api(status) if status.code == 401 => Error::Unauthenticated { server },
                kube::Error::Api(status) => Error::Request {
                    operation: operation.clone(),
                    reason: one_line(&status.message),
                },
                kube::Error::SerdeError(_) => Error::Request {
                    operation: operation.clone(),
                    reason: error_chain(source.as_ref()),
                },
                _ => Error::Unreachable {
                    server,
                    reason: cause(source.as_ref()),
                },
            },
            CallError::Undecodable { operation, source } => {
                let reason = format!("the object cannot be decoded: {}", error_chain(source));
                Error::Request {
                    operation: operation.clone(),
                    reason,
                }
            }
            CallError::TimedOut { operation } => {
                let timeout = self.timeout.unwrap_or_default();
                Error::Unreachable {
                    server,
                    reason: format!("no answer within {timeout:?} to: {operation}"),
                }
            }
            CallError::Shared { source, .. } => self.error(source),
            CallError::Serialize { .. } => Error::Unreachable {
                server,
                reason: error_chain(error),
            },
        }
    }
}

/// The error of a request that cannot be built, or of an answer that cannot be decoded.
pub(super) fn rejected(operation: String, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Request {
        operation,
        reason: error_chain(error),
    }
}

/// The message of the API server, in one line.
pub(super) fn error_text(error: &CallError) -> Option<String> {
    match error {
        CallError::Failed { source, .. } => match source.as_ref() {
            kube::Error::Api(status) => Some(one_line(&status.message)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the caller lacks the permission for a request. A webhook or a quota refuses with the
/// same status code.
pub(super) fn lacks_permission(error: &CallError, verb: &str) -> bool {
    let denial = format!("cannot {verb} resource");
    error.is_forbidden() && error_text(error).is_some_and(|text| text.contains(&denial))
}
