//! The CustomResourceDefinitions of this provider, generated from the types.
//!
//! The schemas (`schema`) accept what the schemas of the Go provider accept, apart from objects
//! that fail validation rules (`rules`). The result is committed under `config/crd`; run `make
//! generate` after a change of a type.

mod columns;
mod rules;
mod schema;
mod served;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::JsonSchema;
use serde_json::{Value, json};

pub(super) use schema::date_time_schema;
pub use served::missing_fields;

use super::conditions::UNPROCESSED_GENERATION;
use super::{
    BlockRecord, ClusterAddressingSpec, ClusterAddressingStatus, ClusterRecord, IPNetworkSpec,
    IPNetworkStatus, IPPoolSpec, IPPoolSpecV1Alpha1, IPRegistrySpec, IPRegistryStatus,
    IPReservationSpec, IPSliceSpec, InClusterKind, NetworkRecord, PoolSetKind, PoolSetSpec,
    PoolSetStatus, PoolStatus, PrefixPoolSpec, ProblemStatus, RegistryRecord, names,
};
use crate::installed::{CONVERSION_PATH, CONVERTED_DEFINITIONS, NAMESPACE, WEBHOOK_SERVICE};
use schema::structural;

/// Why a definition cannot be generated. Each variant is a bug in the types.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The definition is not a valid CustomResourceDefinition.
    #[error("the definition of {kind} is malformed")]
    Malformed {
        /// The kind of the definition.
        kind: &'static str,
        /// The error of the deserializer.
        #[source]
        source: serde_json::Error,
    },
    /// A validation rule refers to a field that the type does not have.
    #[error("cannot add a validation rule to the field {path}: it does not exist")]
    UnknownField {
        /// The path of the field.
        path: &'static str,
    },
}

/// The properties of a kind that are common to its versions.
struct Kind {
    name: &'static str,
    plural: &'static str,
    /// For `kubectl get`: unlike `ippools`, no other known group has it.
    short_name: Option<&'static str>,
    is_global: bool,
    /// Whether `clusterctl move` moves objects of this kind and everything that they own.
    is_moved: bool,
}

/// All definitions, in the order in which they are written to `config/crd`.
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let mut definitions: Vec<_> = InClusterKind::ALL
        .into_iter()
        .map(pool)
        .chain(PoolSetKind::ALL.map(pool_set))
        .chain([
            cluster_addressing(),
            network(),
            registry(),
            reservation(),
            slice(),
        ])
        .collect::<Result<_, _>>()?;
    definitions.sort_by_key(|(kind, _)| kind.plural);
    definitions.into_iter().map(read).collect()
}

/// The definitions of an API server that several management clusters use as a registry of blocks,
/// and that no cluster needs itself.
pub fn hub() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    Ok(vec![read(block()?)?])
}

/// Reads a generated definition.
fn read((kind, definition): (Kind, Value)) -> Result<CustomResourceDefinition, CrdError> {
    serde_json::from_value(definition).map_err(|source| CrdError::Malformed {
        kind: kind.name,
        source,
    })
}

fn pool(kind: InClusterKind) -> Result<(Kind, Value), CrdError> {
    let names = Kind {
        name: kind.name(),
        plural: kind.plural(),
        short_name: Some(short_name(kind)),
        is_global: kind.is_global(),
        is_moved: true,
    };
    let consumers = if kind.is_global() {
        "the claims of all namespaces"
    } else {
        "the claims of its namespace"
    };
    let describe = |what: &str| format!("{} is a pool of {what} for {consumers}.", kind.name());
    let status = structural::<PoolStatus>();
    Ok(match kind {
        InClusterKind::IPPool | InClusterKind::GlobalIPPool => {
            let description = describe("single IP addresses");
            let mut old = schema::object(
                &format!(
                    "{description} This version is deprecated; use {}.",
                    names::POOL_VERSION
                ),
                &structural::<IPPoolSpecV1Alpha1>(),
                // The same, since the API server keeps the status of the version of a request only.
                Some(status.clone()),
            );
            rules::pools::old_addresses(&mut old)?;
            let status = Some(unprocessed(status));
            let mut new = schema::object(&description, &pool_spec::<IPPoolSpec>(kind), status);
            rules::pools::addresses(&mut new, kind.is_global())?;
            let old = version(names::OLD_POOL_VERSION, &columns::old_addresses(kind), &old);
            definition(
                names,
                &[
                    old,
                    version(names::POOL_VERSION, &columns::addresses(), &new),
                ],
            )
        }
        InClusterKind::PrefixPool | InClusterKind::GlobalPrefixPool => {
            let mut schema = schema::object(
                &describe("prefixes"),
                &pool_spec::<PrefixPoolSpec>(kind),
                Some(unprocessed(status)),
            );
            rules::pools::prefixes(&mut schema, kind.is_global())?;
            definition(
                names,
                &[version(names::POOL_VERSION, &columns::prefixes(), &schema)],
            )
        }
    })
}

