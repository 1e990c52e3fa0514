//! The validation rules of pool specs, for all kinds: at the API server (by the CRD or the
//! webhook), and directly at the webhook.

use capi_ipam_api::InClusterKind::{self, GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use serde_json::{Value, json};

use crate::api_client::{ApiClient, Response, post_review};
use crate::shared;
use support::consumer::{Consumer, unique};
use support::wait::eventually;

const ADDRESSES: [InClusterKind; 2] = [IPPool, GlobalIPPool];
const PREFIXES: [InClusterKind; 2] = [PrefixPool, GlobalPrefixPool];

/// Tests specs with a valid pool of one kind.
struct Trial {
    client: ApiClient,
    kind: InClusterKind,
    name: String,
    good: Value,
}

impl Trial {
    async fn of(kind: InClusterKind, good: Value) -> Self {
        let client = ApiClient::new(&Consumer::new(&shared().plane).await);
        let name = unique("good");
        client.create(kind, &name, &good).await.into_object();
        Self {
            client,
            kind,
            name,
            good,
        }
    }

    /// Asserts that a pool can be created with this spec, and that an existing pool can be changed
    /// to it.
    async fn accepts(&self, spec: Value) {
        let (Self { client, kind, .. }, webhooks) = (self, &shared().webhooks);
        let name = unique("accepted");
        let new = client.pool(*kind, &name, &spec);
        assert!(
            post_review(webhooks, *kind, "CREATE", &Value::Null, &new)
                .await
                .is_ok(),
            "{spec}"
        );
        assert!(
            post_review(
                webhooks,
                *kind,
                "UPDATE",
                &with(&new, "gateway", json!(null)),
                &new
            )
            .await
            .is_ok(),
            "{spec}"
        );
        client
            .create(*kind, &name, &with(&new, "gateway", json!(null))["spec"])
            .await
            .into_object();
        client
            .patch(*kind, &name, &json!({"spec": spec}))
            .await
            .into_object();
        client.delete(*kind, &name).await.into_object();
    }

    /// Like [`Self::accepts`] with a dry run, for a pool that would overlap with those of other
    /// tests.
    async fn would_accept(&self, spec: Value) {
        let (Self { client, kind, .. }, webhooks) = (self, &shared().webhooks);
        let new = client.pool(*kind, &unique("accepted"), &spec);
        assert!(
            post_review(webhooks, *kind, "CREATE", &Value::Null, &new)
                .await
                .is_ok(),
            "{spec}"
        );
        client
            .dry_run_create(*kind, &unique("accepted"), &spec)
            .await
            .into_object();
    }

    /// Asserts that no pool can be created with this spec or changed to it, and that the webhook
    /// denies exactly this field.
    async fn rejects(&self, spec: Value, code: u16, field: &str, text: &str) {
        let (Self { client, kind, .. }, webhooks) = (self, &shared().webhooks);
        let (old, new) = (
            client.pool(*kind, &self.name, &self.good),
            client.pool(*kind, &self.name, &spec),
        );
        for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &old)] {
            let response = post_review(webhooks, *kind, operation, old, &new).await;
            response.assert_denied(code, field, text);
            assert!(
                response.fields.iter().all(|found| found == field),
                "{spec}: {response:?}"
            );
            assert!(response.message.starts_with(&format!(
                "{kind}.ipam.cluster.x-k8s.io \"{}\" is invalid",
                self.name
            )));
        }
        client
            .dry_run_create(*kind, &unique("bad"), &spec)
            .await
            .assert_denied(code, field, "");
        client
            .dry_run_replace(*kind, &self.name, &spec)
            .await
            .assert_denied(code, field, "");
    }
}

fn with(pool: &Value, field: &str, value: Value) -> Value {
    let mut pool = pool.clone();
    pool["spec"][field] = value;
    pool
}

