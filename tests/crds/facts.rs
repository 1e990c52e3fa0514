//! Without a server: the CRDs compared with those of the Go provider.

use super::{COMMITTED, DEFINITIONS, data};
use support::prelude::*;

/// A CRD as a flat map of facts.
type Facts = BTreeMap<String, Value>;

/// The additions to the CRDs of the Go provider, in kinds and versions that both have: a suffix of
/// the CRD names, and the fact. A trailing star matches any suffix.
const ADDITIONS: &[(&str, &str)] = &[
    // The initials of the kinds.
    ("", "names shortNames"),
    // Conditions, and the column that shows one.
    ("", "v1alpha2 column 7 Ready"),
    ("", "v1alpha2 .status.conditions*"),
    // Counts that make the others add up to the total.
    ("", "v1alpha2 column 4 Reserved"),
    ("", "v1alpha2 column 5 Cooling"),
    ("", "v1alpha2 column 6 Drained"),
    ("", "v1alpha2 .status.ipAddresses.reserved type"),
    ("", "v1alpha2 .status.ipAddresses.coolingDown type"),
    // What kstatus reads.
    ("", "v1alpha2 .status.network*"),
    ("", "v1alpha2 .status.observedGeneration type"),
    ("", "v1alpha2 .status default"),
    // The limits of the stored version.
    ("ippools", "v1alpha1 .spec.addresses maxItems"),
    ("ippools", "v1alpha1 .spec.addresses[] maxLength"),
    ("ippools", "v1alpha1 .spec.subnet maxLength"),
    ("ippools", "v1alpha1 .spec.start maxLength"),
    ("ippools", "v1alpha1 .spec.end maxLength"),
    ("ippools", "v1alpha1 .spec.gateway maxLength"),
    // Networks.
    ("", "v1alpha2 .spec.network type"),
    ("", "v1alpha2 .spec.network maxLength"),
    ("", "v1alpha2 .spec.network rules"),
    // Allocation policies.
    ("", "v1alpha2 .spec.allocation*"),
    // Slices.
    ("", "v1alpha2 .spec.slices*"),
    ("", "v1alpha2 .status.slices*"),
    // What counts as abandoned.
    ("", "v1alpha2 .spec.reclaim*"),
    // Ranges, draining parts, metadata of addresses.
    ("", "v1alpha2 .spec.ranges*"),
    ("", "v1alpha2 .spec.draining*"),
    ("", "v1alpha2 .spec.addressMetadata*"),
    ("", "v1alpha2 .status.draining*"),
    ("", "v1alpha2 .status.ipAddresses.drained type"),
    // Addresses at which another host answers.
    ("", "v1alpha2 .status.ipAddresses.quarantined type"),
    // Name servers and DNS names.
    ("ippools", "v1alpha2 .spec.dns*"),
    ("ippools", "v1alpha2 .spec.searchDomains*"),
    // The status of the stored version.
    ("ippools", "v1alpha1 .status*"),
    // Access to global pools.
    ("global", "v1alpha2 .spec.allowedNamespaces*"),
    ("global", "v1alpha2 .spec.limits*"),
    ("global", "v1alpha2 .spec.headroom*"),
    // Validation rules.
    ("", "v1alpha2 . rules"),
    ("", "v1alpha2 .spec rules"),
    ("", "v1alpha2 .spec.gateway maxLength"),
    ("", "v1alpha2 .spec.gateway rules"),
    ("ippools", "v1alpha2 .spec.addresses maxItems"),
    ("ippools", "v1alpha2 .spec.addresses[] maxLength"),
    ("ippools", "v1alpha2 .spec.addresses[] rules"),
    ("ippools", "v1alpha2 .spec.excludedAddresses maxItems"),
    ("ippools", "v1alpha2 .spec.excludedAddresses[] maxLength"),
    ("ippools", "v1alpha2 .spec.excludedAddresses[] rules"),
    ("prefixpools", "v1alpha2 .spec.prefixes maxItems"),
    ("prefixpools", "v1alpha2 .spec.prefixes[] maxLength"),
    ("prefixpools", "v1alpha2 .spec.prefixes[] rules"),
    ("prefixpools", "v1alpha2 .spec.excludedPrefixes maxItems"),
    ("prefixpools", "v1alpha2 .spec.excludedPrefixes[] maxLength"),
    ("prefixpools", "v1alpha2 .spec.excludedPrefixes[] rules"),
];

/// The columns of `kubectl get` that show something else than those of the Go provider: a suffix of
/// the CRD names, the fact, and its value. Only people read them, so nothing that uses pools of the
/// Go provider depends on them. They show the first entry as a text instead of a list in JSON.
const CHANGED_COLUMNS: &[(&str, &str, &str)] = &[
    (
        "ippools",
        "v1alpha2 column 0 Addresses",
        ".spec..addresses.*",
    ),
    (
        "prefixpools",
        "v1alpha2 column 0 Prefixes",
        ".spec..prefixes.*",
    ),
];

