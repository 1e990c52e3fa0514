//! The requests of the browser.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::assets;
use crate::guard::{Access, Guard, Query, query};

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

/// The answer to a question of the page: a document in JSON, or why there is none.
pub type Answer = Result<String, (StatusCode, String)>;

/// The server of the page.
pub struct Server {
    listener: TcpListener,
    guard: Guard,
}

impl Server {
    /// Listens on a port of this machine; 0 selects a free one.
    pub async fn bind(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let guard = Guard::new(listener.local_addr()?.port());
        Ok(Self { listener, guard })
    }

    /// The address that opens the page. It contains a secret.
    pub fn address(&self) -> String {
        self.guard.address()
    }

    /// Answers requests until it fails. `overview` is the document that every update sends, empty
    /// before the first one. `answer` gets the last part of the path of `/api/QUESTION`.
    pub async fn serve(
        self,
        overview: watch::Receiver<Arc<str>>,
        answer: impl Fn(&str, &Query) -> Answer + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let page = Page {
            guard: Arc::new(self.guard),
            overview,
            answer: Arc::new(answer),
        };
        let routes = Router::new()
            .route("/events", get(events))
            .route("/api/{question}", get(question))
            .fallback(asset)
            .layer(from_fn_with_state(page.clone(), guarded))
            .with_state(page);
        axum::serve(self.listener, routes).await
    }
}

/// Answers the questions of the page.
type Answers = dyn Fn(&str, &Query) -> Answer + Send + Sync;

/// What the requests need.
#[derive(Clone)]
struct Page {
    guard: Arc<Guard>,
    overview: watch::Receiver<Arc<str>>,
    answer: Arc<Answers>,
}

/// Checks the request, and adds the headers of every response.
async fn guarded(State(page): State<Page>, request: Request, next: Next) -> Response {
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
async fn events(State(page): State<Page>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let start = (page.overview, true);
    let stream = futures::stream::unfold(start, async |(mut overview, is_first)| {
        if !is_first {
            overview.changed().await.ok()?;
        }
        let text = Arc::clone(&overview.borrow_and_update());
        Some((text, (overview, false)))
    });
    let sent = stream.filter(|text| std::future::ready(!text.is_empty()));
    Sse::new(sent.map(|text| Ok(Event::default().data(text))))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

async fn question(State(page): State<Page>, Path(question): Path<String>, uri: Uri) -> Response {
    match (page.answer)(&question, &query(&uri)) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(refused) => refused.into_response(),
    }
}
