//! Classifies the writes of the provider.

use capi_ipam_api::names;
use serde::{Deserialize, Serialize};

use support::proxy::{ApiRequest, Verb};

/// The writes of the protocol of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    PoolFinalizerAdded,
    PoolStatus,
    PoolFinalizerRemoved,
    ClaimFinalizerAdded,
    ReservationCreated,
    AddressCreated,
    AddressRepaired,
    ClaimBound,
    ClaimReported,
    AddressFinalizerRemoved,
    AddressDeleted,
    ReservationReleased,
    ReservationTakenOver,
    ReservationMarked,
    ReservationDeleted,
    ClaimFinalizerRemoved,
    /// Of a Cluster.
    ClaimCreated,
    /// A request to create the Cluster may succeed.
    ClaimRequested,
    ClaimDeleted,
    ConfigMapCreated,
    ClusterWritten,
    SliceAssigned,
    SliceMarked,
    SliceResumed,
    SliceReturned,
    Event,
    Other,
}

impl Write {
    /// The kind of a write, by its body. `None` for a read.
    pub fn of(request: &ApiRequest, body: &str) -> Option<Self> {
        let status = request.subresource == "status";
        Some(match (request.verb, request.resource.as_str()) {
            (Verb::Read | Verb::Watch, _) => return None,
            (_, "events") => Self::Event,
            (Verb::Change, "ipaddressclaims") if status && body.contains("addressRef") => {
                Self::ClaimBound
            }
            (Verb::Change, "ipaddressclaims") if status => Self::ClaimReported,
            (Verb::Change, "ipaddressclaims") if body.contains(names::RELEASE_ADDRESS) => {
                Self::ClaimFinalizerAdded
            }
            (Verb::Change, "ipaddressclaims") if body.contains("finalizers") => {
                Self::ClaimFinalizerRemoved
            }
            (Verb::Change, "ipaddressclaims") if body.contains("cluster-requested") => {
                Self::ClaimRequested
            }
            // The removal of the last finalizer of a deleted object.
            (Verb::Replace, "ipaddressclaims") => Self::ClaimFinalizerRemoved,
            (Verb::Replace, "ipaddresses") => Self::AddressFinalizerRemoved,
            (Verb::Replace, pools) if is_of_pools(pools) => Self::PoolFinalizerRemoved,
            (Verb::Create, "ipaddresses") => Self::AddressCreated,
            (Verb::Change, "ipaddresses")
                if body.contains(names::PROTECT_ADDRESS) || body.contains("ownerReferences") =>
            {
                Self::AddressRepaired
            }
            (Verb::Change, "ipaddresses") if body.contains("finalizers") => {
                Self::AddressFinalizerRemoved
            }
            (Verb::Delete, "ipaddresses") => Self::AddressDeleted,
            (Verb::Create, "ipreservations") => Self::ReservationCreated,
            (Verb::Change, "ipreservations") if body.contains("releasedAt") => {
                Self::ReservationReleased
            }
            (Verb::Change, "ipreservations") if body.contains("claimRef") => {
                Self::ReservationTakenOver
            }
            (Verb::Change, "ipreservations") if body.contains("moved-from") => {
                Self::ReservationMarked
            }
            (Verb::Delete, "ipreservations") => Self::ReservationDeleted,
            (Verb::Create, "ipaddressclaims") => Self::ClaimCreated,
            (Verb::Delete, "ipaddressclaims") => Self::ClaimDeleted,
            (Verb::Create, "configmaps") => Self::ConfigMapCreated,
            (Verb::Change, "clusters") => Self::ClusterWritten,
            (Verb::Create, "ipslices") => Self::SliceAssigned,
            (Verb::Change, "ipslices") if body.contains(r#""op":"remove""#) => Self::SliceResumed,
            (Verb::Change, "ipslices") => Self::SliceMarked,
            (Verb::Delete, "ipslices") => Self::SliceReturned,
            (Verb::Change, pools) if is_of_pools(pools) && status => Self::PoolStatus,
            (Verb::Change, pools) if is_of_pools(pools) && body.contains(names::PROTECT_POOL) => {
                Self::PoolFinalizerAdded
            }
            (Verb::Change, pools) if is_of_pools(pools) && body.contains("finalizers") => {
                Self::PoolFinalizerRemoved
            }
            _ => Self::Other,
        })
    }
}

/// Whether the objects of a resource are pools, or sets of them.
fn is_of_pools(resource: &str) -> bool {
    resource.ends_with("pools") || resource.ends_with("poolsets")
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;

    const IPAM: &str = "/apis/ipam.cluster.x-k8s.io/v1beta2";

    #[test]
    fn writes_are_classified_by_their_body() {
        let write = |method: &Method, path: &str, body: &str| {
            Write::of(&ApiRequest::of(method, &format!("{IPAM}/{path}")), body)
        };
        let claim = "namespaces/n/ipaddressclaims/c";
        let finalizers = |all: &str| {
            format!(r#"[{{"op":"add","path":"/metadata/finalizers","value":[{all}]}}]"#)
        };
        let release = finalizers(r#""ipam.cluster.x-k8s.io/ReleaseAddress""#);
        assert_eq!(
            write(&Method::PATCH, claim, &release),
            Some(Write::ClaimFinalizerAdded)
        );
        assert_eq!(
            write(&Method::PATCH, claim, &finalizers("")),
            Some(Write::ClaimFinalizerRemoved)
        );
        assert_eq!(
            write(&Method::PUT, claim, "{}"),
            Some(Write::ClaimFinalizerRemoved)
        );
        let status = format!("{claim}/status");
        assert_eq!(
            write(
                &Method::PATCH,
                &status,
                r#"[{"path":"/status/addressRef"}]"#
            ),
            Some(Write::ClaimBound)
        );
        assert_eq!(
            write(&Method::PATCH, &status, r#"[{"path":"/status"}]"#),
            Some(Write::ClaimReported)
        );
        assert_eq!(
            write(&Method::DELETE, "ipreservations/r", ""),
            Some(Write::ReservationDeleted)
        );
        let spec = r#"[{"op":"add","path":"/spec","value":{"claimRef":{"name":"c"}}}]"#;
        assert_eq!(
            write(&Method::PATCH, "ipreservations/r", spec),
            Some(Write::ReservationTakenOver)
        );
        let mark = r#"[{"op":"add","path":"/metadata/annotations/ipam.cluster.x-k8s.io~1moved-from","value":"u/1"}]"#;
        assert_eq!(
            write(&Method::PATCH, "ipreservations/r", mark),
            Some(Write::ReservationMarked)
        );
        assert_eq!(
            write(&Method::PATCH, "inclusterippools/p/status", "[]"),
            Some(Write::PoolStatus)
        );
        assert_eq!(
            write(&Method::PATCH, "globalinclusterippools/p", &finalizers("")),
            Some(Write::PoolFinalizerRemoved)
        );
        let mark = |op: &str| format!(r#"[{{"op":"{op}","path":"/spec/emptySince"}}]"#);
        assert_eq!(
            write(&Method::PATCH, "ipslices/s", &mark("add")),
            Some(Write::SliceMarked)
        );
        assert_eq!(
            write(&Method::PATCH, "ipslices/s", &mark("remove")),
            Some(Write::SliceResumed)
        );
        assert_eq!(
            write(&Method::DELETE, "ipslices/s", ""),
            Some(Write::SliceReturned)
        );
        let requested = r#"[{"op":"replace","path":"/metadata/annotations/ipam.cluster.x-k8s.io~1cluster-requested","value":"u"}]"#;
        assert_eq!(
            write(&Method::PATCH, claim, requested),
            Some(Write::ClaimRequested)
        );
        assert_eq!(write(&Method::GET, claim, ""), None);
        assert_eq!(write(&Method::PATCH, claim, "[]"), Some(Write::Other));
    }
}
