//! References: an object that others use is kept from deletion by a finalizer for each user. Here
//! is what follows from the objects that exist.

use kube::Resource;

use crate::finalizer;

/// What the finalizers of references begin with, whatever the domain behind it.
const PREFIX: &str = "reference.";

/// The references to an object: its finalizers that are one.
pub fn of<K: Resource>(object: &K) -> impl Iterator<Item = &str> {
    finalizer::all(object).filter(|finalizer| finalizer.starts_with(PREFIX))
}

/// The objects whose reference is added or removed, and whether it is added: first those to which
/// the user refers, then those that have the finalizer and are not wanted.
///
/// # Errors
/// If a wanted object does not exist: its name.
pub fn plan<'a, K: Resource>(
    existing: &'a [K],
    wanted: &[&str],
    reference: &str,
) -> Result<Vec<(&'a K, bool)>, String> {
    let mut plan: Vec<(&K, bool)> = Vec::new();
    for name in wanted {
        let has_name = |object: &&K| object.meta().name.as_deref() == Some(name);
        let found = existing.iter().find(has_name);
        let found = found.ok_or_else(|| (*name).to_owned())?;
        // A name can be given twice.
        if !plan.iter().any(|(known, _)| std::ptr::eq(*known, found)) {
            plan.push((found, true));
        }
    }
    for object in existing {
        let name = object.meta().name.as_deref().unwrap_or_default();
        if finalizer::is_set(object, reference) && !wanted.contains(&name) {
            plan.push((object, false));
        }
    }
    Ok(plan)
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
    fn plan_names_an_object_that_does_not_exist() {
        let existing = [map("a", &[]), map("b", &[REFERENCE]), map("c", &[])];
        let plan = |wanted: &[&str]| {
            let plan = plan(&existing, wanted, REFERENCE)?;
            let text = |(map, is_wanted): (&ConfigMap, bool)| {
                format!("{}={is_wanted}", map.metadata.name.as_deref().unwrap())
            };
            Ok::<_, String>(plan.into_iter().map(text).collect::<Vec<_>>())
        };
        let all = |texts: &[&str]| Ok(texts.iter().map(ToString::to_string).collect());
        assert_eq!(plan(&["a"]), all(&["a=true", "b=false"]));
        assert_eq!(plan(&["b", "b"]), all(&["b=true"]));
        assert_eq!(plan(&["c", "a"]), all(&["c=true", "a=true", "b=false"]));
        assert_eq!(plan(&[]), all(&["b=false"]));
        assert_eq!(plan(&["a", "x"]), Err("x".to_owned()));
    }
}
