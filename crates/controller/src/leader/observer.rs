//! What the requests for the lease show: whether the API server permits them, and which process
//! holds the lease.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tower::service_fn;
use tracing::{info, warn};

use crate::client::own_namespace;
use crate::health::ReadinessGate;
use crate::log_limit::RepetitionLimit;
use crate::options::Options;

/// Wraps the client for the lease. A process that may not use the lease never leads: it reports
/// that it is not ready, and logs why. A standby logs which process holds the lease, and again when
/// another one does. `own` is the identity of this process.
pub(crate) fn observe_lease(
    client: Client,
    options: &Options,
    own: &str,
    gate: ReadinessGate,
) -> Client {
    let observer = Arc::new(Observer {
        namespace: own_namespace(&client, &options.leader_election_namespace),
        own: own.to_owned(),
        gate,
        refused: Mutex::default(),
        refusals: RepetitionLimit::default(),
        holder: Mutex::default(),
    });
    let default_namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, observer) = (client.clone(), Arc::clone(&observer));
        async move {
            let method = request.method().clone();
            let response = client.send(request).await?;
            observer.check_permission(&method, response.status());
            if method != Method::GET || response.status() != StatusCode::OK {
                return Ok::<_, kube::Error>(response);
            }
            let (head, body) = response.into_parts();
            let lease = body.collect_bytes().await?;
            observer.read_holder(&lease);
            Ok(Response::from_parts(head, Body::from(lease.to_vec())))
        }
    });
    Client::new(service, default_namespace)
}

struct Observer {
    namespace: String,
    /// The identity of this process.
    own: String,
    gate: ReadinessGate,
    /// The method that is not permitted.
    refused: Mutex<Option<Method>>,
    refusals: RepetitionLimit,
    /// The holder that was logged last.
    holder: Mutex<Option<String>>,
}

impl Observer {
    fn check_permission(&self, method: &Method, status: StatusCode) {
        if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) {
            let problem = format!(
                "{method} is not allowed for the lease in namespace {} ({status}); leader election needs get, create \
                 and update on leases in coordination.k8s.io",
                self.namespace
            );
            self.gate.refused(&problem);
            if let Some(suppressed) = self.refusals.allow(&problem, Instant::now()) {
                warn!(suppressed, "{problem}");
            }
            *self.refused.lock() = Some(method.clone());
        } else if self.refused.lock().as_ref() == Some(method) {
            // Another method may still be refused.
            *self.refused.lock() = None;
            self.refusals.end();
            self.gate.accepted();
        }
    }

    fn read_holder(&self, body: &[u8]) {
        let Ok(lease) = serde_json::from_slice::<Lease>(body) else {
            return;
        };
        let new = new_holder(&lease, &self.own, &mut self.holder.lock());
        if let Some(holder) = new {
            let spec = lease.spec.unwrap_or_default();
            let renewed = spec.renew_time.map(|time| time.0.to_string());
            info!(
                lease = lease.metadata.name,
                namespace = self.namespace,
                holder,
                renewed,
                "standby: another process holds the lease"
            );
        }
    }
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
}
