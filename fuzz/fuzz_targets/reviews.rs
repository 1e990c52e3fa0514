//! Fuzzes the webhooks with arbitrary request bodies, as sent by an API server or by any other
//! client.
//!
//! The first line is the type of the input: `r` for a whole request body; `c`, `u` and `d` for the
//! creation, update and deletion of an object, with its fields as JSON in the next line and, for an
//! update, the new fields in the line after it.
//!
//! Run with `cargo +nightly fuzz run reviews`.

#![no_main]

use std::sync::{LazyLock, Mutex};

use capi_ipam::admission::{View, conversion, pools, reservations};
use capi_ipam_api::{IPNetwork, InClusterKind, names};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::IPAddress;
use capi_ipam_webhook::conversion::respond as respond_to_conversion;
use capi_ipam_webhook::reply::{Outcome, Reply, ReplyError};
use capi_ipam_webhook::review::{AdmissionRequest, respond};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let (first, rest) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    match first {
        b"r" => review_all(rest),
        b"c" => review_all(&review("CREATE", None, rest)),
        b"d" => review_all(&review("DELETE", Some(rest), b"null")),
        b"u" => {
            let mut lines = rest.splitn(2, |byte| *byte == b'\n');
            let (old, new) = (
                lines.next().unwrap_or_default(),
                lines.next().unwrap_or_default(),
            );
            review_all(&review("UPDATE", Some(old), new));
        }
        _ => {}
    }
});

/// Builds the review of an object, and checks its conversion. Invalid JSON is a missing object.
fn review(operation: &str, old: Option<&[u8]>, new: &[u8]) -> Vec<u8> {
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default();
    let (old, new) = (old.map(read), read(new));
    let objects: Vec<&Value> = old.iter().chain([&new]).collect();
    for version in ["v1alpha1", "v1alpha2"] {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": format!("ipam.cluster.x-k8s.io/{version}"), "objects": objects},
        });
        check(respond_to_conversion(
            review.to_string().as_bytes(),
            &convert,
        ));
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": operation, "kind": {"group": "", "version": "", "kind": "Pool"},
                    "namespace": "n", "name": "p", "oldObject": old, "object": new},
    });
    review.to_string().into_bytes()
}

fn convert(object: Value, desired: &str) -> Result<Value, String> {
    conversion::convert(object, desired).map_err(|error| error.to_string())
}

/// Sends the body to every webhook.
fn review_all(body: &[u8]) {
    for kind in InClusterKind::ALL {
        check(respond(body, move |request: &AdmissionRequest| {
            pools::review(kind, &with_kind(request, kind), &Cluster)
        }));
    }
    check(respond(body, |request: &AdmissionRequest| {
        reservations::review(request, &Cluster)
    }));
    check(respond_to_conversion(body, &convert));
}

/// Sets the kind of the objects of a request if they have none, as an API server does.
fn with_kind(request: &AdmissionRequest, kind: InClusterKind) -> AdmissionRequest {
    let mut request = request.clone();
    for object in [&mut request.object, &mut request.old_object]
        .into_iter()
        .flatten()
    {
        if let Some(fields) = object.as_object_mut() {
            fields.entry("kind").or_insert_with(|| json!(kind.name()));
        }
    }
    request
}

/// Asserts that a reply is a valid review, with a message if it denies; and that other inputs are
/// an error with a message.
fn check(reply: Result<Reply, ReplyError>) {
    let Reply { body, outcome, .. } = match reply {
        Ok(reply) => reply,
        Err(error @ ReplyError::Serialize { .. }) => panic!("{error}"),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_ne!(outcome, Outcome::Panicked);
    let review: Value = serde_json::from_slice(&body).expect("the reply is JSON");
    let response = &review["response"];
    assert!(
        response["uid"].as_str().is_some_and(|uid| !uid.is_empty()),
        "{review}"
    );
    match outcome {
        Outcome::Allowed => assert_eq!(response["allowed"], true),
        Outcome::Denied => {
            let (code, message) = (
                response["status"]["code"].as_u64(),
                response["status"]["message"].as_str(),
            );
            assert!(
                code.is_some_and(|code| (400..600).contains(&code)),
                "{review}"
            );
            assert!(
                response["allowed"] == false && message.is_some_and(|text| !text.is_empty()),
                "{review}"
            );
        }
        Outcome::Converted => assert_eq!(response["result"]["status"], "Success"),
        Outcome::Failed => assert!(
            response["result"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        ),
        Outcome::Panicked => {}
    }
}

/// A cluster with a network, and with a few addresses in use in every pool.
struct Cluster;

static LEDGER: LazyLock<Mutex<Ledger>> = LazyLock::new(|| {
    let mut ledger = Ledger::default();
    let lab = json!({
        "metadata": {"name": "lab", "uid": "lab"}, "spec": {"namespaces": {"from": "All"}},
        "status": {"blockLengths": {"ipv4": 32, "ipv6": 128}},
    });
    let lab: IPNetwork = serde_json::from_value(lab).expect("a network");
    ledger.apply_network(&lab);
    for kind in InClusterKind::ALL {
        for address in ["10.0.0.5", "fd00::5", "fd00::"] {
            ledger.apply(&address_of(kind, address));
        }
    }
    Mutex::new(ledger)
});

fn address_of(kind: InClusterKind, address: &str) -> IPAddress {
    let name = format!("{}-{address}", kind.name());
    let pool = json!({"apiGroup": names::GROUP, "kind": kind.name(), "name": "p"});
    let spec =
        json!({"claimRef": {"name": name}, "address": address, "prefix": 64, "poolRef": pool});
    let address = json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": spec});
    serde_json::from_value(address).expect("an address")
}

impl View for Cluster {
    fn with_ledger(&self, read: &mut dyn FnMut(&Ledger)) {
        read(&LEDGER.lock().expect("it is not poisoned"));
    }
}