/// A spec with these addresses, merged with `more`.
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
async fn valid_ip_pools_are_accepted() {
    for kind in ADDRESSES {
        let trial = Trial::of(kind, addresses(&["10.0.0.1-10.0.0.9"], json!({}))).await;
        trial.accepts(addresses(&["10.0.0.1"], json!({}))).await;
        trial
            .accepts(addresses(
                &["10.0.0.0/25", "10.0.0.128-10.0.0.140", "10.0.0.150"],
                json!({}),
            ))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1", "10.0.0.1"], json!({})))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"gateway": "10.0.0.254"})))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"gateway": "192.168.0.1"})))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"gateway": ""})))
            .await;
        trial
            .accepts(addresses(
                &["10.0.0.1"],
                json!({"gateway": "10.0.0.2", "excludedAddresses": ["10.0.0.1"]}),
            ))
            .await;
        trial
            .accepts(addresses(
                &["10.0.0.1"],
                json!({"excludedAddresses": ["10.9.0.0/16"]}),
            ))
            .await;
        trial
            .accepts(addresses(
                &["10.0.0.0/24"],
                json!({"allocateReservedIPAddresses": true}),
            ))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"prefix": 32})))
            .await;
        trial
            .accepts(addresses(&["10.0.0.0-10.0.0.1"], json!({"prefix": 31})))
            .await;
        trial
            .would_accept(addresses(&["0.0.0.0/0"], json!({"prefix": 0})))
            .await;
        trial
            .accepts(addresses(
                &["fd00::/64"],
                json!({"prefix": 64, "gateway": "fd00::1"}),
            ))
            .await;
        trial
            .would_accept(addresses(&["::/0"], json!({"prefix": 0})))
            .await;
        trial
            .accepts(addresses(&["fd00::1"], json!({"prefix": 128})))
            .await;
        trial
            .accepts(addresses(
                &["10.0.0.1"],
                json!({"addressReuseGracePeriodSeconds": 0}),
            ))
            .await;
        trial
            .accepts(addresses(
                &["10.0.0.1"],
                json!({"addressReuseGracePeriodSeconds": i32::MAX}),
            ))
            .await;
        trial
            .accepts(addresses(&["10.0.0.1"], json!({"network": unique("lab")})))
            .await;
    }
}

