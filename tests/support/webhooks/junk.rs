//! Requests that try to exhaust the memory of the manager, from many clients at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capi_ipam::admission::routes::{CONVERT, paths_of};
use capi_ipam_api::InClusterKind::IPPool;
use futures::future::join_all;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Webhooks;
use super::direct::review;

const MIB: usize = 1024 * 1024;

/// A body that is far larger in memory than on the wire.
pub struct Junk {
    pub what: &'static str,
    pub path: &'static str,
    pub body: Bytes,
}

/// The results of such requests, and of valid ones during them.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of responses by status; 0 stands for a closed connection.
    pub statuses: BTreeMap<u16, usize>,
    /// Valid reviews, sent one after the other.
    pub good: Good,
}

/// The results of valid reviews.
#[derive(Debug, Default)]
pub struct Good {
    pub answered: usize,
    /// Answers that are not right, without those of `late` and `busy`.
    pub failed: usize,
    /// Answers that the time was too short (504), as on a loaded machine.
    pub late: usize,
    /// Answers that the memory is taken (429): the API server sends the request again.
    pub busy: usize,
    /// The duration of the slowest one.
    pub longest: Duration,
}

/// A text of `length` bytes that repeats `part`.
fn filled(start: &str, part: &str, end: &str, length: usize) -> Bytes {
    let room = length - start.len() - end.len();
    format!("{start}{}{end}", part.repeat(room / part.len())).into()
}

impl Junk {
    /// Bodies of the maximum lengths and of others.
    pub fn all() -> Vec<Self> {
        let conversion = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"ipam.cluster.x-k8s.io/v1alpha1","objects":["#;
        let object = format!(
            r#"{conversion}{{"apiVersion":"ipam.cluster.x-k8s.io/v1alpha2","kind":"InClusterIPPool","spec":{{"addresses":["#
        );
        let admission = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"kind":"InClusterIPPool"},"operation":"CREATE","object":{"spec":{"prefix":24,"addresses":["#;
        let validate = paths_of(IPPool).validate;
        let junk = |what, path, start: &str, part, end, length| Self {
            what,
            path,
            body: filled(start, part, end, length),
        };
        vec![
            junk(
                "64 MiB to convert, numbers",
                CONVERT,
                conversion,
                "0,",
                "0]}}",
                64 * MIB,
            ),
            junk(
                "16 MiB to convert, numbers",
                CONVERT,
                conversion,
                "0,",
                "0]}}",
                16 * MIB,
            ),
            junk(
                "16 MiB to convert, one object of numbers",
                CONVERT,
                &object,
                "0,",
                "0]}}]}}",
                16 * MIB,
            ),
            junk(
                "8 MiB to review, numbers",
                validate,
                admission,
                "0,",
                "0]}}}}",
                8 * MIB,
            ),
            junk(
                "8 MiB to review, maps",
                validate,
                admission,
                r#"{"":0},"#,
                "0]}}}}",
                8 * MIB,
            ),
            junk(
                "1 MiB to review, texts",
                validate,
                admission,
                r#""10.0.0.1","#,
                r#""x"]}}}}"#,
                MIB,
            ),
            junk(
                "60 KiB to review, maps",
                validate,
                admission,
                r#"{"":0},"#,
                "0]}}}}",
                60 * 1024,
            ),
        ]
    }

    /// A review of 3 MiB, the size of the largest object that the API server accepts.
    pub fn largest_object() -> Self {
        let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"kind":"InClusterIPPool"},"operation":"CREATE","object":{"spec":{"prefix":24,"addresses":["#;
        Self {
            what: "3 MiB to review, maps",
            path: paths_of(IPPool).validate,
            body: filled(review, r#"{"":0},"#, "0]}}}}", 3 * MIB),
        }
    }

    /// Sends the body from `clients` clients at once, `times` times each, with valid reviews
    /// meanwhile.
    pub async fn send(&self, webhooks: &Webhooks, clients: usize, times: usize) -> Outcome {
        let done = CancellationToken::new();
        let junk = async {
            let all = join_all((0..clients).map(|_| self.send_from_one(webhooks, times))).await;
            done.cancel();
            all.into_iter().flatten()
        };
        let (statuses, good) = tokio::join!(junk, good_reviews(webhooks, &done));
        let mut outcome = Outcome {
            good,
            ..Outcome::default()
        };
        statuses.for_each(|status| *outcome.statuses.entry(status).or_default() += 1);
        outcome
    }

    async fn send_from_one(&self, webhooks: &Webhooks, times: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..times {
            let Ok(mut connection) = webhooks.connect().await else {
                statuses.push(0);
                continue;
            };
            let answer = connection.post(self.path, self.body.clone()).await;
            statuses.push(match answer {
                // A denying review counts like a status.
                Ok(answer)
                    if answer.status == 200 && answer.body.contains(r#""allowed":false"#) =>
                {
                    422
                }
                Ok(answer)
                    if answer.status == 200 && answer.body.contains(r#""status":"Failure""#) =>
                {
                    422
                }
                Ok(answer) => answer.status,
                Err(_) => 0,
            });
        }
        statuses
    }
}

/// Sends valid reviews until `done` is cancelled.
async fn good_reviews(webhooks: &Webhooks, done: &CancellationToken) -> Good {
    let pool = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
                      "metadata": {"name": "good", "namespace": "default"},
                      "spec": {"addresses": ["172.31.0.0/24"], "prefix": 24}});
    let body = review("CREATE", "InClusterIPPool", &Value::Null, &pool).to_string();
    let mut good = Good::default();
    while !done.is_cancelled() {
        let started = Instant::now();
        let answered = async {
            let mut connection = webhooks.connect_http2().await?;
            connection
                .post(paths_of(IPPool).validate, body.clone())
                .await
        };
        match answered.await {
            Ok(answer) if answer.body.contains(r#""allowed":true"#) => good.answered += 1,
            Ok(answer) if answer.status == 504 => good.late += 1,
            Ok(answer) if answer.status == 429 => good.busy += 1,
            _ => good.failed += 1,
        }
        good.longest = good.longest.max(started.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    good
}
