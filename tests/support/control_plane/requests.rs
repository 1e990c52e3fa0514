//! The requests to the API server, from its metrics and its audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::ControlPlane;

/// A class of requests to the API server: the labels of its request metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// In upper case: `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, `DELETECOLLECTION`.
    pub verb: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, lower-case.
    pub resource: String,
    /// Such as `status`, else empty.
    pub subresource: String,
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

impl ControlPlane {
    /// How many requests the API server has finished since its start, from all clients, including kubectl, the
    /// controller manager and the API server itself.
    pub fn request_count(&self) -> BTreeMap<RequestKey, u64> {
        let mut counts = BTreeMap::new();
        for line in self.kubectl(&["get", "--raw", "/metrics"]).lines() {
            let Some((labels, value)) = line.strip_prefix("apiserver_request_total{").and_then(|l| l.split_once("} "))
            else {
                continue;
            };
            // No label of this metric has a comma or a quotation mark in its value.
            let label = |wanted: &str| {
                let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
                pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value.trim_matches('"').to_owned())
            };
            let key = RequestKey {
                verb: label("verb").unwrap_or_default(),
                group: label("group").unwrap_or_default(),
                resource: label("resource").unwrap_or_default(),
                subresource: label("subresource").unwrap_or_default(),
            };
            // Large counts are printed as 1.234567e+06.
            let value: f64 = value.trim().parse().expect("a metric's value is a number");
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, below 2^53")]
            let value = value as u64;
            *counts.entry(key).or_default() += value;
        }
        counts
    }

    /// The permissions that the provider needed since the start. Requires [`Options::audit`](super::Options).
    ///
    /// # Panics
    /// When the audit log is invalid.
    pub fn requested_access(&self) -> BTreeSet<AccessRequest> {
        let all = self.audit_events().into_iter().map(|event| AccessRequest {
            group: text(&event["objectRef"]["apiGroup"]),
            resource: resource(&event),
            verb: text(&event["verb"]),
            namespace: text(&event["objectRef"]["namespace"]),
            forbidden: event["responseStatus"]["code"] == 403,
        });
        // Paths such as /version belong to no resource.
        all.filter(|request| !request.resource.is_empty()).collect()
    }

    /// All requests of the provider since the start, in the order in which they ended. A watch is listed when it begins
    /// and when it ends. Requires [`Options::audit`](super::Options).
    ///
    /// # Panics
    /// When the audit log is invalid.
    pub fn provider_requests(&self) -> Vec<ProviderRequest> {
        let request = |event: Value| ProviderRequest {
            verb: text(&event["verb"]),
            resource: resource(&event),
            name: text(&event["objectRef"]["name"]),
            uri: text(&event["requestURI"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        };
        self.audit_events().into_iter().map(request).collect()
    }

    fn audit_events(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.folder().join("audit.log")).expect("the API server writes it");
        // The last line may be incomplete.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("each line is an event")).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The plural of the objects of an event, with the subresource after a slash.
fn resource(event: &Value) -> String {
    let object = &event["objectRef"];
    let subresource = object.get("subresource").map(|name| format!("/{}", text(name))).unwrap_or_default();
    text(&object["resource"]) + &subresource
}
