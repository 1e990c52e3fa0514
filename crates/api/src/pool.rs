//! The pools: one type for all kinds. The kind of an object determines the type of its
//! specification.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::core::DynamicResourceScope;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::conditions::{self, Condition};
use super::names;
use super::network::MemberPhase;
use super::pool_fields::PoolFields;
use super::pool_key::PoolKey;
use super::pool_kind::InClusterKind;
use super::pool_spec::PoolSpec;

/// A pool of any kind of this provider. Wire format of the Go in-cluster provider, `v1alpha2`.
///
/// The kind is the dynamic type: an `Api` of kube is created for one kind.
///
/// ```
/// use capi_ipam_api::{InClusterKind, Pool, PoolSpec};
///
/// let text = r#"{"kind": "InClusterPrefixPool", "metadata": {"name": "racks"}, "spec": {"prefixes": ["fd00::/48"]}}"#;
/// let pool: Pool = serde_json::from_str(text).unwrap();
/// assert_eq!(pool.kind, InClusterKind::PrefixPool);
/// assert!(matches!(pool.spec, PoolSpec::Prefixes(spec) if spec.prefixes == ["fd00::/48"]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// API group and version; set only to create an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind. Every object that the API server returns has it.
    pub kind: InClusterKind,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The desired state of the pool, in the variant for its kind.
    pub spec: PoolSpec,
    /// The observed state of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
    /// The optional fields of a specification that was cleared.
    #[serde(skip)]
    cleared: PoolFields,
}

impl Pool {
    /// Returns a pool without specification, as the object of events.
    pub fn reference(key: &PoolKey, uid: Option<String>) -> Self {
        let namespace = key.namespace.as_deref().map(str::to_owned);
        let metadata = ObjectMeta {
            name: Some(key.name.as_ref().to_owned()),
            namespace,
            uid,
            ..ObjectMeta::default()
        };
        Self {
            api_version: None,
            kind: key.kind,
            metadata,
            spec: PoolSpec::empty(key.kind),
            status: None,
            cleared: PoolFields::default(),
        }
    }

    /// Clears the specification, which may list thousands of addresses, before the object is
    /// cached. Which optional fields it has remains known.
    pub fn clear_spec(&mut self) {
        self.cleared = self.optional_fields();
        self.spec = PoolSpec::empty(self.kind);
    }

    /// The optional fields that are set.
    pub fn optional_fields(&self) -> PoolFields {
        self.cleared.with(self.spec.optional_fields())
    }
}

impl Resource for Pool {
    type DynamicType = InClusterKind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &InClusterKind) -> Cow<'_, str> {
        kind.name().into()
    }

    fn group(_: &InClusterKind) -> Cow<'_, str> {
        names::GROUP.into()
    }

    fn version(_: &InClusterKind) -> Cow<'_, str> {
        names::POOL_VERSION.into()
    }

    fn plural(kind: &InClusterKind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl PoolKey {
    /// Returns the key of a pool object.
    pub fn of(pool: &Pool) -> Self {
        let Pool { kind, metadata, .. } = pool;
        let namespace = metadata.namespace.as_deref().filter(|_| !kind.is_global());
        Self::new(
            *kind,
            namespace,
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PoolVisitor)
    }
}

/// The fields of a [`Pool`].
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    ApiVersion,
    Kind,
    Metadata,
    Spec,
    Status,
    #[serde(other)]
    Unknown,
}

struct PoolVisitor;

impl<'de> Visitor<'de> for PoolVisitor {
    type Value = Pool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a pool")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pool, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key()? {
            fields.read(&field, &mut map)?;
        }
        fields.into_pool()
    }
}

/// What was read of a pool.
#[derive(Default)]
struct Fields {
    /// The names of the fields that were read.
    seen: Vec<&'static str>,
    api_version: Option<String>,
    kind: Option<InClusterKind>,
    metadata: ObjectMeta,
    spec: Option<PoolSpec>,
    /// The specification, if it precedes the kind. API servers send the fields in alphabetical
    /// order. Other clients may not.
    early_spec: Option<Value>,
    status: Option<PoolStatus>,
}

