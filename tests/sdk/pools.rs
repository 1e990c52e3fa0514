//! A provider whose pools are objects of one kind, and what a faulty one does to its claims.

use std::{
    net::IpAddr,
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
    },
};

use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_provider::{
    advanced::{ClaimOptions, SweepOptions},
    api::advice::MISSING_POOL,
    prelude::{
        Allocation, Claim, ClaimReconciler, HandlerError, PoolProvider, Released, WatchedPools,
    },
};
use kube::CustomResource;
use parking_lot::Mutex;
use support::prelude::*;

use crate::{control_plane, patching, program::Program, upgrade::define_kind};

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
    /// The uids of the claims by address.
    pub(crate) owners: Arc<Mutex<BTreeMap<IpAddr, String>>>,
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
        let uid = claim.uid.to_string();
        let mut owners = self.owners.lock();
        let own = existing.or_else(|| {
            addresses
                .iter()
                .copied()
                .find(|address| owners.get(address) == Some(&uid))
        });
        let free = || {
            addresses
                .iter()
                .copied()
                .find(|address| !owners.contains_key(address))
        };
        let address = own
            .or_else(free)
            .ok_or_else(|| HandlerError::PoolExhausted("no address is free".to_owned()))?;
        let owner = owners.entry(address).or_insert_with(|| uid.clone());
        if *owner != uid {
            return Err(HandlerError::DuplicateAddress(format!(
                "{address} is allocated to {owner}"
            )));
        }
        let labels = [("example.com/pool".to_owned(), pool.name_any())].into();
        Ok(Allocation {
            labels,
            ..Allocation::new(address, 24)
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
        let uid = claim.uid.to_string();
        self.owners.lock().retain(|_, owner| *owner != uid);
        Ok(Released::Now)
    }

    async fn verify(
        &self,
        claim: &Claim,
        _: &MemoryPool,
        address: IpAddr,
    ) -> Result<bool, HandlerError> {
        self.verifications.fetch_add(1, Ordering::Relaxed);
        Ok(self.owners.lock().get(&address) == Some(&claim.uid.to_string()))
    }

    fn validate(&self, pool: &MemoryPool) -> Result<(), String> {
        if pool.spec.addresses.is_empty() {
            Err("spec.addresses is empty".to_owned())
        } else {
            Ok(())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_backend_gets_few_requests_at_a_time() {
    let env = Environment::start(ClaimOptions {
        concurrency: Some(2),
        ..ClaimOptions::default()
    })
    .await;
    let names: Vec<String> = (0..8).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        env.create_claim(name, "pool").await;
    }
    let addresses: Vec<String> = (1..9).map(|number| format!("10.4.0.{number}")).collect();
    env.apply_pool("pool", &json!({"addresses": addresses, "fault": "slow"}));
    env.consumer.wait_for_addresses(&names).await;
    assert_eq!(*env.provider.allocations.lock(), (0, 2));
    assert!(env.program.stop());
}

/// A provider and a consumer in its own namespace.
pub(crate) struct Environment {
    pub(crate) consumer: Consumer,
    pub(crate) provider: Memory,
    pub(crate) program: Program,
}

impl Environment {
    pub(crate) async fn start(options: ClaimOptions) -> Self {
        Self::start_with(options, None).await
    }

    pub(crate) async fn start_with(options: ClaimOptions, sweep: Option<SweepOptions>) -> Self {
        static DEFINED: Once = Once::new();
        DEFINED.call_once(|| {
            define_kind("MemoryPool", "memorypools", &["v1"], "v1").expect("it can be applied");
        });
        control_plane().wait_until_served("memorypools.example.com");
        let consumer = Consumer::with_client(patching::client().await).await;
        let (provider, namespace) = (
            Memory::default(),
            format!("--namespace={}", consumer.namespace),
        );
        let memory = provider.clone();
        let setup = async move |manager: &mut Manager| -> Result<(), BoxError> {
            let mut builder = ClaimReconciler::builder(manager).options(options);
            if let Some(sweep) = sweep {
                builder = builder.sweep(sweep);
            }
            builder
                .build(async |setup| Ok(WatchedPools::new(setup, memory).await))
                .await
        };
        let flags = ["--diagnostics-address=0", &namespace];
        let program = Program::launch(&flags, async |_| Ok(()), setup);
        Self {
            consumer,
            provider,
            program,
        }
    }

    pub(crate) fn apply_pool(&self, name: &str, spec: &Value) {
        let metadata = json!({"name": name, "namespace": self.consumer.namespace});
        let pool = json!({"apiVersion": "example.com/v1", "kind": "MemoryPool", "metadata": metadata, "spec": spec});
        control_plane().kubectl_apply(&pool.to_string());
    }

    pub(crate) async fn create_claim(&self, name: &str, pool: &str) {
        let pool = json!({"apiGroup": "example.com", "kind": "MemoryPool", "name": pool});
        self.consumer
            .try_create_claim_for(name, pool, json!({}))
            .await
            .expect("the claim can be created");
    }

    /// Waits until an event on a claim has this reason, and returns its message.
    pub(crate) async fn event(&self, claim: &str, reason: &str) -> String {
        eventually(
            &format!("an event on {claim} has the reason {reason}"),
            || async {
                let events = self.consumer.events(claim).await;
                events
                    .into_iter()
                    .find(|(_, why, _)| why == reason)
                    .map(|(_, _, message)| message)
            },
        )
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_are_bound_when_their_pool_changes() {
    let env = Environment::start(ClaimOptions {
        resync_interval: RESYNC_INTERVAL,
        ..ClaimOptions::default()
    })
    .await;
    env.create_claim("a", "pool").await;
    let text = env.consumer.wait_for_reason("a", "PoolNotReady").await;
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
        env.create_claim(claim, "pool").await;
        env.consumer.wait_for_reason(claim, "PoolExhausted").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let released = Instant::now();
    env.consumer.delete("a").await;
    assert_eq!(env.consumer.wait_for_address("b").await, "10.4.0.1");
    println!("bound {:?} after the release", released.elapsed());
    env.consumer.assert_stays_unbound("c").await;
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_release_does_not_delay_waiting_claims() {
    let env = Environment::start(ClaimOptions {
        resync_interval: RESYNC_INTERVAL,
        ..ClaimOptions::default()
    })
    .await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    for claim in [STUCK, "a"] {
        env.create_claim(claim, "pool").await;
        env.consumer.wait_for_address(claim).await;
    }
    // Creation times are in seconds, and the oldest claim is first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    env.create_claim("b", "pool").await;
    env.consumer.wait_for_reason("b", "PoolExhausted").await;
    env.consumer.delete(STUCK).await;
    env.consumer
        .wait_until_unready(STUCK, "ReleaseFailed")
        .await;
    env.consumer.delete("a").await;
    assert_eq!(env.consumer.wait_for_address("b").await, "10.4.0.2");
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_pool_is_reported() {
    let env = Environment::start(ClaimOptions::default()).await;
    env.apply_pool("broken", &json!({"addresses": "10.4.0.1"}));
    env.apply_pool("valid", &json!({"addresses": ["10.4.0.1"]}));
    env.create_claim("a", "broken").await;
    let text = env.consumer.wait_for_reason("a", "PoolNotReady").await;
    assert!(
        text.starts_with(&format!(
            "MemoryPool {}/broken is not valid: ",
            env.consumer.namespace
        )) && text.ends_with("; correct the pool"),
        "{text}"
    );
    assert_contains(&text, "expected a sequence");
    assert!(
        env.event("a", "PoolNotReady")
            .await
            .contains("expected a sequence")
    );
    env.create_claim("b", "valid").await;
    env.consumer.wait_for_address("b").await;
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_provider_is_reported_on_the_claim() {
    let env = Environment::start(ClaimOptions {
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
        env.create_claim(claim, claim).await;
        assert_contains(
            &env.consumer
                .wait_for_reason(claim, "AllocationFailed")
                .await,
            words,
        );
        assert!(env.event(claim, "AllocationFailed").await.contains(words));
    }
    // All others continue, and a fault that is mended is forgotten.
    env.create_claim("a", "valid").await;
    assert_eq!(env.consumer.wait_for_address("a").await, "10.4.0.9");
    env.apply_pool("hangs", &json!({"addresses": ["10.4.0.1"]}));
    assert_eq!(env.consumer.wait_for_address("hangs").await, "10.4.0.1");
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_another_claim_is_reported() {
    let env = Environment::start(ClaimOptions::default()).await;
    env.apply_pool(
        "pool",
        &json!({"addresses": ["10.4.0.1"], "fault": "same address"}),
    );
    env.create_claim("a", "pool").await;
    env.consumer.wait_for_address("a").await;
    env.create_claim("b", "pool").await;
    let text = env.consumer.wait_for_reason("b", "DuplicateAddress").await;
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
    let pool = json!({"apiGroup": "example.com", "kind": "MemoryPool", "name": "other"});
    env.consumer.create_address_for("c", pool, "10.4.0.7").await;
    env.create_claim("c", "other").await;
    assert_contains(
        &env.consumer.wait_for_reason("c", "AllocationFailed").await,
        "IPAddress c has 10.4.0.7 already",
    );
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_claims_are_verified() {
    let options = ClaimOptions {
        verify_interval: Some(VERIFY_INTERVAL),
        ..ClaimOptions::default()
    };
    let env = Environment::start(options).await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    for claim in ["a", "b"] {
        env.create_claim(claim, "pool").await;
        env.consumer.wait_for_address(claim).await;
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
        .lock()
        .remove(&address)
        .expect("it has an owner");
    let text = env.event("a", "AddressLost").await;
    assert_eq!(
        text,
        format!(
            "the provider no longer has {address} allocated to the claim, and allocates it again"
        )
    );
    eventually("it is allocated again", || async {
        (env.provider.owners.lock().get(&address) == Some(&owner)).then_some(())
    })
    .await;
    assert_eq!(versions().await, before);

    // Somebody else takes it.
    env.provider
        .owners
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
    env.provider.owners.lock().insert(address, owner);
    eventually("the claim is ready again", || async {
        let claim = env.consumer.claims().get("a").await.ok().flatten()?;
        (ready(&claim).status == "True").then_some(())
    })
    .await;
    assert!(env.program.stop());
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
