//! A provider whose pools are objects of one kind, and a consumer in its own namespace.

use std::{
    net::IpAddr,
    sync::{Arc, Once},
};

use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_provider::{
    advanced::{ClaimOptions, SweepOptions},
    prelude::{
        Allocation, Claim, ClaimReconciler, HandlerError, PoolOptions, PoolProvider, PoolStatus,
        Released, WatchedPools,
    },
};
use kube::{CustomResource, Resource};
use parking_lot::Mutex;
use support::prelude::*;

use crate::{consumer, control_plane, program::Program, upgrade::define_kind};

/// The uids of the claims by address.
#[derive(Clone, Default)]
pub(crate) struct Owners(pub(crate) Arc<Mutex<BTreeMap<IpAddr, String>>>);

impl Owners {
    /// Allocates the address that the claim has already, or the first free one.
    pub(crate) fn allocate(
        &self,
        claim: &Claim,
        addresses: &[IpAddr],
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        let (uid, mut owners) = (claim.uid.to_string(), self.0.lock());
        let first = |wanted: Option<&String>| {
            let mut all = addresses.iter().copied();
            all.find(|address| owners.get(address) == wanted)
        };
        let address = existing
            .or_else(|| first(Some(&uid)))
            .or_else(|| first(None))
            .ok_or_else(|| HandlerError::PoolExhausted("no address is free".to_owned()))?;
        let owner = owners.entry(address).or_insert_with(|| uid.clone());
        if *owner != uid {
            return Err(HandlerError::DuplicateAddress(format!(
                "{address} is allocated to {owner}"
            )));
        }
        Ok(Allocation::new(address, 24))
    }

    pub(crate) fn release(&self, claim: &Claim) -> Released {
        let uid = claim.uid.to_string();
        self.0.lock().retain(|_, owner| *owner != uid);
        Released::Now
    }
}

/// A kind whose definition has no status subresource.
#[derive(
    CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "BarePool",
    namespaced,
    status = "PoolStatus"
)]
pub(crate) struct BarePoolSpec {
    addresses: Vec<IpAddr>,
}

/// A provider that does no more than it has to.
#[derive(Clone, Default)]
pub(crate) struct Bare(Owners);

impl PoolProvider for Bare {
    type Pool = BarePool;

    async fn allocate(
        &self,
        claim: &Claim,
        pool: &BarePool,
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        self.0.allocate(claim, &pool.spec.addresses, existing)
    }

    async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
        Ok(self.0.release(claim))
    }
}

/// Defines the kinds of all providers, once for all tests.
pub(crate) fn define_kinds() {
    static DEFINED: Once = Once::new();
    DEFINED.call_once(|| {
        for (kind, subresources) in [
            ("MemoryPool", json!({})),
            ("GuardedPool", json!({"status": {}})),
            ("BarePool", json!({})),
        ] {
            let plural = format!("{}s", kind.to_lowercase());
            define_kind(kind, &plural, &["v1"], "v1", &subresources).expect("it can be applied");
            control_plane().wait_until_served(&format!("{plural}.example.com"));
        }
    });
}

/// How a provider is started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    pub(crate) claims: ClaimOptions,
    pub(crate) sweep: Option<SweepOptions>,
    pub(crate) pools: PoolOptions,
    pub(crate) flags: &'static [&'static str],
}

/// A provider and a consumer in its own namespace.
pub(crate) struct Environment<P: PoolProvider> {
    pub(crate) consumer: Consumer,
    pub(crate) provider: P,
    pub(crate) program: Program,
}

impl<P: PoolProvider + Clone + Default> Environment<P> {
    pub(crate) async fn start(setup: Setup) -> Self {
        define_kinds();
        let (consumer, provider) = (consumer().await, P::default());
        let program = Self::launch(&consumer, &provider, setup);
        Self {
            consumer,
            provider,
            program,
        }
    }

    fn launch(consumer: &Consumer, provider: &P, setup: Setup) -> Program {
        let provider = provider.clone();
        let namespace = format!("--namespace={}", consumer.namespace);
        let flags = [&["--diagnostics-address=0", &namespace], setup.flags].concat();
        let build = async move |manager: &mut Manager| -> Result<(), BoxError> {
            let mut builder = ClaimReconciler::builder(manager).options(setup.claims);
            if let Some(sweep) = setup.sweep {
                builder = builder.sweep(sweep);
            }
            builder
                .build(async |context| {
                    Ok(WatchedPools::with_options(context, provider, setup.pools).await)
                })
                .await
        };
        Program::launch(&flags, async |_| Ok(()), build)
    }

    /// Stops the provider, and starts it again.
    pub(crate) fn restart(self, setup: Setup) -> Self {
        let Self {
            consumer,
            provider,
            program,
        } = self;
        program.stop();
        let program = Self::launch(&consumer, &provider, setup);
        Self {
            consumer,
            provider,
            program,
        }
    }

    pub(crate) fn reference(pool: &str) -> Value {
        json!({"apiGroup": "example.com", "kind": P::Pool::kind(&()), "name": pool})
    }

    pub(crate) fn apply_pool(&self, name: &str, spec: &Value) {
        apply_pool(&self.consumer, &P::Pool::kind(&()), name, spec);
    }

    pub(crate) async fn create_claim(&self, name: &str, pool: &str) {
        self.consumer
            .create_claim_for(name, Self::reference(pool), json!({}))
            .await;
    }

    /// Creates a claim, and returns its address.
    pub(crate) async fn bind(&self, name: &str, pool: &str) -> String {
        self.create_claim(name, pool).await;
        self.consumer.wait_for_address(name).await
    }

    /// Creates a claim, and waits until it reports a reason. Returns the message.
    pub(crate) async fn claim_waits(&self, name: &str, pool: &str, reason: &str) -> String {
        self.create_claim(name, pool).await;
        self.consumer.wait_for_reason(name, reason).await
    }
}

/// Creates or changes a pool of a kind.
pub(crate) fn apply_pool(consumer: &Consumer, kind: &str, name: &str, spec: &Value) {
    let metadata = json!({"name": name, "namespace": consumer.namespace});
    let pool =
        json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, "spec": spec});
    control_plane().kubectl_apply(&pool.to_string());
}
