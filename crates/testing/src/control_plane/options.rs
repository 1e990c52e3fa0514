//! Options of a control plane, and the objects that it contains.

use std::path::PathBuf;

/// Options of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Options {
    /// Run kube-controller-manager for garbage collection and the deletion of namespaces. It takes
    /// up to 30 s until it notices a kind whose CRD is installed after the start. No other
    /// controller runs: pods and service accounts are not created, and the aggregated roles
    /// `admin`, `edit` and `view` stay empty.
    pub controller_manager: bool,
    /// Run kube-controller-manager for the endpoints of services.
    pub endpoint_slices: bool,
    /// Write an audit log of the requests of the provider, see
    /// [`ControlPlane::requested_access`](super::ControlPlane::requested_access).
    pub audit: bool,
    /// Install no objects at all, and no CRDs.
    pub bare: bool,
    /// Run the API server as in production, for measurements: with its default garbage collection,
    /// but without the consistency check of the watch cache, which it runs every 5 minutes. With
    /// 100,000 objects the check takes 10 s and would disturb measurements. This needs Kubernetes
    /// 1.34 or later.
    pub steady: bool,
    /// Disable streaming lists in the API server, as in Kubernetes 1.31 and 1.33.
    pub in_pages: bool,
}

/// The objects of a provider that a control plane contains in addition to the CRDs of Cluster API.
#[derive(Clone, Debug, Default)]
pub struct Installation {
    /// CRDs and other objects: YAML documents, separated by lines of `---`. They are created in
    /// this order.
    pub objects: String,
    /// Folders with a `kustomization.yaml`, applied after `objects`.
    pub kustomizations: Vec<PathBuf>,
    /// The service account of the provider. One of the objects above must create it. Without one,
    /// the provider has the permissions of an administrator.
    pub account: Option<ServiceAccount>,
}

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace, which is that of the provider: the lease of leader election is in it.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Installation {
    /// CRDs and other objects without a service account: YAML documents, separated by lines of
    /// `---`.
    pub fn of(objects: impl Into<String>) -> Self {
        Self {
            objects: objects.into(),
            ..Self::default()
        }
    }

    /// The namespace of the provider.
    pub fn namespace(&self) -> &str {
        self.account
            .as_ref()
            .map_or("default", |account| &account.namespace)
    }
}
