//! References: an object that others use is kept from deletion by a finalizer for each user. Here
//! is what follows from the objects that exist.

use std::collections::BTreeSet;

use kube::Resource;

use crate::finalizer;

/// What the finalizers of references begin with, whatever the domain behind it.
const PREFIX: &str = "reference.";

/// The references to an object: its finalizers that are one.
pub fn of<K: Resource>(object: &K) -> impl Iterator<Item = &str> {
    finalizer::all(object).filter(|finalizer| finalizer.starts_with(PREFIX))
}

/// What is to be written so that a user refers to an object, or no longer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// The finalizer is added.
    Add,
    /// The finalizer is removed.
    Remove,
    /// The finalizer is missing and cannot be added: the object is being deleted.
    Refused,
}

/// Decides what is to be written to an object.
pub fn step<K: Resource>(object: &K, reference: &str, is_wanted: bool) -> Step {
    let is_set = finalizer::is_set(object, reference);
    let is_deleting = object.meta().deletion_timestamp.is_some();
    match (is_wanted, is_set) {
        (true, true) | (false, false) => Step::Nothing,
        (true, false) if is_deleting => Step::Refused,
        (true, false) => Step::Add,
        (false, true) => Step::Remove,
    }
}

/// The objects to change.
#[derive(Debug)]
pub struct Plan<'a, K> {
    /// Those that are wanted, whether they have the finalizer or not.
    pub wanted: Vec<&'a K>,
    /// Those that have the finalizer and are not wanted.
    pub obsolete: Vec<&'a K>,
}

/// Compares the objects that exist with the names of those to which a user refers.
///
/// # Errors
/// If a wanted object does not exist: its name.
pub fn plan<'a, K: Resource>(
    existing: &'a [K],
    wanted: &BTreeSet<&str>,
    reference: &str,
) -> Result<Plan<'a, K>, String> {
    let mut plan = Plan {
        wanted: Vec::new(),
        obsolete: Vec::new(),
    };
    let mut absent = wanted.clone();
    for object in existing {
        let name = object.meta().name.as_deref().unwrap_or_default();
        if wanted.contains(name) {
            absent.remove(name);
            plan.wanted.push(object);
        } else if finalizer::is_set(object, reference) {
            plan.obsolete.push(object);
        }
    }
    match absent.first() {
        Some(name) => Err((*name).to_owned()),
        None => Ok(plan),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    const REFERENCE: &str = "reference.example.com/user";

    fn map(name: &str, finalizers: &[&str]) -> ConfigMap {
        let metadata = json!({"namespace": "team", "name": name, "finalizers": finalizers});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn step_depends_on_finalizer_and_deletion() {
        let (free, used) = (map("a", &[]), map("a", &[REFERENCE]));
        let mut deleting = free.clone();
        deleting.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        for (object, is_wanted, expected) in [
            (&free, true, Step::Add),
            (&free, false, Step::Nothing),
            (&used, true, Step::Nothing),
            (&used, false, Step::Remove),
            (&deleting, true, Step::Refused),
            (&deleting, false, Step::Nothing),
        ] {
            assert_eq!(step(object, REFERENCE, is_wanted), expected);
        }
    }

    #[test]
    fn plan_names_an_object_that_does_not_exist() {
        let existing = [map("a", &[]), map("b", &[REFERENCE]), map("c", &[])];
        let plan = |wanted: &[&str]| {
            let plan = plan(&existing, &wanted.iter().copied().collect(), REFERENCE)?;
            let names = |objects: Vec<&ConfigMap>| -> Vec<String> {
                let names = objects.iter().map(|map| map.metadata.name.clone());
                names.flatten().collect()
            };
            Ok((names(plan.wanted), names(plan.obsolete)))
        };
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(plan(&["a"]), Ok((names(&["a"]), names(&["b"]))));
        assert_eq!(plan(&["b"]), Ok((names(&["b"]), names(&[]))));
        assert_eq!(plan(&[]), Ok((names(&[]), names(&["b"]))));
        assert_eq!(plan(&["a", "x"]), Err("x".to_owned()));
    }
}
