//! Nothing of a manifest is ignored: fields, lines and paths.

use serde_json::{Map, Value, json};

use super::super::{manifest, schema};
use super::*;

const KINDS: [&str; 5] = [
    "InClusterIPPool",
    "GlobalInClusterIPPool",
    "InClusterPrefixPool",
    "GlobalInClusterPrefixPool",
    "IPReservation",
];

/// A value with all fields that a schema has.
fn example(schema: &Value) -> Value {
    match schema["type"].as_str().unwrap_or_default() {
        "object" => {
            let mut fields = Map::new();
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                fields.insert(name.clone(), example(schema));
            }
            if schema["additionalProperties"].is_object() {
                fields.insert(
                    "example.com/key".to_owned(),
                    example(&schema["additionalProperties"]),
                );
            }
            Value::Object(fields)
        }
        "array" => json!([example(&schema["items"])]),
        "integer" => json!(1),
        "boolean" => json!(true),
        _ if schema["format"] == "date-time" => json!("2026-01-31T12:00:00Z"),
        _ => schema["enum"]
            .get(0)
            .cloned()
            .unwrap_or_else(|| json!("text")),
    }
}

/// The JSON pointers of all fields that the schema names, with their paths.
fn fields(
    value: &Value,
    schema: &Value,
    pointer: &str,
    path: &str,
    found: &mut Vec<(String, String)>,
) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let pointer = format!("{pointer}/{name}");
        fields(&value[name], schema, &pointer, &path, found);
        found.push((pointer, path));
    }
    if value.is_array() {
        fields(
            &value[0],
            &schema["items"],
            &format!("{pointer}/0"),
            &format!("{path}[0]"),
            found,
        );
    }
}

fn is_read(pointer: &str) -> bool {
    // The status is not imported, and says so.
    !pointer.starts_with("/status/") && !["/status", "/apiVersion", "/kind"].contains(&pointer)
}

#[test]
fn misspelt_field_of_every_kind_is_a_problem() {
    let mut count = 0;
    for kind in KINDS {
        let schema = schema::schema(kind).unwrap();
        let mut object = example(schema);
        object["apiVersion"] = json!("ipam.cluster.x-k8s.io/v1alpha2");
        object["kind"] = json!(kind);
        let parsed = manifest::parse(&object.to_string(), "team-a");
        let unknown: Vec<_> = parsed
            .problems
            .iter()
            .filter(|it| it.problem.contains("unknown field"))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let mut found = Vec::new();
        fields(&object, schema, "", "", &mut found);
        for (pointer, path) in found.iter().filter(|(pointer, _)| is_read(pointer)) {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let (parent_path, _) = path.rsplit_once('.').unwrap_or(("", path));
            let mut changed = object.clone();
            let parent = changed
                .pointer_mut(parent)
                .unwrap()
                .as_object_mut()
                .unwrap();
            let value = parent.remove(name).unwrap();
            let misspelt = format!("{name}x");
            parent.insert(misspelt.clone(), value);
            // One field in each line.
            let text = serde_json::to_string_pretty(&changed).unwrap();
            let at = text
                .lines()
                .position(|line| line.trim_start().starts_with(&format!("\"{misspelt}\":")));
            let line = u64::try_from(at.unwrap() + 1).unwrap();
            let place = if parent_path.is_empty() {
                misspelt
            } else {
                format!("{parent_path}.{misspelt}")
            };
            let problem = format!("{place}: unknown field; {name} exists");
            let parsed = manifest::parse(&text, "team-a");
            let is_reported = parsed
                .problems
                .iter()
                .any(|it| it.line == Some(line) && it.problem == problem);
            assert!(
                is_reported,
                "{kind}: {problem} in line {line}: {:?}",
                parsed.problems
            );
            assert!(parsed.records.is_empty(), "{kind}: {path}");
            count += 1;
        }
    }
    assert!(count > 150, "{count} fields");
}

