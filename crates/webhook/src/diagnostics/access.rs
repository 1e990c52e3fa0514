//! Who may see diagnostics: the API server is asked, and its answer is kept for a minute.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capi_ipam_controller::client::{CallError, ResourceClient, chain};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::warn;

/// How long an answer is good for. A refusal is asked about again sooner: someone may just have granted access.
const KEEP: Duration = Duration::from_mins(1);
const KEEP_REFUSAL: Duration = Duration::from_secs(10);

/// How many answers are kept, so that nobody fills the memory with tokens.
const MOST_KEPT: usize = 1000;

/// How many callers are asked about at the same time, so that nobody has the API server flooded.
const MOST_ASKED: usize = 4;

/// What the API server says of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The caller may see it.
    Granted,
    /// It is not known who the caller is.
    Unknown,
    /// It is known who the caller is: someone who may not see it.
    Refused {
        /// Name of the user.
        user: String,
    },
}

/// Says what the owner of a token may do with a path.
type Ask = dyn Fn(String, String) -> BoxFuture<'static, Result<Access, CallError>> + Send + Sync;

type Kept = HashMap<[u8; 32], (Instant, Access)>;

/// Lets some callers in. Clones share what they know.
#[derive(Clone)]
pub struct Authorizer {
    ask: Arc<Ask>,
    asking: Arc<Semaphore>,
    kept: Arc<Mutex<Kept>>,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Lets those in who may `get` the path, says the API server.
    pub fn by_api_server(client: Client) -> Self {
        Self::new(move |token, path| ask(client.clone(), token, path).boxed())
    }

    pub(super) fn new(
        ask: impl Fn(String, String) -> BoxFuture<'static, Result<Access, CallError>> + Send + Sync + 'static,
    ) -> Self {
        Self { ask: Arc::new(ask), asking: Arc::new(Semaphore::new(MOST_ASKED)), kept: Arc::default() }
    }

    /// What the owner of the token may do with the path.
    async fn access(&self, token: &str, path: &str) -> Result<Access, CallError> {
        let key = Sha256::new().chain_update(path).chain_update([0]).chain_update(token).finalize().into();
        if let Some(access) = self.known(&key) {
            return Ok(access);
        }
        // The semaphore is never closed, so there is a permit in the end.
        let _asking = self.asking.acquire().await;
        // Another request may have asked meanwhile.
        if let Some(access) = self.known(&key) {
            return Ok(access);
        }
        let access = (self.ask)(token.to_owned(), path.to_owned()).await?;
        let keep = if access == Access::Granted { KEEP } else { KEEP_REFUSAL };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            let now = Instant::now();
            kept.retain(|_, (until, _)| *until > now);
        }
        if kept.len() < MOST_KEPT {
            kept.insert(key, (Instant::now() + keep, access.clone()));
        }
        Ok(access)
    }

    fn known(&self, key: &[u8; 32]) -> Option<Access> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, access)| access.clone())
    }
}

/// Passes on the requests of callers who are let in.
pub(super) async fn pass(State(gate): State<Authorizer>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return unauthorized("a bearer token is needed");
    };
    let path = request.uri().path();
    match gate.access(token, path).await {
        Ok(Access::Granted) => next.run(request).await,
        Ok(Access::Unknown) => unauthorized("the bearer token is not known"),
        Ok(Access::Refused { user }) => (StatusCode::FORBIDDEN, format!("{user} may not get {path}")).into_response(),
        Err(error) => {
            warn!(error = chain(&error), "it cannot be told whether a caller may see diagnostics");
            (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked about you now").into_response()
        }
    }
}

fn unauthorized(text: &'static str) -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn ask(client: Client, token: String, path: String) -> Result<Access, CallError> {
    let spec = TokenReviewSpec { token: Some(token), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let review = ResourceClient::new(Api::all(client.clone()), &()).create(&review).await?;
    let status = review.status.unwrap_or_default();
    let user = status.user.unwrap_or_default();
    if status.authenticated != Some(true) {
        return Ok(Access::Unknown);
    }
    let name = user.username.clone().unwrap_or_default();
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes { path: Some(path), verb: Some("get".to_owned()) }),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let review = ResourceClient::new(Api::all(client), &()).create(&review).await?;
    let granted = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if granted { Access::Granted } else { Access::Refused { user: name } })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    /// Grants tokens that begin with "good", knows those that begin with "other", breaks at "broken"; and counts.
    fn gate() -> (Authorizer, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let gate = Authorizer::new(move |token, path| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert_eq!(path, "/metrics");
            let answer = match token.get(..4) {
                Some("good") => Ok(Access::Granted),
                Some("othe") => Ok(Access::Refused { user: "me".to_owned() }),
                Some("brok") => Err(CallError::TimedOut { operation: "ask".to_owned() }),
                _ => Ok(Access::Unknown),
            };
            std::future::ready(answer).boxed()
        });
        (gate, asked)
    }

    async fn status(gate: &Authorizer, authorization: Option<&str>) -> u16 {
        let router = Router::new().route("/metrics", get(|| async { "text" }));
        let router = router.layer(from_fn_with_state(gate.clone(), pass));
        let mut request = http::Request::get("/metrics");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn only_those_are_let_in_who_may() {
        let (gate, _) = gate();
        for (authorization, expected) in [
            (None, 401),
            (Some("Basic good"), 401),
            (Some("Bearer "), 401),
            (Some("Bearer nobody"), 401),
            (Some("Bearer other"), 403),
            (Some("Bearer broken"), 503),
            (Some("Bearer good"), 200),
            (Some("bearer  good"), 200),
        ] {
            assert_eq!(status(&gate, authorization).await, expected, "{authorization:?}");
        }
    }

    #[tokio::test]
    async fn answers_are_kept_for_a_time() {
        let (gate, asked) = gate();
        let wait = |seconds| {
            for (until, _) in gate.kept.lock().unwrap().values_mut() {
                *until -= Duration::from_secs(seconds);
            }
        };
        let ask = async |token: &str, expected: usize| {
            status(&gate, Some(&format!("Bearer {token}"))).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{token}");
        };
        ask("good", 1).await;
        ask("other", 2).await;
        ask("broken", 3).await;
        wait(5);
        ask("good", 3).await;
        ask("other", 3).await;
        ask("broken", 4).await;
        wait(6);
        ask("good", 4).await;
        ask("other", 5).await;
        wait(50);
        ask("good", 6).await;
    }

    #[tokio::test]
    async fn nobody_fills_the_memory() {
        let (gate, _) = gate();
        for index in 0..MOST_KEPT + 10 {
            status(&gate, Some(&format!("Bearer x{index}"))).await;
        }
        assert_eq!(gate.kept.lock().unwrap().len(), MOST_KEPT);
    }
}
