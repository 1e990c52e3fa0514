//! A simulation of the Go in-cluster provider: its documented writes for a claim and a pool. It has
//! no reservations.

use std::net::Ipv4Addr;

use capi_ipam_api::names::{PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS};
use support::prelude::*;

use crate::store::{
    GO_PROVIDER, GROUP, Store, add_finalizer, has_finalizer, key, remove_finalizer, text,
};

/// The simulated Go provider.
pub(crate) struct GoProvider<'a> {
    store: &'a Store,
}

impl<'a> GoProvider<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store }
    }

    /// Allocates an address to a claim: finalizer, IPAddress, status.
    pub(crate) async fn allocate(&self, claim: &Value, pool: &Value, address: &str) {
        let claim = self.protect(claim).await;
        self.store
            .create(GO_PROVIDER, &ip_address(&claim, pool, address))
            .await;
        self.commit(&claim).await;
    }

    /// Only the first step: the finalizer.
    pub(crate) async fn protect(&self, claim: &Value) -> Value {
        let mut claim = claim.clone();
        add_finalizer(&mut claim, RELEASE_ADDRESS);
        self.store.replace(GO_PROVIDER, &claim).await
    }

    /// Only the last step: the status.
    pub(crate) async fn commit(&self, claim: &Value) {
        let mut claim = claim.clone();
        claim["status"] = json!({"addressRef": {"name": claim["metadata"]["name"]}});
        self.store.replace_status(GO_PROVIDER, &claim).await;
    }

    /// Allocates the lowest address without an IPAddress to a claim for a pool of one IPv4 range,
    /// and returns it.
    pub(crate) async fn allocate_lowest(&self, namespace: &str, name: &str) -> String {
        let claim = self
            .store
            .get_existing("IPAddressClaim", namespace, name)
            .await;
        let kind = text(&claim, "/spec/poolRef/kind");
        let of = if kind.starts_with("Global") {
            ""
        } else {
            namespace
        };
        let pool = self
            .store
            .get_existing(kind, of, text(&claim, "/spec/poolRef/name"))
            .await;
        let used: BTreeSet<String> = self.addresses_of(&pool).await.iter().map(value).collect();
        let range = text(&pool, "/spec/addresses/0");
        let (first, last) = range.split_once('-').expect("the tests use ranges");
        let number = |text: &str| u32::from(text.parse::<Ipv4Addr>().expect("an IPv4 address"));
        let mut candidates =
            (number(first)..=number(last)).map(|number| Ipv4Addr::from(number).to_string());
        let free = candidates
            .find(|address| *address != text(&pool, "/spec/gateway") && !used.contains(address));
        let free = free.expect("the pool has a free address");
        self.allocate(&claim, &pool, &free).await;
        free
    }

    /// Releases the address of a deleted claim and removes the finalizer of the claim.
    pub(crate) async fn release(&self, namespace: &str, name: &str) {
        let claim = self
            .store
            .get_existing("IPAddressClaim", namespace, name)
            .await;
        assert!(!claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        assert!(
            has_finalizer(&claim, RELEASE_ADDRESS),
            "the Go provider releases only claims with its finalizer: {claim}"
        );
        let address = self.store.get_existing("IPAddress", namespace, name).await;
        assert_eq!(text(&address, "/spec/claimRef/name"), name);
        if has_finalizer(&address, PROTECT_ADDRESS) {
            let of = ("IPAddress", namespace, name);
            self.store
                .change(GO_PROVIDER, of, |address| {
                    remove_finalizer(address, PROTECT_ADDRESS)
                })
                .await;
        }
        self.store.delete("IPAddress", namespace, name).await;
        assert_eq!(
            self.store.get("IPAddress", namespace, name).await,
            None,
            "another finalizer blocks the address"
        );
        let of = ("IPAddressClaim", namespace, name);
        self.store
            .change(GO_PROVIDER, of, |claim| {
                remove_finalizer(claim, RELEASE_ADDRESS)
            })
            .await;
        assert_eq!(
            self.store.get("IPAddressClaim", namespace, name).await,
            None,
            "another finalizer blocks the claim"
        );
    }

    /// Removes the finalizer of a deleted pool without addresses.
    pub(crate) async fn release_pool(&self, kind: &str, namespace: &str, name: &str) {
        let pool = self.store.get_existing(kind, namespace, name).await;
        assert!(!pool["metadata"]["deletionTimestamp"].is_null(), "{pool}");
        assert_eq!(self.addresses_of(&pool).await, Vec::<Value>::new());
        self.store
            .change(GO_PROVIDER, (kind, namespace, name), |pool| {
                remove_finalizer(pool, PROTECT_POOL)
            })
            .await;
        assert_eq!(
            self.store.get(kind, namespace, name).await,
            None,
            "another finalizer blocks the pool"
        );
    }

    /// The IPAddress objects that reference a pool.
    async fn addresses_of(&self, pool: &Value) -> Vec<Value> {
        let (namespace, name) = key(pool);
        let all = self.store.list("IPAddress").await;
        let of_pool = |address: &Value| {
            let reference = &address["spec"]["poolRef"];
            (&reference["kind"], &reference["name"]) == (&pool["kind"], &json!(name))
                && (namespace.is_empty() || key(address).0 == namespace)
        };
        all.into_iter().filter(of_pool).collect()
    }
}

fn value(address: &Value) -> String {
    text(address, "/spec/address").to_owned()
}

/// A claim as a consumer creates it.
pub(crate) fn claim(
    version: &str,
    namespace: &str,
    name: &str,
    (kind, pool): (&str, &str),
) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "IPAddressClaim",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"poolRef": {"apiGroup": GROUP, "kind": kind, "name": pool}},
    })
}

/// An IPAddress as the Go provider creates it.
pub(crate) fn ip_address(claim: &Value, pool: &Value, address: &str) -> Value {
    let owner = |object: &Value, version: &str, controller: bool| {
        json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": object["kind"], "name": object["metadata"]["name"],
            "uid": object["metadata"]["uid"], "controller": controller, "blockOwnerDeletion": true,
        })
    };
    let labels = &claim["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"];
    let labels = if labels.is_null() {
        Value::Null
    } else {
        json!({"cluster.x-k8s.io/cluster-name": labels})
    };
    let prefix = [
        &pool["spec"]["prefix"],
        &pool["spec"]["allocationPrefixLength"],
    ];
    let mut made = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddress",
        "metadata": {
            "namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"], "labels": labels,
            "finalizers": [PROTECT_ADDRESS],
            "ownerReferences": [owner(claim, "v1beta2", true), owner(pool, "v1alpha2", false)],
        },
        "spec": {
            "claimRef": {"name": claim["metadata"]["name"]}, "poolRef": claim["spec"]["poolRef"], "address": address,
            "prefix": prefix.into_iter().find(|prefix| !prefix.is_null()),
        },
    });
    if !pool["spec"]["gateway"].is_null() {
        made["spec"]["gateway"] = pool["spec"]["gateway"].clone();
    }
    made
}
