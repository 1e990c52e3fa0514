//! The validation rules of pool specs, for all kinds: at the API server (by the CRD or the
//! webhook), and directly at the webhook.

use capi_ipam_api::InClusterKind::IPPool;
use support::prelude::*;
use support::specifications;

use crate::api_client::{ApiClient, post_review, spec_of};
use crate::shared;

/// Pools can be created with the specifications that the CRD and the webhook accept. With others
/// they can neither be created, nor be changed to them.
#[tokio::test]
async fn api_server_gives_the_verdicts_of_the_table() {
    let client = ApiClient::new(&Consumer::new(&shared().plane).await);
    let good = unique("good");
    for kind in InClusterKind::ALL {
        client
            .create(kind, &good, &spec_of(kind))
            .await
            .into_object();
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
    let client = ApiClient::new(&Consumer::new(&shared().plane).await);
    for kind in InClusterKind::ALL {
        let mut pool = client.pool(kind, &unique("empty"), &Value::Null);
        pool.as_object_mut()
            .expect("a pool is an object")
            .remove("spec");
        let field = if kind.has_prefixes() {
            "spec.prefixes"
        } else {
            "spec.addresses"
        };
        post_review(&shared().webhooks, kind, "CREATE", &Value::Null, &pool)
            .await
            .assert_denied(422, field, "required");
        // The CRD may report that the spec is missing.
        let denied = client.dry_run(&pool).await;
        denied.assert_denied(422, "spec", "equired");
    }
}

#[tokio::test]
async fn crd_rules_reject_before_the_webhook() {
    let webhooks = &shared().webhooks;
    let client = ApiClient::new(&Consumer::new(&shared().plane).await);
    // The CRD names the entry, the webhook the list, as the Go provider does.
    let bad = json!({"addresses": ["10.0.0.1", "10.0.0.2", "nonsense"], "prefix": 24});
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
