//! The metrics of claims. All providers of a process share them.

use std::time::Duration;

use capi_ipam_controller::clock;
use capi_ipam_controller::controller::Cached;
use capi_ipam_controller::metrics::{Description, Metrics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::api::{IPAddressClaim, conditions};
use crate::claim_cache::{ClaimFilter, CompactClaim};

const BIND_SECONDS: Description = Description {
    name: "capi_ipam_claim_bind_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time from the creation of a claim until it is bound; the API server stores the creation in whole seconds",
};

const CLAIMS: Description = Description {
    name: "capi_ipam_claims",
    kind: "gauge",
    labels: &["state: bound, waiting, releasing"],
    help: "Claims that this process reconciles",
};

const FAILURES: Description = Description {
    name: "capi_ipam_claim_failures_total",
    kind: "counter",
    labels: &["reason"],
    help: "Conditions of claims that report why they are not ready, each time one is written",
};

const ORPHANS: Description = Description {
    name: "capi_ipam_orphans_freed_total",
    kind: "counter",
    labels: &["what"],
    help: "Objects that the sweep has deleted because no claim is entitled to them, by resource",
};

const UNSERVED_KINDS: Description = Description {
    name: "capi_ipam_claims_of_unserved_kinds",
    kind: "gauge",
    labels: &[],
    help: "Claims that are not bound and whose kind of pool the API server does not serve; at most a minute old",
};

/// The metrics of every provider of this crate.
pub const METRICS: &[Description] = &[CLAIMS, UNSERVED_KINDS, BIND_SECONDS, FAILURES, ORPHANS];

/// Upper bounds of the times until claims are bound, in seconds. Those of claims that wait for an
/// address are long.
const BUCKETS: [f64; 10] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0,
];

/// The reasons of claims that are not ready.
const REASONS: [&str; 13] = [
    conditions::ALLOCATION_FAILED,
    conditions::AWAITING_ADDRESS,
    conditions::CLUSTER_NOT_FOUND,
    conditions::DELETING,
    conditions::DUPLICATE_ADDRESS,
    conditions::PAUSED_REASON,
    conditions::POOL_EXHAUSTED,
    conditions::POOL_NOT_ALLOWED,
    conditions::POOL_NOT_READY,
    conditions::QUOTA_EXCEEDED,
    conditions::RELEASE_FAILED,
    conditions::RELEASED_EARLY,
    conditions::REQUESTED_ADDRESS_UNAVAILABLE,
];

/// The label of a metric, and its value.
type Label<T> = [(&'static str, T); 1];

/// The metrics of claims. Clones share them.
#[derive(Clone)]
pub(super) struct ClaimMetrics {
    bind_seconds: Histogram,
    claims: Family<Label<&'static str>, Gauge>,
    failures: Family<Label<String>, Counter>,
    orphans: Family<Label<&'static str>, Counter>,
    /// The claims whose kind of pool is not served.
    pub(super) unserved_kinds: Gauge,
}

impl Default for ClaimMetrics {
    fn default() -> Self {
        let bind_seconds = Histogram::new(BUCKETS);
        let claims = Family::<Label<&str>, Gauge>::default();
        let failures = Family::<Label<String>, Counter>::default();
        for state in ["bound", "waiting", "releasing"] {
            drop(claims.get_or_create(&[("state", state)]));
        }
        // They exist before the first failure: an alert does not see an increase from nothing to
        // one.
        for reason in REASONS {
            drop(failures.get_or_create(&[("reason", reason.to_owned())]));
        }
        Self {
            bind_seconds,
            claims,
            failures,
            orphans: Family::default(),
            unserved_kinds: Gauge::default(),
        }
    }
}

impl ClaimMetrics {
    /// The metrics of this process.
    pub(super) fn of(metrics: &Metrics) -> Self {
        metrics.get_or_register(|metrics, claims: &Self| {
            metrics.add(&BIND_SECONDS, claims.bind_seconds.clone());
            metrics.add(&CLAIMS, claims.claims.clone());
            metrics.add(&FAILURES, claims.failures.clone());
            metrics.add(&ORPHANS, claims.orphans.clone());
            metrics.add(&UNSERVED_KINDS, claims.unserved_kinds.clone());
        })
    }

    /// Records that a claim is bound now.
    pub(super) fn record_bind(&self, claim: &IPAddressClaim) {
        if let Some(Time(created)) = &claim.metadata.creation_timestamp {
            let took =
                Duration::try_from(clock::now().0.duration_since(*created)).unwrap_or_default();
            self.bind_seconds.observe(took.as_secs_f64());
        }
    }

    /// Records that a claim reports why it is not ready.
    pub(super) fn record_failure(&self, reason: &str) {
        let failures = self
            .failures
            .get_or_create(&[("reason", reason.to_owned())]);
        failures.inc();
    }

    /// The number of deleted objects of a resource.
    pub(super) fn orphans_freed(&self, what: &'static str) -> Counter {
        self.orphans.get_or_create_owned(&[("what", what)])
    }

    /// Counts a claim in its new state, and no longer in its old one.
    pub(super) fn count(&self, before: Option<&'static str>, after: Option<&'static str>) {
        if before == after {
            return;
        }
        if let Some(state) = before {
            self.claims.get_or_create(&[("state", state)]).dec();
        }
        if let Some(state) = after {
            self.claims.get_or_create(&[("state", state)]).inc();
        }
    }
}

/// The state of a cached claim for metrics; `None` if this process does not reconcile it.
pub(super) fn state_of(
    filter: &ClaimFilter,
    cached: &Cached<IPAddressClaim, CompactClaim>,
) -> Option<&'static str> {
    match cached {
        // A claim in compact form needs no action.
        Cached::Compact(claim) => claim.is_managed.then_some("bound"),
        Cached::Full(claim) if !filter.matches(claim) => None,
        Cached::Full(claim) if claim.metadata.deletion_timestamp.is_some() => Some("releasing"),
        Cached::Full(claim) if claim.bound_address().is_some() => Some("bound"),
        Cached::Full(_) => Some("waiting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_by_state() {
        let metrics = Metrics::default();
        let claims = ClaimMetrics::of(&metrics);
        claims.count(None, Some("waiting"));
        claims.count(None, Some("waiting"));
        ClaimMetrics::of(&metrics).count(Some("waiting"), Some("bound"));
        claims.count(Some("bound"), Some("bound"));
        claims.count(Some("waiting"), None);
        let text = metrics.encode().unwrap();
        for (state, count) in [("bound", 1), ("waiting", 0), ("releasing", 0)] {
            assert!(
                text.contains(&format!("capi_ipam_claims{{state=\"{state}\"}} {count}\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn time_until_bound_is_never_negative() {
        let metrics = ClaimMetrics::default();
        let mut claim = IPAddressClaim::default();
        metrics.record_bind(&claim);
        claim.metadata.creation_timestamp = Some(Time(clock::now().0 + Duration::from_mins(1)));
        metrics.record_bind(&claim);
        metrics.record_failure("PoolExhausted");
        metrics.orphans_freed("ipaddresses").inc();
    }
}