/// What the definitions of the Go provider have and those of this provider do not.
const REMOVED: &[&str] = &[
    // With ranges, the fields can be missing. Rules require them otherwise.
    "v1alpha2 .spec required",
    // Applied when the pool is read: what is stored equals what was written.
    "v1alpha2 .spec.allocationPrefixLength default",
];

/// Kinds that the Go provider does not have.
const OWN_KINDS: &[&str] = &[
    "clusteraddressings.ipam.cluster.x-k8s.io",
    "globalippoolsets.ipam.cluster.x-k8s.io",
    "ipnetworks.ipam.cluster.x-k8s.io",
    "ippoolsets.ipam.cluster.x-k8s.io",
    "ipregistries.ipam.cluster.x-k8s.io",
    "ipreservations.ipam.cluster.x-k8s.io",
    "ipslices.ipam.cluster.x-k8s.io",
];

/// The formats that the API server supports.
const FORMATS: &[&str] = &["int32", "int64", "date-time"];

#[test]
fn crds_match_the_go_provider_plus_known_additions() {
    let theirs: BTreeMap<String, Facts> = data("crd-facts.json")
        .as_object()
        .expect("facts by name")
        .iter()
        .map(|(name, crd)| (name.clone(), recorded(crd)))
        .collect();
    let ours: BTreeMap<String, Facts> = DEFINITIONS
        .iter()
        .map(|crd| (text(crd, "/metadata/name"), flat(crd)))
        .collect();
    let own_kinds: Vec<_> = ours
        .keys()
        .filter(|name| !theirs.contains_key(*name))
        .collect();
    assert_eq!(own_kinds, OWN_KINDS);
    let mut problems = Vec::new();
    for (name, theirs) in &theirs {
        let ours = ours
            .get(name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        problems.extend(differences(name, theirs, ours));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn differences_between_crds_are_detected() {
    let theirs = Facts::from([
        ("a type".to_owned(), json!("string")),
        ("b type".to_owned(), json!("string")),
    ]);
    let mut ours = theirs.clone();
    ours.remove("a type");
    ours.insert("b type".to_owned(), json!("integer"));
    ours.insert("c type".to_owned(), json!("string"));
    let found = differences("inclusterippools.ipam.cluster.x-k8s.io", &theirs, &ours).join("\n");
    for expected in [
        "lacks a type",
        "b type is \"integer\"",
        "has c type",
        "lacks the addition v1alpha2 column 7 Ready",
    ] {
        assert!(found.contains(expected), "{expected} in {found}");
    }
}

#[test]
fn ip_pool_crds_use_the_conversion_webhook() {
    for definition in &*DEFINITIONS {
        let name = text(definition, "/metadata/name");
        let conversion = &definition["spec"]["conversion"];
        if !name.contains("ippools.") {
            assert_eq!(*conversion, Value::Null, "{name}");
            continue;
        }
        let service = json!({
            "namespace": "capi-ipam-in-cluster-system", "name": "capi-ipam-in-cluster-webhook-service",
            "path": "/convert", "port": 443,
        });
        let webhook =
            json!({"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}});
        assert_eq!(
            *conversion,
            json!({"strategy": "Webhook", "webhook": webhook}),
            "{name}"
        );
    }
}

#[test]
fn schemas_are_structural_and_documented() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for definition in &*DEFINITIONS {
        for (version, schema) in schemas(definition) {
            let version = format!("{} {version}", text(definition, "/metadata/name"));
            visit(schema, "", &mut |path, part| {
                seen += 1;
                if part.get("nullable").is_some() {
                    problems.push(format!("{version} {path} is nullable"));
                }
                if part
                    .get("format")
                    .is_some_and(|format| !FORMATS.contains(&format.as_str().unwrap_or_default()))
                {
                    problems.push(format!(
                        "{version} {path} has the format {}",
                        part["format"]
                    ));
                }
                let is_described = part["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 10);
                // The API server describes metadata itself, and items are described with their
                // list.
                if !is_described && path != ".metadata" && !path.ends_with("[]") {
                    problems.push(format!("{version} {path} has no description"));
                }
                for unwanted in ["[`", "](", "\n"] {
                    if text(part, "/description").contains(unwanted) {
                        problems.push(format!(
                            "{version} {path} has {unwanted:?} in its description"
                        ));
                    }
                }
            });
        }
    }
    assert!(seen > 100, "the CRDs have schemas");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn committed_crds_match_the_types() {
    let file = std::fs::read_to_string(COMMITTED).expect("the file can be read");
    let documents = file.split("\n---\n").skip(1);
    let committed: Vec<Value> = documents
        .map(|document| serde_saphyr::from_str(document).expect("the file is YAML"))
        .collect();
    // Numbers are compared by value: 0 equals 0.0.
    let ours: Vec<Facts> = DEFINITIONS.iter().map(flat).collect();
    assert_eq!(
        committed.iter().map(flat).collect::<Vec<_>>(),
        ours,
        "run `make generate`"
    );
}

/// The unexpected differences.
fn differences(name: &str, theirs: &Facts, ours: &Facts) -> Vec<String> {
    let additions = ADDITIONS
        .iter()
        .filter(|(kinds, _)| name.contains(kinds))
        .map(|(_, fact)| *fact);
    let mut missing: BTreeSet<&str> = additions.clone().collect();
    let mut found = Vec::new();
    for (fact, value) in ours {
        match theirs.get(fact) {
            Some(their) if their == value => {}
            Some(their) if is_changed_column(name, fact, their, value) => {}
            Some(their) => found.push(format!("{name}: {fact} is {value} and not {their}")),
            None => {
                let addition =
                    additions
                        .clone()
                        .find(|addition| match addition.strip_suffix('*') {
                            Some(begin) => fact.starts_with(begin),
                            None => fact == addition,
                        });
                match addition {
                    Some(addition) => drop(missing.remove(addition)),
                    None => found.push(format!(
                        "{name} has {fact}: {value}, which is not in the list of additions"
                    )),
                }
            }
        }
    }
    let lost = theirs
        .keys()
        .filter(|fact| !ours.contains_key(*fact) && !REMOVED.contains(&fact.as_str()));
    found.extend(lost.map(|fact| format!("{name} lacks {fact}")));
    found.extend(
        missing
            .iter()
            .map(|addition| format!("{name} lacks the addition {addition}")),
    );
    found
}

/// Whether this is a column that has the type of the Go provider, and the path of the list of
/// changes.
fn is_changed_column(name: &str, fact: &str, their: &Value, value: &Value) -> bool {
    let change = CHANGED_COLUMNS
        .iter()
        .find(|(kinds, changed, _)| name.contains(kinds) && *changed == fact);
    change.is_some_and(|(.., path)| *value == json!([their[0], path]))
}

/// The facts of a CRD.
fn flat(definition: &Value) -> Facts {
    let spec = &definition["spec"];
    let mut facts = names(spec);
    for version in spec["versions"].as_array().expect("versions") {
        let name = text(version, "/name");
        facts.extend(about_version(
            &name,
            version,
            &version["additionalPrinterColumns"],
        ));
        visit(
            &version["schema"]["openAPIV3Schema"],
            "",
            &mut |path, part| {
                let path = if path.is_empty() { "." } else { path };
                for (key, value) in part.as_object().expect("a schema") {
                    if !["description", "properties", "items"].contains(&key.as_str()) {
                        let key = if key == "x-kubernetes-validations" {
                            "rules"
                        } else {
                            key
                        };
                        facts.insert(format!("{name} {path} {key}"), comparable(value));
                    }
                }
            },
        );
    }
    facts
}

/// The recorded facts of a CRD of the Go provider.
fn recorded(crd: &Value) -> Facts {
    let mut facts = names(crd);
    for (name, version) in crd["versions"].as_object().expect("versions") {
        facts.extend(about_version(name, version, &version["columns"]));
        for (path, part) in version["schema"].as_object().expect("paths") {
            for (key, value) in part.as_object().expect("facts") {
                facts.insert(format!("{name} {path} {key}"), comparable(value));
            }
        }
    }
    facts
}

fn names(spec: &Value) -> Facts {
    let names = spec["names"].as_object().expect("names");
    let names = names
        .iter()
        .map(|(key, value)| (format!("names {key}"), value.clone()));
    names
        .chain(["group", "scope"].map(|key| (key.to_owned(), spec[key].clone())))
        .collect()
}

fn about_version(name: &str, version: &Value, columns: &Value) -> Facts {
    let columns = columns
        .as_array()
        .expect("columns")
        .iter()
        .enumerate()
        .map(|(index, column)| {
            (
                format!("{name} column {index} {}", text(column, "/name")),
                json!([column["type"], column["jsonPath"]]),
            )
        });
    let own = ["served", "storage", "subresources"]
        .map(|key| (format!("{name} {key}"), version[key].clone()));
    let deprecated = version["deprecated"].as_bool().unwrap_or_default();
    columns
        .chain(own)
        .chain([(format!("{name} deprecated"), json!(deprecated))])
        .collect()
}

/// Normalises the order of required fields and the format of numbers.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => {
            let mut items: Vec<_> = items.iter().map(comparable).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        other => other.clone(),
    }
}

fn schemas(definition: &Value) -> impl Iterator<Item = (String, &Value)> {
    let versions = definition["spec"]["versions"]
        .as_array()
        .expect("versions")
        .iter();
    versions.map(|version| {
        (
            text(version, "/name"),
            &version["schema"]["openAPIV3Schema"],
        )
    })
}

/// Calls `visitor` with each part of a schema and its path.
fn visit(schema: &Value, path: &str, visitor: &mut impl FnMut(&str, &Value)) {
    visitor(path, schema);
    if let Some(items) = schema.get("items") {
        visit(items, &format!("{path}[]"), visitor);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        visit(property, &format!("{path}.{name}"), visitor);
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
