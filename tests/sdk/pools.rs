//! A provider whose pools are objects of one kind, and what a faulty one does to its claims.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use capi_ipam_provider::{
    advanced::ClaimOptions,
    api::advice::MISSING_POOL,
    prelude::{Allocation, Claim, ClaimReconciler, HandlerError, PoolProvider, Released},
};
use kube::CustomResource;
use parking_lot::Mutex;
use support::prelude::*;

use crate::{
    environment::{Environment, Owners, Setup},
    program::Program,
};

/// The longest call of the provider.
const HANDLER_TIMEOUT: Duration = Duration::from_millis(300);
/// How often a waiting claim is reconciled without a trigger: longer than a test waits for it.
const RESYNC_INTERVAL: Duration = Duration::from_mins(10);
/// The name of a claim whose address cannot be released.
const STUCK: &str = "stuck";
/// In which time every bound claim is verified.
const VERIFY_INTERVAL: Duration = Duration::from_millis(500);

#[derive(
    CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[kube(group = "example.com", version = "v1", kind = "MemoryPool", namespaced)]
pub(crate) struct MemoryPoolSpec {
    addresses: Vec<IpAddr>,
    /// The fault of the provider in this pool.
    #[serde(default)]
    fault: String,
}

/// A provider that records the allocated addresses in memory.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) owners: Owners,
    verifications: Arc<AtomicU32>,
    /// How many allocations run, and how many ever did at the same time.
    allocations: Arc<Mutex<(u32, u32)>>,
    /// The number of releases that fail from now on.
    pub(crate) failing_releases: Arc<AtomicU32>,
}

impl Memory {
    /// Takes some time, and counts the calls that do so at the same time.
    async fn be_slow(&self) {
        let change = |by: i32| {
            let mut allocations = self.allocations.lock();
            let (running, most) = *allocations;
            let running = running.saturating_add_signed(by);
            *allocations = (running, most.max(running));
        };
        change(1);
        tokio::time::sleep(HANDLER_TIMEOUT / 3).await;
        change(-1);
    }
}

impl PoolProvider for Memory {
    type Pool = MemoryPool;

    #[allow(
        clippy::panic_in_result_fn,
        reason = "the panic is a fault of the provider"
    )]
    async fn allocate(
        &self,
        claim: &Claim,
        pool: &MemoryPool,
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        let addresses = &pool.spec.addresses;
        match pool.spec.fault.as_str() {
            "panic" => panic!("a fault of the provider"),
            "hang" => std::future::pending().await,
            "slow" => self.be_slow().await,
            "conflict" => return Err(HandlerError::Conflict("the record has changed".to_owned())),
            "same address" => return Ok(Allocation::new(addresses[0], 24)),
            "invalid prefix" => return Ok(Allocation::new(addresses[0], 99)),
            _ => {}
        }
        let labels = [("example.com/pool".to_owned(), pool.name_any())].into();
        let allocation = self.owners.allocate(claim, addresses, existing)?;
        Ok(Allocation {
            labels,
            ..allocation
        })
    }

    async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
        let fails =
            self.failing_releases
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
        if claim.name == STUCK || fails.is_ok() {
            return Err(HandlerError::transient(
                "cannot release the address",
                "the backend is down",
            ));
        }
        Ok(self.owners.release(claim))
    }

    async fn verify(
        &self,
        claim: &Claim,
        _: &MemoryPool,
        address: IpAddr,
    ) -> Result<bool, HandlerError> {
        self.verifications.fetch_add(1, Ordering::Relaxed);
        Ok(self.owners.0.lock().get(&address) == Some(&claim.uid.to_string()))
    }

    fn validate(&self, pool: &MemoryPool) -> Result<(), String> {
        if pool.spec.addresses.is_empty() {
            Err("spec.addresses is empty".to_owned())
        } else {
            Ok(())
        }
    }
}

