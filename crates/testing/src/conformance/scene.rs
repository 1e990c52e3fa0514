//! The objects of one check: a namespace, its pool and its claims.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use capi_ipam_provider::controller::client::{ApiObject, CallError, ResourceClient, error_chain};
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::provider::Pool;
use super::rules::{
    Rule, Violation, check_bound, check_owned, check_reason, check_unique, describe,
    describe_address,
};
use crate::consumer::{Consumer, object};
use crate::patience::Patience;
use crate::wait::pause;

/// How long nothing may change that must not change.
const UNCHANGED: Duration = Duration::from_millis(600);
/// The number of requests at a time.
const CONCURRENCY: usize = 16;

/// The namespace of one check.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) consumer: Consumer,
    pub(super) pool: Pool,
    kind: ApiResource,
    timeout: Duration,
}

impl Scene {
    /// A new namespace without objects.
    pub(super) async fn new(client: &Client, pool: &Pool, timeout: Duration) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (
            text(&pool.manifest["apiVersion"]),
            text(&pool.manifest["kind"]),
        );
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = GroupVersionKind::gvk(group, version, &kind);
        let served = kube::discovery::pinned_kind(client, &kind).await;
        let (kind, _) = served
            .unwrap_or_else(|error| panic!("the API server does not serve {kind:?}: {error}"));
        let consumer = Consumer::with_client(client.clone()).await;
        Self {
            consumer,
            pool: pool.clone(),
            kind,
            timeout,
        }
    }

    /// The pools of the namespace.
    pub(super) fn pools(&self) -> ResourceClient<DynamicObject> {
        let api = Api::namespaced_with(
            self.consumer.client.clone(),
            &self.consumer.namespace,
            &self.kind,
        );
        ResourceClient::new(api, &self.kind)
    }

    /// The name of the pool.
    pub(super) fn pool_name(&self) -> String {
        self.pool.reference().name
    }

    /// Creates the pool with these annotations.
    pub(super) async fn create_pool(&self, annotations: Value) {
        let mut manifest = self.pool.manifest.clone();
        manifest["metadata"]["namespace"] = json!(self.consumer.namespace);
        if !annotations.is_null() {
            manifest["metadata"]["annotations"] = annotations;
        }
        self.pools()
            .create(&object(manifest))
            .await
            .expect("the pool can be created");
    }

    /// Creates a claim for the pool. `metadata` is as in [`Consumer::create_claim_for`].
    pub(super) async fn create_claim(&self, name: &str, metadata: Value) -> IPAddressClaim {
        self.consumer
            .create_claim_for(name, json!(self.pool.reference()), metadata)
            .await
    }

    /// Creates claims.
    pub(super) async fn create_claims(&self, names: &[String]) {
        futures::stream::iter(names)
            .for_each_concurrent(CONCURRENCY, |name| async {
                drop(self.create_claim(name, json!({})).await)
            })
            .await;
    }

    /// Deletes claims and does not wait.
    pub(super) async fn delete_claims(&self, names: &[String]) {
        futures::stream::iter(names)
            .for_each_concurrent(CONCURRENCY, |name| async {
                self.consumer.delete(name).await
            })
            .await;
    }

    /// Reads a claim and its IPAddress.
    pub(super) async fn read(
        &self,
        name: &str,
    ) -> Result<(Option<IPAddressClaim>, Option<IPAddress>), Violation> {
        let claim = self
            .consumer
            .claims()
            .get(name)
            .await
            .map_err(|error| unread(&error))?;
        let address = self
            .consumer
            .addresses()
            .get(name)
            .await
            .map_err(|error| unread(&error))?;
        Ok((claim, address))
    }

    /// Lists all claims and IPAddresses.
    pub(super) async fn list(&self) -> Result<(Vec<IPAddressClaim>, Vec<IPAddress>), Violation> {
        let claims = self
            .consumer
            .claims()
            .list()
            .await
            .map_err(|error| unread(&error))?;
        let addresses = self
            .consumer
            .addresses()
            .list()
            .await
            .map_err(|error| unread(&error))?;
        Ok((claims, addresses))
    }

    /// Calls `poll` until it succeeds, and returns its last error at the end of the timeout.
    pub(super) async fn until<T>(
        &self,
        mut poll: impl AsyncFnMut() -> Result<T, Violation>,
    ) -> Result<T, Violation> {
        let (start, patience) = (Instant::now(), Patience::new(self.timeout));
        loop {
            match poll().await {
                Err(violation) if patience.is_over() => {
                    let expected = format!("{} (within {:?})", violation.expected, self.timeout);
                    return Err(Violation {
                        expected,
                        ..violation
                    });
                }
                Err(_) => pause(start).await,
                found => return found,
            }
        }
    }

    /// Calls `poll` for a while, and returns its first error.
    pub(super) async fn always(
        &self,
        mut poll: impl AsyncFnMut() -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let start = Instant::now();
        while start.elapsed() < UNCHANGED {
            poll().await?;
            pause(start).await;
        }
        Ok(())
    }

    /// Waits until a claim is bound, and returns its IPAddress.
    pub(super) async fn bound(&self, name: &str) -> Result<IPAddress, Violation> {
        self.until(async || {
            let (claim, address) = self.read(name).await?;
            let claim = claim.ok_or_else(|| self.missing(name))?;
            check_bound(&claim, address.as_ref())?;
            address.ok_or_else(|| self.missing(name))
        })
        .await
    }

    /// Waits until all these claims are bound, and returns the address of each.
    pub(super) async fn all_bound(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<String, String>, Violation> {
        self.until(async || {
            let (claims, addresses) = self.list().await?;
            check_unique(&addresses)?;
            let claims: BTreeMap<_, _> = claims
                .iter()
                .map(|claim| (claim.name_any(), claim))
                .collect();
            let addresses: BTreeMap<_, _> = addresses
                .iter()
                .map(|address| (address.name_any(), address))
                .collect();
            for name in names {
                let claim = claims.get(name).ok_or_else(|| self.missing(name))?;
                check_bound(claim, addresses.get(name).copied())?;
            }
            let found = names
                .iter()
                .filter_map(|name| Some((name.clone(), addresses.get(name)?.spec.address.clone())));
            Ok(found.collect())
        })
        .await
    }

    /// Waits until a claim reports why it is not bound.
    pub(super) async fn refused(&self, name: &str) -> Result<(), Violation> {
        self.until(async || {
            let (claim, _) = self.read(name).await?;
            check_reason(&claim.ok_or_else(|| self.missing(name))?)
        })
        .await
    }

    /// Deletes a claim, and waits until claim and IPAddress do not exist.
    pub(super) async fn release(&self, name: &str) -> Result<(), Violation> {
        self.consumer.delete(name).await;
        self.released(name).await
    }

    /// Waits until a deleted claim and its IPAddress do not exist.
    pub(super) async fn released(&self, name: &str) -> Result<(), Violation> {
        self.until(async || {
            let (claim, address) = self.read(name).await?;
            let left = claim
                .as_ref()
                .map(describe)
                .or_else(|| address.as_ref().map(describe_address));
            left.map_or(Ok(()), |left| {
                let expected = format!("claim {name} and its IPAddress are removed");
                Err(Violation::new(Rule::Released, expected, left))
            })
        })
        .await
    }

    /// Allocates all addresses of the pool but `used`, and releases them: an address that leaked is
    /// missing.
    pub(super) async fn fill(&self, used: usize) -> Result<(), Violation> {
        let names: Vec<_> = (used..self.pool.addresses)
            .map(|number| format!("all-{number}"))
            .collect();
        self.create_claims(&names).await;
        let leaked = |violation: Violation| {
            let (all, unused) = (self.pool.addresses, names.len());
            let expected = format!(
                "the {unused} unused of {all} addresses can be allocated: {}",
                violation.expected
            );
            let rule = if violation.rule == Rule::Served {
                Rule::NoLeak
            } else {
                violation.rule
            };
            Violation {
                rule,
                expected,
                seen: violation.seen,
            }
        };
        self.all_bound(&names).await.map_err(leaked)?;
        self.delete_claims(&names).await;
        for name in &names {
            self.released(name).await?;
        }
        Ok(())
    }

    /// Releases all claims, deletes the pool, and checks that nothing is left.
    pub(super) async fn end(&self) -> Result<(), Violation> {
        let (claims, _) = self.list().await?;
        let client = self.consumer.claims();
        futures::stream::iter(claims)
            .for_each_concurrent(CONCURRENCY, |claim| {
                let (client, name, uid) = (
                    client.clone(),
                    claim.name_any(),
                    claim.uid().unwrap_or_default(),
                );
                async move {
                    drop(
                        client
                            .delete(&name, &uid)
                            .await
                            .expect("the claim can be deleted"),
                    )
                }
            })
            .await;
        self.until(async || {
            let (claims, addresses) = self.list().await?;
            check_owned(&claims, &addresses)?;
            let Some(left) = claims.first() else {
                return Ok(());
            };
            Err(Violation::new(
                Rule::Released,
                "all deleted claims are removed",
                describe(left),
            ))
        })
        .await?;
        self.delete_pool().await
    }

    /// Deletes the pool, and waits until it does not exist.
    async fn delete_pool(&self) -> Result<(), Violation> {
        let (pools, name) = (self.pools(), self.pool_name());
        self.until(async || {
            let Some(pool) = pools.get(&name).await.map_err(|error| unread(&error))? else {
                return Ok(());
            };
            // A webhook may deny it until the provider has observed the release of the last
            // address.
            let _ = pools.delete(&name, &pool.uid().unwrap_or_default()).await;
            let expected = format!("the deleted pool {name} is removed when no claim uses it");
            Err(Violation::new(
                Rule::Released,
                expected,
                format!("finalizers {:?}", pool.finalizers()),
            ))
        })
        .await
    }

    /// Removes all claims and IPAddresses with their finalizers, after a failed check.
    pub(super) async fn force_end(&self) {
        let Ok((claims, addresses)) = self.list().await else {
            return;
        };
        for name in claims.iter().map(ResourceExt::name_any) {
            self.force_delete(&self.consumer.claims(), &name).await;
        }
        for name in addresses.iter().map(ResourceExt::name_any) {
            self.force_delete(&self.consumer.addresses(), &name).await;
        }
    }

    async fn force_delete<K>(&self, client: &ResourceClient<K>, name: &str)
    where
        K: ApiObject,
    {
        if let Ok(Some(object)) = client.get(name).await {
            let _ = client.delete(name, &object.uid().unwrap_or_default()).await;
        }
        if let Ok(Some(_)) = client.get(name).await {
            self.consumer
                .modify(client, name, |object| {
                    object["metadata"]["finalizers"] = json!([])
                })
                .await;
        }
    }

    fn missing(&self, name: &str) -> Violation {
        let seen = format!("it does not exist in namespace {}", self.consumer.namespace);
        Violation::new(Rule::Lasting, format!("claim {name} exists"), seen)
    }
}

fn unread(error: &CallError) -> Violation {
    Violation::new(
        Rule::Served,
        "claims and IPAddresses can be read",
        error_chain(error),
    )
}
