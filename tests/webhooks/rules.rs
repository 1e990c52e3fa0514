//! The validation rules of pool specs, for all kinds: at the API server (by the CRD or the
//! webhook), and directly at the webhook.

use capi_ipam_api::InClusterKind::{GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use support::prelude::*;
use support::specifications;

use crate::api_client::{ApiClient, post_review};
use crate::shared;

const PREFIXES: [InClusterKind; 2] = [PrefixPool, GlobalPrefixPool];

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

/// Pools can be created with the specifications that the CRD and the webhook accept. With others
/// they can neither be created, nor be changed to them.
#[tokio::test]
async fn api_server_gives_the_verdicts_of_the_table() {
    let client = ApiClient::new(&Consumer::new(&shared().plane).await);
    let good = unique("good");
    for kind in InClusterKind::ALL {
        let spec = if PREFIXES.contains(&kind) {
            prefixes(&["fd00::/48"], json!({}))
        } else {
            addresses(&["10.0.0.1-10.0.0.9"], json!({}))
        };
        client.create(kind, &good, &spec).await.into_object();
    }
    for case in specifications::all() {
        let created = client.dry_run(&case.object).await;
        let Some(denial) = case.both() else {
            let about_spec = |text: &&String| text.starts_with("spec");
            let warnings: Vec<_> = created.warnings.iter().filter(about_spec).collect();
            if let Some(expected) = &case.warnings {
                assert_eq!(
                    warnings,
                    expected.iter().collect::<Vec<_>>(),
                    "{}",
                    case.object
                );
            }
            created.into_object();
            continue;
        };
        created.assert_denied(422, &denial.field, "");
        if let Some(kind) = InClusterKind::of(case.kind()) {
            let changed = client
                .dry_run_replace(kind, &good, &case.object["spec"])
                .await;
            // It may change an immutable field as well.
            changed.assert_denied(422, "", "");
        }
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
    // The CRD names the entry, the webhook the list, as the Go provider does.
    let bad = addresses(&["10.0.0.1", "10.0.0.2", "nonsense"], json!({}));
    let response = client.dry_run_create(IPPool, "bad", &bad).await;
    let found = (response.code, response.reason.as_str());
    assert_eq!(found, (422, "Invalid"), "{response:?}");
    assert_eq!(response.fields, ["spec.addresses[2]"], "{response:?}");
    assert!(
        !response.message.contains("admission webhook"),
        "{response:?}"
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
}
