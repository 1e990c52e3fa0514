//! Pools with a finalizer and a status, which the SDK writes.

use std::{net::IpAddr, sync::Arc};

use capi_ipam_controller::{
    client::CallError,
    controller::{Action, Trigger},
    finalizer,
    manager::{BoxError, Manager},
    namespaced_name::NamespacedName,
    watch::{EventHandler, Invalid, WatchSpec},
};
use capi_ipam_provider::{
    advanced::ClaimOptions,
    api::conditions,
    prelude::{
        Allocation, Claim, ClaimReconciler, HandlerError, PoolOptions, PoolProvider, PoolStatus,
        Released, WatchedPools,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use support::{policy::DENIED, prelude::*};

use crate::{
    consumer, control_plane,
    environment::{Bare, Environment, Owners, Setup, apply_pool, define_kinds},
    program::Program,
};

const FINALIZER: &str = "sdk-test.example.com/protect-pool";
/// How soon the status describes what has changed. The API server and the other tests share the
/// machine with the provider, so a test allows more.
const STATUS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a pool can be kept after the start of the provider: requests of an earlier process may
/// still be applied.
const RELEASE_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(
    CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "GuardedPool",
    namespaced,
    status = "GuardedPoolStatus"
)]
struct GuardedPoolSpec {
    addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct GuardedPoolStatus {
    #[serde(flatten)]
    pool: PoolStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_backup: Option<String>,
}

#[derive(Clone, Default)]
struct Guarded(Owners);

impl PoolProvider for Guarded {
    type Pool = GuardedPool;

    async fn allocate(
        &self,
        claim: &Claim,
        pool: &GuardedPool,
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        self.0.allocate(claim, &pool.spec.addresses, existing)
    }

    async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
        Ok(self.0.release(claim))
    }

    fn validate(&self, pool: &GuardedPool) -> Result<(), String> {
        if pool.spec.addresses.is_empty() {
            return Err("spec.addresses is empty".to_owned());
        }
        Ok(())
    }

    fn capacity(&self, pool: &GuardedPool) -> Option<u128> {
        u128::try_from(pool.spec.addresses.len()).ok()
    }
}

/// A finalizer and a status.
const PROTECTED: PoolOptions = PoolOptions {
    finalizer: Some(FINALIZER),
    status: true,
};

/// A provider with a finalizer and a status.
fn protected() -> Setup {
    Setup {
        pools: PROTECTED,
        ..Setup::default()
    }
}

impl<P: PoolProvider + Clone + Default> Environment<P> {
    async fn start_protected() -> Self {
        Self::start(protected()).await
    }

    fn pools(&self) -> ResourceClient<P::Pool> {
        let (client, namespace) = (self.consumer.client.clone(), &self.consumer.namespace);
        ResourceClient::new(Api::namespaced(client, namespace), &())
    }

    async fn delete_pool(&self, name: &str) {
        self.consumer.delete_object(&self.pools(), name).await;
    }

    async fn pool(&self, name: &str) -> Option<P::Pool> {
        self.pools().get(name).await.expect("pools can be read")
    }

    async fn assert_stays(&self, name: &str) {
        consistently("the pool stays", || async {
            self.pool(name).await.is_some()
        })
        .await;
    }

    async fn wait_until_gone(&self, name: &str) {
        eventually_within(RELEASE_TIMEOUT, "the pool is gone", || async {
            self.pool(name).await.is_none().then_some(())
        })
        .await;
    }

    /// Waits until the condition `Ready` of a pool has a reason, and returns its status.
    async fn status(&self, name: &str, is_wanted: impl Fn(&PoolStatus) -> bool) -> PoolStatus {
        eventually_within(STATUS_TIMEOUT, "the status is as wanted", || async {
            let pool = json!(self.pool(name).await?);
            let status: PoolStatus = serde_json::from_value(pool["status"].clone()).ok()?;
            is_wanted(&status).then_some(status)
        })
        .await
    }

    async fn wait_for_ready(&self, name: &str, reason: &str) -> String {
        let has_reason = |status: &PoolStatus| {
            let ready = conditions::find(&status.conditions, "Ready");
            ready.is_some_and(|ready| ready.reason.as_deref() == Some(reason))
        };
        let status = self.status(name, has_reason).await;
        let ready = conditions::find(&status.conditions, "Ready").cloned();
        ready.and_then(|ready| ready.message).unwrap_or_default()
    }

    async fn wait_for_counts(&self, name: &str, expected: &Value) -> PoolStatus {
        self.status(name, |status| json!(status.ip_addresses) == *expected)
            .await
    }
}

/// The status of a condition.
fn state_of(status: &PoolStatus, type_: &str) -> Option<String> {
    let found = conditions::find(&status.conditions, type_)?;
    Some(found.status.clone().into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_pool_stays_until_its_last_address_is_released() {
    let env = Environment::<Guarded>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    for claim in ["a", "b"] {
        env.bind(claim, "pool").await;
    }
    let pool = env.pool("pool").await.expect("the pool exists");
    assert!(finalizer::is_set(&pool, FINALIZER));
    env.delete_pool("pool").await;
    let text = env.wait_for_ready("pool", "Deleting").await;
    assert!(
        text.starts_with("waiting for 2 IPAddresses to be released"),
        "{text}"
    );
    env.consumer.delete("a").await;
    env.consumer.wait_until_deleted("a").await;
    env.claim_waits("late", "pool", "PoolNotReady").await;
    env.assert_stays("pool").await;
    env.consumer.delete("b").await;
    env.wait_until_gone("pool").await;
    env.consumer.assert_stays_unbound("late").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn address_that_no_watch_shows_keeps_the_pool() {
    let env = Environment::<Guarded>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    env.wait_for_ready("pool", "PoolReady").await;
    // An IPAddress without a claim, with an address that is not valid.
    let pool = Environment::<Guarded>::reference("pool");
    env.consumer
        .create_address_for("by-hand", pool, "10.4.0.9")
        .await;
    env.delete_pool("pool").await;
    env.wait_for_ready("pool", "Deleting").await;
    env.assert_stays("pool").await;
    env.consumer
        .delete_object(&env.consumer.addresses(), "by-hand")
        .await;
    env.wait_until_gone("pool").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_and_reports_a_full_pool() {
    let env = Environment::<Guarded>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1", "10.4.0.2"]}));
    let status = env
        .wait_for_counts("pool", &json!({"used": 0, "total": 2, "free": 2}))
        .await;
    assert_eq!(
        (
            state_of(&status, "Ready").as_deref(),
            status.observed_generation
        ),
        (Some("True"), Some(1))
    );
    // A field of the provider, and a condition of another controller.
    let before = env.pool("pool").await.expect("the pool exists");
    let mut after = before.clone();
    let own = after.status.get_or_insert_default();
    own.last_backup = Some("today".to_owned());
    own.pool.conditions.push(conditions::Condition {
        last_transition_time: Some(capi_ipam_controller::clock::now()),
        ..conditions::Condition::new("BackedUp", true, "Done", "text")
    });
    capi_ipam_controller::patch::write(&env.pools(), &before, &after)
        .await
        .expect("the status can be written");
    for claim in ["a", "b"] {
        env.bind(claim, "pool").await;
    }
    let status = env
        .wait_for_counts("pool", &json!({"used": 2, "total": 2, "free": 0}))
        .await;
    assert_eq!(state_of(&status, "Exhausted").as_deref(), Some("True"));
    assert_eq!(state_of(&status, "BackedUp").as_deref(), Some("True"));
    let kept = env.pool("pool").await.and_then(|pool| pool.status);
    assert_eq!(kept.and_then(|it| it.last_backup).as_deref(), Some("today"));
    env.consumer
        .wait_for_event("pool", "Warning", "NoFreeAddress", "no address is free")
        .await;
    env.consumer.delete("a").await;
    let status = env
        .wait_for_counts("pool", &json!({"used": 1, "total": 2, "free": 1}))
        .await;
    assert_eq!(state_of(&status, "Exhausted").as_deref(), Some("False"));
    env.apply_pool("pool", &json!({"addresses": []}));
    let text = env.wait_for_ready("pool", "InvalidSpec").await;
    assert_eq!(text, "spec.addresses is empty");
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_without_finalizer_leaves_other_pools_alone() {
    let options = PoolOptions {
        finalizer: None,
        status: true,
    };
    let env = Environment::<Guarded>::start(Setup {
        pools: options,
        flags: &["--watch-filter=own"],
        ..Setup::default()
    })
    .await;
    let spec = json!({"addresses": ["10.4.0.1"]});
    env.apply_pool("other", &spec);
    env.apply_pool("own", &spec);
    let namespace = format!("--namespace={}", env.consumer.namespace);
    let label = "cluster.x-k8s.io/watch-filter=own";
    control_plane().kubectl(&["label", "guardedpools", "own", label, &namespace]);
    env.wait_for_ready("own", "PoolReady").await;
    consistently("the other pool has no status", || async {
        let other = env.pool("other").await;
        other.is_some_and(|other| other.status.is_none())
    })
    .await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_provider_releases_the_pool() {
    let env = Environment::<Guarded>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    env.bind("a", "pool").await;
    env.wait_for_counts("pool", &json!({"used": 1, "total": 1, "free": 0}))
        .await;
    let before = env.pool("pool").await.expect("the pool exists");
    env.delete_pool("pool").await;
    let env = env.restart(protected());
    consistently("the pool stays", || async {
        let found = json!(env.pool("pool").await);
        found["metadata"]["uid"] == json!(before.metadata.uid)
    })
    .await;
    env.consumer.delete("a").await;
    env.wait_until_gone("pool").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_without_status_subresource_is_protected() {
    let env = Environment::<Bare>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    env.bind("a", "pool").await;
    env.claim_waits("b", "pool", "PoolExhausted").await;
    let pool = env.pool("pool").await.expect("the pool exists");
    assert_eq!(json!(pool)["status"], Value::Null);
    env.delete_pool("pool").await;
    env.assert_stays("pool").await;
    env.consumer.delete("a").await;
    env.wait_until_gone("pool").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_status_does_not_delay_claims() {
    let env = Environment::<Guarded>::start_protected().await;
    let name = format!("{}-status", env.consumer.namespace);
    let api = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": ["guardedpools/status"],
            }]},
            "validations": [{"expression": "false", "message": DENIED, "reason": "Forbidden"}],
        },
    });
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": env.consumer.namespace}});
    let binding = json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    });
    for object in [&policy, &binding] {
        control_plane().kubectl_apply(&object.to_string());
    }
    env.apply_pool("probe", &json!({"addresses": ["10.4.1.1"]}));
    // The API server enforces a policy at any time after its creation.
    eventually("a status is rejected", || async {
        let before = env.pool("probe").await?;
        let mut after = before.clone();
        let status = after.status.get_or_insert_default();
        status.last_backup = before.metadata.resource_version.clone();
        let written = capi_ipam_controller::patch::write(&env.pools(), &before, &after).await;
        written.err().filter(CallError::is_forbidden).map(|_| ())
    })
    .await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    assert_eq!(env.bind("a", "pool").await, "10.4.0.1");
    env.consumer
        .wait_for_event("pool", "Warning", "InitializationFailed", DENIED)
        .await;
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        control_plane().kubectl(&["delete", kind, &name]);
    }
    env.wait_for_counts("pool", &json!({"used": 1, "total": 1, "free": 0}))
        .await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_pool_keeps_its_finalizer() {
    let env = Environment::<Guarded>::start_protected().await;
    env.apply_pool("pool", &json!({"addresses": ["10.4.0.1"]}));
    env.wait_for_ready("pool", "PoolReady").await;
    let pause = |value: &str| {
        let annotation = format!("cluster.x-k8s.io/paused{value}");
        let namespace = format!("--namespace={}", env.consumer.namespace);
        control_plane().kubectl(&["annotate", "guardedpools", "pool", &annotation, &namespace]);
    };
    pause("=");
    env.wait_for_ready("pool", "Paused").await;
    env.delete_pool("pool").await;
    env.assert_stays("pool").await;
    pause("-");
    env.wait_until_gone("pool").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciler_can_be_called_by_a_test() {
    define_kinds();
    let consumer = consumer().await;
    let namespace = consumer.namespace.clone();
    let pools = WatchedPools::for_test(Guarded::default(), &consumer.client);
    let reconciler = ClaimReconciler::for_test(pools, &consumer.client);
    let pool = Environment::<Guarded>::reference("pool");
    let reconcile = async |claim: &str| {
        let action = reconciler.reconcile_once(&namespace, claim).await;
        action.expect("it is no failure")
    };
    consumer
        .create_claim_for("a", pool.clone(), json!({}))
        .await;
    assert!(matches!(reconcile("a").await, Action::Requeue(_)));
    consumer.wait_for_reason("a", "PoolNotReady").await;
    let spec = json!({"addresses": ["10.4.0.1"]});
    apply_pool(&consumer, "GuardedPool", "pool", &spec);
    assert_eq!(reconcile("a").await, Action::AwaitChange);
    assert_eq!(consumer.wait_for_address("a").await, "10.4.0.1");
    consumer.create_claim_for("b", pool, json!({})).await;
    reconcile("b").await;
    consumer.wait_for_reason("b", "PoolExhausted").await;
    consumer.delete("a").await;
    reconcile("a").await;
    consumer.wait_until_deleted("a").await;
    reconcile("b").await;
    assert_eq!(consumer.wait_for_address("b").await, "10.4.0.1");
    assert_eq!(reconcile("none").await, Action::AwaitChange);
}

/// Enqueues the claim of the name of a ConfigMap.
struct Records(Trigger<IPAddressClaim>);

impl EventHandler<ConfigMap> for Records {
    fn apply(&self, record: &ConfigMap) {
        self.0.enqueue(NamespacedName::of(&record.metadata));
    }

    fn delete(&self, record: &ConfigMap) {
        self.apply(record);
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_controller_watches_another_kind() {
    define_kinds();
    let consumer = consumer().await;
    let provider = Guarded::default();
    let (memory, namespace) = (
        provider.clone(),
        format!("--namespace={}", consumer.namespace),
    );
    // Nothing but the ConfigMap enqueues a waiting claim in time.
    let options = ClaimOptions {
        resync_interval: Duration::from_mins(10),
        ..ClaimOptions::default()
    };
    let setup = async move |manager: &mut Manager| -> Result<(), BoxError> {
        let api = manager.watch_api::<ConfigMap>(&());
        let synced = manager.health.register_watch("ConfigMap");
        ClaimReconciler::builder(manager)
            .options(options)
            .controller(|claims| {
                let records = Arc::new(Records(claims.trigger()));
                claims.watch(WatchSpec::new(api, (), records, synced));
            })
            .build(async |setup| Ok(WatchedPools::new(setup, memory).await))
            .await
    };
    let flags = ["--diagnostics-address=0", &namespace];
    let program = Program::launch(&flags, async |_| Ok(()), setup);
    let spec = json!({"addresses": ["10.4.0.1"]});
    apply_pool(&consumer, "GuardedPool", "pool", &spec);
    let reference = Environment::<Guarded>::reference("pool");
    provider
        .0
        .0
        .lock()
        .insert([10, 4, 0, 1].into(), "another system".to_owned());
    consumer.create_claim_for("a", reference, json!({})).await;
    consumer.wait_for_reason("a", "PoolExhausted").await;
    // The backend has an address again, and says so by a ConfigMap.
    provider.0.0.lock().clear();
    let metadata = json!({"name": "a", "namespace": consumer.namespace});
    let record = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    control_plane().kubectl_apply(&record.to_string());
    assert_eq!(consumer.wait_for_address("a").await, "10.4.0.1");
    program.stop();
}
