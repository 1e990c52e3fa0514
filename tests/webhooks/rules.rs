//! Each rule for the specification of a pool, for all kinds: through the API server, whoever refuses there (the
//! definition or the webhook), and by the webhook itself.

use capi_ipam::api::InClusterKind::{self, GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use capi_ipam::ask::{ask, Asker, Said};
use capi_ipam::support::consumer::{Consumer, eventually, unique};
use capi_ipam::wired;
use serde_json::{json, Value};

const ADDRESSES: [InClusterKind; 2] = [IPPool, GlobalIPPool];
const PREFIXES: [InClusterKind; 2] = [PrefixPool, GlobalPrefixPool];

/// Somebody who tries specifications out, on a good pool of one kind.
struct Trial {
    asker: Asker,
    kind: InClusterKind,
    name: String,
    good: Value,
}

impl Trial {
    async fn of(kind: InClusterKind, good: Value) -> Self {
        let asker = Asker::new(&Consumer::new(&wired().plane).await);
        let name = unique("good");
        asker.create(kind, &name, &good).await.done();
        Self { asker, kind, name, good }
    }

    /// A pool with that specification can be made, and one that was made with a part of it can get the rest.
    async fn accepts(&self, spec: Value) {
        let (Self { asker, kind, .. }, webhooks) = (self, &wired().webhooks);
        let name = unique("accepted");
        let new = asker.pool(*kind, &name, &spec);
        assert!(ask(webhooks, *kind, "CREATE", &Value::Null, &new).await.is_ok(), "{spec}");
        assert!(ask(webhooks, *kind, "UPDATE", &with(&new, "gateway", json!(null)), &new).await.is_ok(), "{spec}");
        asker.create(*kind, &name, &with(&new, "gateway", json!(null))["spec"]).await.done();
        asker.change(*kind, &name, &json!({"spec": spec})).await.done();
        asker.delete(*kind, &name).await.done();
    }

    /// The same for a pool that would overlap with those of all other tests, so it is not made.
    async fn would_accept(&self, spec: Value) {
        let (Self { asker, kind, .. }, webhooks) = (self, &wired().webhooks);
        let new = asker.pool(*kind, &unique("accepted"), &spec);
        assert!(ask(webhooks, *kind, "CREATE", &Value::Null, &new).await.is_ok(), "{spec}");
        asker.try_create(*kind, &unique("accepted"), &spec).await.done();
    }

    /// No pool with that specification can be made, and no pool can get it. The webhook says so for exactly that field.
    async fn rejects(&self, spec: Value, code: u16, field: &str, text: &str) {
        let (Self { asker, kind, .. }, webhooks) = (self, &wired().webhooks);
        let (old, new) = (asker.pool(*kind, &self.name, &self.good), asker.pool(*kind, &self.name, &spec));
        for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &old)] {
            let said = ask(webhooks, *kind, operation, old, &new).await;
            said.refused(code, field, text);
            assert!(said.fields.iter().all(|found| found == field), "{spec}: {said:?}");
            assert!(said.message.starts_with(&format!("{kind}.ipam.cluster.x-k8s.io \"{}\" is invalid", self.name)));
        }
        asker.try_create(*kind, &unique("bad"), &spec).await.refused(code, field, "");
        asker.try_replace(*kind, &self.name, &spec).await.refused(code, field, "");
    }
}

fn with(pool: &Value, field: &str, value: Value) -> Value {
    let mut pool = pool.clone();
    pool["spec"][field] = value;
    pool
}

/// A specification of so many addresses, with more fields or others.
fn addresses(addresses: &[&str], more: Value) -> Value {
    let mut spec = json!({"addresses": addresses, "prefix": 24});
    json_patch::merge(&mut spec, &more);
    spec
}

fn prefixes(prefixes: &[&str], more: Value) -> Value {
    let mut spec = json!({"prefixes": prefixes, "allocationPrefixLength": 64});
    json_patch::merge(&mut spec, &more);
    spec
}

