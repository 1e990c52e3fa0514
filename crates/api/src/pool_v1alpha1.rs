use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The specification of a pool of single addresses in the deprecated version `v1alpha1`. Wire
/// format of the Go in-cluster provider. All fields are optional. The status is
/// [`PoolStatus`](super::PoolStatus).
///
/// Pools are not stored in this version: the conversion webhook converts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The desired state of the pool.")]
pub struct IPPoolSpecV1Alpha1 {
    /// Addresses that can be allocated, in addition to the range of subnet, start and end: single
    /// addresses, networks in CIDR notation and ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Network in CIDR notation (10.0.0.0/24). Its addresses can be allocated, except the first and
    /// the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// First address that can be allocated. Defaults to the second address of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Last address that can be allocated. Defaults to the second to last address of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Prefix length of the subnet that contains the addresses. It is set on each IPAddress. If it
    /// is missing or 0, the prefix length of subnet is used.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 128))]
    pub prefix: i64,
    /// Gateway of the subnet. It is set on each IPAddress and never allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn empty_fields_are_omitted() {
        assert_eq!(
            serde_json::to_value(IPPoolSpecV1Alpha1::default()).unwrap(),
            json!({})
        );
        assert_eq!(
            serde_json::from_value::<IPPoolSpecV1Alpha1>(json!({})).unwrap(),
            IPPoolSpecV1Alpha1::default()
        );
    }

    #[test]
    fn schema_matches_the_go_provider() {
        let schema = schemars::schema_for!(IPPoolSpecV1Alpha1).to_value();
        let names: Vec<_> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(
            names,
            ["addresses", "end", "gateway", "prefix", "start", "subnet"]
        );
        assert_eq!(schema["required"], Value::Null);
        let prefix = &schema["properties"]["prefix"];
        assert_eq!(
            (&prefix["minimum"], &prefix["maximum"]),
            (&Value::Null, &json!(128))
        );
    }
}
