//! Objects as users write them: in documents of YAML, or in a List of JSON.

use std::collections::BTreeMap;

use capi_ipam_api::{IPReservation, Pool, names};
use kube::api::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::Format;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::output;
use crate::user_reservation::api_version;

/// The annotation in which `kubectl apply` stores the last version.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels and annotations that tools and the provider set.
const TEXTS_OF_TOOLS: [&str; 3] = [
    LAST_APPLIED,
    names::MOVE_LABEL,
    names::MOVED_FROM_ANNOTATION,
];

/// The text of some manifests.
pub(crate) fn text(objects: &[Value], format: Format) -> Result<String, Error> {
    match format {
        Format::Table | Format::Wide | Format::Yaml => {
            let mut text = String::new();
            for object in objects {
                text.push_str("---\n");
                let document = serde_saphyr::to_string(object);
                text.push_str(&document.map_err(|error| Error::Output(error.to_string()))?);
            }
            Ok(text)
        }
        Format::Json => {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            let text = serde_json::to_string_pretty(&list);
            Ok(text.map_err(|error| Error::Output(error.to_string()))? + "\n")
        }
        Format::Name => Err(Error::Argument(
            "manifests are written as yaml or json".to_owned(),
        )),
    }
}

/// Prints manifests, and what they leave out as warnings. What is left out has its own exit code.
pub(crate) fn print(
    loader: &Loader<'_>,
    objects: &[Value],
    left_out: &[String],
    format: Format,
) -> Result<Code, Error> {
    output::print(&text(objects, format)?)?;
    left_out.iter().for_each(|text| output::warn(text));
    output::warn_incomplete(loader);
    // A warning names an object that cannot be decoded.
    let is_complete = left_out.is_empty() && loader.warnings.is_empty();
    match output::code(loader) {
        Code::Ok if !is_complete => Ok(Code::Incomplete),
        code => Ok(code),
    }
}

/// An object as a manifest.
pub(crate) fn value(object: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| Error::Output(error.to_string()))
}

/// What a user writes of a pool.
pub(crate) fn plain_pool(pool: &Pool) -> Pool {
    let mut plain = pool.clone();
    plain.api_version = Some(api_version());
    plain.metadata = plain_metadata(plain.metadata);
    plain.status = None;
    plain
}

/// What a user writes of a reservation.
pub(crate) fn plain_reservation(reservation: IPReservation) -> IPReservation {
    IPReservation {
        api_version: Some(api_version()),
        kind: Some("IPReservation".to_owned()),
        metadata: plain_metadata(reservation.metadata),
        spec: reservation.spec,
        status: None,
    }
}

fn plain_metadata(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        labels: of_user(metadata.labels),
        annotations: of_user(metadata.annotations),
        ..ObjectMeta::default()
    }
}

/// The labels or annotations that a user has set; `None` if there are none.
fn of_user(texts: Option<BTreeMap<String, String>>) -> Option<BTreeMap<String, String>> {
    let mut texts = texts?;
    texts.retain(|name, _| !TEXTS_OF_TOOLS.contains(&name.as_str()));
    (!texts.is_empty()).then_some(texts)
}