#[tokio::test]
async fn good_pools_of_addresses_are_accepted() {
    for kind in ADDRESSES {
        let trial = Trial::of(kind, addresses(&["10.0.0.1-10.0.0.9"], json!({}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({}))).await;
        trial.accepts(addresses(&["10.0.0.0/25", "10.0.0.128-10.0.0.140", "10.0.0.150"], json!({}))).await;
        trial.accepts(addresses(&["10.0.0.1", "10.0.0.1"], json!({}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"gateway": "10.0.0.254"}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"gateway": "192.168.0.1"}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"gateway": ""}))).await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"gateway": "10.0.0.2", "excludedAddresses": ["10.0.0.1"]})))
            .await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"excludedAddresses": ["10.9.0.0/16"]}))).await;
        trial.accepts(addresses(&["10.0.0.0/24"], json!({"allocateReservedIPAddresses": true}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"prefix": 32}))).await;
        trial.accepts(addresses(&["10.0.0.0-10.0.0.1"], json!({"prefix": 31}))).await;
        trial.would_accept(addresses(&["0.0.0.0/0"], json!({"prefix": 0}))).await;
        trial.accepts(addresses(&["fd00::/64"], json!({"prefix": 64, "gateway": "fd00::1"}))).await;
        trial.would_accept(addresses(&["::/0"], json!({"prefix": 0}))).await;
        trial.accepts(addresses(&["fd00::1"], json!({"prefix": 128}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"addressReuseGracePeriodSeconds": 0}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"addressReuseGracePeriodSeconds": i32::MAX}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({"network": unique("lab")}))).await;
    }
}

#[tokio::test]
async fn bad_pools_of_addresses_are_refused_with_field_and_reason() {
    for kind in ADDRESSES {
        let trial = Trial::of(kind, addresses(&["10.0.0.1-10.0.0.9"], json!({}))).await;
        let one = |more: Value| addresses(&["10.0.0.1"], more);
        trial.rejects(addresses(&[], json!({})), 422, "spec.addresses", "addresses is required").await;
        trial.rejects(addresses(&["nonsense"], json!({})), 422, "spec.addresses", "nonsense").await;
        trial.rejects(addresses(&[""], json!({})), 422, "spec.addresses", "").await;
        trial.rejects(addresses(&["10.0.0.256"], json!({})), 422, "spec.addresses", "10.0.0.256").await;
        trial.rejects(addresses(&["10.0.0.01"], json!({})), 422, "spec.addresses", "10.0.0.01").await;
        trial.rejects(addresses(&["10.0.0.0/33"], json!({})), 422, "spec.addresses", "10.0.0.0/33").await;
        trial.rejects(addresses(&["10.0.0.9-10.0.0.1"], json!({})), 422, "spec.addresses", "10.0.0.9").await;
        trial.rejects(addresses(&["10.0.0.1-fd00::1"], json!({})), 422, "spec.addresses", "fd00::1").await;
        trial.rejects(addresses(&["::ffff:10.0.0.1"], json!({})), 422, "spec.addresses", "::ffff:10.0.0.1").await;
        trial.rejects(addresses(&["10.0.0.1", "fd00::1"], json!({})), 422, "spec.addresses", "fd00::1 is IPv6").await;
        trial.rejects(addresses(&["10.0.0.1", "10.0.1.1"], json!({})), 422, "spec.addresses", "10.0.0.0/24").await;
        trial.rejects(addresses(&["10.0.0.0/23"], json!({})), 422, "spec.addresses", "10.0.0.0/24").await;
        trial.rejects(addresses(&["10.0.0.1-10.0.1.1"], json!({})), 422, "spec.addresses", "10.0.0.0/24").await;
        trial.rejects(one(json!({"prefix": 33})), 422, "spec.prefix", "33 is not between 0 and 32").await;
        trial.rejects(one(json!({"prefix": 129})), 422, "spec.prefix", "129 is not between 0 and 32").await;
        trial.rejects(one(json!({"prefix": -1})), 422, "spec.prefix", "-1 is not between 0 and 32").await;
        trial.rejects(one(json!({"gateway": "x"})), 422, "spec.gateway", "\"x\"").await;
        trial.rejects(one(json!({"gateway": "10.0.0.0/24"})), 422, "spec.gateway", "10.0.0.0/24").await;
        trial.rejects(one(json!({"gateway": "fd00::1"})), 422, "spec.gateway", "fd00::1 is IPv6").await;
        let excluding = |entry: &str| one(json!({"excludedAddresses": [entry]}));
        trial.rejects(excluding("x"), 422, "spec.excludedAddresses", "\"x\"").await;
        trial.rejects(excluding("10.0.0.9-10.0.0.1"), 422, "spec.excludedAddresses", "10.0.0.9").await;
        trial.rejects(excluding("fd00::/64"), 422, "spec.excludedAddresses", "fd00::/64 is IPv6").await;
        let grace = "spec.addressReuseGracePeriodSeconds";
        trial.rejects(one(json!({"addressReuseGracePeriodSeconds": -1})), 422, grace, "-1").await;
        trial.rejects(one(json!({"network": "No"})), 422, "spec.network", "No").await;
        trial.rejects(one(json!({"network": "a.b"})), 422, "spec.network", "a.b").await;
        trial.rejects(one(json!({"network": "-a"})), 422, "spec.network", "-a").await;
        trial.rejects(one(json!({"network": "a".repeat(64)})), 422, "spec.network", "63").await;
    }
}

