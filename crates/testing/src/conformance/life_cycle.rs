//! Claims are bound and released, their names are reused, and existing IPAddresses are adopted.

use capi_ipam_provider::api::IPAddress;
use capi_ipam_provider::controller::client::error_chain;
use serde_json::json;

use super::rules::{Rule, Violation, check_owned, describe, describe_address};
use super::scene::Scene;
use crate::consumer::object;

/// How often a name is reused.
const REUSES: usize = 20;
/// A finalizer of another controller.
const FOREIGN: &str = "conformance.example.com/in-use";

/// Claims are bound to different addresses.
pub(super) async fn bind(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    scene.consumer.create_cluster("alpha", false).await;
    scene.create_claim("plain", json!({})).await;
    let label = json!({ "cluster.x-k8s.io/cluster-name": "alpha" });
    scene
        .create_claim(
            "of-cluster",
            json!({ "clusterName": "alpha", "labels": label }),
        )
        .await;
    // Many clients only set the label.
    scene
        .create_claim("labelled", json!({ "labels": label }))
        .await;
    let names = ["plain", "of-cluster", "labelled"].map(str::to_owned);
    let first = scene.all_bound(&names).await?;
    scene
        .always(async || check_same(&first, &scene.all_bound(&names).await?))
        .await
}

/// Released addresses can be allocated again.
pub(super) async fn release(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    for name in ["one", "two"] {
        scene.create_claim(name, json!({})).await;
        scene.bound(name).await?;
    }
    scene.release("one").await?;
    scene.bound("two").await?;
    scene.release("two").await?;
    scene.fill(0).await
}

/// A finalizer of another controller means that the address is in use.
pub(super) async fn foreign_finalizer(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    scene
        .create_claim("used", json!({ "finalizers": [FOREIGN] }))
        .await;
    let address = scene.bound("used").await?;
    scene.consumer.delete("used").await;
    scene.create_claim("other", json!({})).await;
    let other = scene.bound("other").await?;
    if other.spec.address == address.spec.address {
        let expected = "another claim is bound to another address";
        return Err(Violation::new(
            Rule::InUse,
            expected,
            describe_address(&other),
        ));
    }
    scene
        .always(async || check_kept(scene, "used", Rule::InUse).await)
        .await?;
    scene
        .consumer
        .modify(&scene.consumer.claims(), "used", |claim| {
            if let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|finalizer| finalizer != FOREIGN);
            }
        })
        .await;
    scene.released("used").await
}

/// A claim without a status is bound with the address of the existing IPAddress of its name.
pub(super) async fn adoption(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    // A provider would allocate the address of the first claim to a new claim.
    for name in ["first", "restored"] {
        scene.create_claim(name, json!({})).await;
        scene.bound(name).await?;
    }
    let address = scene.bound("restored").await?;
    scene.release("restored").await?;
    scene.release("first").await?;

    let paused = json!({ "annotations": { "cluster.x-k8s.io/paused": "" } });
    scene.create_claim("restored", paused).await;
    let restored: IPAddress = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": { "name": "restored", "namespace": scene.consumer.namespace }, "spec": address.spec,
    }));
    scene
        .consumer
        .addresses()
        .create(&restored)
        .await
        .expect("the IPAddress can be created");
    scene
        .consumer
        .set_paused(&scene.consumer.claims(), "restored", false)
        .await;
    let adopted = scene.bound("restored").await?;
    if adopted.spec != address.spec {
        let expected = format!("claim restored is bound to {}", address.spec.address);
        return Err(Violation::new(
            Rule::Adopted,
            expected,
            describe_address(&adopted),
        ));
    }
    scene.create_claim("new", json!({})).await;
    let new = scene.bound("new").await?;
    if new.spec.address == address.spec.address {
        let expected = "a new claim is not bound to the adopted address";
        return Err(Violation::new(
            Rule::Unique,
            expected,
            describe_address(&new),
        ));
    }
    scene.release("restored").await?;
    scene.release("new").await?;
    scene.fill(0).await
}

/// Each claim of a name has one address, and releases it.
pub(super) async fn name_reuse(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    for _ in 0..REUSES {
        create_again(scene, "again").await?;
        scene.bound("again").await?;
        scene.consumer.delete("again").await;
    }
    create_again(scene, "again").await?;
    scene.bound("again").await?;
    let (claims, addresses) = scene.list().await?;
    check_owned(&claims, &addresses)?;
    scene.fill(1).await
}

/// Creates a claim as soon as the previous one of its name is removed.
async fn create_again(scene: &Scene, name: &str) -> Result<(), Violation> {
    scene
        .until(async || {
            let pool = json!(scene.pool.reference());
            let created = scene
                .consumer
                .try_create_claim_for(name, pool, json!({}))
                .await;
            created.map(drop).map_err(|error| {
                let expected =
                    format!("the deleted claim {name} is removed, and can be created again");
                Violation::new(Rule::Released, expected, error_chain(&error))
            })
        })
        .await
}

/// Checks that a claim that is being deleted and its IPAddress are unchanged.
pub(super) async fn check_kept(scene: &Scene, name: &str, rule: Rule) -> Result<(), Violation> {
    let expected = || format!("claim {name} and its IPAddress remain until then");
    let (claim, address) = scene.read(name).await?;
    let Some(claim) = claim else {
        return Err(Violation::new(rule, expected(), "the claim is removed"));
    };
    let is_bound = claim.bound_address() == Some(name);
    match address {
        Some(address) if is_bound && address.metadata.deletion_timestamp.is_none() => Ok(()),
        Some(address) => Err(Violation::new(rule, expected(), describe_address(&address))),
        None => Err(Violation::new(
            rule,
            expected(),
            format!("no IPAddress of {}", describe(&claim)),
        )),
    }
}

fn check_same<T: PartialEq + std::fmt::Debug>(before: &T, after: &T) -> Result<(), Violation> {
    if before == after {
        return Ok(());
    }
    Err(Violation::new(
        Rule::Lasting,
        format!("claims keep their addresses: {before:?}"),
        format!("{after:?}"),
    ))
}