/// The initials of the kind.
fn short_name(kind: InClusterKind) -> &'static str {
    match kind {
        InClusterKind::IPPool => "icipp",
        InClusterKind::GlobalIPPool => "gicipp",
        InClusterKind::PrefixPool => "icpp",
        InClusterKind::GlobalPrefixPool => "gicpp",
    }
}

/// The schema of the specification of a kind of pool in the stored version.
pub fn stored_pool_spec(kind: InClusterKind) -> Result<Value, CrdError> {
    let (_, mut definition) = pool(kind)?;
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    let stored = versions.filter(|version| version.get("storage") == Some(&json!(true)));
    let mut schemas =
        stored.filter_map(|version| version.pointer_mut("/schema/openAPIV3Schema/properties/spec"));
    schemas
        .next()
        .map(Value::take)
        .ok_or(CrdError::UnknownField { path: "spec" })
}

/// Builds the schema of the specification of a kind of pool.
fn pool_spec<T: JsonSchema>(kind: InClusterKind) -> Value {
    let schema = structural::<T>();
    if kind.is_global() {
        return schema;
    }
    ["allowedNamespaces", "limits", "headroom"]
        .into_iter()
        .fold(schema, schema::without)
}

fn network() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "IPNetwork",
        plural: "ipnetworks",
        short_name: None,
        is_global: true,
        is_moved: true,
    };
    let description = "IPNetwork decides which pools belong to a network. The pools of a network never allocate the \
                       same address.";
    let status = unprocessed(structural::<IPNetworkStatus>());
    let mut schema = schema::object(description, &structural::<IPNetworkSpec>(), Some(status));
    rules::networks::networks(&mut schema)?;
    Ok(definition(
        kind,
        &[version(names::POOL_VERSION, &columns::networks(), &schema)],
    ))
}

fn pool_set(kind: PoolSetKind) -> Result<(Kind, Value), CrdError> {
    let own = Kind {
        name: kind.name(),
        plural: kind.plural(),
        short_name: None,
        is_global: kind.is_global(),
        is_moved: true,
    };
    let contents = match kind {
        PoolSetKind::Namespaced => "pools of its namespace and of global pools",
        PoolSetKind::Global => "global pools",
    };
    let description = format!(
        "{} is a set of {contents}. A claim that names it gets an address of one of them.",
        kind.name()
    );
    let status = unprocessed(structural::<PoolSetStatus>());
    let spec = structural::<PoolSetSpec>();
    let mut schema = schema::object(&description, &spec, Some(status));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    rules::pool_sets::pool_sets(&mut schema, kind)?;
    let columns = columns::pool_sets();
    Ok(definition(
        own,
        &[version(names::POOL_VERSION, &columns, &schema)],
    ))
}

fn cluster_addressing() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "ClusterAddressing",
        plural: "clusteraddressings",
        short_name: None,
        is_global: false,
        is_moved: true,
    };
    let description = "ClusterAddressing allocates addresses for the Clusters of its namespace: which IPAddressClaims each \
                       selected Cluster has, and where their addresses are written.";
    let status = unprocessed(structural::<ClusterAddressingStatus>());
    let spec = structural::<ClusterAddressingSpec>();
    let mut schema = schema::object(description, &spec, Some(status));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    rules::cluster_addressings::cluster_addressings(&mut schema)?;
    let columns = columns::cluster_addressings();
    Ok(definition(
        kind,
        &[version(names::POOL_VERSION, &columns, &schema)],
    ))
}

fn registry() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "IPRegistry",
        plural: "ipregistries",
        short_name: None,
        is_global: true,
        // Each management cluster has its own identity in the registry.
        is_moved: false,
    };
    let description = "IPRegistry is where management clusters record which blocks of their networks they have taken.";
    let status = unprocessed(structural::<IPRegistryStatus>());
    let mut schema = schema::object(description, &structural::<IPRegistrySpec>(), Some(status));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    rules::registries::registries(&mut schema)?;
    let columns = columns::registries();
    Ok(definition(
        kind,
        &[version(names::POOL_VERSION, &columns, &schema)],
    ))
}

