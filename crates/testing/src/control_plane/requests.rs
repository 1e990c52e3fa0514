//! The requests to the API server, from its metrics and its audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

/// A class of requests to the API server: the labels of its request metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// In upper case: `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`,
    /// `DELETECOLLECTION`.
    pub verb: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, lower-case.
    pub resource: String,
    /// Such as `status`, else empty.
    pub subresource: String,
    /// The HTTP status code of the responses.
    pub code: u16,
}

/// A permission that a request of the provider needed, in the terms of RBAC rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRequest {
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// In lower case, such as `list`.
    pub verb: String,
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// The request was denied.
    pub forbidden: bool,
}

/// One request of the provider, from the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRequest {
    /// In lower case, such as `list`.
    pub verb: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// The name of the object, empty for collections.
    pub name: String,
    /// The path with its query.
    pub uri: String,
    /// The HTTP status code of the response.
    pub code: u64,
}

/// The finished requests in the metrics of an API server.
pub(super) fn counts_in(metrics: &str) -> BTreeMap<RequestKey, u64> {
    let mut counts = BTreeMap::new();
    for line in metrics.lines() {
        let Some((labels, value)) = line
            .strip_prefix("apiserver_request_total{")
            .and_then(|l| l.split_once("} "))
        else {
            continue;
        };
        // No label of this metric has a comma or a quotation mark in its value.
        let label = |wanted: &str| {
            let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value.trim_matches('"').to_owned())
        };
        let key = RequestKey {
            verb: label("verb").unwrap_or_default(),
            group: label("group").unwrap_or_default(),
            resource: label("resource").unwrap_or_default(),
            subresource: label("subresource").unwrap_or_default(),
            code: label("code")
                .and_then(|code| code.parse().ok())
                .unwrap_or_default(),
        };
        // Large counts are printed as 1.234567e+06.
        let value: f64 = value.trim().parse().expect("a metric's value is a number");
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, below 2^53"
        )]
        let value = value as u64;
        *counts.entry(key).or_default() += value;
    }
    counts
}

/// The permissions that the requests in an audit log needed.
pub(super) fn access_in(log: &Path) -> BTreeSet<AccessRequest> {
    let all = events_in(log).into_iter().map(|event| AccessRequest {
        group: text(&event["objectRef"]["apiGroup"]),
        resource: resource(&event),
        verb: text(&event["verb"]),
        namespace: text(&event["objectRef"]["namespace"]),
        forbidden: event["responseStatus"]["code"] == 403,
    });
    // Paths such as /version belong to no resource.
    all.filter(|request| !request.resource.is_empty()).collect()
}

/// The requests in an audit log.
pub(super) fn requests_in(log: &Path) -> Vec<ProviderRequest> {
    let request = |event: Value| ProviderRequest {
        verb: text(&event["verb"]),
        resource: resource(&event),
        name: text(&event["objectRef"]["name"]),
        uri: text(&event["requestURI"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    };
    events_in(log).into_iter().map(request).collect()
}

fn events_in(log: &Path) -> Vec<Value> {
    let log = fs::read_to_string(log).expect("the API server writes it");
    // The last line may be incomplete.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an event"))
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The plural of the objects of an event, with the subresource after a slash.
fn resource(event: &Value) -> String {
    let object = &event["objectRef"];
    let subresource = object
        .get("subresource")
        .map(|name| format!("/{}", text(name)))
        .unwrap_or_default();
    text(&object["resource"]) + &subresource
}