impl Fields {
    /// Reads the value of a field. Fails if it was read before.
    fn read<'de, A: MapAccess<'de>>(&mut self, field: &Field, map: &mut A) -> Result<(), A::Error> {
        let name = match field {
            Field::ApiVersion => "apiVersion",
            Field::Kind => "kind",
            Field::Metadata => "metadata",
            Field::Spec => "spec",
            Field::Status => "status",
            Field::Unknown => return map.next_value().map(|IgnoredAny| ()),
        };
        if self.seen.contains(&name) {
            return Err(A::Error::duplicate_field(name));
        }
        self.seen.push(name);
        match (field, self.kind) {
            (Field::ApiVersion, _) => self.api_version = map.next_value()?,
            (Field::Kind, _) => self.kind = map.next_value()?,
            (Field::Metadata, _) => self.metadata = map.next_value()?,
            (Field::Spec, Some(kind)) => self.spec = Some(map.next_value_seed(SpecOf(kind))?),
            (Field::Spec, None) => self.early_spec = Some(map.next_value()?),
            (Field::Status, _) => self.status = map.next_value::<WrittenStatus>()?.0,
            (Field::Unknown, _) => {}
        }
        Ok(())
    }

    fn into_pool<E: Error>(self) -> Result<Pool, E> {
        let kind = self.kind.ok_or_else(|| E::missing_field("kind"))?;
        let spec = match (self.spec, self.early_spec) {
            (Some(spec), _) => spec,
            (None, Some(value)) => SpecOf(kind).deserialize(value).map_err(E::custom)?,
            (None, None) => PoolSpec::empty(kind),
        };
        Ok(Pool {
            api_version: self.api_version,
            kind,
            metadata: self.metadata,
            spec,
            status: self.status,
            cleared: PoolFields::default(),
        })
    }
}

/// The status, unless it is the default of the definition.
#[derive(Deserialize)]
#[serde(transparent)]
struct WrittenStatus(#[serde(deserialize_with = "conditions::written_status")] Option<PoolStatus>);

/// Deserializes the specification of a pool of this kind.
struct SpecOf(InClusterKind);

impl<'de> DeserializeSeed<'de> for SpecOf {
    type Value = PoolSpec;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PoolSpec, D::Error> {
        if self.0.has_prefixes() {
            Deserialize::deserialize(deserializer).map(PoolSpec::Prefixes)
        } else {
            Deserialize::deserialize(deserializer).map(PoolSpec::Addresses)
        }
    }
}

/// The observed state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Generation of the pool that counts and conditions describe. While it is less than
    /// metadata.generation, a change of the specification is not processed yet. It is -1 if no
    /// provider has processed the pool.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Counts of the addresses of the pool. Pools of prefixes count prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<AddressCounts>,
    /// Counts of the slices of the pool; only with spec.slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<SliceCounts>,
    /// The network to which the pool belongs, or which it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PoolNetwork>,
    /// What is left in the draining parts of the pool; only with spec.draining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<DrainingStatus>,
    /// Conditions of the pool. Ready is False with reason InvalidSpec if the specification is
    /// invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// Counts of the slices of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceCounts {
    /// Slices of the pool. One at the end of a range can have fewer addresses.
    pub total: i64,
    /// Slices that are assigned to an owner.
    pub assigned: i64,
    /// Slices that can be assigned: they have no owner, and none of their addresses is in use.
    pub free: i64,
}

/// The network of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolNetwork {
    /// Name of the IPNetwork.
    pub name: String,
    /// Joining while addresses of the pool are still reserved outside of the network, then Member.
    /// Leaving while addresses of a pool that no longer belongs to the network are reserved in it.
    pub phase: MemberPhase,
    /// Number of addresses whose reservations are not moved yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remaining: i64,
}

/// The draining parts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainingStatus {
    /// Addresses of the draining parts that are in use. When it is 0, the parts can be removed from
    /// the pool.
    pub addresses: i64,
}

/// Counts of the addresses of a pool. Each is limited to the maximum of a signed 64-bit integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// Addresses that the pool can allocate, in use or not.
    pub total: i64,
    /// Addresses that can be allocated now.
    pub free: i64,
    /// Addresses of the pool that are in use.
    pub used: i64,
    /// Addresses in use that the pool no longer contains.
    pub out_of_range: i64,
    /// Addresses of the pool that are neither free, in use, cooling down nor quarantined: reserved by a
    /// user, being allocated, or in use by another pool of the same network.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved: i64,
    /// Addresses of the pool that were released and cannot be reused before the grace period ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cooling_down: i64,
    /// Addresses of the pool that are quarantined, since another host answers at them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: i64,
    /// Addresses of the draining parts of the pool that are not in use. They are not allocated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drained: i64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests;
