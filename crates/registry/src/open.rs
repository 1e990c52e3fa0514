//! Opens the registry that an [`IPRegistry`](capi_ipam_api::IPRegistry) specifies, with the
//! credentials in its Secret.
//!
//! The caller reads the Secret ([`secret_of`]): a manager and a tool of an administrator do so with
//! their own permissions. Everything else is the same for both.

#[cfg(feature = "nats")]
mod nats;

use std::sync::Arc;

use capi_ipam_api::{IPRegistrySpec, KubernetesRegistry as KubernetesSpec};
#[cfg(feature = "nats")]
use capi_ipam_nats::BucketOptions;
use k8s_openapi::api::core::v1::Secret;

use crate::backend::Registry;
use crate::error::RegistryError;
use crate::kubernetes::KubernetesRegistry;
#[cfg(feature = "nats")]
use crate::nats::NatsRegistry;

/// The namespace whose UID is the identity of a management cluster that has no `spec.clusterID`.
pub const IDENTITY_NAMESPACE: &str = "kube-system";

/// The key of a Secret with the kubeconfig of another API server.
const KUBECONFIG: &str = "kubeconfig";

/// Why a registry cannot be opened. With its sources, the text is one line.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The Secret cannot be used, or does not exist.
    #[error("{field}: Secret {name} {problem}")]
    Secret {
        /// The path of the field that names it.
        field: &'static str,
        /// The name of the Secret.
        name: String,
        /// What is wrong, and what to write.
        problem: &'static str,
    },
    /// The specification is not valid: the definition of the kind is older than this program.
    #[error("spec: exactly one of nats and kubernetes is required")]
    Backend,
    /// This program was built without the backend.
    #[error("spec.nats: this program is built without NATS (cargo feature nats)")]
    #[cfg(not(feature = "nats"))]
    WithoutNats,
    /// The registry cannot be used now.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl OpenError {
    /// Whether the specification or the Secret has to be corrected. If not, another attempt can
    /// succeed.
    pub fn is_of_settings(&self) -> bool {
        match self {
            Self::Registry(error) => {
                let is_invalid = matches!(error, RegistryError::Invalid { .. });
                is_invalid || matches!(error, RegistryError::Forbidden { .. })
            }
            _ => true,
        }
    }
}

/// The Secret that a specification names. It is in the namespace of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretRef<'a> {
    /// The path of the field that names it.
    pub field: &'static str,
    /// The name of the Secret.
    pub name: &'a str,
}

impl SecretRef<'_> {
    /// The error of a Secret that does not exist in the namespace of the manager.
    pub fn missing_in(&self, namespace: &str) -> OpenError {
        OpenError::Secret {
            field: self.field,
            name: format!("{namespace}/{}", self.name),
            problem: "does not exist; create it in the namespace of the manager",
        }
    }
}

/// The Secret that a registry needs; `None` if it needs none.
///
/// ```
/// use capi_ipam_api::IPRegistrySpec;
///
/// let spec = r#"{"kubernetes": {"secretName": "hub"}}"#;
/// let spec: IPRegistrySpec = serde_json::from_str(spec).unwrap();
/// let secret = capi_ipam_registry::secret_of(&spec).unwrap();
/// assert_eq!((secret.field, secret.name), ("spec.kubernetes.secretName", "hub"));
/// ```
pub fn secret_of(spec: &IPRegistrySpec) -> Option<SecretRef<'_>> {
    if let Some(nats) = &spec.nats {
        let name = nats.secret_name.as_deref()?;
        return Some(SecretRef {
            field: "spec.nats.secretName",
            name,
        });
    }
    let kubernetes = spec.kubernetes.as_ref()?;
    Some(SecretRef {
        field: "spec.kubernetes.secretName",
        name: &kubernetes.secret_name,
    })
}

/// Connects to the registry of a specification. `secret` is the one that [`secret_of`] names, and
/// `None` only if it names none. The servers see `user_agent` as the name of the client.
///
/// Takes as long as a connection and a few requests may take.
///
/// # Errors
/// When the specification, the Secret or the registry cannot be used.
pub async fn open(
    spec: &IPRegistrySpec,
    secret: Option<&Secret>,
    user_agent: &str,
) -> Result<Registry, OpenError> {
    match (&spec.nats, &spec.kubernetes) {
        (Some(nats), None) => open_nats(nats, secret, user_agent).await,
        (None, Some(kubernetes)) => open_kubernetes(kubernetes, secret, user_agent).await,
        _ => Err(OpenError::Backend),
    }
}

async fn open_kubernetes(
    spec: &KubernetesSpec,
    secret: Option<&Secret>,
    user_agent: &str,
) -> Result<Registry, OpenError> {
    let kubeconfig = secret.and_then(|secret| text_of(secret, KUBECONFIG));
    let kubeconfig = kubeconfig.ok_or_else(|| OpenError::Secret {
        field: "spec.kubernetes.secretName",
        name: spec.secret_name.clone(),
        problem: "has no text under the key kubeconfig; write the kubeconfig of the API server with the IPBlocks",
    })?;
    let registry = KubernetesRegistry::open(&kubeconfig, user_agent).await?;
    Ok(Arc::new(registry))
}

#[cfg(not(feature = "nats"))]
async fn open_nats(
    _: &capi_ipam_api::NatsRegistry,
    _: Option<&Secret>,
    _: &str,
) -> Result<Registry, OpenError> {
    Err(OpenError::WithoutNats)
}

#[cfg(feature = "nats")]
async fn open_nats(
    spec: &capi_ipam_api::NatsRegistry,
    secret: Option<&Secret>,
    user_agent: &str,
) -> Result<Registry, OpenError> {
    let settings = nats::settings(spec, secret, user_agent)?;
    let options = BucketOptions {
        single: spec.single,
        ..BucketOptions::default()
    };
    let registry = NatsRegistry::open(&settings, &spec.bucket, &options).await?;
    Ok(Arc::new(registry))
}

/// The text under a key of a Secret.
fn text_of(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}
