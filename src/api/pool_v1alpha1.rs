use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The addresses of a pool of single addresses in `v1alpha1`, the older version, with the wire format of the Go
/// in-cluster provider. No field has to be there. The status is the one of [`PoolStatus`](super::PoolStatus) without
/// its conditions.
///
/// Pools are never stored so: see [`webhooks::conversion`](../webhooks/conversion/index.html).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The addresses of the pool, as the operator wants them.")]
pub struct IPPoolSpecV1Alpha1 {
    /// The addresses that claims are served from: single addresses, networks in CIDR notation and ranges. The range of
    /// subnet, start and end comes on top.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// A network in CIDR notation (10.0.0.0/24). Claims are served from it, from its second address to its last but
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// First address of the range that claims are served from. Without it that is the second address of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Last address of the range that claims are served from. Without it that is the last but one of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Length of the prefix of the subnet that the addresses lie in; it is handed out with each address. When it is
    /// missing or 0, it is the one of the subnet.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 128))]
    pub prefix: i64,
    /// Gateway of the subnet, handed out with each address and never given to a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    #[test]
    fn fields_that_say_nothing_are_left_out() {
        assert_eq!(serde_json::to_value(IPPoolSpecV1Alpha1::default()).unwrap(), json!({}));
        assert_eq!(serde_json::from_value::<IPPoolSpecV1Alpha1>(json!({})).unwrap(), IPPoolSpecV1Alpha1::default());
    }

    #[test]
    fn the_schema_is_that_of_the_go_provider() {
        let schema = schemars::schema_for!(IPPoolSpecV1Alpha1).to_value();
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["addresses", "end", "gateway", "prefix", "start", "subnet"]);
        assert_eq!(schema["required"], Value::Null);
        let prefix = &schema["properties"]["prefix"];
        assert_eq!((&prefix["minimum"], &prefix["maximum"]), (&Value::Null, &json!(128)));
    }
}
