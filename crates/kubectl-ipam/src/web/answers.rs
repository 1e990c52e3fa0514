//! The answers to the questions of the page.

use capi_ipam_api::{InClusterKind, PoolKey};
use http::StatusCode;
use kubectl_ipam_web::{Answer, Query};
use serde::Serialize;

use super::state::State;
use crate::error::{MissingRight, sentences};
use crate::input::parse_block;
use crate::model::{MapPart, View};

/// The answer to a question, the last part of the path of a request.
pub(super) fn answer(state: &State, question: &str, query: &Query) -> Answer {
    let text = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    match question {
        "blocks" => {
            let blocks = state.blocks(text("network"));
            found(&blocks, "The network shares no blocks.")
        }
        "clusters" => json(&state.clusters()),
        "findings" => json(&state.findings()),
        "pool" => pool(state, query),
        "search" => json(&state.search(text("q").trim())),
        "waiting" => json(&state.waiting()),
        _ => Err((StatusCode::NOT_FOUND, "There is no such page.\n".to_owned())),
    }
}

/// A pool and a window of its map: `kind`, `namespace`, `name`, and `start` with `length`, or `at`
/// an address; `cells` is the maximum number of cells.
fn pool(state: &State, query: &Query) -> Answer {
    let kind = query.get("kind").and_then(|kind| InClusterKind::of(kind));
    let kind = kind.ok_or_else(|| bad_request("kind: expected the kind of a pool"))?;
    let namespace = query.get("namespace").filter(|it| !it.is_empty());
    let name = query.get("name").map(String::as_str).unwrap_or_default();
    let key = PoolKey::new(kind, namespace.map(String::as_str), name);
    found(&state.pool(&key, part(query)?), "The pool does not exist.")
}

/// The requested part of a map.
fn part(query: &Query) -> Result<MapPart, (StatusCode, String)> {
    let position = (query.get("at"), query.get("start"), query.get("length"));
    let view = match position {
        (Some(at), ..) => {
            let block = parse_block(at, false);
            View::Around(block.map_err(|error| bad_request(&error.to_string()))?)
        }
        (None, Some(start), Some(length)) => match (start.parse(), length.parse()) {
            (Ok(start), Ok(length)) => View::Range(start, length),
            _ => return Err(bad_request("start, length: expected numbers")),
        },
        _ => View::All,
    };
    let cells = query.get("cells").and_then(|cells| cells.parse().ok());
    Ok(MapPart::new(view, cells))
}

/// What was found, or why nothing was.
fn found<T: Serialize>(result: &Result<Option<T>, Vec<MissingRight>>, absent: &str) -> Answer {
    match result {
        Ok(Some(value)) => json(value),
        Ok(None) => Err((StatusCode::NOT_FOUND, absent.to_owned())),
        Err(missing) => Err((StatusCode::FORBIDDEN, sentences(missing).join("; "))),
    }
}

fn json<T: Serialize>(value: &T) -> Answer {
    serde_json::to_string(value)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn bad_request(text: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, text.to_owned())
}
