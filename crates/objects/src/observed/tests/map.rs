//! The map by namespace and name.

use super::super::versions::TOMBSTONE_TTL;
use super::*;
use crate::namespaced_name::NamespacedName;

fn metadata(name: &str, uid: u8, version: &str) -> ObjectMeta {
    let (name, uid) = (Some(name.to_owned()), Some(uid_text(uid)));
    ObjectMeta {
        namespace: Some("n".to_owned()),
        name,
        uid,
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    }
}

#[test]
fn deletions_are_remembered_for_a_time() {
    let (mut observed, object) = (Observed::default(), metadata("a", 1, "5"));
    observed.delete("n", "a", object.uid.as_deref(), *START);
    assert_eq!(observed.see(Origin::Response, &object, 1, *START), None);
    assert_eq!(
        observed.see(Origin::Response, &object, 1, *START + TOMBSTONE_TTL),
        Some(Change { before: None })
    );
}

#[test]
fn objects_missing_in_a_new_list_are_removed() {
    let mut observed = Observed::default();
    observed.begin_list();
    for name in ["a", "b", "c"] {
        observed.see(
            Origin::Watch,
            &metadata(name, 1, "1"),
            name.to_owned(),
            *START,
        );
    }
    observed.see_undecodable(Origin::Watch, &metadata("d", 1, "1"), *START);
    assert_eq!(observed.end_list(*START), []);
    observed.begin_list();
    let change = observed.see(
        Origin::Watch,
        &metadata("b", 1, "2"),
        "new".to_owned(),
        *START,
    );
    assert_eq!(
        change,
        Some(Change {
            before: Some("b".to_owned())
        })
    );
    observed.see_undecodable(Origin::Watch, &metadata("c", 1, "2"), *START);
    assert_eq!(
        observed.iter().count(),
        3,
        "nothing is removed before the list is complete"
    );
    let mut removed = observed.end_list(*START);
    removed.sort_unstable();
    let key = |name: &str| NamespacedName::new("n", name);
    assert_eq!(
        removed,
        [(key("a"), Some("a".to_owned())), (key("d"), None)]
    );
    assert_eq!(
        observed.get("n", "c").map(String::as_str),
        Some("c"),
        "its last value stays"
    );
    assert_eq!(observed.end_list(*START), [], "no list has begun");
}

#[test]
fn versions_that_are_no_numbers_refuse_nothing() {
    let mut observed = Observed::default();
    for (version, origin) in [
        ("x", Origin::Response),
        ("y", Origin::Response),
        ("x", Origin::Watch),
    ] {
        assert!(
            observed
                .see(origin, &metadata("a", 1, version), (), *START)
                .is_some()
        );
        assert_eq!(observed.preconditions("n", "a"), None);
    }
    observed.see(Origin::Watch, &metadata("a", 1, "5"), (), *START);
    assert_eq!(
        observed
            .preconditions("n", "a")
            .map(|(_, version)| version.get()),
        Some(5)
    );
    assert!(
        observed
            .see(Origin::Response, &metadata("a", 1, "x"), (), *START)
            .is_none()
    );
    observed.restored();
    assert_eq!(observed.preconditions("n", "a"), None);
}
