//! Delegated authorization: the API server authenticates and authorizes clients, and its decisions
//! are cached.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::expiring_map::ExpiringMap;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::warn;

/// How long decisions are cached. A denial expires sooner, since the permission may be granted
/// shortly after.
const GRANT_TTL: Duration = Duration::from_mins(1);
const DENIAL_TTL: Duration = Duration::from_secs(10);

/// Size of the cache. It is limited, so that a client with many tokens cannot fill the memory.
const MAX_CACHED: usize = 1000;

/// Number of concurrent reviews. It is limited, so that clients cannot overload the API server.
const MAX_CONCURRENT_REVIEWS: usize = 4;

/// The decision of the API server on a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The client is authorized.
    Granted,
    /// The token is not authenticated.
    Unauthenticated,
    /// The user of the token is not authorized.
    Forbidden {
        /// Name of the user.
        user: String,
    },
}

/// Decides whether the owner of a token may get a path.
type Review = dyn Fn(String, String) -> BoxFuture<'static, Result<Access, CallError>> + Send + Sync;

/// Returns the current time.
type Clock = dyn Fn() -> Instant + Send + Sync;

/// Decisions by the hash of path and token.
type Cache = ExpiringMap<[u8; 32], Access>;

/// Authorizes clients by bearer tokens. Clones share the cache.
#[derive(Clone)]
pub(super) struct Authorizer {
    review: Arc<Review>,
    reviewing: Arc<Semaphore>,
    cache: Arc<Mutex<Cache>>,
    clock: Arc<Clock>,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Delegates to the API server: grants access to users who may `get` the path.
    pub(super) fn delegated(client: Client) -> Self {
        Self::new(move |token, path| review_token(client.clone(), token, path).boxed())
    }

    pub(super) fn new(
        review: impl Fn(String, String) -> BoxFuture<'static, Result<Access, CallError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let reviewing = Arc::new(Semaphore::new(MAX_CONCURRENT_REVIEWS));
        Self {
            review: Arc::new(review),
            reviewing,
            cache: Arc::default(),
            clock: Arc::new(Instant::now),
        }
    }

    /// Whether the owner of the token may get the path.
    async fn access(&self, token: &str, path: &str) -> Result<Access, CallError> {
        let key = Sha256::new()
            .chain_update(path)
            .chain_update([0])
            .chain_update(token)
            .finalize()
            .into();
        if let Some(access) = self.cached(&key) {
            return Ok(access);
        }
        // The semaphore is never closed.
        let _permit = self.reviewing.acquire().await;
        // A concurrent request may have cached the decision meanwhile.
        if let Some(access) = self.cached(&key) {
            return Ok(access);
        }
        let access = (self.review)(token.to_owned(), path.to_owned()).await?;
        let ttl = if access == Access::Granted {
            GRANT_TTL
        } else {
            DENIAL_TTL
        };
        let (mut cache, now) = (self.cache.lock(), (self.clock)());
        if cache.purge(now) < MAX_CACHED {
            cache.insert(key, access.clone(), ttl, now);
        }
        Ok(access)
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Access> {
        self.cache.lock().get(key, (self.clock)()).cloned()
    }
}

/// Middleware that responds with 401 or 403 to clients that are not authorized.
pub(super) async fn authorize(
    State(authorizer): State<Authorizer>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return unauthorized("a bearer token is needed");
    };
    let path = request.uri().path();
    match authorizer.access(token, path).await {
        Ok(Access::Granted) => next.run(request).await,
        Ok(Access::Unauthenticated) => unauthorized("the bearer token is not valid"),
        Ok(Access::Forbidden { user }) => {
            (StatusCode::FORBIDDEN, format!("{user} may not get {path}")).into_response()
        }
        Err(error) => {
            warn!(
                error = error_chain(&error),
                "cannot authorize a client of the metrics endpoint"
            );
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "cannot reach the API server to authorize the request",
            )
                .into_response()
        }
    }
}

fn unauthorized(text: &'static str) -> Response {
    (
        StatusCode::UNAUTHORIZED,
        [(WWW_AUTHENTICATE, "Bearer")],
        text,
    )
        .into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn review_token(client: Client, token: String, path: String) -> Result<Access, CallError> {
    let spec = TokenReviewSpec {
        token: Some(token),
        audiences: None,
    };
    let review = TokenReview {
        spec,
        ..TokenReview::default()
    };
    let review = ResourceClient::new(Api::all(client.clone()), &())
        .create(&review)
        .await?;
    let status = review.status.unwrap_or_default();
    let user = status.user.unwrap_or_default();
    if status.authenticated != Some(true) {
        return Ok(Access::Unauthenticated);
    }
    let name = user.username.clone().unwrap_or_default();
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    let review = ResourceClient::new(Api::all(client), &())
        .create(&review)
        .await?;
    let granted = review
        .status
        .is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if granted {
        Access::Granted
    } else {
        Access::Forbidden { user: name }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    /// Grants tokens that begin with "good", authenticates those that begin with "other", fails for
    /// "broken". Counts the reviews. Its clock is ahead by a number of seconds.
    fn authorizer() -> (Authorizer, Arc<AtomicUsize>, Arc<AtomicU64>) {
        let (reviews, ahead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (counter, seconds) = (Arc::clone(&reviews), Arc::clone(&ahead));
        let clock = move || Instant::now() + Duration::from_secs(seconds.load(Ordering::Relaxed));
        let review = move |token: String, path: String| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert_eq!(path, "/metrics");
            let access = match token.get(..4) {
                Some("good") => Ok(Access::Granted),
                Some("othe") => Ok(Access::Forbidden {
                    user: "me".to_owned(),
                }),
                Some("brok") => Err(CallError::TimedOut {
                    operation: "test".to_owned(),
                }),
                _ => Ok(Access::Unauthenticated),
            };
            std::future::ready(access).boxed()
        };
        (
            Authorizer {
                clock: Arc::new(clock),
                ..Authorizer::new(review)
            },
            reviews,
            ahead,
        )
    }

    async fn status(authorizer: &Authorizer, authorization: Option<&str>) -> u16 {
        let router = Router::new().route("/metrics", get(|| async { "text" }));
        let router = router.layer(from_fn_with_state(authorizer.clone(), authorize));
        let mut request = http::Request::get("/metrics");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    #[tokio::test]
    async fn only_authorized_clients_are_served() {
        let (authorizer, ..) = authorizer();
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
            assert_eq!(
                status(&authorizer, authorization).await,
                expected,
                "{authorization:?}"
            );
        }
    }

    #[tokio::test]
    async fn decisions_are_cached_for_a_time() {
        let (authorizer, reviews, ahead) = authorizer();
        let wait = |seconds| ahead.fetch_add(seconds, Ordering::Relaxed);
        let request = async |token: &str, expected: usize| {
            status(&authorizer, Some(&format!("Bearer {token}"))).await;
            assert_eq!(reviews.load(Ordering::Relaxed), expected, "{token}");
        };
        request("good", 1).await;
        request("other", 2).await;
        request("broken", 3).await;
        wait(5);
        request("good", 3).await;
        request("other", 3).await;
        request("broken", 4).await;
        wait(6);
        request("good", 4).await;
        request("other", 5).await;
        wait(50);
        request("good", 6).await;
    }

    #[tokio::test]
    async fn token_cache_is_bounded() {
        let (authorizer, ..) = authorizer();
        for index in 0..MAX_CACHED + 10 {
            status(&authorizer, Some(&format!("Bearer x{index}"))).await;
        }
        assert_eq!(authorizer.cache.lock().purge(Instant::now()), MAX_CACHED);
    }
}
