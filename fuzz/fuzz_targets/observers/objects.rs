//! The objects that watches report.

use capi_ipam_api::{
    IPReservation, IPSlice, InClusterKind, Pool, PoolKey, Scope, Slot, names, slice_name,
};
use capi_ipam_ip::{Block, Family};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use serde_json::{Value, json};

/// A description with few values, so that objects relate to each other.
#[derive(Arbitrary, Debug)]
pub struct Description<'a> {
    kind: Kind,
    pool: u8,
    number: u8,
    claim: u8,
    in_network: bool,
    policy: Policy,
    /// Variations, depending on the kind.
    choice: u8,
    /// A field and an unexpected value of it.
    replaced: Option<(u8, u8)>,
    /// Further changes, as a JSON merge patch.
    patch: Option<&'a str>,
}

/// How a pool allocates.
#[derive(Arbitrary, Debug)]
struct Policy {
    order: u8,
    is_sticky: bool,
    is_draining: bool,
    has_range: bool,
    /// The size of its slices, and how long they are kept.
    slices: Option<(u8, Option<u8>)>,
    limit: Option<u8>,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Kind {
    Pool,
    Address,
    Reservation,
    UnnamedReservation,
    Claim,
    Slice,
}

/// A decoded object.
pub enum Object {
    Pool(Box<Pool>),
    Address(IPAddress),
    Reservation(IPReservation),
    Claim(IPAddressClaim),
    Slice(IPSlice),
}

/// One of 8 pools, two of each kind.
pub fn pool_key(pool: u8) -> PoolKey {
    let kind = InClusterKind::ALL[usize::from(pool) % 4];
    let namespace = (!kind.is_global()).then_some("n");
    PoolKey::new(kind, namespace, if pool & 4 == 0 { "p" } else { "q" })
}

impl Description<'_> {
    /// Returns the object; `None` if it cannot be decoded.
    pub fn build(&self) -> Option<Object> {
        let key = pool_key(self.pool);
        let mut object = match self.kind {
            Kind::Pool => self.pool_object(&key),
            Kind::Address => self.address(&key),
            Kind::Reservation => self.reservation(&key),
            Kind::UnnamedReservation => self.unnamed_reservation(&key),
            Kind::Slice => self.slice(&key),
            Kind::Claim => json!({"metadata": {"namespace": "n", "name": self.claim_name()},
                                  "spec": {"poolRef": reference(&key)}}),
        };
        if let Some((field, value)) = self.replaced {
            replace_field(&mut object, field, value);
        }
        if let Some(patch) = self.patch.and_then(|text| serde_json::from_str(text).ok()) {
            json_patch::merge(&mut object, &patch);
        }
        let is_cluster_wide = matches!(
            self.kind,
            Kind::Reservation | Kind::UnnamedReservation | Kind::Slice
        ) || matches!(self.kind, Kind::Pool) && key.kind.is_global();
        if is_cluster_wide
            && let Some(metadata) = object
                .pointer_mut("/metadata")
                .and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        if matches!(self.kind, Kind::Pool) && object.is_object() {
            // The API server sets the kind.
            object["kind"] = json!(key.kind.name());
        }
        let object = match self.kind {
            Kind::Pool => serde_json::from_value(object).map(|pool| Object::Pool(Box::new(pool))),
            Kind::Address => serde_json::from_value(object).map(Object::Address),
            Kind::Reservation | Kind::UnnamedReservation => {
                serde_json::from_value(object).map(Object::Reservation)
            }
            Kind::Claim => serde_json::from_value(object).map(Object::Claim),
            Kind::Slice => serde_json::from_value(object).map(Object::Slice),
        };
        object.ok()
    }

    fn claim_name(&self) -> String {
        format!("c{}", self.claim % 4)
    }

    fn block(&self, key: &PoolKey) -> Block {
        let number = self.number % 10;
        if key.kind.has_prefixes() {
            let length = 62 + number % 4;
            Block::new(
                format!("fd00:0:0:{number}::").parse().expect("an address"),
                length,
            )
        } else {
            Block::address([10, 0, 0, number].into())
        }
    }

    fn pool_object(&self, key: &PoolKey) -> Value {
        let network = self.in_network.then_some("lab");
        let number = self.number % 5;
        let mut spec = if key.kind.has_prefixes() {
            json!({"prefixes": [format!("fd00:0:0:{}::/61", number / 4 * 8)], "allocationPrefixLength": 63 + number % 2,
                   "excludedPrefixes": [format!("fd00:0:0:{number}::/64")], "network": network})
        } else {
            json!({"addresses": [format!("10.0.0.{number}-10.0.0.6")], "prefix": 24, "network": network,
                   "addressReuseGracePeriodSeconds": self.claim})
        };
        self.policy.apply_to(&mut spec, key);
        let has = |bit: u8| self.choice & bit != 0;
        let finalizers: &[&str] = if has(1) { &[] } else { &[names::PROTECT_POOL] };
        let annotations = if has(2) {
            json!({names::PAUSED_ANNOTATION: ""})
        } else {
            Value::Null
        };
        let deleted = has(4).then_some("2026-01-01T00:00:00Z");
        json!({
            "metadata": {"namespace": key.namespace.as_deref(), "name": key.name.as_ref(), "uid": "u", "finalizers": finalizers,
                         "annotations": annotations, "deletionTimestamp": deleted},
            "spec": spec,
        })
    }