fn reservation() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "IPReservation",
        plural: "ipreservations",
        short_name: Some("ipres"),
        is_global: true,
        // Reservations of claims are recreated from the moved IPAddresses; for the others see
        // `names::MOVE_LABEL`.
        is_moved: false,
    };
    let description = "IPReservation records which claim holds an address or prefix. Its name is derived from the \
                       scope and the address, so only one client can create it.";
    let status = Some(structural::<ProblemStatus>());
    let mut schema = schema::object(description, &structural::<IPReservationSpec>(), status);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    // Managed fields for each field would be larger than the fields themselves, in up to a hundred
    // thousand objects.
    if let Some(spec) = schema
        .pointer_mut("/properties/spec")
        .and_then(Value::as_object_mut)
    {
        spec.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    rules::reservations::reservations(&mut schema)?;
    Ok(definition(
        kind,
        &[version(
            names::POOL_VERSION,
            &columns::reservations(),
            &schema,
        )],
    ))
}

fn slice() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "IPSlice",
        plural: "ipslices",
        short_name: None,
        is_global: true,
        is_moved: true,
    };
    let description = "IPSlice assigns a slice of a pool to an owner, or a block of a network to the management \
                       cluster. Its name is derived from the pool or the network and the block, so only one client can \
                       create it.";
    let status = Some(structural::<ProblemStatus>());
    let mut schema = schema::object(description, &structural::<IPSliceSpec>(), status);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    rules::slices::slices(&mut schema)?;
    Ok(definition(
        kind,
        &[version(names::POOL_VERSION, &columns::slices(), &schema)],
    ))
}

fn block() -> Result<(Kind, Value), CrdError> {
    let kind = Kind {
        name: "IPBlock",
        plural: "ipblocks",
        short_name: None,
        is_global: true,
        is_moved: false,
    };
    let description = "IPBlock is a record of a registry that several management clusters share: the cluster that holds \
                       a block of a network, a cluster, a network, or the registry. Its name is derived from the record, so only \
                       one client can create it.";
    let records = [
        ("block", structural::<BlockRecord>()),
        ("cluster", structural::<ClusterRecord>()),
        ("network", structural::<NetworkRecord>()),
        ("registry", structural::<RegistryRecord>()),
    ];
    let spec = json!({
        "type": "object",
        "description": "The record: exactly one of the fields is set.",
        // Managed fields for each field would be larger than the fields themselves.
        "x-kubernetes-map-type": "atomic",
        "properties": serde_json::Map::from_iter(records.map(|(name, schema)| (name.to_owned(), schema))),
    });
    let mut schema = schema::object(description, &spec, None);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["spec"]));
    }
    rules::registry::records(&mut schema)?;
    Ok(definition(
        kind,
        &[version(names::POOL_VERSION, &columns::blocks(), &schema)],
    ))
}

/// Adds the default of a status: an object that no provider has processed is in progress by the
/// rules of kstatus. It is no default of the field: a status that another provider wrote stays as
/// it is. Only in the stored version: an update in another version would write it.
fn unprocessed(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut() {
        let default = json!({ "observedGeneration": UNPROCESSED_GENERATION });
        fields.insert("default".to_owned(), default);
    }
    status
}

/// Builds a version of a kind. A status becomes a subresource.
fn version(name: &str, columns: &Value, schema: &Value) -> Value {
    let is_stored = name == names::POOL_VERSION;
    let has_status = schema.pointer("/properties/status").is_some();
    json!({
        "name": name,
        "served": true,
        "storage": is_stored,
        "deprecated": if is_stored { Value::Null } else { json!(true) },
        "subresources": if has_status { json!({ "status": {} }) } else { Value::Null },
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": schema },
    })
}

fn definition(kind: Kind, versions: &[Value]) -> (Kind, Value) {
    let Kind {
        name,
        plural,
        short_name,
        is_global,
        is_moved,
    } = kind;
    let mut labels = names::CONTRACT_LABELS
        .map(|label| (label, names::POOL_VERSION))
        .to_vec();
    labels.extend(is_moved.then_some((names::MOVE_HIERARCHY_LABEL, "")));
    let labels: serde_json::Map<String, Value> = labels
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let full_name = format!("{plural}.{}", names::GROUP);
    let is_converted = CONVERTED_DEFINITIONS.contains(&full_name.as_str());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": full_name, "labels": labels },
        "spec": {
            "group": names::GROUP,
            "names": {
                "kind": name,
                "listKind": format!("{name}List"),
                "plural": plural,
                "singular": name.to_lowercase(),
                "shortNames": short_name.map(|name| [name]),
                "categories": ["cluster-api"],
            },
            "scope": if is_global { "Cluster" } else { "Namespaced" },
            "versions": versions,
            "conversion": if is_converted { conversion() } else { Value::Null },
        },
    });
    (kind, definition)
}

