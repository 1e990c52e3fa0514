//! Everything that the checks read.

use std::collections::BTreeSet;

use capi_ipam_api::ClusterAddressing;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceRule;
use k8s_openapi::api::coordination::v1::Lease;

use crate::load::Readable;
use crate::model::registry::RegistryFacts;
use crate::objects::Objects;

/// A lease of the provider.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    pub(crate) namespace: String,
    pub(crate) holder: Option<String>,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) seconds: i64,
}

impl From<Lease> for LeaseRow {
    fn from(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        Self {
            namespace: lease.metadata.namespace.unwrap_or_default(),
            holder: spec.holder_identity,
            renewed: spec.renew_time.map(|time| time.0),
            seconds: i64::from(spec.lease_duration_seconds.unwrap_or_default()),
        }
    }
}

impl LeaseRow {
    /// The process that holds it, or has held it last; `None` if that one has released it.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.holder.as_deref().filter(|holder| !holder.is_empty())
    }
}

/// A kind that the provider needs.
#[derive(Clone, Debug)]
pub(crate) struct DefinitionRow {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    /// Whether it is part of Cluster API, not of the provider.
    pub(crate) is_of_contract: bool,
    /// The served versions.
    pub(crate) versions: Vec<String>,
    /// Whether one of them is supported.
    pub(crate) is_supported: bool,
}

/// A Deployment of the provider.
#[derive(Clone, Debug)]
pub(crate) struct DeploymentRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) replicas: i32,
    pub(crate) ready: i32,
    pub(crate) image: String,
    /// Whether it runs with leader election.
    pub(crate) elects: bool,
    pub(crate) webhooks: WebhookMode,
    /// Name of its service account.
    pub(crate) account: String,
    /// The permissions of the service account; `None` if the API server does not know all of them.
    pub(crate) rules: Readable<Option<Vec<Rule>>>,
}

/// How a manager serves webhooks, by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookMode {
    /// With a certificate in files, usually of cert-manager.
    Files,
    /// With a certificate that it creates.
    SelfManaged,
    /// It does not.
    Off,
}

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    pub(crate) api_groups: BTreeSet<String>,
    pub(crate) resources: BTreeSet<String>,
    pub(crate) resource_names: BTreeSet<String>,
    pub(crate) verbs: BTreeSet<String>,
}

impl From<ResourceRule> for Rule {
    fn from(rule: ResourceRule) -> Self {
        let set = |texts: Option<Vec<String>>| texts.unwrap_or_default().into_iter().collect();
        Self {
            api_groups: set(rule.api_groups),
            resources: set(rule.resources),
            resource_names: set(rule.resource_names),
            verbs: rule.verbs.into_iter().collect(),
        }
    }
}

/// A service that the API server calls for webhooks.
#[derive(Clone, Debug)]
pub(crate) struct WebhookRow {
    /// The webhook configuration.
    pub(crate) name: String,
    pub(crate) has_authority: bool,
    /// Namespace and name of the service; `None` for a URL.
    pub(crate) service: Option<(String, String)>,
    /// The number of ready replicas; `None` for a URL.
    pub(crate) ready: Readable<Option<usize>>,
    /// What the API server answers to a request for which it calls the webhook.
    pub(crate) answer: Readable<Result<(), String>>,
    /// The certificates in the Secrets of the service.
    pub(crate) certificates: Readable<Vec<CertificateRow>>,
}

/// A pod of the provider that runs.
#[derive(Clone, Debug)]
pub(crate) struct PodRow {
    /// Its namespace and name.
    pub(crate) name: String,
    /// Why it is not ready; `None` if it is, or if its probe cannot be asked.
    pub(crate) problem: Option<String>,
}

/// A definition of the provider, as the API server has it.
#[derive(Clone, Debug)]
pub(crate) struct ServedDefinition {
    pub(crate) name: String,
    /// The fields of this version that it lacks.
    pub(crate) missing_fields: Vec<String>,
    /// How the API server converts its objects; `None` without a webhook.
    pub(crate) conversion: Option<ConversionRow>,
}

/// The conversion webhook of a definition.
#[derive(Clone, Debug)]
pub(crate) struct ConversionRow {
    pub(crate) has_authority: bool,
    /// Whether it verifies the certificate of the service; `None` if no certificate can be read.
    pub(crate) is_trusted: Readable<Option<bool>>,
    /// What the API server answers to a request that it has to convert.
    pub(crate) answer: Readable<Result<(), String>>,
}

/// The certificate of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateRow {
    pub(crate) namespace: String,
    /// Name of the Secret.
    pub(crate) secret: String,
    /// The Certificate of cert-manager that the Secret names in an annotation.
    pub(crate) certificate: Option<String>,
    pub(crate) facts: Result<CertificateFacts, String>,
}

/// What matters of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    pub(crate) not_after: Timestamp,
    /// Whether an authority of the webhook configuration has signed it.
    pub(crate) is_trusted: bool,
}

/// An event that a manager has published.
#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    /// The process.
    pub(crate) instance: String,
    pub(crate) time: Timestamp,
}

/// Everything that is checked.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    /// Whether the definitions are those of the Go provider. It writes no conditions of pools.
    pub(crate) is_go_provider: bool,
    pub(crate) definitions: Vec<DefinitionRow>,
    pub(crate) deployments: Readable<Vec<DeploymentRow>>,
    pub(crate) leases: Readable<Vec<LeaseRow>>,
    /// The pods that run, if nobody renews the lease.
    pub(crate) running: Vec<PodRow>,
    pub(crate) served: Readable<Vec<ServedDefinition>>,
    pub(crate) webhooks: Readable<Vec<WebhookRow>>,
    pub(crate) events: Readable<Vec<EventRow>>,
    /// The objects of the provider.
    pub(crate) objects: Objects,
    pub(crate) registries: Readable<Vec<RegistryFacts>>,
    /// None if the kind is not served.
    pub(crate) addressings: Readable<Vec<ClusterAddressing>>,
    /// The names of configurations of webhooks for Clusters without an authority.
    pub(crate) untrusted_mutations: Readable<Vec<String>>,
    /// The namespaces that are known to be in deletion.
    pub(crate) deleted_namespaces: BTreeSet<String>,
    /// What cannot be decoded.
    pub(crate) unreadable: Vec<String>,
}

impl Snapshot {
    /// Whether any object of the provider could be read.
    pub(super) fn has_objects(&self) -> bool {
        let objects = &self.objects;
        !objects.pools().is_empty()
            || objects.networks.iter().next().is_some()
            || objects.addresses.iter().next().is_some()
            || objects.reservations.iter().next().is_some()
            || objects.claims.iter().next().is_some()
            || objects.slices.iter().next().is_some()
    }
}
