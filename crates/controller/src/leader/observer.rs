//! What the requests for the lease show: whether the API server permits and stores them, which
//! process holds the lease, and for how long.
//!
//! The crate that implements the protocol compares the age of a lease with the own flag. Like
//! client-go, a standby respects what the holder has written: until then it is shown a lease that
//! is being renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tower::service_fn;
use tracing::{info, warn};

use crate::client::{error_chain, own_namespace};
use crate::clock;
use crate::health::ReadinessGate;
use crate::log_limit::RepetitionLimit;
use crate::options::Options;

/// How long the API server may fail to store the lease before the process is not ready.
const FAILURE_GRACE: Duration = Duration::from_secs(10);

/// Wraps the client for the lease. A process that may not use the lease, or cannot write it, never
/// leads: it reports that it is not ready, and logs why. A standby logs which process holds the
/// lease, and again when another one does. `own` is the identity of this process.
pub(crate) fn observe_lease(
    client: Client,
    options: &Options,
    own: &str,
    gate: ReadinessGate,
) -> Client {
    let observer = Arc::new(Observer {
        namespace: own_namespace(&client, &options.leader_election_namespace),
        own: own.to_owned(),
        own_duration: options.leader_elect_lease_duration,
        gate,
        failing: Mutex::default(),
        failures: RepetitionLimit::default(),
        holder: Mutex::default(),
        observed: Mutex::default(),
    });
    let default_namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, observer) = (client.clone(), Arc::clone(&observer));
        async move {
            let method = request.method().clone();
            let response = client.send(request).await.inspect_err(|error| {
                let error: &(dyn std::error::Error + 'static) = error;
                observer.failed(
                    &method,
                    &Failure::Connection(error_chain(error)),
                    Instant::now(),
                );
            })?;
            let (head, body) = response.into_parts();
            let mut body = body.collect_bytes().await?.to_vec();
            match failure(head.status, &body) {
                Some(failure) => observer.failed(&method, &failure, Instant::now()),
                None => observer.succeeded(&method),
            }
            if method == Method::GET && head.status == StatusCode::OK {
                observer.read_holder(&mut body);
            }
            Ok::<_, kube::Error>(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, default_namespace)
}

struct Observer {
    namespace: String,
    /// The identity of this process.
    own: String,
    /// After this time a standby takes over a lease that is not renewed.
    own_duration: Duration,
    gate: ReadinessGate,
    /// The methods that fail, and since when.
    failing: Mutex<HashMap<Method, Instant>>,
    failures: RepetitionLimit,
    /// The holder that was logged last.
    holder: Mutex<Option<String>>,
    /// The lease of another process, and when it was first seen like this.
    observed: Mutex<Option<(LeaseSpec, Instant)>>,
}

/// Why a request for the lease has failed.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Refused(StatusCode),
    NotStored(String),
    Connection(String),
}

/// The failure that a response shows. That the lease does not exist, or that another process has
/// written it, is none.
fn failure(status: StatusCode, body: &[u8]) -> Option<Failure> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Failure::Refused(status)),
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => None,
        _ if status.is_success() => None,
        _ => {
            let found: Option<kube::core::Status> = serde_json::from_slice(body).ok();
            let text = found
                .map(|found| found.message)
                .filter(|text| !text.is_empty());
            Some(Failure::NotStored(
                text.unwrap_or_else(|| status.to_string()),
            ))
        }
    }
}

impl Observer {
    fn failed(&self, method: &Method, failure: &Failure, now: Instant) {
        let namespace = &self.namespace;
        let problem = match failure {
            Failure::Refused(status) => format!(
                "{method} is not allowed for the lease in namespace {namespace} ({status}); leader election needs \
                 get, create and update on leases in coordination.k8s.io"
            ),
            Failure::NotStored(text) | Failure::Connection(text) => {
                format!("{method} of the lease in namespace {namespace} fails: {text}")
            }
        };
        let since = *self.failing.lock().entry(method.clone()).or_insert(now);
        let is_reported = match failure {
            Failure::Refused(_) => true,
            // A lease that can be read may be held by another process.
            Failure::NotStored(_) => {
                method != Method::GET && now.saturating_duration_since(since) >= FAILURE_GRACE
            }
            Failure::Connection(_) => false,
        };
        if is_reported {
            self.gate.refused(&problem);
        }
        if let Some(suppressed) = self.failures.allow(&problem, now) {
            warn!(suppressed, "{problem}");
        }
    }

    fn succeeded(&self, method: &Method) {
        let mut failing = self.failing.lock();
        // Another method may still fail.
        if failing.remove(method).is_some() && failing.is_empty() {
            self.failures.end();
            self.gate.accepted();
        }
    }