#[tokio::test]
async fn invalid_ip_pools_are_denied_with_field_and_reason() {
    for kind in ADDRESSES {
        let trial = Trial::of(kind, addresses(&["10.0.0.1-10.0.0.9"], json!({}))).await;
        let one = |more: Value| addresses(&["10.0.0.1"], more);
        trial
            .rejects(
                addresses(&[], json!({})),
                422,
                "spec.addresses",
                "addresses or ranges is required",
            )
            .await;
        trial
            .rejects(
                addresses(&["nonsense"], json!({})),
                422,
                "spec.addresses",
                "nonsense",
            )
            .await;
        trial
            .rejects(addresses(&[""], json!({})), 422, "spec.addresses", "")
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.256"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.256",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.01"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.01",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.0/33"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.0/33",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.9-10.0.0.1"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.9",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.1-fd00::1"], json!({})),
                422,
                "spec.addresses",
                "fd00::1",
            )
            .await;
        trial
            .rejects(
                addresses(&["::ffff:10.0.0.1"], json!({})),
                422,
                "spec.addresses",
                "::ffff:10.0.0.1",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.1", "fd00::1"], json!({})),
                422,
                "spec.addresses",
                "fd00::1 is IPv6",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.1", "10.0.1.1"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.0/24",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.0/23"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.0/24",
            )
            .await;
        trial
            .rejects(
                addresses(&["10.0.0.1-10.0.1.1"], json!({})),
                422,
                "spec.addresses",
                "10.0.0.0/24",
            )
            .await;
        trial
            .rejects(
                one(json!({"prefix": 33})),
                422,
                "spec.prefix",
                "33 is not between 0 and 32",
            )
            .await;
        trial
            .rejects(
                one(json!({"prefix": 129})),
                422,
                "spec.prefix",
                "129 is not between 0 and 32",
            )
            .await;
        trial
            .rejects(
                one(json!({"prefix": -1})),
                422,
                "spec.prefix",
                "-1 is not between 0 and 32",
            )
            .await;
        let range = |address: &str| json!([{"addresses": [address], "prefix": 24}]);
        trial
            .rejects(
                one(json!({"ranges": range("10.0.0.1")})),
                422,
                "spec.ranges[0].addresses[0]",
                "overlaps",
            )
            .await;
        trial
            .rejects(
                one(json!({"ranges": range("10.1.0.x")})),
                422,
                "spec.ranges[0].addresses[0]",
                "10.1.0.x",
            )
            .await;
        trial
            .rejects(
                one(json!({"draining": ["x"]})),
                422,
                "spec.draining[0]",
                "\"x\"",
            )
            .await;
        let metadata = json!({"labels": {"a b": "c"}});
        let field = "spec.addressMetadata.labels[a b]";
        trial
            .rejects(
                one(json!({"addressMetadata": metadata})),
                422,
                field,
                "must be a name",
            )
            .await;
        trial
            .rejects(one(json!({"gateway": "x"})), 422, "spec.gateway", "\"x\"")
            .await;
        trial
            .rejects(
                one(json!({"gateway": "10.0.0.0/24"})),
                422,
                "spec.gateway",
                "10.0.0.0/24",
            )
            .await;
        trial
            .rejects(
                one(json!({"gateway": "fd00::1"})),
                422,
                "spec.gateway",
                "fd00::1 is IPv6",
            )
            .await;
        let excluding = |entry: &str| one(json!({"excludedAddresses": [entry]}));
        trial
            .rejects(excluding("x"), 422, "spec.excludedAddresses", "\"x\"")
            .await;
        trial
            .rejects(
                excluding("10.0.0.9-10.0.0.1"),
                422,
                "spec.excludedAddresses",
                "10.0.0.9",
            )
            .await;
        trial
            .rejects(
                excluding("fd00::/64"),
                422,
                "spec.excludedAddresses",
                "fd00::/64 is IPv6",
            )
            .await;
        let grace = "spec.addressReuseGracePeriodSeconds";
        trial
            .rejects(
                one(json!({"addressReuseGracePeriodSeconds": -1})),
                422,
                grace,
                "-1",
            )
            .await;
        trial
            .rejects(one(json!({"network": "No"})), 422, "spec.network", "No")
            .await;
        trial
            .rejects(one(json!({"network": "a.b"})), 422, "spec.network", "a.b")
            .await;
        trial
            .rejects(one(json!({"network": "-a"})), 422, "spec.network", "-a")
            .await;
        trial
            .rejects(
                one(json!({"network": "a".repeat(64)})),
                422,
                "spec.network",
                "63",
            )
            .await;
    }
}

#[tokio::test]
async fn valid_prefix_pools_are_accepted() {
    for kind in PREFIXES {
        let trial = Trial::of(kind, prefixes(&["fd00::/48"], json!({}))).await;
        trial.accepts(prefixes(&["fd00::/48"], json!({}))).await;
        trial
            .accepts(json!({"prefixes": ["fd00::/48", "fd01::/64"]}))
            .await;
        trial
            .accepts(prefixes(
                &["fd00::/120"],
                json!({"allocationPrefixLength": 128}),
            ))
            .await;
        trial
            .accepts(prefixes(&["fd00::/48"], json!({"gateway": "fd00::1"})))
            .await;
        trial
            .accepts(prefixes(&["fd00::/48"], json!({"gateway": "fe80::1"})))
            .await;
        let excluded =
            json!({"excludedPrefixes": ["fd00::/60", "fd00:0:0:ff::1", "fd00::-fd00::ff"]});
        trial.accepts(prefixes(&["fd00::/48"], excluded)).await;
        trial
            .would_accept(prefixes(&["::/0"], json!({"allocationPrefixLength": 1})))
            .await;
        trial
            .accepts(prefixes(
                &["10.0.0.0/16"],
                json!({"allocationPrefixLength": 26}),
            ))
            .await;
        trial
            .accepts(prefixes(&["fd00::/48"], json!({"network": unique("lab")})))
            .await;
    }
}