#[test]
fn wrong_type_has_its_path_and_what_to_write() {
    let text = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: GlobalInClusterIPPool
metadata: {name: web, labels: {a: yes}}
spec:
  addresses: 10.0.0.2
  prefix: 024
  gateway:
  allocateReservedIPAddresses: \"true\"
  ranges:
  - {addresses: [10.1.0.2], prefix: \"24\"}
  allowedNamespaces: {from: Everybody}
  limits: []
";
    let found: Vec<_> = problems(text);
    let expected = [
        (
            3,
            "metadata.labels[a]: is yes, but must be a text; write \"yes\" with quotes",
        ),
        (
            5,
            "spec.addresses: is the text \"10.0.0.2\", but must be a list; write [\"10.0.0.2\"]",
        ),
        (
            6,
            "spec.prefix: is 024, but must be a whole number; write 24",
        ),
        (
            7,
            "spec.gateway: is empty, but must be a text; write a value, or remove the field",
        ),
        (
            8,
            "spec.allocateReservedIPAddresses: is the text \"true\", but must be true or false; write true without quotes",
        ),
        (
            10,
            "spec.ranges[0].prefix: is the text \"24\", but must be a whole number; write 24 without quotes",
        ),
        (
            11,
            "spec.allowedNamespaces.from: \"Everybody\" is none of All, None, Selector, Names",
        ),
        (12, "spec.limits: is a list, but must be an object"),
    ];
    assert_eq!(
        found,
        expected.map(|(line, problem)| (Some(line), problem.to_owned()))
    );
}

#[test]
fn manifests_have_lines_and_unknown_fields() {
    let text = "\
# Pools of a rack.
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: web}
spec: {addresses: [10.0.0.2-10.0.0.9], prefix: 24}
---
apiVersion: v1
kind: List
extra: 1
items:
- apiVersion: ipam.cluster.x-k8s.io/v1alpha2
  kind: InClusterIPPool
  metadata: {name: db}
  spec: {addresses: [10.0.1.2], prefix: 24, adresses: []}
- apiVersion: v1
  kind: Pod
";
    let parsed = parse(text, "team-a");
    assert_eq!((parsed.records.len(), parsed.records[0].line), (1, 3));
    let found: Vec<_> = parsed
        .problems
        .iter()
        .map(|it| (it.line.unwrap(), it.problem.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (10, "extra: unknown field"),
            (15, "spec.adresses: unknown field; addresses exists"),
            (
                16,
                "apiVersion: is \"v1\"; ipam.cluster.x-k8s.io/v1alpha2 is supported"
            )
        ]
    );
    let parsed = parse("{\"apiVersion\": [\n", "a");
    assert_eq!(parsed.records.len(), 0);
    assert!(!parsed.problems.is_empty());
}

#[test]
fn fields_that_are_not_imported_are_named() {
    let pool = |name: &str| {
        json!({ "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
                "metadata": { "name": name, "uid": "u", "labels": { IMPORT_LABEL: "others" } },
                "spec": { "addresses": ["10.0.0.2"], "prefix": 24 }, "status": { "observedGeneration": 1 } })
    };
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [pool("a"), pool("b")] });
    let parsed = parse(&list.to_string(), "team-a");
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let warnings = parsed.warnings();
    assert_eq!(
        warnings,
        [
            "line 1 and 1 more objects: metadata.labels[ipam.cluster.x-k8s.io/import] is not imported",
            "line 1 and 1 more objects: metadata.uid is not imported",
            "line 1 and 1 more objects: status is not imported",
        ]
    );
    let text =
        serde_json::to_string(&json!({ "apiVersion": "v1", "kind": "List", "items": [pool("a")] }))
            .unwrap();
    let plan = plan(parse(&text, "team-a"), &Existing::default(), "racks", false).unwrap();
    let Action::CreatePool(_, object) = &plan.pools[0].action else {
        panic!("a pool")
    };
    assert_eq!(
        object["metadata"]["labels"],
        json!({ IMPORT_LABEL: "racks" })
    );
    assert_eq!(
        (&object["status"], &object["metadata"]["uid"]),
        (&Value::Null, &Value::Null)
    );
}