#[tokio::test]
async fn good_pools_of_prefixes_are_accepted() {
    for kind in PREFIXES {
        let trial = Trial::of(kind, prefixes(&["fd00::/48"], json!({}))).await;
        trial.accepts(prefixes(&["fd00::/48"], json!({}))).await;
        trial.accepts(json!({"prefixes": ["fd00::/48", "fd01::/64"]})).await;
        trial.accepts(prefixes(&["fd00::/120"], json!({"allocationPrefixLength": 128}))).await;
        trial.accepts(prefixes(&["fd00::/48"], json!({"gateway": "fd00::1"}))).await;
        trial.accepts(prefixes(&["fd00::/48"], json!({"gateway": "fe80::1"}))).await;
        let excluded = json!({"excludedPrefixes": ["fd00::/60", "fd00:0:0:ff::1", "fd00::-fd00::ff"]});
        trial.accepts(prefixes(&["fd00::/48"], excluded)).await;
        trial.would_accept(prefixes(&["::/0"], json!({"allocationPrefixLength": 1}))).await;
        trial.accepts(prefixes(&["10.0.0.0/16"], json!({"allocationPrefixLength": 26}))).await;
        trial.accepts(prefixes(&["fd00::/48"], json!({"network": unique("lab")}))).await;
    }
}

#[tokio::test]
async fn bad_pools_of_prefixes_are_refused_with_field_and_reason() {
    for kind in PREFIXES {
        let trial = Trial::of(kind, prefixes(&["fd00::/48"], json!({}))).await;
        let one = |more: Value| prefixes(&["fd00::/48"], more);
        trial.rejects(prefixes(&[], json!({})), 422, "spec.prefixes", "prefixes is required").await;
        trial.rejects(prefixes(&["nonsense"], json!({})), 422, "spec.prefixes", "nonsense").await;
        trial.rejects(prefixes(&["fd00::1"], json!({})), 422, "spec.prefixes", "not a prefix").await;
        trial.rejects(prefixes(&["fd00::-fd00::ff"], json!({})), 422, "spec.prefixes", "not a prefix").await;
        trial.rejects(prefixes(&["fd00::1/48"], json!({})), 422, "spec.prefixes", "write fd00::/48").await;
        trial.rejects(prefixes(&["fd00::/65"], json!({})), 422, "spec.prefixes", "longer than the allocation").await;
        trial.rejects(prefixes(&["fd00::/48", "10.0.0.0/16"], json!({})), 422, "spec.prefixes", "is IPv4").await;
        trial.rejects(one(json!({"gateway": "x"})), 422, "spec.gateway", "\"x\"").await;
        trial.rejects(one(json!({"gateway": "10.0.0.1"})), 422, "spec.gateway", "is IPv4").await;
        let excluding = |entry: &str| one(json!({"excludedPrefixes": [entry]}));
        trial.rejects(excluding("x"), 422, "spec.excludedPrefixes", "\"x\"").await;
        trial.rejects(excluding("10.0.0.0/24"), 422, "spec.excludedPrefixes", "is IPv4").await;
        let length = "spec.allocationPrefixLength";
        trial.rejects(one(json!({"allocationPrefixLength": 129})), 422, length, "between 1 and 128").await;
        trial.rejects(one(json!({"allocationPrefixLength": 0})), 422, length, "between 1 and 128").await;
        trial.rejects(prefixes(&["10.0.0.0/16"], json!({})), 422, length, "between 1 and 32").await;
        trial.rejects(one(json!({"network": "No"})), 422, "spec.network", "No").await;
    }
}

