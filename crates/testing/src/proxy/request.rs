//! Parses requests to the API server.

use hyper::Method;

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
    /// Of one object, or a list.
    Read,
    /// Of a list.
    Watch,
    /// POST.
    Create,
    /// PATCH.
    Change,
    /// PUT.
    Replace,
    /// Of one object or a collection.
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
        let mut parts: Vec<&str> = if is_resource {
            parts.collect()
        } else {
            Vec::new()
        };
        // Namespaces are resources, too.
        if parts.len() > 2
            && parts.first() == Some(&"namespaces")
            && !["status", "finalize"].contains(&parts[2])
        {
            parts.drain(..2);
        }
        let mut parts = parts.into_iter().map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (resource, name, subresource) = (next(), next(), next());
        let watches = query
            .split('&')
            .any(|pair| ["watch=true", "watch=1", "watch"].contains(&pair));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Replace,
            Method::PATCH => Verb::Change,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ => Verb::Read,
        };
        Self {
            verb,
            resource,
            name,
            subresource,
        }
    }

    /// Whether the request can change an object.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Read | Verb::Watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPAM: &str = "/apis/ipam.cluster.x-k8s.io/v1beta2";

    #[test]
    fn paths_are_parsed() {
        let get = |path: &str| {
            let request = Request::of(&Method::GET, path);
            (
                request.verb,
                request.resource,
                request.name,
                request.subresource,
            )
        };
        let parts = |verb, resource: &str, name: &str, subresource: &str| {
            (
                verb,
                resource.to_owned(),
                name.to_owned(),
                subresource.to_owned(),
            )
        };
        assert_eq!(
            get(&format!(
                "{IPAM}/namespaces/n/ipaddressclaims/c/status?timeout=10s"
            )),
            parts(Verb::Read, "ipaddressclaims", "c", "status")
        );
        assert_eq!(
            get(&format!("{IPAM}/ipaddresses?&watch=true")),
            parts(Verb::Watch, "ipaddresses", "", "")
        );
        assert_eq!(
            get("/api/v1/namespaces/n"),
            parts(Verb::Read, "namespaces", "n", "")
        );
        assert_eq!(
            get("/api/v1/namespaces/n/secrets"),
            parts(Verb::Read, "secrets", "", "")
        );
        assert_eq!(get("/version"), parts(Verb::Read, "", "", ""));
    }
}