#[tokio::test]
async fn invalid_prefix_pools_are_denied_with_field_and_reason() {
    for kind in PREFIXES {
        let trial = Trial::of(kind, prefixes(&["fd00::/48"], json!({}))).await;
        let one = |more: Value| prefixes(&["fd00::/48"], more);
        trial
            .rejects(
                prefixes(&[], json!({})),
                422,
                "spec.prefixes",
                "prefixes or ranges is required",
            )
            .await;
        trial
            .rejects(
                prefixes(&["nonsense"], json!({})),
                422,
                "spec.prefixes",
                "nonsense",
            )
            .await;
        trial
            .rejects(
                prefixes(&["fd00::1"], json!({})),
                422,
                "spec.prefixes",
                "not a prefix",
            )
            .await;
        trial
            .rejects(
                prefixes(&["fd00::-fd00::ff"], json!({})),
                422,
                "spec.prefixes",
                "not a prefix",
            )
            .await;
        trial
            .rejects(
                prefixes(&["fd00::1/48"], json!({})),
                422,
                "spec.prefixes",
                "write fd00::/48",
            )
            .await;
        trial
            .rejects(
                prefixes(&["fd00::/65"], json!({})),
                422,
                "spec.prefixes",
                "longer than the allocation",
            )
            .await;
        trial
            .rejects(
                prefixes(&["fd00::/48", "10.0.0.0/16"], json!({})),
                422,
                "spec.prefixes",
                "is IPv4",
            )
            .await;
        trial
            .rejects(one(json!({"gateway": "x"})), 422, "spec.gateway", "\"x\"")
            .await;
        trial
            .rejects(
                one(json!({"gateway": "10.0.0.1"})),
                422,
                "spec.gateway",
                "is IPv4",
            )
            .await;
        let excluding = |entry: &str| one(json!({"excludedPrefixes": [entry]}));
        trial
            .rejects(excluding("x"), 422, "spec.excludedPrefixes", "\"x\"")
            .await;
        trial
            .rejects(
                excluding("10.0.0.0/24"),
                422,
                "spec.excludedPrefixes",
                "is IPv4",
            )
            .await;
        let length = "spec.allocationPrefixLength";
        trial
            .rejects(
                one(json!({"allocationPrefixLength": 129})),
                422,
                length,
                "between 1 and 128",
            )
            .await;
        trial
            .rejects(
                one(json!({"allocationPrefixLength": 0})),
                422,
                length,
                "between 1 and 128",
            )
            .await;
        trial
            .rejects(
                prefixes(&["10.0.0.0/16"], json!({})),
                422,
                length,
                "between 1 and 32",
            )
            .await;
        trial
            .rejects(one(json!({"network": "No"})), 422, "spec.network", "No")
            .await;
    }
}

#[tokio::test]
async fn pool_without_spec_is_denied() {
    for (kind, field) in [
        (IPPool, "spec.addresses"),
        (GlobalIPPool, "spec.addresses"),
        (PrefixPool, "spec.prefixes"),
        (GlobalPrefixPool, "spec.prefixes"),
    ] {
        let client = ApiClient::new(&Consumer::new(&shared().plane).await);
        let mut pool = client.pool(kind, &unique("empty"), &json!({}));
        pool.as_object_mut()
            .expect("a pool is an object")
            .remove("spec");
        post_review(&shared().webhooks, kind, "CREATE", &Value::Null, &pool)
            .await
            .assert_denied(422, field, "required");
        // The CRD may report that the spec is missing.
        let path = client.path(kind, "v1alpha2", "");
        client
            .call("POST", &path, crate::api_client::JSON, &pool)
            .await
            .assert_denied(422, "spec", "equired");
    }
}

