//! A claim whose address is released although another controller keeps the claim.

use capi_ipam_provider::api::names::RELEASE_NOW_ANNOTATION;
use support::prelude::*;

use super::{IN_USE, Work, names, range};

impl Work<'_> {
    pub(super) async fn early(&self) {
        self.consumer.create_pool("web", range(1, 2)).await;
        let (kept, others) = (names("u", 1), names("c", 2));
        self.consumer
            .create_claim_with_metadata("u1", "web", json!({ "finalizers": [IN_USE] }))
            .await;
        self.wait_until_bound(&kept).await;
        self.delete_all(&kept).await;
        self.create_claims(&others).await;
        self.modify_claim("u1", |claim| {
            let uid = claim["metadata"]["uid"].clone();
            claim["metadata"]["annotations"][RELEASE_NOW_ANNOTATION] = uid;
        })
        .await;
        self.wait_until_bound(&others).await;
        let is_released = |finalizers: &[String]| finalizers == [IN_USE];
        self.wait_for(&kept, "are released", |claim| {
            claim.is_some_and(|claim| is_released(claim.finalizers()))
        })
        .await;
        self.release_machine("u1").await;
        self.wait_until_deleted(&kept).await;
    }

    async fn modify_claim(&self, name: &str, change: impl Fn(&mut Value)) {
        self.consumer
            .modify(&self.consumer.claims(), name, change)
            .await;
    }

    /// Removes the finalizer of a machine from its claim.
    pub(super) async fn release_machine(&self, name: &str) {
        self.modify_claim(name, |claim| {
            let finalizers = claim["metadata"]["finalizers"]
                .as_array_mut()
                .expect("the list is not empty");
            finalizers.retain(|finalizer| finalizer != IN_USE);
        })
        .await;
    }
}
