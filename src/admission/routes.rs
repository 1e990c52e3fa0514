//! The webhook paths. They are those of the Go in-cluster provider.

use std::sync::Arc;

use capi_ipam_api::InClusterKind;
use capi_ipam_api::installed::CONVERSION_PATH;
use capi_ipam_webhook::endpoints::Endpoints;
use capi_ipam_webhook::review::AdmissionRequest;
use serde_json::Value;

use super::view::View;
use super::{cluster_addressings, conversion, networks, pools, registries, reservations};

/// The path of conversion webhooks.
pub const CONVERT: &str = CONVERSION_PATH;
/// The path of the validating webhook of reservations.
pub const VALIDATE_RESERVATION: &str = "/validate-ipam-cluster-x-k8s-io-v1alpha2-ipreservation";

/// The path of the validating webhook of networks.
pub const VALIDATE_NETWORK: &str = "/validate-ipam-cluster-x-k8s-io-v1alpha2-ipnetwork";

/// The path of the validating webhook of registries.
pub const VALIDATE_REGISTRY: &str = "/validate-ipam-cluster-x-k8s-io-v1alpha2-ipregistry";

/// The path of the validating webhook of the addresses of Clusters.
pub const VALIDATE_CLUSTER_ADDRESSING: &str =
    "/validate-ipam-cluster-x-k8s-io-v1alpha2-clusteraddressing";

/// The path of the mutating webhook of Clusters, which is not among those of [`all`].
pub const MUTATE_CLUSTER: &str = "/mutate-cluster-x-k8s-io-cluster";

macro_rules! paths {
    ($kind:literal) => {
        Paths {
            validate: concat!("/validate-ipam-cluster-x-k8s-io-v1alpha2-", $kind),
            mutate: concat!("/mutate-ipam-cluster-x-k8s-io-v1alpha2-", $kind),
        }
    };
}

/// Adds all webhooks to the endpoints.
pub fn all(endpoints: Endpoints, view: &Arc<dyn View>) -> Endpoints {
    let endpoints = InClusterKind::ALL
        .into_iter()
        .fold(endpoints, |endpoints, kind| pool(kind, endpoints, view));
    let of_reservations = Arc::clone(view);
    let of_networks = Arc::clone(view);
    let of_registries = Arc::clone(view);
    endpoints
        .review(VALIDATE_RESERVATION, move |request: &AdmissionRequest| {
            reservations::review(request, of_reservations.as_ref())
        })
        .review(VALIDATE_NETWORK, move |request: &AdmissionRequest| {
            networks::review(request, of_networks.as_ref())
        })
        .review(VALIDATE_REGISTRY, move |request: &AdmissionRequest| {
            registries::review(request, of_registries.as_ref())
        })
        .review(VALIDATE_CLUSTER_ADDRESSING, cluster_addressings::review)
        .convert(CONVERT, |object: Value, desired: &str| {
            conversion::convert(object, desired).map_err(|error| error.to_string())
        })
}

fn pool(kind: InClusterKind, endpoints: Endpoints, view: &Arc<dyn View>) -> Endpoints {
    let (view, paths) = (Arc::clone(view), paths_of(kind));
    endpoints
        .review(paths.validate, move |request: &AdmissionRequest| {
            pools::review(kind, request, view.as_ref())
        })
        // The definitions have the defaults. The path is kept for configurations of the Go provider
        // that still call it.
        .review(paths.mutate, |_: &AdmissionRequest| Ok(Vec::new()))
}

/// The webhook paths of one pool kind.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    /// The path of the validating webhook.
    pub validate: &'static str,
    /// The path of the mutating webhook, which changes nothing.
    pub mutate: &'static str,
}

/// Returns the webhook paths of a pool kind.
pub const fn paths_of(kind: InClusterKind) -> Paths {
    match kind {
        InClusterKind::IPPool => paths!("inclusterippool"),
        InClusterKind::GlobalIPPool => paths!("globalinclusterippool"),
        InClusterKind::PrefixPool => paths!("inclusterprefixpool"),
        InClusterKind::GlobalPrefixPool => paths!("globalinclusterprefixpool"),
    }
}
