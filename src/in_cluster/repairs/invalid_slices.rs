//! Slices that have no effect: their block or their name is not valid, or their pool has no slices.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{IPSlice, PoolKey, ProblemStatus, Scope};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::observed::{ObjectVersion, Observed, Origin};
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ledger::Validity;
use capi_ipam_provider::advanced::{Repair, Repaired};
use kube::api::ObjectMeta;
use parking_lot::Mutex;

use super::report_failed;
use crate::in_cluster::context::Context;
use crate::in_cluster::problem_report::report_problem;

/// What matters of each IPSlice, as last seen by its watch.
#[derive(Default)]
pub(in crate::in_cluster) struct ObservedSlices {
    slices: Mutex<Observed<ObservedSlice>>,
}

/// What matters of an IPSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObservedSlice {
    /// The pool or the network of the slice, or why it is not valid.
    scope: Result<Scope, String>,
    /// Whether a user created it. The provider returns its own ones.
    is_pinned: bool,
    /// The problem that its status reports.
    reported: Option<String>,
}

/// A slice whose status has to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChangedSlice {
    name: String,
    /// The state of the slice that has the problem, or has none any more.
    judged: ObjectVersion,
    problem: Option<String>,
}

impl ObservedSlice {
    fn of(slice: &IPSlice) -> Self {
        let place = slice.place();
        let status = slice.status.as_ref();
        Self {
            scope: place.map(|(scope, _)| scope).map_err(|it| it.to_string()),
            is_pinned: slice.spec.assigned_at.is_none(),
            reported: status.and_then(ProblemStatus::problem).map(str::to_owned),
        }
    }

    /// Whether the slice has an effect. `has_slices` is whether a pool has slices; `None` if this
    /// is not known.
    fn validity(&self, has_slices: impl Fn(&PoolKey) -> Option<bool>) -> Validity {
        let pool = match &self.scope {
            Ok(Scope::Pool(pool)) => pool,
            // A block of a network has an effect as long as it exists.
            Ok(Scope::Network(_)) => return Validity::Valid,
            Err(problem) => return Validity::Invalid(problem.clone()),
        };
        if !self.is_pinned {
            return Validity::Valid;
        }
        match has_slices(pool) {
            Some(true) => Validity::Valid,
            Some(false) => Validity::Invalid(format!(
                "spec.scope: {pool} has no slices; set spec.slices of the pool, or delete the slice"
            )),
            None => Validity::Unknown,
        }
    }
}

impl EventHandler<IPSlice> for ObservedSlices {
    fn init(&self) {
        self.slices.lock().begin_list();
    }

    fn init_done(&self) {
        self.slices.lock().end_list(Instant::now());
    }

    fn apply(&self, slice: &IPSlice) {
        let (metadata, value) = (&slice.metadata, ObservedSlice::of(slice));
        self.slices
            .lock()
            .see(Origin::Watch, metadata, value, Instant::now());
    }

    fn delete(&self, slice: &IPSlice) {
        self.forget(&slice.metadata);
    }

    fn restored(&self) {
        self.slices.lock().restored();
    }

    fn apply_invalid(&self, slice: &Invalid) {
        self.slices
            .lock()
            .see_undecodable(Origin::Watch, &slice.metadata, Instant::now());
    }

    fn delete_invalid(&self, slice: &Invalid) {
        self.forget(&slice.metadata);
    }
}

impl ObservedSlices {
    fn forget(&self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref();
        self.slices.lock().delete("", name, uid, Instant::now());
    }

    /// The slices whose status has to be written. Not those whose last state cannot be decoded.
    fn changed(&self, has_slices: impl Fn(&PoolKey) -> Option<bool>) -> Vec<ChangedSlice> {
        let slices = self.slices.lock();
        let mut changed = Vec::new();
        for (_, name, slice) in slices.iter() {
            let problem = match slice.validity(&has_slices) {
                Validity::Valid => None,
                Validity::Invalid(problem) => Some(problem),
                Validity::Unknown => continue,
            };
            if problem == slice.reported {
                continue;
            }
            if let Some((uid, version)) = slices.preconditions("", name) {
                let version = Some(version);
                changed.push(ChangedSlice {
                    name: name.to_owned(),
                    judged: ObjectVersion { uid, version },
                    problem,
                });
            }
        }
        changed
    }
}

/// Reports slices without effect in their status. The status of others is written only if it
/// reports a problem that they no longer have.
pub(super) struct ReportInvalidSlices {
    context: Arc<Context>,
    slices: Arc<ObservedSlices>,
}

impl Repair for ReportInvalidSlices {
    const NAME: &'static str = "invalid-slices";

    async fn pass(&mut self) -> Repaired {
        let changed = self.context.ledger.read(|ledger| {
            self.slices.changed(|pool| {
                let info = ledger.pools().pool_info(pool)?;
                info.usable.is_ok().then_some(info.slices.is_some())
            })
        });
        for slice in changed {
            if let Err(error) = self.report(&slice).await {
                report_failed(&slice.name, &error);
            }
        }
        Repaired::default()
    }
}

impl ReportInvalidSlices {
    pub(super) fn new(context: Arc<Context>, slices: Arc<ObservedSlices>) -> Self {
        Self { context, slices }
    }

    async fn report(&self, slice: &ChangedSlice) -> Result<(), CallError> {
        let (name, problem) = (slice.name.as_str(), slice.problem.as_deref());
        let slices = &self.context.slices;
        let report = report_problem(slices, name, slice.judged, problem, |it| &mut it.status);
        if let Some(seen) = &report.await? {
            let ledger = &self.context.ledger;
            ledger.change(|ledger| ledger.insert_slice(seen));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, status: &Value) -> IPSlice {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"scope": "g.p", "block": "10.0.0.0/30", "owner": {"kind": "Label", "name": "r"}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn only_what_has_changed_is_written() {
        let observed = ObservedSlices::default();
        let failed = |problem: &str| json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Error", "message": problem}]});
        observed.apply(&slice("g.p.10.0.0.0-30", &Value::Null));
        assert_eq!(observed.changed(|_| Some(true)), []);
        assert_eq!(observed.changed(|_| None), []);
        let unused = observed.changed(|_| Some(false));
        let text = unused[0].problem.clone().unwrap();
        assert!(
            text.starts_with("spec.scope: GlobalInClusterIPPool p has no slices"),
            "{text}"
        );
        observed.apply(&slice("g.p.10.0.0.0-30", &failed(&text)));
        assert_eq!(observed.changed(|_| Some(false)), []);
        assert_eq!(observed.changed(|_| None), []);
        let corrected = observed.changed(|_| Some(true));
        let judged = slice("g.p.10.0.0.0-30", &Value::Null).metadata;
        let expected = ChangedSlice {
            name: "g.p.10.0.0.0-30".to_owned(),
            judged: ObjectVersion::of(&judged),
            problem: None,
        };
        assert_eq!(corrected, [expected]);
        observed.delete(&slice("g.p.10.0.0.0-30", &Value::Null));
        observed.apply(&slice("g.p.misnamed", &Value::Null));
        let misnamed = observed.changed(|_| Some(true));
        assert!(
            misnamed[0]
                .problem
                .as_deref()
                .unwrap()
                .starts_with("metadata.name")
        );
    }
}
