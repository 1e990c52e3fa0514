//! What the API server has been asked, by its own metrics and by its audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::ControlPlane;

/// What a request to the API server was, as its own metrics tell requests apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// In capitals: `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, `DELETECOLLECTION`.
    pub verb: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, lower-case.
    pub resource: String,
    /// Such as `status`, else empty.
    pub subresource: String,
}

/// What the provider asked for, in the words of roles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// In small letters, such as `list`.
    pub verb: String,
    /// The namespace, empty for what is in none.
    pub namespace: String,
    /// The permission is missing.
    pub refused: bool,
}

/// One request of the provider, by the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRequest {
    /// In small letters, such as `list`.
    pub verb: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// The name of the object, empty for what concerns many.
    pub name: String,
    /// The path with its query.
    pub uri: String,
    /// The HTTP status code of the answer.
    pub code: u64,
}

impl ControlPlane {
    /// How many requests the API server has finished since its start, from all clients: also from kubectl, from the
    /// controller manager, and from the API server itself. The difference of two readings tells what happened between.
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

    /// What the provider has asked for since the start, with [`Options::audit`](super::Options).
    ///
    /// # Panics
    /// When the API server wrote something else than events of the audit log.
    pub fn asked(&self) -> BTreeSet<Asked> {
        let asked = self.audit_events().into_iter().map(|event| Asked {
            group: text(&event["objectRef"]["apiGroup"]),
            resource: resource(&event),
            verb: text(&event["verb"]),
            namespace: text(&event["objectRef"]["namespace"]),
            refused: event["responseStatus"]["code"] == 403,
        });
        // Paths such as /version belong to no resource.
        asked.filter(|asked| !asked.resource.is_empty()).collect()
    }

    /// All requests of the provider since the start, in the order in which they ended, with
    /// [`Options::audit`](super::Options). A watch is there when it begins and when it ends.
    ///
    /// # Panics
    /// When the API server wrote something else than events of the audit log.
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
        // The last line may be half written.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("each line is an event")).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The plural of an event's objects, with the subresource after a slash.
fn resource(event: &Value) -> String {
    let object = &event["objectRef"];
    let subresource = object.get("subresource").map(|name| format!("/{}", text(name))).unwrap_or_default();
    text(&object["resource"]) + &subresource
}
