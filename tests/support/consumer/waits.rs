//! Waits for reservations, and for counts and conditions of pools.

use capi_ipam_api::conditions::Condition;
use capi_ipam_api::{IPReservation, InClusterKind, Pool, conditions};
use capi_ipam_controller::client::ResourceClient;
use kube::ResourceExt;

use super::super::wait::{MESSAGE_TIMEOUT, eventually, eventually_ok, eventually_within};
use super::{Consumer, answered, counts_of};

impl Consumer {
    /// Waits until exactly these addresses of a pool of the namespace are reserved, each for an
    /// existing claim of that name.
    pub async fn wait_for_reservations(&self, pool: &str, expected: &[(&str, &str)]) {
        let scope = format!("p.{}.{pool}", self.namespace);
        eventually(
            &format!("the reservations of {scope} are {expected:?}"),
            || async {
                let claims = answered(self.claims().list().await)?;
                let all = answered(self.reservations().list().await)?;
                let mut found: Vec<_> = all
                    .iter()
                    .filter(|reservation| reservation.spec.scope == scope)
                    .collect();
                found.sort_by_key(|reservation| &reservation.spec.address);
                let holder = |reservation: &&IPReservation| {
                    let uid = reservation.spec.claim_ref.as_ref()?.uid.clone()?;
                    let claim = claims
                        .iter()
                        .find(|claim| claim.metadata.uid.as_ref() == Some(&uid))?;
                    Some((reservation.spec.address.clone(), claim.name_any()))
                };
                let expected = expected
                    .iter()
                    .map(|(address, claim)| Some(((*address).to_owned(), (*claim).to_owned())));
                found.iter().map(holder).eq(expected).then_some(())
            },
        )
        .await;
    }

    /// Waits until the counts of a pool are (total, free, used, out of range).
    pub async fn wait_for_counts(&self, pool: &str, expected: (i64, i64, i64, i64)) {
        wait_for_counts(&self.pools(), pool, expected).await;
    }

    /// Waits until the counts of a pool of a kind are (total, free, used, out of range).
    pub async fn wait_for_counts_of(
        &self,
        kind: InClusterKind,
        pool: &str,
        expected: (i64, i64, i64, i64),
    ) {
        wait_for_counts(&self.pools_of(kind), pool, expected).await;
    }

    /// Waits until the condition `Ready` of a pool has a status and a reason, and returns the
    /// message.
    pub async fn wait_for_pool_condition(&self, pool: &str, status: &str, reason: &str) -> String {
        self.wait_for_condition(&self.pools(), pool, conditions::READY, status, reason)
            .await
    }

    /// Waits until the condition `Ready` of a pool is False with a reason and a message that
    /// contains a text, and returns the message. The first message with that reason can be that of
    /// a request that took too long.
    pub async fn wait_for_pool_message(&self, pool: &str, reason: &str, part: &str) -> String {
        let what = format!(
            "pool {}/{pool} reports {reason} with {part:?}",
            self.namespace
        );
        eventually_within(MESSAGE_TIMEOUT, &what, || async {
            let found = answered(self.pools().get(pool).await)?.expect("the pool exists");
            let ready = conditions::find(&found.status.as_ref()?.conditions, conditions::READY)?;
            let is_wanted = ready.status == "False" && ready.reason.as_deref() == Some(reason);
            ready
                .message
                .clone()
                .filter(|text| is_wanted && text.contains(part))
        })
        .await
    }

    /// Waits until a condition of a network has a status and a reason, and returns the message.
    pub async fn wait_for_network_condition(
        &self,
        network: &str,
        status: &str,
        reason: &str,
    ) -> String {
        eventually(
            &format!("network {network} has the condition {status} {reason}"),
            || async {
                let found =
                    answered(self.networks().get(network).await)?.expect("the network exists");
                let is_wanted = |found: &&Condition| {
                    found.status == status && found.reason.as_deref() == Some(reason)
                };
                let condition = found.status.as_ref()?.conditions.iter().find(is_wanted)?;
                Some(condition.message.clone().unwrap_or_default())
            },
        )
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
        eventually(
            &format!(
                "pool {}/{name} has {condition}={status} {reason}",
                self.namespace
            ),
            || async {
                let pool = answered(pools.get(name).await)?.expect("the pool exists");
                let found = conditions::find(&pool.status.as_ref()?.conditions, condition)?.clone();
                let matches = found.status == status && found.reason.as_deref() == Some(reason);
                (matches && found.observed_generation == pool.metadata.generation)
                    .then(|| found.message.unwrap_or_default())
            },
        )
        .await
    }
}

async fn wait_for_counts(pools: &ResourceClient<Pool>, name: &str, expected: (i64, i64, i64, i64)) {
    eventually_ok(&format!("pool {name} counts {expected:?}"), || async {
        let pool = answered(pools.get(name).await)
            .ok_or("no answer")?
            .expect("the pool exists");
        let counts = counts_of(&pool);
        if counts == Some(expected) {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
}
