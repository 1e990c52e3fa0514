//! A pool with slices for the values of a label.

use support::prelude::*;

use super::{TIMEOUT, Work, names, range};

/// The label whose value is the owner of a slice.
pub const SLICE_LABEL: &str = "rack";

impl Work<'_> {
    /// Three owners have the three slices. The slice of one is marked as empty and used again, and
    /// that of another is returned to a fourth owner. Then the former owner waits for a slice. Two
    /// managers can assign a slice each to one owner, so there are more slices for them.
    pub(super) async fn slices(&self) {
        let mut spec = range(4, if self.is_alone { 15 } else { 35 });
        spec["slices"] =
            json!({ "size": 4, "per": "Label", "label": SLICE_LABEL, "keepSeconds": 1 });
        self.consumer.create_pool("web", spec).await;
        let [first, second, third] = ["a", "b", "c"].map(|owner| names(owner, 2));
        tokio::join!(
            self.create_of("a", &first),
            self.create_of("b", &second),
            self.create_of("c", &third)
        );
        for names in [&first, &second, &third] {
            self.wait_until_bound(names).await;
        }
        self.delete_all(&second).await;
        self.wait_until_deleted(&second).await;
        self.wait_until_marked("b").await;
        let again = names("x", 1);
        self.create_of("b", &again).await;
        self.wait_until_bound(&again).await;
        let fourth = names("d", 3);
        tokio::join!(self.delete_all(&first), self.create_of("d", &fourth));
        self.wait_until_bound(&fourth).await;
        let former = names("y", 2);
        self.create_of("a", &former).await;
        if self.is_alone {
            self.wait_until_reported(&former).await;
        }
        self.delete_all(&third).await;
        self.wait_until_bound(&former).await;
        self.wait_until_deleted(&first).await;
        self.wait_until_deleted(&third).await;
    }

    /// Creates claims of an owner.
    async fn create_of(&self, owner: &str, names: &[String]) {
        let metadata = json!({ "labels": { SLICE_LABEL: owner } });
        let create = |name| {
            self.consumer
                .create_claim_with_metadata(name, "web", metadata.clone())
        };
        futures::future::join_all(names.iter().map(|name| create(name))).await;
    }

    /// Waits until the slices of an owner are marked as empty, or returned.
    async fn wait_until_marked(&self, owner: &str) {
        until_within(
            TIMEOUT,
            &format!("the slices of {owner} are marked as empty"),
            || async {
                let all = self
                    .consumer
                    .slices()
                    .list()
                    .await
                    .expect("slices can be listed");
                Some(all.iter().all(|slice| {
                    slice.spec.owner.name != owner || slice.spec.empty_since.is_some()
                }))
            },
        )
        .await;
    }
}
