//! Which claims this process reconciles, and what the watch of claims passes on.

use std::sync::Arc;

use capi_ipam_controller::finalizer;
use capi_ipam_controller::watch::{EventHandler, trim};
use tokio::sync::mpsc;

use crate::adapter::PoolKind;
use crate::api::{IPAddressClaim, names};
use crate::selection::Selection;

/// Drops the fields of a claim that this crate does not read. Annotations can be a hundred times as large as the rest.
pub(super) fn trim_claim(claim: &mut IPAddressClaim) {
    trim(&mut claim.metadata);
    (claim.api_version, claim.kind) = (None, None);
    if let Some(annotations) = &mut claim.metadata.annotations {
        let count = annotations.len();
        annotations.retain(|name, _| name == names::PAUSED_ANNOTATION);
        claim.is_trimmed = annotations.len() < count;
    }
}

/// Selects the claims that this process reconciles: those that the flags select and whose pool is of a kind of the
/// provider.
pub(super) struct ClaimFilter {
    pub(super) selection: Selection,
    pub(super) pools: Vec<PoolKind>,
}

impl ClaimFilter {
    pub(super) fn matches(&self, claim: &IPAddressClaim) -> bool {
        self.selection.includes(claim) && self.pools.iter().any(|kind| kind.matches(&claim.spec.pool_ref))
    }
}

/// Passes on the watch events of the claims that this process reconciles. A claim that no longer matches the filter,
/// because a label changed, is passed as deleted: it must not wait in a queue of this process.
///
/// Claims that were removed with our finalizer and without a deletion timestamp are sent to `deleted`. The API server
/// can remove a claim this way if it is deleted at the moment at which its first finalizer is added.
pub(super) struct FilteringHandler {
    pub(super) filter: Arc<ClaimFilter>,
    pub(super) deleted: mpsc::UnboundedSender<IPAddressClaim>,
    pub(super) handlers: FanOut<IPAddressClaim>,
}

impl EventHandler<IPAddressClaim> for FilteringHandler {
    fn init(&self) {
        self.handlers.init();
    }

    fn init_done(&self) {
        self.handlers.init_done();
    }

    fn apply(&self, claim: &IPAddressClaim) {
        if self.filter.matches(claim) {
            self.handlers.apply(claim);
        } else {
            self.handlers.delete(claim);
        }
    }

    fn delete(&self, claim: &IPAddressClaim) {
        self.handlers.delete(claim);
        let is_marked = claim.metadata.deletion_timestamp.is_some();
        if self.filter.matches(claim) && !is_marked && finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            // The receiver is dropped when the program ends.
            let _ = self.deleted.send(claim.clone());
        }
    }
}

/// Passes watch events to several handlers.
pub(super) struct FanOut<K>(pub(super) Vec<Arc<dyn EventHandler<K>>>);

impl<K: 'static> EventHandler<K> for FanOut<K> {
    fn init(&self) {
        self.0.iter().for_each(|handler| handler.init());
    }
    fn init_done(&self) {
        self.0.iter().for_each(|handler| handler.init_done());
    }
    fn apply(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.apply(object));
    }
    fn delete(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.delete(object));
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn unread_annotations_are_dropped() {
        let mut claim = IPAddressClaim::default();
        trim_claim(&mut claim);
        assert_eq!(claim, IPAddressClaim::default());
        claim.annotations_mut().insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
        let paused = claim.clone();
        trim_claim(&mut claim);
        assert_eq!(claim, paused);
        claim.annotations_mut().insert("example.com/large".to_owned(), "x".repeat(1000));
        trim_claim(&mut claim);
        assert_eq!(claim, IPAddressClaim { is_trimmed: true, ..paused });
    }
}