    /// Reads the holder of the lease. If its lease is in force for longer than the own flag says,
    /// the lease is changed as a renewal would change it.
    fn read_holder(&self, body: &mut Vec<u8>) {
        let Ok(mut lease) = serde_json::from_slice::<Lease>(body) else {
            return;
        };
        let new = new_holder(&lease, &self.own, &mut self.holder.lock());
        if let Some(holder) = new {
            let spec = lease.spec.as_ref();
            let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
            let renewed = renewed.map(|time| time.0.to_string());
            info!(
                lease = lease.metadata.name,
                namespace = self.namespace,
                holder,
                renewed,
                "standby: another process holds the lease"
            );
        }
        let Some(spec) = &mut lease.spec else { return };
        let mut observed = self.observed.lock();
        if is_in_force(
            spec,
            &self.own,
            self.own_duration,
            &mut observed,
            Instant::now(),
        ) {
            spec.renew_time = Some(clock::now_micro());
            if let Ok(shown) = serde_json::to_vec(&lease) {
                *body = shown;
            }
        }
    }
}

/// Whether the lease of another process is in force for longer than `own_duration` from now on. It
/// is in force for the duration that its holder has written, from when it was first seen like this.
fn is_in_force(
    spec: &LeaseSpec,
    own: &str,
    own_duration: Duration,
    observed: &mut Option<(LeaseSpec, Instant)>,
    now: Instant,
) -> bool {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || holder == own {
        return false;
    }
    let since = match observed {
        Some((known, since)) if known == spec => *since,
        _ => {
            *observed = Some((spec.clone(), now));
            now
        }
    };
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default());
    let held = Duration::from_secs(seconds.unwrap_or_default());
    let age = now.saturating_duration_since(since);
    age.saturating_add(own_duration) < held
}

/// The process that holds the lease, if it is another one than `own` and than the last one that was
/// logged.
fn new_holder(lease: &Lease, own: &str, logged: &mut Option<String>) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
    if holder.is_empty() || holder == own || logged.as_ref() == Some(holder) {
        return None;
    }
    *logged = Some(holder.clone());
    Some(holder.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_other_holder_is_logged_once() {
        let mut logged = None;
        let mut new = |holder: Option<&str>| {
            let lease = json!({"spec": {"holderIdentity": holder}});
            new_holder(&serde_json::from_value(lease).unwrap(), "own", &mut logged)
        };
        assert_eq!(new(None), None);
        assert_eq!(new(Some("")), None, "the lease was released");
        assert_eq!(new(Some("a")).as_deref(), Some("a"));
        assert_eq!(new(Some("a")), None);
        assert_eq!(new(Some("b")).as_deref(), Some("b"));
        assert_eq!(new(Some("own")), None);
        assert_eq!(new(Some("a")).as_deref(), Some("a"));
    }

    #[test]
    fn lease_is_in_force_as_long_as_its_holder_has_written() {
        let (mut observed, start) = (None, Instant::now());
        let mut is_in_force = |holder: &str, seconds: i32, second| {
            let spec = LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                ..LeaseSpec::default()
            };
            let now = start + Duration::from_secs(second);
            super::is_in_force(&spec, "own", Duration::from_secs(15), &mut observed, now)
        };
        assert!(!is_in_force("a", 15, 0), "the own duration is enough");
        assert!(is_in_force("a", 60, 1));
        assert!(is_in_force("a", 60, 45));
        assert!(!is_in_force("a", 60, 46), "15 of 60 seconds are left");
        assert!(is_in_force("b", 60, 46), "it is another lease");
        assert!(!is_in_force("", 60, 47) && !is_in_force("own", 60, 47));
    }

    #[test]
    fn lease_that_cannot_be_written_is_reported() {
        let health = crate::health::Health::default();
        let observer = Observer {
            namespace: "system".to_owned(),
            own: "own".to_owned(),
            own_duration: Duration::from_secs(15),
            gate: health.register_watch("Lease"),
            failing: Mutex::default(),
            failures: RepetitionLimit::default(),
            holder: Mutex::default(),
            observed: Mutex::default(),
        };
        let body = br#"{"kind": "Status", "code": 500, "message": "etcdserver: mvcc: database space exceeded"}"#;
        let full = || failure(StatusCode::INTERNAL_SERVER_ERROR, body).unwrap();
        let start = Instant::now();
        for second in [0, 5, 12] {
            assert!(health.problems().is_empty(), "{second}");
            let now = start + Duration::from_secs(second);
            for method in [Method::GET, Method::PUT] {
                observer.failed(&method, &full(), now);
                observer.succeeded(&Method::GET);
            }
            let lost = Failure::Connection("refused".to_owned());
            observer.failed(&Method::PUT, &lost, now);
        }
        let problem = "Lease: PUT of the lease in namespace system fails: etcdserver: mvcc: database space exceeded";
        assert_eq!(health.problems(), [problem]);
        observer.succeeded(&Method::PUT);
        assert!(health.problems().is_empty());
        assert_eq!(failure(StatusCode::CONFLICT, b""), None);
        let refused = failure(StatusCode::FORBIDDEN, b"").unwrap();
        observer.failed(&Method::PUT, &refused, start);
        assert_eq!(health.problems().len(), 1);
    }
}
