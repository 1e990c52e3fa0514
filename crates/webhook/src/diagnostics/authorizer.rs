//! Delegated authorization: the API server authenticates and authorizes clients, and its decisions
//! are cached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::expiring_map::ExpiringMap;
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

/// Decisions by the hash of path and token.
type Cache = ExpiringMap<[u8; 32], Access>;

/// Authorizes clients by bearer tokens. Clones share the cache.
#[derive(Clone)]
pub(super) struct Authorizer {
    client: Client,
    reviewing: Arc<Semaphore>,
    cache: Arc<Mutex<Cache>>,
}

impl Authorizer {
    /// Delegates to the API server: grants access to users who may `get` the path.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            reviewing: Arc::new(Semaphore::new(MAX_CONCURRENT_REVIEWS)),
            cache: Arc::default(),
        }
    }

    /// Whether the owner of the token may get the path.
    async fn access(&self, token: &str, path: &str, now: Instant) -> Result<Access, CallError> {
        let key = Sha256::new()
            .chain_update(path)
            .chain_update([0])
            .chain_update(token)
            .finalize()
            .into();
        if let Some(access) = self.cached(&key, now) {
            return Ok(access);
        }
        // The semaphore is never closed.
        let _permit = self.reviewing.acquire().await;
        // A concurrent request may have cached the decision meanwhile.
        if let Some(access) = self.cached(&key, now) {
            return Ok(access);
        }
        let access = self.review(token, path).await?;
        let ttl = if access == Access::Granted {
            GRANT_TTL
        } else {
            DENIAL_TTL
        };
        let mut cache = self.cache.lock();
        if cache.purge(now) < MAX_CACHED {
            cache.insert(key, access.clone(), ttl, now);
        }
        Ok(access)
    }

    fn cached(&self, key: &[u8; 32], now: Instant) -> Option<Access> {
        self.cache.lock().get(key, now).cloned()
    }

    /// Asks the API server.
    async fn review(&self, token: &str, path: &str) -> Result<Access, CallError> {
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: None,
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let review = ResourceClient::new(Api::all(self.client.clone()), &())
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
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let review = ResourceClient::new(Api::all(self.client.clone()), &())
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
    match authorizer.access(token, path, Instant::now()).await {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;
    use crate::tests::support::reviewing_client;

    /// An authorizer of [`reviewing_client`], and the number of its reviews.
    fn authorizer() -> (Authorizer, Arc<AtomicUsize>) {
        let reviews = Arc::new(AtomicUsize::new(0));
        let client = reviewing_client(Arc::clone(&reviews));
        (Authorizer::new(client), reviews)
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
        let ((authorizer, reviews), start) = (authorizer(), Instant::now());
        let request = async |token: &str, seconds: u64, expected: usize| {
            let now = start + Duration::from_secs(seconds);
            let _ = authorizer.access(token, "/metrics", now).await;
            assert_eq!(reviews.load(Ordering::Relaxed), expected, "{token}");
        };
        request("good", 0, 1).await;
        request("other", 0, 2).await;
        request("broken", 0, 3).await;
        request("good", 5, 3).await;
        request("other", 5, 3).await;
        request("broken", 5, 4).await;
        request("good", 11, 4).await;
        request("other", 11, 5).await;
        request("good", 61, 6).await;
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
