//! Several providers in one program.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_provider::{
    advanced::{ClaimHandler, ClaimOptions, Ensured, PoolKind, PoolView, ProviderAdapter},
    api::IPAddress,
    prelude::{Allocation, ClaimReconciler, HandlerError, Released},
};
use support::prelude::*;

use crate::{consumer, control_plane, program::Program, upgrade::define};

/// A provider whose pools have one address, which is not recorded anywhere.
#[derive(Clone)]
pub(crate) struct Fixed {
    address: IpAddr,
    /// Counts the calls that release the address.
    releases: Arc<AtomicU32>,
    /// Whether the backend has finished the release.
    is_finished: Arc<AtomicBool>,
}

fn pool_view() -> PoolView {
    PoolView {
        api_version: "example.com/v1".to_owned(),
        uid: "uid-of-pool".to_owned(),
        ..PoolView::default()
    }
}

impl ProviderAdapter for Fixed {
    type Handler = Self;

    fn claim_handler(&self, _: Arc<IPAddressClaim>) -> Self {
        self.clone()
    }
}

impl ClaimHandler for Fixed {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        Ok(pool_view())
    }

    async fn ensure_address(&mut self, _: Option<&IPAddress>) -> Result<Ensured, HandlerError> {
        Ok(Allocation::new(self.address, 24).into())
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        self.releases.fetch_add(1, Ordering::Relaxed);
        let is_finished = self.is_finished.load(Ordering::Relaxed);
        Ok(if is_finished {
            Released::Now
        } else {
            Released::After(Duration::from_millis(100))
        })
    }
}

async fn register(manager: &mut Manager, kind: &str, provider: Fixed) -> Result<(), BoxError> {
    let builder = ClaimReconciler::builder(manager).pools(PoolKind::new("example.com", kind));
    builder.build(async |_| Ok(provider)).await
}

pub(crate) fn provider(address: [u8; 4]) -> Fixed {
    Fixed {
        address: address.into(),
        releases: Arc::default(),
        is_finished: Arc::default(),
    }
}

async fn create_claim(consumer: &Consumer, name: &str, kind: &str) {
    let pool = json!({"apiGroup": "example.com", "kind": kind, "name": "pool"});
    consumer.create_claim_for(name, pool, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_providers_in_one_program_bind_and_release_claims() {
    for plural in ["reds", "blues"] {
        define(plural, &["v1"], "v1").expect("it can be applied");
        control_plane().wait_until_served(&format!("{plural}.example.com"));
    }
    let (red, blue) = (provider([10, 9, 0, 1]), provider([10, 9, 0, 2]));
    let program = Program::start({
        let (red, blue) = (red.clone(), blue.clone());
        async move |manager| {
            register(manager, "reds", red).await?;
            register(manager, "blues", blue).await
        }
    });
    let consumer = consumer().await;
    create_claim(&consumer, "r", "reds").await;
    create_claim(&consumer, "b", "blues").await;
    assert_eq!(consumer.wait_for_address("r").await, "10.9.0.1");
    assert_eq!(consumer.wait_for_address("b").await, "10.9.0.2");

    // A release that is in progress keeps the claim.
    consumer.delete("r").await;
    while red.releases.load(Ordering::Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        consumer
            .claims()
            .get("r")
            .await
            .expect("claims can be read")
            .is_some()
    );
    assert!(
        consumer
            .addresses()
            .get("r")
            .await
            .expect("addresses can be read")
            .is_none()
    );
    assert_eq!(blue.releases.load(Ordering::Relaxed), 0);
    red.is_finished.store(true, Ordering::Relaxed);
    consumer.wait_until_deleted("r").await;
    blue.is_finished.store(true, Ordering::Relaxed);
    consumer.delete("b").await;
    consumer.wait_until_deleted("b").await;
    program.stop();
}

#[tokio::test]
async fn two_providers_for_one_kind_of_pools_end_the_setup() {
    let program = Program::start(async |manager| {
        register(manager, "greens", provider([10, 9, 0, 3])).await?;
        let error = register(manager, "greens", provider([10, 9, 0, 4]))
            .await
            .expect_err("there is one already");
        let text = "there are two components of the role \"controller of claims for pools of kind greens.example.com\"; \
                    a manager can have one";
        assert_eq!(error.to_string(), text);
        Err(error)
    });
    assert!(!program.ends_well());
}

/// A provider whose backend does not start.
struct NotReady;

impl ProviderAdapter for NotReady {
    type Handler = Self;

    fn claim_handler(&self, _: Arc<IPAddressClaim>) -> Self {
        Self
    }
}

impl ClaimHandler for NotReady {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let message = "the backend has not started yet".to_owned();
        Err(HandlerError::RetryAfter {
            message,
            after: Duration::from_millis(500),
        })
    }

    async fn ensure_address(&mut self, _: Option<&IPAddress>) -> Result<Ensured, HandlerError> {
        Err(HandlerError::Permanent("there is no pool".to_owned()))
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        Ok(Released::Now)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_that_stays_not_ready_is_reported() {
    let program = Program::start(async |manager| {
        let builder =
            ClaimReconciler::builder(manager).pools(PoolKind::new("example.com", "yellows"));
        builder.build(async |_| Ok(NotReady)).await
    });
    let consumer = consumer().await;
    create_claim(&consumer, "y", "yellows").await;
    assert_eq!(
        consumer.wait_for_reason("y", "PoolNotReady").await,
        "the backend has not started yet"
    );
    program.stop();
}

/// A provider that loses the address of a bound claim, and takes its IPAddress for a leftover.
#[derive(Clone)]
struct Forgetful(Arc<AtomicBool>);

impl ProviderAdapter for Forgetful {
    type Handler = Self;

    fn claim_handler(&self, _: Arc<IPAddressClaim>) -> Self {
        self.clone()
    }
}

impl ClaimHandler for Forgetful {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        Ok(pool_view())
    }

    async fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        if existing.is_some() && self.0.load(Ordering::Relaxed) {
            return Ok(Ensured::DeleteExisting(
                "no claim has its address".to_owned(),
            ));
        }
        Ok(Allocation::new([10, 9, 0, 6], 24).into())
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        Ok(Released::Now)
    }

    async fn verify(&mut self, _: &IPAddress) -> Result<bool, HandlerError> {
        Ok(!self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_cannot_delete_the_address_of_a_bound_claim() {
    let is_lost = Arc::new(AtomicBool::default());
    let program = Program::start({
        let provider = Forgetful(Arc::clone(&is_lost));
        async move |manager| {
            let options = ClaimOptions {
                verify_interval: Some(Duration::from_millis(500)),
                ..ClaimOptions::default()
            };
            let builder =
                ClaimReconciler::builder(manager).pools(PoolKind::new("example.com", "whites"));
            builder.options(options).build(async |_| Ok(provider)).await
        }
    });
    let consumer = consumer().await;
    create_claim(&consumer, "w", "whites").await;
    let before = consumer.wait_for_ip_address("w").await;
    is_lost.store(true, Ordering::Relaxed);
    assert_contains(
        &consumer.wait_until_unready("w", "AllocationFailed").await,
        "IPAddress w of a bound claim: no claim has its address",
    );
    let after = consumer.the_address("w").await;
    assert_eq!(
        (after.metadata.uid, after.metadata.deletion_timestamp),
        (before.metadata.uid, None)
    );
    program.stop();
}
