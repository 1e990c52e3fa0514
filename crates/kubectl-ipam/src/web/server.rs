//! The requests of the browser.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Extract};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use capi_ipam_api::{InClusterKind, PoolKey};
use futures::{Stream, StreamExt};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::assets;
use super::guard::{Access, Guard};
use super::state::State;
use crate::error::{MissingRight, sentences};
use crate::input::parse_block;
use crate::model::{MapPart, View};

/// Longest time between two versions that the browser gets.
const UPDATE_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two examinations of the objects.
const EXAMINATION_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two comments in a silent stream of events. They detect a closed browser.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Headers of every response.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The server of the page.
#[derive(Clone)]
pub(super) struct Page {
    guard: Arc<Guard>,
    state: Arc<State>,
    /// The newest overview as JSON; empty before the first one.
    updates: watch::Sender<Arc<str>>,
}

impl Page {
    pub(super) fn new(guard: Guard, state: Arc<State>) -> Self {
        Self {
            guard: Arc::new(guard),
            state,
            updates: watch::Sender::new(Arc::from("")),
        }
    }

    /// Answers requests until it fails.
    pub(super) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let routes = Router::new()
            .route("/events", get(events))
            .route("/api/blocks", get(blocks))
            .route("/api/findings", get(findings))
            .route("/api/pool", get(pool))
            .route("/api/search", get(search))
            .route("/api/waiting", get(waiting))
            .fallback(asset)
            .layer(from_fn_with_state(self.clone(), guarded))
            .with_state(self.clone());
        tokio::select! {
            result = axum::serve(listener, routes).into_future() => result,
            () = self.publish() => Ok(()),
            () = self.examine() => Ok(()),
        }
    }

    /// Makes the checks of `doctor` again and again. With many objects they take a while.
    async fn examine(&self) {
        loop {
            tokio::time::sleep(EXAMINATION_INTERVAL).await;
            let state = Arc::clone(&self.state);
            let examined = tokio::task::spawn_blocking(move || state.examine());
            drop(examined.await);
        }
    }

    /// Sends the overview after changes, and never more often than the interval.
    async fn publish(&self) {
        loop {
            self.state.changed().await;
            if let Ok(text) = serde_json::to_string(&self.state.overview()) {
                self.updates.send_replace(text.into());
            }
            tokio::time::sleep(UPDATE_INTERVAL).await;
        }
    }
}

/// Checks the request, and adds the headers of every response.
async fn guarded(Extract(page): Extract<Page>, request: Request, next: Next) -> Response {
    let mut response = match page
        .guard
        .check(request.method(), request.uri(), request.headers())
    {
        Ok(Access::Session) => next.run(request).await,
        Ok(Access::Entry) => {
            let mut headers = HeaderMap::new();
            headers.extend(
                HeaderValue::from_str(&page.guard.cookie())
                    .ok()
                    .map(|value| (header::SET_COOKIE, value)),
            );
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/html; charset=utf-8"),
            );
            (headers, assets::ENTRY).into_response()
        }
        Err(refusal) => (refusal.status(), refusal.text()).into_response(),
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn asset(uri: Uri) -> Response {
    match assets::find(uri.path()) {
        Some((kind, text)) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.\n").into_response(),
    }
}

/// The newest overview, and each later one.
async fn events(
    Extract(page): Extract<Page>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let updates = page.updates.subscribe();
    let stream = futures::stream::unfold((updates, true), async |(mut updates, is_first)| {
        if !is_first {
            updates.changed().await.ok()?;
        }
        let text = Arc::clone(&updates.borrow_and_update());
        Some((text, (updates, false)))
    });
    let sent = stream.filter(|text| std::future::ready(!text.is_empty()));
    Sse::new(sent.map(|text| Ok(Event::default().data(text))))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// A pool and a window of its map: `kind`, `namespace`, `name`, and `start` with `length`, or `at`
/// an address; `cells` is the maximum number of cells.
async fn pool(Extract(page): Extract<Page>, uri: Uri) -> Response {
    let parameters = Parameters::of(&uri);
    let Some(kind) = parameters
        .get("kind")
        .as_deref()
        .and_then(InClusterKind::of)
    else {
        return bad_request("kind: expected the kind of a pool");
    };
    let namespace = parameters
        .get("namespace")
        .filter(|namespace| !namespace.is_empty());
    let name = parameters.get("name").unwrap_or_default();
    let key = PoolKey::new(kind, namespace.as_deref(), &name);
    match parameters.part() {
        Ok(part) => match page.state.pool(&key, part) {
            Ok(Some(pool)) => json(&pool),
            Ok(None) => (StatusCode::NOT_FOUND, "The pool does not exist.").into_response(),
            Err(missing) => forbidden(&missing),
        },
        Err(text) => bad_request(&text),
    }
}

/// The blocks of a network: `network`.
async fn blocks(Extract(page): Extract<Page>, uri: Uri) -> Response {
    let name = Parameters::of(&uri).get("network").unwrap_or_default();
    match page.state.blocks(&name) {
        Ok(Some(blocks)) => json(&blocks),
        Ok(None) => (StatusCode::NOT_FOUND, "The network shares no blocks.").into_response(),
        Err(missing) => forbidden(&missing),
    }
}

async fn search(Extract(page): Extract<Page>, uri: Uri) -> Response {
    let text = Parameters::of(&uri).get("q").unwrap_or_default();
    json(&page.state.search(text.trim()))
}

async fn findings(Extract(page): Extract<Page>) -> Response {
    json(&page.state.findings())
}

async fn waiting(Extract(page): Extract<Page>) -> Response {
    json(&page.state.waiting())
}

fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn forbidden(missing: &[MissingRight]) -> Response {
    (StatusCode::FORBIDDEN, sentences(missing).join("; ")).into_response()
}

fn bad_request(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, Body::from(text.to_owned())).into_response()
}

/// The parameters of a query.
struct Parameters<'a>(&'a str);

impl<'a> Parameters<'a> {
    fn of(uri: &'a Uri) -> Self {
        Self(uri.query().unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.0.as_bytes());
        pairs
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// The requested part of a map.
    fn part(&self) -> Result<MapPart, String> {
        let (at, start, length) = (self.get("at"), self.get("start"), self.get("length"));
        let view = match (at, start, length) {
            (Some(at), ..) => {
                let block = parse_block(&at, false).map_err(|error| error.to_string())?;
                View::Around(block)
            }
            (None, Some(start), Some(length)) => match (start.parse(), length.parse()) {
                (Ok(start), Ok(length)) => View::Range(start, length),
                _ => return Err("start, length: expected numbers".to_owned()),
            },
            _ => View::All,
        };
        let cells = self.get("cells").and_then(|cells| cells.parse().ok());
        Ok(MapPart::new(view, cells))
    }
}