#[tokio::test]
async fn allocation_length_is_immutable() {
    let webhooks = &shared().webhooks;
    for kind in PREFIXES {
        let client = ApiClient::new(&Consumer::new(&shared().plane).await);
        let (name, spec) = (unique("fixed"), prefixes(&["fd00::/48"], json!({})));
        client.create(kind, &name, &spec).await.into_object();
        let (field, value) = ("allocationPrefixLength", json!(65));
        let old = client.pool(kind, &name, &spec);
        let new = with(&old, field, value.clone());
        let path = format!("spec.{field}");
        post_review(webhooks, kind, "UPDATE", &old, &new)
            .await
            .assert_denied(422, &path, "immutable");
        client
            .dry_run_patch(kind, &name, &json!({"spec": {field: value}}))
            .await
            .assert_denied(422, "spec", "");
        client
            .dry_run_patch(kind, &name, &json!({"spec": {"gateway": null}}))
            .await
            .into_object();
    }
}

#[tokio::test]
async fn pools_of_a_network_must_share_one_length() {
    let consumer = Consumer::new(&shared().plane).await;
    let (client, lab) = (ApiClient::new(&consumer), unique("lab"));
    consumer.create_open_network(&lab).await;
    client
        .create(
            IPPool,
            "single",
            &addresses(&["10.0.0.1"], json!({"network": lab})),
        )
        .await
        .into_object();
    let other = prefixes(
        &["10.1.0.0/16"],
        json!({"allocationPrefixLength": 26, "network": lab}),
    );
    let response = eventually(
        "the webhook has observed the allocation length of the network",
        || async {
            let response = client.dry_run_create(PrefixPool, "blocks", &other).await;
            (!response.is_ok()).then_some(response)
        },
    )
    .await;
    response.assert_denied(422, "spec.network", "length 32");
    // The other family has its own length.
    let v6 = prefixes(&["fd00::/48"], json!({"network": lab}));
    client
        .dry_run_create(GlobalPrefixPool, &unique("blocks"), &v6)
        .await
        .into_object();
}

#[tokio::test]
async fn crd_rules_reject_before_the_webhook() {
    let webhooks = &shared().webhooks;
    let client = ApiClient::new(&Consumer::new(&shared().plane).await);
    let by_definition = |response: &Response, field: &str| {
        assert_eq!(
            (response.code, response.reason.as_str()),
            (422, "Invalid"),
            "{response:?}"
        );
        assert_eq!(response.fields, [field], "{response:?}");
        assert!(
            !response.message.contains("admission webhook"),
            "{response:?}"
        );
    };
    // The CRD names the entry, the webhook the list, as the Go provider does.
    let bad = addresses(&["10.0.0.1", "10.0.0.2", "nonsense"], json!({}));
    by_definition(
        &client.dry_run_create(IPPool, "bad", &bad).await,
        "spec.addresses[2]",
    );
    let response = post_review(
        webhooks,
        IPPool,
        "CREATE",
        &Value::Null,
        &client.pool(IPPool, "bad", &bad),
    )
    .await;
    assert_eq!(
        (response.code, response.fields),
        (422, vec!["spec.addresses".to_owned()])
    );
    // CRD rules always return 422, and immutability is one of them.
    client
        .create(PrefixPool, "fixed", &prefixes(&["fd00::/48"], json!({})))
        .await
        .into_object();
    let longer = json!({"spec": {"allocationPrefixLength": 65}});
    by_definition(
        &client.dry_run_patch(PrefixPool, "fixed", &longer).await,
        "spec.allocationPrefixLength",
    );
}