    fn address(&self, key: &PoolKey) -> Value {
        let block = self.block(key);
        json!({
            "metadata": {"namespace": "n", "name": self.claim_name()},
            "spec": {"address": block.base().to_string(), "prefix": block.length(), "poolRef": reference(key),
                     "claimRef": {"name": self.claim_name()}},
        })
    }

    fn reservation(&self, key: &PoolKey) -> Value {
        let slot = Slot {
            scope: Scope::of(key, self.in_network.then_some("lab")),
            block: self.block(key),
        };
        let claim = match self.choice % 4 {
            0 => Value::Null,
            1 => json!({"namespace": "n", "name": self.claim_name()}),
            _ => {
                json!({"namespace": "n", "name": self.claim_name(), "uid": format!("u{}", self.claim % 4)})
            }
        };
        let released =
            (self.choice & 4 != 0).then(|| format!("2026-01-01T00:00:{:02}Z", self.choice >> 4));
        let length = (!slot.block.is_address()).then(|| slot.block.length());
        json!({
            "metadata": {"name": slot.reservation_name(), "uid": format!("r{}", self.choice % 8)},
            "spec": {"scope": slot.scope.name(), "address": slot.block.base().to_string(), "prefixLength": length,
                     "poolRef": key.to_reference(), "claimRef": claim, "releasedAt": released},
        })
    }

    fn slice(&self, key: &PoolKey) -> Value {
        let number = self.number % 10;
        let block = if key.kind.has_prefixes() {
            Block::new(
                format!("fd00:0:0:{}::", number & !1)
                    .parse()
                    .expect("an address"),
                63 - self.claim % 2,
            )
        } else {
            Block::new([10, 0, 0, number & !1].into(), 31 - self.claim % 2)
        };
        let time = |bit: u8| {
            (self.choice & bit != 0).then(|| format!("2026-01-01T00:00:{:02}Z", self.choice >> 4))
        };
        json!({
            "metadata": {"name": slice_name(key, block), "uid": format!("s{}", self.choice % 2)},
            "spec": {"scope": Scope::Pool(key.clone()).name(), "block": format!("{}/{}", block.base(), block.length()),
                     "owner": {"kind": "Namespace", "name": owner_name(self.claim)}, "assignedAt": time(4),
                     "emptySince": time(8)},
        })
    }

    /// A reservation that is not valid: its name contains no address.
    fn unnamed_reservation(&self, key: &PoolKey) -> Value {
        let family = if self.in_network {
            Family::V4
        } else {
            Family::V6
        };
        let length = if self.in_network {
            32
        } else {
            63 + self.number % 2
        };
        json!({
            "metadata": {"name": "n.lab.none", "uid": format!("r{}", self.choice % 4)},
            "spec": {"scope": "n.lab", "address": family.address(0).to_string(), "prefixLength": length,
                     "poolRef": key.to_reference()},
        })
    }
}

impl Policy {
    fn apply_to(&self, spec: &mut Value, key: &PoolKey) {
        let order = ["LowestFirst", "RoundRobin", "Random"][usize::from(self.order % 3)];
        spec["allocation"] = json!({"order": order, "sticky": self.is_sticky, "requests": true});
        if self.is_draining {
            spec["draining"] = json!([if key.kind.has_prefixes() {
                "fd00:0:0:2::/63"
            } else {
                "10.0.0.4-10.0.0.5"
            }]);
        }
        if self.has_range {
            spec["ranges"] = if key.kind.has_prefixes() {
                json!([{"prefixes": ["fd00:0:0:10::/62"]}])
            } else {
                json!([{"addresses": ["10.0.0.7-10.0.0.9"], "prefix": 28, "gateway": "10.0.0.8"}])
            };
        }
        if let Some((size, keep)) = self.slices {
            spec["slices"] =
                json!({"size": 1 << (size % 3), "per": "Namespace", "keepSeconds": keep});
        }
        if let Some(limit) = self.limit.filter(|_| key.kind.is_global()) {
            spec["limits"] = json!({"perNamespace": limit});
        }
    }
}

/// The name of one of two namespaces that own slices.
pub fn owner_name(claim: u8) -> &'static str {
    if claim & 2 == 0 { "n" } else { "m" }
}

