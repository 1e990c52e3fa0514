use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::watch::{EventHandler, Invalid};

const A: SourceId = SourceId::MAIN;
const B: SourceId = SourceId::of(1);

fn object(name: &str, version: &str) -> Arc<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    Arc::new(object)
}

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("", name)
}

fn insert(store: &Store<ConfigMap>, source: SourceId, name: &str) {
    store.insert(source, &key(name), Cached::Full(object(name, "1")));
}

fn names(objects: &[(NamespacedName, Cached<ConfigMap>)]) -> Vec<&str> {
    let mut names: Vec<_> = objects.iter().map(|(key, _)| key.name()).collect();
    names.sort_unstable();
    names
}

/// A store with the objects `a`, `both` and `b` of two sources.
fn store() -> Store<ConfigMap> {
    let store = Store::default();
    for (source, own) in [(A, "a"), (B, "b")] {
        store.begin_list(source);
        insert(&store, source, own);
        insert(&store, source, "both");
        assert!(store.end_list(source).is_empty());
    }
    store
}

#[test]
fn end_of_a_list_keeps_objects_of_other_sources() {
    for (source, own) in [(A, "a"), (B, "b")] {
        let store = store();
        store.begin_list(source);
        assert_eq!(names(&store.end_list(source)), [own]);
        assert!(store.get(None, "both").is_some());
        let other = if source == A { B } else { A };
        store.begin_list(other);
        assert_eq!(store.end_list(other).len(), 2, "nobody delivers them");
    }
}

#[test]
fn removed_source_takes_what_only_it_delivered() {
    for (source, own) in [(A, "a"), (B, "b")] {
        let store = store();
        assert_eq!(names(&store.of_source(source)), [own, "both"].as_slice());
        assert_eq!(names(&store.remove_source(source)), [own]);
        assert!(store.of_source(source).is_empty());
        assert!(store.get(None, "both").is_some());
    }
}

#[test]
fn object_is_gone_when_its_last_source_has_deleted_it() {
    for order in [[A, B], [B, A]] {
        let store = store();
        let [first, last] = order;
        assert!(matches!(store.remove(first, &key("both")), Removal::Kept));
        assert!(store.get(None, "both").is_some());
        assert!(matches!(
            store.remove(last, &key("both")),
            Removal::Gone(Some(_))
        ));
        assert!(store.get(None, "both").is_none());
    }
    assert!(matches!(
        store().remove(A, &key("unknown")),
        Removal::Gone(None)
    ));
}

#[test]
fn touched_object_is_listed() {
    for source in [A, B] {
        let store = store();
        store.begin_list(source);
        store.touch(source, &key("both"));
        store.touch(source, &key("unknown"));
        assert_eq!(store.end_list(source).len(), 1);
        let other = if source == A { B } else { A };
        store.remove_source(other);
        assert!(store.get(None, "both").is_some(), "the list contained it");
    }
}

#[test]
fn only_states_of_other_sources_are_late() {
    let store = store();
    store.insert(B, &key("both"), Cached::Full(object("both", "7")));
    let is_late = |source, version| store.is_late(source, &object("both", version));
    assert!(is_late(A, "6") && !is_late(A, "7") && !is_late(A, "8"));
    // etcd may have been restored.
    assert!(!is_late(B, "6"));
    assert!(!is_late(A, "unknown"));
}

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

fn insert_labelled<S: Clone>(
    store: &Store<ConfigMap, S>,
    source: SourceId,
    name: &str,
    vlan: &str,
) {
    let object = labelled(name, vlan);
    store.insert(source, &object.key(), Cached::Full(object));
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
    insert_labelled(&store, A, "b", "1");
    assert!(of_vlan(&store, "1").is_empty(), "there is no index yet");
    add_index(&store);
    insert_labelled(&store, A, "a", "1");
    insert_labelled(&store, A, "c", "10");
    assert_eq!(of_vlan(&store, "1"), ["a", "b"]);
    insert_labelled(&store, A, "b", "10");
    assert_eq!(of_vlan(&store, "1"), ["a"]);
    assert_eq!(of_vlan(&store, "10"), ["b", "c"]);
    store.remove(A, &NamespacedName::new("n", "b"));
    assert_eq!(of_vlan(&store, "10"), ["c"]);
    assert!(store.by("unknown", "vlan=1").is_empty());
}

#[test]
fn index_follows_lists_of_all_sources() {
    let store: Store<ConfigMap> = Store::default();
    add_index(&store);
    for source in [A, B] {
        store.begin_list(source);
        insert_labelled(&store, source, "both", "1");
        store.end_list(source);
    }
    insert_labelled(&store, A, "a", "1");
    store.begin_list(A);
    store.end_list(A);
    assert_eq!(of_vlan(&store, "1"), ["both"]);
    store.remove_source(B);
    assert!(of_vlan(&store, "1").is_empty());
}

#[test]
fn compact_object_is_in_no_index() {
    let store: Store<ConfigMap, u8> = Store::default();
    insert_labelled(&store, A, "a", "1");
    let name = NamespacedName::new("n", "a");
    store.insert(A, &NamespacedName::new("n", "b"), Cached::Compact(1));
    add_index(&store);
    assert_eq!(of_vlan(&store, "1"), ["a"]);
    store.insert(A, &name, Cached::Compact(1));
    assert!(of_vlan(&store, "1").is_empty());
    insert_labelled(&store, A, "a", "1");
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
