//! Reads and writes the fields of a Cluster that hold addresses.

use capi_ipam_api::{ClusterField, ClusterNetworkKind};
use capi_ipam_provider::api::{
    AddressableCluster, AddressableClusterSpec, NetworkRanges, Variable,
};
use serde_json::{Map, Value};

/// Why an address cannot be written into a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldError {
    /// The field has another value.
    #[error("{field} is {found} already")]
    Present {
        /// The field.
        field: ClusterField,
        /// Its value.
        found: String,
    },
    /// The Cluster has no ClusterClass, and so no variables.
    #[error("{field} cannot be set: the Cluster has no spec.topology")]
    NoTopology {
        /// The field.
        field: ClusterField,
    },
    /// A part of the path exists and is not an object.
    #[error("{field} cannot be set: {part} is not an object")]
    NotAnObject {
        /// The field.
        field: ClusterField,
        /// The part of the path.
        part: String,
    },
}

/// The value of a field; `None` if it is empty.
pub(super) fn read(cluster: &AddressableCluster, field: &ClusterField) -> Option<String> {
    let spec = &cluster.spec;
    match field {
        ClusterField::Endpoint => {
            let endpoint = spec.control_plane_endpoint.as_ref()?;
            (!endpoint.host.is_empty()).then(|| endpoint.host.clone())
        }
        ClusterField::Network(kind) => {
            let blocks = &network(spec, *kind)?.cidr_blocks;
            (!blocks.is_empty()).then(|| blocks.join(","))
        }
        ClusterField::Variable { name, path } => {
            let topology = spec.topology.as_ref()?;
            let variable = topology.variables.iter().find(|it| it.name == *name)?;
            let mut value = &variable.value;
            for part in path {
                value = value.get(part)?;
            }
            text(value)
        }
    }
}

/// The text of a value; `None` if it is empty.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        other => Some(other.to_string()),
    }
}

fn network(spec: &AddressableClusterSpec, kind: ClusterNetworkKind) -> Option<&NetworkRanges> {
    let networks = spec.cluster_network.as_ref()?;
    match kind {
        ClusterNetworkKind::Pods => networks.pods.as_ref(),
        ClusterNetworkKind::Services => networks.services.as_ref(),
    }
}

/// Writes a value into a field that is empty. A field with this value stays as it is. `port` is
/// written if the field is an endpoint without a port.
///
/// # Errors
/// If the field has another value, or if it cannot be written.
pub(super) fn write(
    cluster: &mut AddressableCluster,
    field: &ClusterField,
    value: &Value,
    port: Option<i32>,
) -> Result<(), FieldError> {
    let text = text(value).unwrap_or_default();
    match read(cluster, field) {
        Some(found) if found == text => return Ok(()),
        Some(found) => {
            return Err(FieldError::Present {
                field: field.clone(),
                found,
            });
        }
        None => {}
    }
    let spec = &mut cluster.spec;
    match field {
        ClusterField::Endpoint => {
            let endpoint = spec.control_plane_endpoint.get_or_insert_default();
            endpoint.host = text;
            if endpoint.port.unwrap_or_default() == 0 {
                endpoint.port = port;
            }
        }
        ClusterField::Network(kind) => {
            let networks = spec.cluster_network.get_or_insert_default();
            let network = match kind {
                ClusterNetworkKind::Pods => &mut networks.pods,
                ClusterNetworkKind::Services => &mut networks.services,
            };
            network.get_or_insert_default().cidr_blocks = vec![text];
        }
        ClusterField::Variable { name, path } => {
            let Some(topology) = &mut spec.topology else {
                return Err(FieldError::NoTopology {
                    field: field.clone(),
                });
            };
            let known = topology.variables.iter_mut().find(|it| it.name == *name);
            let mut wanted = known
                .as_ref()
                .map_or(Value::Null, |known| known.value.clone());
            insert(&mut wanted, path, value).map_err(|part| FieldError::NotAnObject {
                field: field.clone(),
                part,
            })?;
            match known {
                Some(known) => known.value = wanted,
                None => topology.variables.push(Variable {
                    name: name.clone(),
                    value: wanted,
                }),
            }
        }
    }
    Ok(())
}

/// Sets a field of a value, and creates the objects around it. Fails with the part of the path that
/// is not an object.
fn insert(mut target: &mut Value, path: &[String], value: &Value) -> Result<(), String> {
    for part in path {
        if target.is_null() {
            *target = Value::Object(Map::new());
        }
        let Some(fields) = target.as_object_mut() else {
            return Err(part.clone());
        };
        target = fields.entry(part.clone()).or_insert(Value::Null);
    }
    *target = value.clone();
    Ok(())
}
