//! Waits for reservations, and for counts and conditions of pools.

use std::time::Instant;

use capi_ipam::api::conditions::Condition;
use capi_ipam::api::{IPReservation, InClusterKind, Pool, conditions};
use capi_ipam_controller::client::ResourceClient;
use kube::ResourceExt;

use super::super::wait::{TIMEOUT, eventually, pause};
use super::{Consumer, counts_of};

impl Consumer {
    /// Waits until exactly these addresses of a pool of the namespace are reserved, each for an existing claim of that
    /// name.
    pub async fn wait_for_reservations(&self, pool: &str, expected: &[(&str, &str)]) {
        let scope = format!("p.{}.{pool}", self.namespace);
        eventually(&format!("the reservations of {scope} are {expected:?}"), || async {
            let claims = self.claims().list().await.expect("claims can be read");
            let all = self.reservations().list().await.expect("reservations can be read");
            let mut found: Vec<_> = all.iter().filter(|reservation| reservation.spec.scope == scope).collect();
            found.sort_by_key(|reservation| &reservation.spec.address);
            let holder = |reservation: &&IPReservation| {
                let uid = reservation.spec.claim_ref.as_ref()?.uid.clone()?;
                let claim = claims.iter().find(|claim| claim.metadata.uid.as_ref() == Some(&uid))?;
                Some((reservation.spec.address.clone(), claim.name_any()))
            };
            let expected = expected.iter().map(|(address, claim)| Some(((*address).to_owned(), (*claim).to_owned())));
            found.iter().map(holder).eq(expected).then_some(())
        })
        .await;
    }

    /// Waits until the counts of a pool are (total, free, used, out of range).
    pub async fn wait_for_counts(&self, pool: &str, expected: (i64, i64, i64, i64)) {
        wait_for_counts(&self.pools(), pool, expected).await;
    }

    /// Waits until the counts of a pool of a kind are (total, free, used, out of range).
    pub async fn wait_for_counts_of(&self, kind: InClusterKind, pool: &str, expected: (i64, i64, i64, i64)) {
        wait_for_counts(&self.pools_of(kind), pool, expected).await;
    }

    /// Waits until the condition `Ready` of a pool has a status and a reason, and returns the message.
    pub async fn wait_for_pool_condition(&self, pool: &str, status: &str, reason: &str) -> String {
        self.wait_for_condition(&self.pools(), pool, conditions::READY, status, reason).await
    }

    /// Waits until a condition of a network has a status and a reason, and returns the message.
    pub async fn wait_for_network_condition(&self, network: &str, status: &str, reason: &str) -> String {
        eventually(&format!("network {network} has the condition {status} {reason}"), || async {
            let found = self.networks().get(network).await.expect("networks can be read").expect("the network exists");
            let is_wanted = |found: &&Condition| found.status == status && found.reason.as_deref() == Some(reason);
            let condition = found.status.as_ref()?.conditions.iter().find(is_wanted)?;
            Some(condition.message.clone().unwrap_or_default())
        })
        .await
    }

    /// Waits until a condition of a pool has a status and a reason, and returns the message.
    pub async fn wait_for_condition(
        &self,
        pools: &ResourceClient<Pool>,
        name: &str,
        condition: &str,
        status: &str,
        reason: &str,
    ) -> String {
        eventually(&format!("pool {}/{name} has {condition}={status} {reason}", self.namespace), || async {
            let pool = pools.get(name).await.expect("pools can be read").expect("the pool exists");
            let found = conditions::find(&pool.status.as_ref()?.conditions, condition)?.clone();
            let matches = found.status == status && found.reason.as_deref() == Some(reason);
            (matches && found.observed_generation == pool.metadata.generation)
                .then(|| found.message.unwrap_or_default())
        })
        .await
    }
}

async fn wait_for_counts(pools: &ResourceClient<Pool>, name: &str, expected: (i64, i64, i64, i64)) {
    let start = Instant::now();
    loop {
        let pool = pools.get(name).await.expect("pools can be read").expect("the pool exists");
        let counts = counts_of(&pool);
        if counts == Some(expected) {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "pool {name} counts {counts:?} instead of {expected:?}");
        pause(start).await;
    }
}