#[tokio::test]
async fn a_pool_without_a_specification_is_refused() {
    for (kind, field) in [
        (IPPool, "spec.addresses"),
        (GlobalIPPool, "spec.addresses"),
        (PrefixPool, "spec.prefixes"),
        (GlobalPrefixPool, "spec.prefixes"),
    ] {
        let asker = Asker::new(&Consumer::new(&wired().plane).await);
        let mut pool = asker.pool(kind, &unique("empty"), &json!({}));
        pool.as_object_mut().expect("a pool is an object").remove("spec");
        ask(&wired().webhooks, kind, "CREATE", &Value::Null, &pool).await.refused(422, field, "required");
        // The definition may say that it is the specification that is missing.
        let path = asker.path(kind, "v1alpha2", "");
        asker.call("POST", &path, crate::ask::JSON, &pool).await.refused(422, "spec", "equired");
    }
}

#[tokio::test]
async fn network_and_allocation_length_are_immutable() {
    let webhooks = &wired().webhooks;
    for kind in InClusterKind::ALL {
        let asker = Asker::new(&Consumer::new(&wired().plane).await);
        let (name, lab) = (unique("fixed"), unique("lab"));
        let spec = if ADDRESSES.contains(&kind) {
            addresses(&["10.0.0.1"], json!({"network": lab}))
        } else {
            prefixes(&["fd00::/48"], json!({"network": lab}))
        };
        asker.create(kind, &name, &spec).await.done();
        let mut cases = vec![("network", json!(unique("lab"))), ("network", json!(null))];
        if PREFIXES.contains(&kind) {
            cases.push(("allocationPrefixLength", json!(65)));
        }
        for (field, value) in cases {
            let old = asker.pool(kind, &name, &spec);
            let new = with(&old, field, value.clone());
            let path = format!("spec.{field}");
            ask(webhooks, kind, "UPDATE", &old, &new).await.refused(422, &path, "immutable");
            asker.try_change(kind, &name, &json!({"spec": {field: value}})).await.refused(422, "spec", "");
        }
        asker.try_change(kind, &name, &json!({"spec": {"gateway": null}})).await.done();
    }
}

#[tokio::test]
async fn the_pools_of_a_network_give_out_blocks_of_one_length() {
    let consumer = Consumer::new(&wired().plane).await;
    let (asker, lab) = (Asker::new(&consumer), unique("lab"));
    asker.create(IPPool, "single", &addresses(&["10.0.0.1"], json!({"network": lab}))).await.done();
    let other = prefixes(&["10.1.0.0/16"], json!({"allocationPrefixLength": 26, "network": lab}));
    let said = eventually("the length of the network's blocks is known", || async {
        let said = asker.try_create(PrefixPool, "blocks", &other).await;
        (!said.is_ok()).then_some(said)
    })
    .await;
    said.refused(422, "spec.network", "length 32");
    // The other family has a length of its own.
    let v6 = prefixes(&["fd00::/48"], json!({"network": lab}));
    asker.try_create(GlobalPrefixPool, &unique("blocks"), &v6).await.done();
}

#[tokio::test]
async fn definitions_refuse_before_the_webhook_is_asked() {
    let webhooks = &wired().webhooks;
    let asker = Asker::new(&Consumer::new(&wired().plane).await);
    let by_definition = |said: &Said, field: &str| {
        assert_eq!((said.code, said.reason.as_str()), (422, "Invalid"), "{said:?}");
        assert_eq!(said.fields, [field], "{said:?}");
        assert!(!said.message.contains("admission webhook"), "{said:?}");
    };
    // The definitions name the entry, the webhook the list, as the Go provider does.
    let bad = addresses(&["10.0.0.1", "10.0.0.2", "nonsense"], json!({}));
    by_definition(&asker.try_create(IPPool, "bad", &bad).await, "spec.addresses[2]");
    let said = ask(webhooks, IPPool, "CREATE", &Value::Null, &asker.pool(IPPool, "bad", &bad)).await;
    assert_eq!((said.code, said.fields), (422, vec!["spec.addresses".to_owned()]));
    // Definitions have no other code than 422, and a field that is fixed is one of their rules.
    asker.create(PrefixPool, "fixed", &prefixes(&["fd00::/48"], json!({}))).await.done();
    let longer = json!({"spec": {"allocationPrefixLength": 65}});
    by_definition(&asker.try_change(PrefixPool, "fixed", &longer).await, "spec.allocationPrefixLength");
}
