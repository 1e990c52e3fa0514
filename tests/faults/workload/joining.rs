//! A pool that joins or leaves a network while its addresses are in use.

use capi_ipam_api::{IPReservation, IPReservationSpec, names::LEAVE_NETWORK_ANNOTATION};
use support::prelude::*;

use super::{TIMEOUT, Work, names, range};

impl Work<'_> {
    /// A pool joins the network of another one. Both have free addresses in common.
    pub(super) async fn join(&self) {
        let network = self.consumer.namespace.clone();
        self.consumer.create_open_network(&network).await;
        let mut other = range(4, 12);
        other["network"] = json!(network);
        self.consumer.create_pool("other", other).await;
        self.consumer.create_pool("web", range(1, 9)).await;
        let (first, kept) = (names("c", 3), names("d", 2));
        self.create_and_bind(&first).await;
        // Allocated from the network while the pool joins, and so from its free addresses.
        self.set_network(json!(network)).await;
        self.wait_until_noticed("web", Some(&network)).await;
        let late = names("e", 2);
        tokio::join!(
            self.create_claims(&late),
            self.consumer.create_claims(&kept, "other"),
            self.delete_all(&first[..1])
        );
        self.wait_until_bound(&late).await;
        self.wait_until_bound(&kept).await;
        self.wait_until_deleted(&first[..1]).await;
        self.wait_until_moved("web").await;
    }

    /// A pool leaves the network that it shares with another one.
    pub(super) async fn leave(&self) {
        let network = self.consumer.namespace.clone();
        self.consumer.create_open_network(&network).await;
        for (pool, spec) in [("web", range(1, 9)), ("other", range(4, 12))] {
            let mut spec = spec;
            spec["network"] = json!(network);
            self.consumer.create_pool(pool, spec).await;
        }
        let (first, kept) = (names("c", 3), names("d", 2));
        self.create_and_bind(&first).await;
        self.consumer.create_claims(&kept, "other").await;
        self.wait_until_bound(&kept).await;
        self.leave_with_interrupted_move(&first[1]).await;
        let late = names("e", 2);
        tokio::join!(self.create_claims(&late), self.delete_all(&first[..1]));
        self.wait_until_bound(&late).await;
        self.wait_until_deleted(&first[..1]).await;
        self.wait_until_moved("web").await;
        self.wait_until_noticed("web", None).await;
    }

    /// The pool leaves the network. An earlier move of the reservation of a claim was interrupted:
    /// it is in both scopes, and the old one has changed since.
    async fn leave_with_interrupted_move(&self, claim: &str) {
        let (pools, reservations) = (self.consumer.pools(), self.consumer.reservations());
        self.consumer.set_paused(&pools, "web", true).await;
        self.consumer
            .wait_for_pool_condition("web", "False", "Paused")
            .await;
        let network = self.consumer.namespace.clone();
        let leave = |pool: &mut Value| {
            pool["spec"]["network"] = Value::Null;
            pool["metadata"]["annotations"][LEAVE_NETWORK_ANNOTATION] = json!(network);
        };
        self.consumer.modify(&pools, "web", leave).await;
        let all = reservations
            .list()
            .await
            .expect("reservations can be listed");
        let holds = |it: &IPReservation| {
            it.spec
                .claim_ref
                .as_ref()
                .is_some_and(|holder| holder.name == claim)
        };
        let old = all
            .into_iter()
            .find(holds)
            .expect("a bound claim has a reservation");
        let scope = format!("p.{}.web", self.consumer.namespace);
        let copy = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": { "name": format!("{scope}.{}", old.spec.address) },
            "spec": IPReservationSpec { scope, ..old.spec },
        }));
        create(&reservations, &copy)
            .await
            .expect("the reservation can be created");
        let name = old.metadata.name.expect("objects have names");
        let set_label = |old: &mut Value| old["metadata"]["labels"] = json!({ "changed": "" });
        self.consumer.modify(&reservations, &name, set_label).await;
        self.consumer.set_paused(&pools, "web", false).await;
    }

    async fn set_network(&self, network: Value) {
        self.consumer
            .modify_pool("web", |spec| spec["network"] = network.clone())
            .await;
    }

    /// Waits until the status shows that the manager has observed the network of the pool.
    pub(super) async fn wait_until_noticed(&self, pool: &str, network: Option<&str>) {
        let pools = self.consumer.pools();
        until_within(TIMEOUT, "the manager has observed the network", || async {
            let pool = pools.get(pool).await.expect("pools can be read")?;
            let shown = pool.status?.network;
            Some(shown.as_ref().map(|network| network.name.as_str()) == network)
        })
        .await;
    }

    /// Waits until all reservations of the pool are in its scope.
    pub(super) async fn wait_until_moved(&self, pool: &str) {
        let pools = self.consumer.pools();
        until_within(TIMEOUT, "all reservations are moved", || async {
            let pool = pools.get(pool).await.expect("pools can be read")?;
            let remaining = pool
                .status?
                .network
                .map(|network| network.remaining)
                .unwrap_or_default();
            Some(remaining == 0)
        })
        .await;
    }
}
