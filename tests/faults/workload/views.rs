//! Two managers that serve different parts of the cluster.

use support::prelude::*;

use super::{TIMEOUT, Work, names, range};

/// The label by which a manager selects what it serves.
const LABEL: &str = "cluster.x-k8s.io/watch-filter";

/// How long released addresses cool down, in seconds.
const COOLDOWN_SECONDS: u64 = 4;

fn labelled(value: &str) -> Value {
    json!({ "labels": { LABEL: value } })
}

impl Work<'_> {
    /// Claims move from one manager to the other by their label, in every state.
    pub(super) async fn handover(&self) {
        self.labelled_pool("web", range(1, 6)).await;
        let first = names("c", 3);
        for name in &first {
            self.consumer
                .create_claim_with_metadata(name, "web", labelled("blue"))
                .await;
        }
        self.wait_until_bound(&first).await;
        for label in ["red", "", "blue", "red"] {
            for name in &first {
                self.relabel(name, label).await;
            }
        }
        // One while it is being bound, and one that is being deleted.
        self.consumer
            .create_claim_with_metadata("d1", "web", labelled("blue"))
            .await;
        self.relabel("d1", "red").await;
        self.consumer.delete("c1").await;
        self.relabel_if_there("c1", "blue").await;
        self.wait_until_deleted(&names("c", 1)).await;
        self.wait_until_bound(&names("d", 1)).await;
        // As many as the pool has addresses, by the manager that does not serve the pool.
        let last = names("e", 3);
        for name in &last {
            self.consumer
                .create_claim_with_metadata(name, "web", labelled("red"))
                .await;
        }
        self.wait_until_bound(&last).await;
        self.wait_until_bound(&first[1..]).await;
    }

    /// Another manager, for another namespace, observes a pool, its cool-downs and a global pool
    /// that both serve.
    pub(super) async fn apart(&self) {
        let global = &self.consumer.namespace;
        self.consumer.create_global_pool(global, range(1, 3)).await;
        let mut spec = range(11, 12);
        spec["addressReuseGracePeriodSeconds"] = json!(COOLDOWN_SECONDS);
        self.consumer.create_pool("web", spec).await;
        let first = names("c", 2);
        self.create_and_bind(&first).await;
        let shared = names("g", 3);
        self.consumer.create_global_claims(&shared, global).await;
        self.wait_until_bound(&shared).await;
        // The times of release have whole seconds. On a loaded machine the cool-downs end before
        // the checks do.
        let end = Instant::now() + Duration::from_secs(COOLDOWN_SECONDS - 1);
        self.delete_all(&first).await;
        self.wait_until_deleted(&first).await;
        consistently("the cool-downs", || async {
            let all = self
                .consumer
                .reservations()
                .list()
                .await
                .expect("reservations can be listed");
            all.iter()
                .filter(|made| made.spec.released_at.is_some())
                .count()
                == 2
                || Instant::now() >= end
        })
        .await;
        self.create_and_bind(&names("d", 2)).await;
        self.delete_all(&shared[..1]).await;
        self.wait_until_deleted(&shared[..1]).await;
    }

    /// The pool of a claim is deleted while the reserved address has no IPAddress yet.
    pub(super) async fn corner(&self) {
        self.consumer.create_pool("web", range(1, 4)).await;
        self.create_and_bind(&names("c", 1)).await;
        let late = names("d", 3);
        self.create_claims(&late).await;
        self.consumer.delete_pool("web").await;
        // Each either has an address or waits for a pool; there is no deadlock.
        let bound_or_waits = |claim: Option<&IPAddressClaim>| {
            claim.is_some_and(|claim| {
                claim.bound_address().is_some() || ready(claim).reason.is_some()
            })
        };
        self.wait_for(&late, "are bound or report why they wait", bound_or_waits)
            .await;
        self.delete_all(&names("c", 1)).await;
        self.wait_until_deleted(&names("c", 1)).await;
        // A reservation that is created late binds a waiting claim, so claims are deleted until the
        // pool is deleted.
        let pools = self.consumer.pools();
        eventually_within(
            TIMEOUT,
            "the pool is deleted although claims wait for it",
            || async {
                let is_bound = |claim: &IPAddressClaim| claim.bound_address().is_some();
                self.delete_all(&self.kept_names(is_bound).await).await;
                pools
                    .get("web")
                    .await
                    .expect("pools can be read")
                    .is_none()
                    .then_some(())
            },
        )
        .await;
        let waiting = self.kept_names(|_| true).await;
        self.consumer.create_pool("web", range(1, 4)).await;
        self.wait_until_bound(&waiting).await;
    }

    /// The names of the matching claims that are not being deleted.
    async fn kept_names(&self, is_so: impl Fn(&IPAddressClaim) -> bool) -> Vec<String> {
        let is_kept =
            |claim: &IPAddressClaim| claim.metadata.deletion_timestamp.is_none() && is_so(claim);
        self.claims()
            .await
            .into_iter()
            .filter(is_kept)
            .filter_map(|claim| claim.metadata.name)
            .collect()
    }

    async fn labelled_pool(&self, name: &str, spec: Value) {
        self.consumer.create_pool(name, spec).await;
        self.consumer
            .label_pool(name, json!({ LABEL: "blue" }))
            .await;
    }

    async fn relabel(&self, name: &str, label: &str) {
        let labels = if label.is_empty() {
            json!({})
        } else {
            json!({ LABEL: label })
        };
        self.consumer
            .modify(&self.consumer.claims(), name, |claim| {
                claim["metadata"]["labels"] = labels.clone()
            })
            .await;
    }

    async fn relabel_if_there(&self, name: &str, label: &str) {
        let claims = self.consumer.claims();
        let Some(before) = claims.get(name).await.expect("claims can be read") else {
            return;
        };
        let mut after = before.clone();
        after
            .metadata
            .labels
            .get_or_insert_default()
            .insert(LABEL.to_owned(), label.to_owned());
        // It may be released concurrently.
        let _ = capi_ipam_controller::patch::write(&claims, &before, &after).await;
    }
}
