//! The findings that a user asks for.

use capi_ipam_api::PoolKey;

use super::causes::arrange;
use super::names::places;
use super::snapshot::Snapshot;
use crate::model::finding::{Cause, Finding, FindingList, Place, Severity};
use crate::objects::{ClaimRow, Kind};

/// Which findings are reported: those about the provider, and those about a namespace or a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// The namespace; `None` for all. Findings about objects without a namespace are reported too.
    pub(crate) namespace: Option<String>,
    /// The pool, with its network and its registry; `None` for all.
    pub(crate) pool: Option<PoolKey>,
    pub(crate) only_errors: bool,
}

impl Selection {
    /// Removes the findings that are not selected. The cause of one that is selected stays.
    pub(crate) fn apply(&self, list: &mut FindingList, snapshot: &Snapshot) {
        let places = self.pool.as_ref().map(|pool| places(pool, snapshot));
        let includes = |finding: &Finding| {
            let is_here = match &places {
                Some(places) => finding.places.iter().any(|place| places.contains(place)),
                None => self.has_place(finding),
            };
            let is_urgent = !self.only_errors || finding.severity == Severity::Error;
            is_urgent && (is_here || finding.places.is_empty())
        };
        let selected = list.findings.iter().filter(|finding| includes(finding));
        let causes: Vec<_> = selected
            .filter_map(|finding| finding.cause.clone())
            .collect();
        retain(list, |finding| {
            let is_cause =
                |cause: &Cause| (cause.check, &cause.object) == (finding.check, &finding.object);
            includes(finding) || causes.iter().any(is_cause)
        });
        list.waiting = self.waiting(snapshot);
    }

    /// Number of the selected claims that wait, also of those that this provider does not serve.
    pub(super) fn waiting(&self, snapshot: &Snapshot) -> Option<u64> {
        let objects = &snapshot.objects;
        if !objects.has(&[Kind::Claim]) {
            return None;
        }
        let claims = objects.claims.iter();
        let waiting = claims.filter(|it| it.is_waiting() && self.has_claim(it));
        u64::try_from(waiting.count()).ok()
    }

    fn has_claim(&self, claim: &ClaimRow) -> bool {
        let namespace = self.namespace.as_deref();
        let has_pool = self.pool.is_none() || self.pool.as_ref() == claim.named_pool();
        has_pool && namespace.is_none_or(|it| it == claim.key.namespace())
    }

    fn has_place(&self, finding: &Finding) -> bool {
        let Some(wanted) = self.namespace.as_deref() else {
            return true;
        };
        let mut places = finding.places.iter();
        let has_namespace =
            places.any(|place| matches!(place, Place::Namespace(_) | Place::Pool(_)));
        finding.places.iter().any(|place| match place {
            Place::Namespace(namespace) => namespace == wanted,
            Place::Pool(pool) => pool.namespace.as_deref().is_none_or(|it| it == wanted),
            // A pool of another namespace can be in the same network.
            Place::Network(_) | Place::Registry(_) => !has_namespace,
        })
    }
}

/// Removes findings. What a removed one has caused gets its next cause.
pub(crate) fn retain(list: &mut FindingList, keep: impl FnMut(&Finding) -> bool) {
    list.findings.retain(keep);
    list.findings = arrange(std::mem::take(&mut list.findings));
}
