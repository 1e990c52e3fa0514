use k8s_openapi::api::core::v1::ConfigMap;

use super::*;

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
