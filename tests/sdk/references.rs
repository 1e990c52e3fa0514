//! Objects that are kept from deletion while others use them.

use capi_ipam_provider::references::{self, ReferenceError};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use support::prelude::*;

use crate::{
    config_maps, consumer,
    interrupt::{Kill, run_until_killed},
};

/// The reference of a user, which does not have to exist.
fn reference_of(name: &str) -> String {
    let user: Secret = object(json!({"metadata": {"namespace": "n", "name": name}}));
    references::name_of(&user, &())
}

async fn maps_of(consumer: &Consumer, names: &[&str]) -> ResourceClient<ConfigMap> {
    let maps = config_maps(consumer);
    for name in names {
        let map = object(json!({"metadata": {"name": name, "finalizers": ["example.com/own"]}}));
        maps.create(&map).await.expect("it can be created");
    }
    maps
}

/// The names of the objects with a reference.
async fn kept(maps: &ResourceClient<ConfigMap>, reference: &str) -> Vec<String> {
    let all = maps.list().await.expect("they can be listed");
    let is_kept = |map: &&ConfigMap| references::of(*map).any(|found| found == reference);
    all.iter()
        .filter(is_kept)
        .map(ResourceExt::name_any)
        .collect()
}

#[tokio::test]
async fn references_are_added_and_removed() {
    let consumer = consumer().await;
    let maps = maps_of(&consumer, &["a", "b", "c"]).await;
    let (first, second) = (reference_of("first"), reference_of("second"));
    for _ in 0..2 {
        let added = references::add(&maps, &["a", "b"], &first).await;
        added.expect("both exist");
        assert_eq!(kept(&maps, &first).await, ["a", "b"]);
    }
    references::set(&maps, &["b", "c"], &second)
        .await
        .expect("both exist");
    references::set(&maps, &["b", "c"], &first)
        .await
        .expect("both exist");
    assert_eq!(kept(&maps, &first).await, ["b", "c"]);

    // Nothing is written if one of them does not exist.
    let absent = references::add(&maps, &["a", "x"], &first).await;
    let error = absent.expect_err("x does not exist");
    assert_eq!(error.to_string(), "ConfigMap x does not exist");
    assert_eq!(kept(&maps, &first).await, ["b", "c"]);

    for _ in 0..2 {
        references::remove(&maps, "c", &first)
            .await
            .expect("it can be removed");
        references::clear(&maps, &second)
            .await
            .expect("all can be removed");
    }
    references::remove(&maps, "x", &first)
        .await
        .expect("nothing is to be done");
    assert_eq!(kept(&maps, &first).await, ["b"]);
    assert_eq!(kept(&maps, &second).await, Vec::<String>::new());
    let map = maps.get("a").await.expect("it can be read");
    let finalizers = map.expect("it exists").metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["example.com/own".to_owned()]));
}

#[tokio::test]
async fn object_in_use_outlives_its_deletion() {
    let consumer = consumer().await;
    let maps = maps_of(&consumer, &["a"]).await;
    let reference = reference_of("user");
    references::add(&maps, &["a"], &reference)
        .await
        .expect("it exists");
    let map = maps.get("a").await.expect("it can be read");
    let uid = map.and_then(|map| map.uid()).unwrap_or_default();
    maps.delete("a", &uid).await.expect("it can be deleted");
    // It is used already.
    references::add(&maps, &["a"], &reference)
        .await
        .expect("nothing is to be done");
    let refused = references::add(&maps, &["a"], &reference_of("other")).await;
    assert!(
        matches!(refused, Err(ReferenceError::Deleting { .. })),
        "{refused:?}"
    );
    references::clear(&maps, &reference)
        .await
        .expect("it can be removed");
    assert_eq!(kept(&maps, &reference).await, Vec::<String>::new());
}

#[tokio::test]
async fn interrupted_set_of_references_is_completed() {
    let consumer = consumer().await;
    let maps = maps_of(&consumer, &["a", "b", "c"]).await;
    let reference = reference_of("user");
    // One write adds, and two remove.
    for kill in Kill::at_each_of(3) {
        references::set(&maps, &["b", "c"], &reference)
            .await
            .expect("both exist");
        let (namespace, reference) = (consumer.namespace.clone(), &reference);
        let set = async |client| {
            let api = Api::namespaced(client, &namespace);
            let maps: ResourceClient<ConfigMap> = ResourceClient::new(api, &());
            references::set(&maps, &["a"], reference).await
        };
        let (ended, _) = run_until_killed(&consumer.client, Some(kill), set).await;
        assert!(ended.is_none(), "{kill:?}");
        references::set(&maps, &["a"], reference)
            .await
            .expect("it exists");
        assert_eq!(kept(&maps, reference).await, ["a"], "{kill:?}");
    }
}
