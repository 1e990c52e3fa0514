//! Parses requests to the API server.

use capi_ipam::api::names;
use hyper::Method;
use serde::{Deserialize, Serialize};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The plural of the kind, in lower case. Empty when the path is not that of a resource.
    pub resource: String,
    /// The name of the object; empty when it is in the body, or for collections.
    pub name: String,
    /// Such as `status`, else empty.
    pub subresource: String,
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Watch,
    Create,
    Change,
    /// Only the removal of the last finalizer of a deleted object is a PUT.
    Replace,
    Delete,
}

impl Request {
    /// Parses the method and the path with the query.
    pub fn of(method: &Method, path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        // `/api/v1/…` and `/apis/group/version/…`
        let is_resource = match parts.next() {
            Some("api") => parts.next().is_some(),
            Some("apis") => parts.next().is_some() && parts.next().is_some(),
            _ => false,
        };
        let mut parts: Vec<&str> = if is_resource { parts.collect() } else { Vec::new() };
        // Namespaces are resources, too.
        if parts.len() > 2 && parts.first() == Some(&"namespaces") && !["status", "finalize"].contains(&parts[2]) {
            parts.drain(..2);
        }
        let mut parts = parts.into_iter().map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (resource, name, subresource) = (next(), next(), next());
        let watches = query.split('&').any(|pair| ["watch=true", "watch=1", "watch"].contains(&pair));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Replace,
            Method::PATCH => Verb::Change,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ => Verb::Read,
        };
        Self { verb, resource, name, subresource }
    }

    /// The kind of write, by the body. `None` when it is none of the provider.
    pub fn write(&self, body: &str) -> Option<Write> {
        let status = self.subresource == "status";
        Some(match (self.verb, self.resource.as_str()) {
            (Verb::Read | Verb::Watch, _) => return None,
            (_, "events") => Write::Event,
            (Verb::Change, "ipaddressclaims") if status && body.contains("addressRef") => Write::ClaimBound,
            (Verb::Change, "ipaddressclaims") if status => Write::ClaimReported,
            (Verb::Change, "ipaddressclaims") if body.contains(names::RELEASE_ADDRESS) => Write::ClaimFinalizerAdded,
            (Verb::Change, "ipaddressclaims") if body.contains("finalizers") => Write::ClaimFinalizerRemoved,
            (Verb::Replace, "ipaddressclaims") => Write::ClaimFinalizerRemoved,
            (Verb::Replace, "ipaddresses") => Write::AddressFinalizerRemoved,
            (Verb::Replace, pools) if pools.ends_with("pools") => Write::PoolFinalizerRemoved,
            (Verb::Create, "ipaddresses") => Write::AddressCreated,
            (Verb::Change, "ipaddresses")
                if body.contains(names::PROTECT_ADDRESS) || body.contains("ownerReferences") =>
            {
                Write::AddressRepaired
            }
            (Verb::Change, "ipaddresses") if body.contains("finalizers") => Write::AddressFinalizerRemoved,
            (Verb::Delete, "ipaddresses") => Write::AddressDeleted,
            (Verb::Create, "ipreservations") => Write::ReservationCreated,
            (Verb::Change, "ipreservations") if body.contains("releasedAt") => Write::ReservationReleased,
            (Verb::Delete, "ipreservations") => Write::ReservationDeleted,
            (Verb::Change, pools) if pools.ends_with("pools") && status => Write::PoolStatus,
            (Verb::Change, pools) if pools.ends_with("pools") && body.contains(names::PROTECT_POOL) => {
                Write::PoolFinalizerAdded
            }
            (Verb::Change, pools) if pools.ends_with("pools") && body.contains("finalizers") => {
                Write::PoolFinalizerRemoved
            }
            _ => Write::Other,
        })
    }
}

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
    ReservationDeleted,
    ClaimFinalizerRemoved,
    Event,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPAM: &str = "/apis/ipam.cluster.x-k8s.io/v1beta2";

    fn request(method: &Method, path: &str) -> Request {
        Request::of(method, path)
    }

    #[test]
    fn paths_are_parsed() {
        let get = |path: &str| {
            let request = request(&Method::GET, path);
            (request.verb, request.resource, request.name, request.subresource)
        };
        let parts = |verb, resource: &str, name: &str, subresource: &str| {
            (verb, resource.to_owned(), name.to_owned(), subresource.to_owned())
        };
        assert_eq!(
            get(&format!("{IPAM}/namespaces/n/ipaddressclaims/c/status?timeout=10s")),
            parts(Verb::Read, "ipaddressclaims", "c", "status")
        );
        assert_eq!(get(&format!("{IPAM}/ipaddresses?&watch=true")), parts(Verb::Watch, "ipaddresses", "", ""));
        assert_eq!(get("/api/v1/namespaces/n"), parts(Verb::Read, "namespaces", "n", ""));
        assert_eq!(get("/api/v1/namespaces/n/secrets"), parts(Verb::Read, "secrets", "", ""));
        assert_eq!(get("/version"), parts(Verb::Read, "", "", ""));
    }

    #[test]
    fn writes_are_classified_by_their_body() {
        let write = |method: &Method, path: &str, body: &str| request(method, &format!("{IPAM}/{path}")).write(body);
        let claim = "namespaces/n/ipaddressclaims/c";
        let finalizers = |all: &str| format!(r#"[{{"op":"add","path":"/metadata/finalizers","value":[{all}]}}]"#);
        let release = finalizers(r#""ipam.cluster.x-k8s.io/ReleaseAddress""#);
        assert_eq!(write(&Method::PATCH, claim, &release), Some(Write::ClaimFinalizerAdded));
        assert_eq!(write(&Method::PATCH, claim, &finalizers("")), Some(Write::ClaimFinalizerRemoved));
        assert_eq!(write(&Method::PUT, claim, "{}"), Some(Write::ClaimFinalizerRemoved));
        let status = format!("{claim}/status");
        assert_eq!(write(&Method::PATCH, &status, r#"[{"path":"/status/addressRef"}]"#), Some(Write::ClaimBound));
        assert_eq!(write(&Method::PATCH, &status, r#"[{"path":"/status"}]"#), Some(Write::ClaimReported));
        assert_eq!(write(&Method::DELETE, "ipreservations/r", ""), Some(Write::ReservationDeleted));
        assert_eq!(write(&Method::PATCH, "inclusterippools/p/status", "[]"), Some(Write::PoolStatus));
        assert_eq!(
            write(&Method::PATCH, "globalinclusterippools/p", &finalizers("")),
            Some(Write::PoolFinalizerRemoved)
        );
        assert_eq!(write(&Method::GET, claim, ""), None);
        assert_eq!(write(&Method::PATCH, claim, "[]"), Some(Write::Other));
    }
}