async fn start(claims: ClaimOptions) -> Environment<Memory> {
    Environment::start(Setup {
        claims,
        ..Setup::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_backend_gets_few_requests_at_a_time() {
    let env = start(ClaimOptions {
        concurrency: Some(2),
        ..ClaimOptions::default()
    })
    .await;
    let names = numbered("claim-", 8);
    for name in &names {
        env.create_claim(name, "pool").await;
    }
    let addresses: Vec<String> = (1..9).map(|number| format!("10.4.0.{number}")).collect();
    env.apply_pool("pool", &json!({"addresses": addresses, "fault": "slow"}));
    env.consumer.wait_for_addresses(&names).await;
    assert_eq!(*env.provider.allocations.lock(), (0, 2));
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_are_bound_when_their_pool_changes() {
    let env = start(ClaimOptions {
        resync_interval: RESYNC_INTERVAL,
        ..ClaimOptions::default()
    })
    .await;
    let text = env.claim_waits("a", "pool", "PoolNotReady").await;
    assert_eq!(
        text,
        format!(
            "MemoryPool {}/pool does not exist; {MISSING_POOL}",
            env.consumer.namespace
        )
    );
    env.apply_pool("pool", &json!({"addresses": []}));
    eventually("the claim reports the invalid pool", || async {
        let text = env.consumer.wait_for_reason("a", "PoolNotReady").await;
        text.ends_with("/pool is not valid: spec.addresses is empty")
            .then_some(())
    })
    .await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    let changed = Instant::now();
    let address = env.consumer.wait_for_ip_address("a").await;
    assert_eq!(
        (
            address.spec.address.as_str(),
            address.labels()["example.com/pool"].as_str()
        ),
        ("10.4.0.1", "pool")
    );
    println!("bound {:?} after the change of the pool", changed.elapsed());

    // A released address goes to the oldest waiting claim.
    for claim in ["b", "c"] {
        env.claim_waits(claim, "pool", "PoolExhausted").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let released = Instant::now();
    env.consumer.delete("a").await;
    assert_eq!(env.consumer.wait_for_address("b").await, "10.4.0.1");
    println!("bound {:?} after the release", released.elapsed());
    env.consumer.assert_stays_unbound("c").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_release_does_not_delay_waiting_claims() {
    let env = start(ClaimOptions {
        resync_interval: RESYNC_INTERVAL,
        ..ClaimOptions::default()
    })
    .await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    for claim in [STUCK, "a"] {
        env.bind(claim, "pool").await;
    }
    // Creation times are in seconds, and the oldest claim is first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    env.claim_waits("b", "pool", "PoolExhausted").await;
    env.consumer.delete(STUCK).await;
    env.consumer
        .wait_until_unready(STUCK, "ReleaseFailed")
        .await;
    env.consumer.delete("a").await;
    assert_eq!(env.consumer.wait_for_address("b").await, "10.4.0.2");
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_pool_is_reported() {
    let env = start(ClaimOptions::default()).await;
    env.apply_pool("broken", &json!({"addresses": "10.4.0.1"}));
    env.apply_pool("valid", &json!({"addresses": ["10.4.0.1"]}));
    let text = env.claim_waits("a", "broken", "PoolNotReady").await;
    assert!(
        text.starts_with(&format!(
            "MemoryPool {}/broken is not valid: ",
            env.consumer.namespace
        )) && text.ends_with("; correct the pool"),
        "{text}"
    );
    assert_contains(&text, "expected a sequence");
    env.consumer
        .wait_for_event("a", "Warning", "PoolNotReady", "expected a sequence")
        .await;
    env.bind("b", "valid").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_provider_is_reported_on_the_claim() {
    let env = start(ClaimOptions {
        handler_timeout: HANDLER_TIMEOUT,
        ..ClaimOptions::default()
    })
    .await;
    env.apply_pool("valid", &json!({"addresses": ["10.4.0.9"]}));
    for (claim, fault, words) in [
        (
            "panics",
            "panic",
            "cannot allocate an address: the provider panicked",
        ),
        (
            "hangs",
            "hang",
            "cannot allocate an address: the provider did not answer within 300ms",
        ),
        ("conflicts", "conflict", "the record has changed"),
        (
            "prefix",
            "invalid prefix",
            "prefix length 99, which is longer than 32",
        ),
    ] {
        env.apply_pool(claim, &json!({"addresses": ["10.4.0.1"], "fault": fault}));
        let text = env.claim_waits(claim, claim, "AllocationFailed").await;
        assert_contains(&text, words);
        env.consumer
            .wait_for_event(claim, "Warning", "AllocationFailed", words)
            .await;
    }
    // All others continue, and a fault that is mended is forgotten.
    assert_eq!(env.bind("a", "valid").await, "10.4.0.9");
    env.apply_pool("hangs", &json!({"addresses": ["10.4.0.1"]}));
    assert_eq!(env.consumer.wait_for_address("hangs").await, "10.4.0.1");
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_another_claim_is_reported() {
    let env = start(ClaimOptions::default()).await;
    env.apply_pool(
        "pool",
        &json!({"addresses": ["10.4.0.1"], "fault": "same address"}),
    );
    env.bind("a", "pool").await;
    let text = env.claim_waits("b", "pool", "DuplicateAddress").await;
    assert_eq!(
        text,
        format!(
            "the provider allocated 10.4.0.1, which IPAddress a of MemoryPool {}/pool has already",
            env.consumer.namespace
        )
    );
    env.consumer.assert_stays_unbound("b").await;
    // An IPAddress that exists keeps its address.
    env.apply_pool(
        "other",
        &json!({"addresses": ["10.4.0.1"], "fault": "same address"}),
    );
    let pool = Environment::<Memory>::reference("other");
    env.consumer.create_address_for("c", pool, "10.4.0.7").await;
    assert_contains(
        &env.claim_waits("c", "other", "AllocationFailed").await,
        "IPAddress c has 10.4.0.7 already",
    );
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_claims_are_verified() {
    let options = ClaimOptions {
        verify_interval: Some(VERIFY_INTERVAL),
        ..ClaimOptions::default()
    };
    let env = start(options).await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    for claim in ["a", "b"] {
        env.bind(claim, "pool").await;
    }
    let versions = async || {
        let claims = env
            .consumer
            .claims()
            .list()
            .await
            .expect("claims can be read");
        let addresses = env
            .consumer
            .addresses()
            .list()
            .await
            .expect("addresses can be read");
        let mut all: Vec<_> = claims.iter().map(ResourceExt::resource_version).collect();
        all.extend(addresses.iter().map(ResourceExt::resource_version));
        all
    };
    let (before, count) = (
        versions().await,
        env.provider.verifications.load(Ordering::Relaxed),
    );
    eventually("the claims are verified ten times", || async {
        (env.provider.verifications.load(Ordering::Relaxed) >= count + 10).then_some(())
    })
    .await;
    assert_eq!(versions().await, before, "a verification writes nothing");

    // The backend loses an address, and allocates it again.
    let address: IpAddr = env
        .consumer
        .wait_for_address("a")
        .await
        .parse()
        .expect("it is an address");
    let owner = env
        .provider
        .owners
        .0
        .lock()
        .remove(&address)
        .expect("it has an owner");
    let text = format!(
        "the provider no longer has {address} allocated to the claim, and allocates it again"
    );
    env.consumer
        .wait_for_event("a", "Warning", "AddressLost", &text)
        .await;
    eventually("it is allocated again", || async {
        (env.provider.owners.0.lock().get(&address) == Some(&owner)).then_some(())
    })
    .await;
    assert_eq!(versions().await, before);

    // Somebody else takes it.
    env.provider
        .owners
        .0
        .lock()
        .insert(address, "somebody".to_owned());
    let text = env
        .consumer
        .wait_until_unready("a", "DuplicateAddress")
        .await;
    assert_eq!(text, format!("{address} is allocated to somebody"));
    let claim: IPAddressClaim = env.consumer.the_claim("a").await;
    assert_eq!(
        claim.bound_address(),
        Some("a"),
        "the machine uses the address"
    );
    env.provider.owners.0.lock().insert(address, owner);
    eventually("the claim is ready again", || async {
        let claim = env.consumer.claims().get("a").await.ok().flatten()?;
        (ready(&claim).status == "True").then_some(())
    })
    .await;
    env.program.stop();
}

#[tokio::test]
async fn controller_without_pools_ends_the_setup() {
    let program = Program::start(async |manager| {
        let built = ClaimReconciler::builder(manager)
            .build(async |_| Ok(crate::claims::provider([10, 9, 0, 5])))
            .await;
        let error = built.expect_err("no kind of pools is declared");
        assert_eq!(
            error.to_string(),
            "a controller of claims needs a kind of pools: call `pools` of its builder"
        );
        Err(error)
    });
    assert!(!program.ends_well());
}
