use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::watch::{EventHandler, Invalid, Keyed};

/// An object in a namespace, with the label `vlan`.
fn labelled(name: &str, vlan: &str) -> Arc<ConfigMap> {
    let metadata = json!({"namespace": "n", "name": name, "uid": name, "labels": {"vlan": vlan}});
    Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
}

fn add_index<S: Clone>(store: &Store<ConfigMap, S>) {
    store.index("vlan", |map| {
        let labels = map.metadata.labels.iter().flatten();
        labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    });
}

fn insert_labelled<S: Clone>(store: &Store<ConfigMap, S>, name: &str, vlan: &str) {
    let object = labelled(name, vlan);
    store.insert(&object.key(), Cached::Full(object));
}

fn of_vlan<S: Clone>(store: &Store<ConfigMap, S>, vlan: &str) -> Vec<String> {
    let found = store.by("vlan", &format!("vlan={vlan}"));
    found
        .iter()
        .map(|map| map.metadata.name.clone().unwrap())
        .collect()
}

#[test]
fn index_follows_changes_and_deletions() {
    let store: Store<ConfigMap> = Store::default();
    insert_labelled(&store, "b", "1");
    assert!(of_vlan(&store, "1").is_empty(), "there is no index yet");
    add_index(&store);
    insert_labelled(&store, "a", "1");
    insert_labelled(&store, "c", "10");
    assert_eq!(of_vlan(&store, "1"), ["a", "b"]);
    insert_labelled(&store, "b", "10");
    assert_eq!(of_vlan(&store, "1"), ["a"]);
    assert_eq!(of_vlan(&store, "10"), ["b", "c"]);
    store.remove(&NamespacedName::new("n", "b"));
    assert_eq!(of_vlan(&store, "10"), ["c"]);
    assert!(store.by("unknown", "vlan=1").is_empty());
}

#[test]
fn index_follows_lists() {
    let store: Store<ConfigMap> = Store::default();
    add_index(&store);
    for name in ["a", "b", "c"] {
        insert_labelled(&store, name, "1");
    }
    store.begin_list();
    insert_labelled(&store, "a", "1");
    // It exists, and cannot be decoded.
    store.touch(&NamespacedName::new("n", "c"));
    assert_eq!(store.end_list().len(), 1);
    assert_eq!(of_vlan(&store, "1"), ["a", "c"]);
}

#[test]
fn compact_object_is_in_no_index() {
    let store: Store<ConfigMap, u8> = Store::default();
    insert_labelled(&store, "a", "1");
    let name = NamespacedName::new("n", "a");
    store.insert(&NamespacedName::new("n", "b"), Cached::Compact(1));
    add_index(&store);
    assert_eq!(of_vlan(&store, "1"), ["a"]);
    store.insert(&name, Cached::Compact(1));
    assert!(of_vlan(&store, "1").is_empty());
    insert_labelled(&store, "a", "1");
    assert_eq!(of_vlan(&store, "1"), ["a"]);
}

/// A cache of watched objects, its handler, and the names that have changed.
struct WatchedMaps {
    store: Store<ConfigMap>,
    handler: Arc<dyn EventHandler<ConfigMap>>,
    changed: Arc<Mutex<Vec<String>>>,
}

impl WatchedMaps {
    fn new() -> Self {
        let changed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changed);
        let (store, handler) = Store::watched(move |name| seen.lock().push(name.name().to_owned()));
        add_index(&store);
        Self {
            store,
            handler,
            changed,
        }
    }

    fn list(&self, objects: &[(&str, &str)]) {
        self.handler.init();
        for (name, vlan) in objects {
            self.handler.apply(&labelled(name, vlan));
        }
        self.handler.init_done();
    }

    /// The names that have changed since the last call.
    fn changed(&self) -> Vec<String> {
        std::mem::take(&mut self.changed.lock())
    }
}

fn invalid(object: &ConfigMap) -> Invalid {
    Invalid {
        spec: Value::Null,
        error: String::new(),
        metadata: Box::new(object.metadata.clone()),
    }
}

#[test]
fn watch_fills_a_cache_and_reports_changes() {
    let maps = WatchedMaps::new();
    maps.list(&[("a", "1"), ("b", "1")]);
    assert_eq!(maps.changed(), ["a", "b"]);
    assert_eq!(of_vlan(&maps.store, "1"), ["a", "b"]);
    maps.handler.delete(&labelled("a", "1"));
    assert_eq!(maps.changed(), ["a"]);
    // It was deleted while the watch was interrupted.
    maps.list(&[("c", "2")]);
    assert_eq!(maps.changed(), ["c", "b"]);
    assert!(of_vlan(&maps.store, "1").is_empty());
    assert_eq!(of_vlan(&maps.store, "2"), ["c"]);
}

#[test]
fn undecodable_object_keeps_its_last_state() {
    let maps = WatchedMaps::new();
    maps.list(&[("a", "1")]);
    maps.handler.init();
    for name in ["a", "unknown"] {
        maps.handler.apply_invalid(&invalid(&labelled(name, "2")));
    }
    maps.handler.init_done();
    assert_eq!(of_vlan(&maps.store, "1"), ["a"]);
    assert!(of_vlan(&maps.store, "2").is_empty());
    maps.handler.delete_invalid(&invalid(&labelled("a", "1")));
    assert!(maps.store.get(Some("n"), "a").is_none());
}
