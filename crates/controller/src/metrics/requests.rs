//! The metrics of requests to the API server.

use std::time::Duration;

use http::{Method, Uri};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::{Description, Labels};

pub(super) const REQUEST_SECONDS: Description = Description {
    name: "apiserver_request_seconds",
    kind: "histogram",
    labels: &[
        "verb: get, list, watch, create, update, patch, delete",
        "resource",
        "code",
    ],
    help: "Time from a request to the API server to the head of its response; the code is `none` without a response",
};

/// Upper bounds of the durations of requests, in seconds. A request times out after 10 s.
const BUCKETS: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0,
];

/// The metrics of the requests of a process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    pub(super) durations: Family<Labels<3>, Histogram>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl RequestMetrics {
    /// Records a request. `code` is the HTTP status code of its response.
    pub(crate) fn record(
        &self,
        (verb, resource): (&'static str, String),
        code: Option<u16>,
        took: Duration,
    ) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let verb = ("verb", verb.to_owned());
        let labels = [verb, ("resource", resource), ("code", code)];
        let durations = self.durations.get_or_create(&labels);
        durations.observe(took.as_secs_f64());
    }
}

/// Whether a request is a watch.
pub(crate) fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true" || pair == "watch=1")
}

/// The verb and the resource of a request, such as `nodes/status`. The resource is `other` if the
/// path is not that of a resource.
pub(crate) fn parse(method: &Method, uri: &Uri) -> (&'static str, String) {
    let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
    // `api/v1/…` and `apis/group/version/…`, possibly after the path of a proxy.
    let skipped = match parts.by_ref().find(|part| ["api", "apis"].contains(part)) {
        Some("api") => 1,
        _ => 2,
    };
    let parts: Vec<&str> = parts.skip(skipped).collect();
    let of_namespace = |rest: &[&str]| {
        rest.first()
            .is_some_and(|part| !["status", "finalize"].contains(part))
    };
    let parts = match parts.as_slice() {
        ["namespaces", _, rest @ ..] if of_namespace(rest) => rest,
        all => all,
    };
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if is_watch(uri) => "watch",
        _ if parts.len() == 1 => "list",
        _ => "get",
    };
    let resource = match parts {
        [] => "other".to_owned(),
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn requests_are_parsed() {
        let group = "https://host/prefix/apis/example.com/v1";
        for (method, uri, verb, resource) in [
            (
                Method::GET,
                format!("{group}/namespaces/n/widgets/c?timeout=10s"),
                "get",
                "widgets",
            ),
            (
                Method::GET,
                format!("{group}/namespaces/n/widgets"),
                "list",
                "widgets",
            ),
            (
                Method::GET,
                format!("{group}/gadgets?watch=true&a=b"),
                "watch",
                "gadgets",
            ),
            (
                Method::PATCH,
                format!("{group}/namespaces/n/widgets/c/status"),
                "patch",
                "widgets/status",
            ),
            (
                Method::POST,
                format!("{group}/gadgets"),
                "create",
                "gadgets",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/default".to_owned(),
                "get",
                "namespaces",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/default/status".to_owned(),
                "update",
                "namespaces/status",
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/n/secrets/s".to_owned(),
                "delete",
                "secrets",
            ),
            (Method::GET, "/version".to_owned(), "get", "other"),
        ] {
            let expected = (verb, resource.to_owned());
            assert_eq!(parse(&method, &uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn request_without_a_response_has_no_code() {
        let metrics = Metrics::default();
        metrics
            .requests
            .record(("get", "nodes".to_owned()), None, Duration::from_secs(10));
        let text = metrics.encode().unwrap();
        assert!(
            text.contains(
                "apiserver_request_seconds_count{verb=\"get\",resource=\"nodes\",code=\"none\"} 1"
            ),
            "{text}"
        );
    }
}
