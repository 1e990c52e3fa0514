//! Questions to the API server that are sent as objects, and store nothing.

use capi_ipam_api::{InClusterKind, names};
use capi_ipam_controller::client::CallError;
use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;
use kube::api::PostParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::read::{Cluster, error_text, lacks_permission, rejected};
use crate::error::{Error, MissingRight};

/// Name of the pool whose creation is tried. It is never stored.
const PROBE: &str = "kubectl-ipam-doctor";

/// What the API server says if it cannot call a webhook.
const FAILED_CALLS: [&str; 2] = ["failed calling webhook", FAILED_CONVERSION];

/// What the API server says if it cannot convert an object.
const FAILED_CONVERSION: &str = "conversion webhook for ";

/// A namespace that always exists.
const NAMESPACE: &str = "default";

#[derive(Deserialize)]
struct Review {
    status: Option<SubjectRulesReviewStatus>,
}

impl Cluster {
    /// The permissions of a service account in its namespace, from a review as this account.
    pub(crate) async fn rules_of(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<SubjectRulesReviewStatus, Error> {
        let operation = || format!("review the permissions of {namespace}/{account}");
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
        });
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let request = Request::new("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews")
            .create(&PostParams::default(), review.to_string().into_bytes());
        let mut request = request.map_err(|error| rejected(operation(), &error))?;
        let user =
            http::HeaderValue::from_str(&user).map_err(|error| rejected(operation(), &error))?;
        request.headers_mut().insert("Impersonate-User", user);
        let answer = self
            .call(operation, self.client.request::<Review>(request))
            .await;
        match answer {
            Ok(review) => Ok(review.status.unwrap_or_default()),
            Err(error) if error.is_forbidden() => Err(Error::Forbidden(MissingRight {
                verb: "impersonate",
                resource: "serviceaccounts".to_owned(),
                namespace: Some(namespace.to_owned()),
            })),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Lets the API server call the webhooks, with the dry run of a pool. Returns why it cannot.
    pub(crate) async fn call_webhooks(&self) -> Result<Result<(), String>, Error> {
        self.try_pool(InClusterKind::GlobalIPPool, names::POOL_VERSION)
            .await
    }

    /// Lets the API server convert a pool of the old version for the webhooks. Returns why it cannot.
    pub(crate) async fn convert_pool(
        &self,
        kind: InClusterKind,
    ) -> Result<Result<(), String>, Error> {
        let answer = self.try_pool(kind, names::OLD_POOL_VERSION).await?;
        // Another failure is that of the webhooks, which is another finding.
        Ok(answer.or_else(|text| {
            if text.contains(FAILED_CONVERSION) {
                Err(text)
            } else {
                Ok(())
            }
        }))
    }

    async fn try_pool(
        &self,
        kind: InClusterKind,
        version: &str,
    ) -> Result<Result<(), String>, Error> {
        let group = names::GROUP;
        let folder = if kind.is_global() {
            String::new()
        } else {
            format!("namespaces/{NAMESPACE}/")
        };
        let folder = format!("/apis/{group}/{version}/{folder}{}", kind.plural());
        let pool = json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind.name(), "metadata": { "name": PROBE },
            "spec": { "addresses": ["192.0.2.1"], "prefix": 24 },
        });
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let operation = || "call the webhooks".to_owned();
        let request = Request::new(&folder).create(&parameters, pool.to_string().into_bytes());
        let request = request.map_err(|error| rejected(operation(), &error))?;
        let answer = self
            .call(operation, self.client.request::<Value>(request))
            .await;
        let Err(error) = answer else {
            return Ok(Ok(()));
        };
        // A frozen webhook: the API server answers other requests.
        if matches!(error, CallError::TimedOut { .. }) {
            let text = "the API server does not answer while it calls the webhooks";
            return Ok(Err(text.to_owned()));
        }
        let Some(text) = error_text(&error) else {
            return Err(self.error(&error));
        };
        if FAILED_CALLS.iter().any(|failed| text.contains(failed)) {
            return Ok(Err(text));
        }
        if lacks_permission(&error, "create") {
            return Err(Error::Forbidden(MissingRight {
                verb: "create",
                resource: format!("{}.{group}", kind.plural()),
                namespace: (!kind.is_global()).then(|| NAMESPACE.to_owned()),
            }));
        }
        // Another answer is that of a webhook, or of what follows it.
        Ok(Ok(()))
    }
}