fn reference(key: &PoolKey) -> Value {
    json!({"apiGroup": names::GROUP, "kind": key.kind.name(), "name": key.name.as_ref()})
}

/// Replaces the value of a field by an unexpected one.
fn replace_field(object: &mut Value, field: u8, value: u8) {
    let fields = [
        "/metadata",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
        "/metadata/finalizers",
        "/metadata/annotations",
        "/metadata/deletionTimestamp",
        "/spec",
        "/spec/address",
        "/spec/prefix",
        "/spec/poolRef",
        "/spec/poolRef/kind",
        "/spec/poolRef/name",
        "/spec/poolRef/namespace",
        "/spec/scope",
        "/spec/prefixLength",
        "/spec/claimRef",
        "/spec/claimRef/uid",
        "/spec/releasedAt",
        "/spec/addresses",
        "/spec/prefixes",
        "/spec/network",
        "/spec/allocationPrefixLength",
        "/spec/addressReuseGracePeriodSeconds",
        "/spec/allocation",
        "/spec/draining",
        "/spec/ranges",
        "/spec/slices",
        "/spec/slices/size",
        "/spec/limits",
        "/spec/block",
        "/spec/owner",
        "/spec/assignedAt",
        "/spec/emptySince",
    ];
    let many: Vec<String> = (0..300)
        .map(|number| format!("example.com/{number}"))
        .collect();
    let values = [
        Value::Null,
        json!(""),
        json!("a"),
        json!(0),
        json!(-1),
        json!(129),
        json!(i64::MAX),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!(many),
        json!({"a": "b"}),
        json!("x".repeat(300)),
        json!("9999-12-31T23:59:59Z"),
        json!("-009999-01-01T00:00:00Z"),
        json!("::ffff:10.0.0.1"),
        json!("::"),
        json!(["0.0.0.0/0"]),
        json!(["::/0"]),
        json!("n.other"),
        json!("n."),
    ];
    if let Some(place) = object.pointer_mut(fields[usize::from(field) % fields.len()]) {
        *place = values[usize::from(value) % values.len()].clone();
    }
}

impl Object {
    /// The kind, namespace and name of the object, which identify it.
    pub fn key(&self) -> (&'static str, String, String) {
        let kind = match self {
            Object::Pool(pool) => pool.kind.name(),
            Object::Address(_) => "IPAddress",
            Object::Reservation(_) => "IPReservation",
            Object::Claim(_) => "IPAddressClaim",
            Object::Slice(_) => "IPSlice",
        };
        let metadata = match self {
            Object::Pool(pool) => &pool.metadata,
            Object::Address(address) => &address.metadata,
            Object::Reservation(reservation) => &reservation.metadata,
            Object::Claim(claim) => &claim.metadata,
            Object::Slice(slice) => &slice.metadata,
        };
        (
            kind,
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        )
    }

    pub fn apply(&self, ledger: &mut Ledger) {
        match self {
            Object::Pool(pool) => ledger.apply_pool(pool),
            Object::Address(address) => ledger.apply(address),
            Object::Reservation(reservation) => ledger.apply(reservation),
            Object::Claim(claim) => ledger.apply(claim),
            Object::Slice(slice) => ledger.apply(slice),
        }
    }

    pub fn delete(&self, ledger: &mut Ledger) {
        match self {
            Object::Pool(pool) => ledger.remove_pool(&PoolKey::of(pool)),
            Object::Address(address) => ledger.delete(address),
            Object::Reservation(reservation) => ledger.delete(reservation),
            Object::Claim(claim) => ledger.delete(claim),
            Object::Slice(slice) => ledger.delete(slice),
        }
    }

    pub fn as_pool(&self) -> Option<PoolKey> {
        match self {
            Object::Pool(pool) => Some(PoolKey::of(pool)),
            _ => None,
        }
    }

    /// The slot of a reservation.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Object::Reservation(reservation) => reservation.slot().ok().map(|(slot, _)| slot),
            _ => None,
        }
    }

    pub fn pool_of_address(&self) -> Option<PoolKey> {
        match self {
            Object::Address(address) => PoolKey::of_address(address),
            _ => None,
        }
    }
}

/// Starts full lists of all kinds.
pub fn init(ledger: &mut Ledger) {
    InClusterKind::ALL
        .into_iter()
        .for_each(|kind| ledger.begin_pool_list(kind));
    Observe::<IPAddress>::init(ledger);
    Observe::<IPReservation>::init(ledger);
    Observe::<IPSlice>::init(ledger);
}

/// Completes full lists of all kinds.
pub fn init_done(ledger: &mut Ledger) {
    InClusterKind::ALL
        .into_iter()
        .for_each(|kind| ledger.end_pool_list(kind));
    Observe::<IPAddress>::init_done(ledger);
    Observe::<IPReservation>::init_done(ledger);
    Observe::<IPSlice>::init_done(ledger);
}