/// The conversion webhook. The CA bundle is added at installation, by cert-manager or by the
/// provider.
fn conversion() -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "service": {
                    "namespace": NAMESPACE, "name": WEBHOOK_SERVICE, "path": CONVERSION_PATH, "port": 443,
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn definitions_with_two_versions_are_converted() {
        let has_two = |definition: &CustomResourceDefinition| definition.spec.versions.len() == 2;
        let names: Vec<_> = all()
            .unwrap()
            .iter()
            .filter(|it| has_two(it))
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(names, CONVERTED_DEFINITIONS);
    }

    /// The specification of a pool of single addresses in both versions.
    fn specs_of_addresses() -> [Value; 2] {
        let kind = InClusterKind::IPPool.name();
        let all = all().unwrap();
        let definition = all.iter().find(|it| it.spec.names.kind == kind).unwrap();
        [names::OLD_POOL_VERSION, names::POOL_VERSION].map(|name| {
            let version = definition.spec.versions.iter().find(|version| version.name == name).unwrap();
            serde_json::to_value(version).unwrap()["schema"]["openAPIV3Schema"]["properties"]["spec"].take()
        })
    }

    /// The limits of all lists and texts of a schema, by path.
    fn limits(schema: &Value, path: &str, found: &mut Vec<(String, Option<u64>)>) {
        match schema["type"].as_str() {
            Some("array") => {
                found.push((path.to_owned(), schema["maxItems"].as_u64()));
                limits(&schema["items"], &format!("{path}[]"), found);
            }
            Some("string") if schema.get("enum").is_none() => {
                found.push((path.to_owned(), schema["maxLength"].as_u64()));
            }
            _ => {
                for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                    limits(field, &format!("{path}.{name}"), found);
                }
            }
        }
    }

    #[test]
    fn old_version_has_the_limits_of_the_stored_one() {
        let [old, new] = specs_of_addresses().map(|schema| {
            let mut found = Vec::new();
            limits(&schema, "spec", &mut found);
            found
        });
        assert_eq!(old.len(), 6, "{old:?}");
        for (path, limit) in &old {
            assert!(limit.is_some(), "{path} has no limit");
            let same = new.iter().find(|(other, _)| other == path);
            assert!(
                same.is_none_or(|(_, stored)| stored == limit),
                "{path}: {limit:?} and {same:?}"
            );
        }
        let shared = old
            .iter()
            .filter(|(path, _)| new.iter().any(|(other, _)| other == path));
        assert_eq!(shared.count(), 3);
    }

    #[test]
    fn stored_schema_of_each_pool_is_found() {
        for kind in InClusterKind::ALL {
            let list = if kind.has_prefixes() {
                "prefixes"
            } else {
                "addresses"
            };
            assert_eq!(
                stored_pool_spec(kind).unwrap()["properties"][list]["maxItems"],
                4096,
                "{kind}"
            );
        }
    }

    #[test]
    fn definitions_are_structural_without_null() {
        let definitions = [all().unwrap(), hub().unwrap()];
        let text = serde_json::to_string(&definitions).unwrap();
        for unwanted in ["nullable", "anyOf", "\"null\"", "$ref"] {
            assert!(!text.contains(unwanted), "{unwanted} in {text}");
        }
    }

    #[test]
    fn only_status_has_a_default() {
        for definition in all().unwrap() {
            let text = serde_json::to_string(&definition).unwrap();
            let kind = &definition.spec.names.kind;
            let has_controller = kind.ends_with("Pool")
                || kind.ends_with("PoolSet")
                || ["ClusterAddressing", "IPNetwork", "IPRegistry"].contains(&kind.as_str());
            assert_eq!(
                text.matches("\"default\":").count(),
                usize::from(has_controller)
            );
            let status = "\"default\":{\"observedGeneration\":-1}";
            assert_eq!(text.contains(status), has_controller, "{kind}");
        }
    }
}
