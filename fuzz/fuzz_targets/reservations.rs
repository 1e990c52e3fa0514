//! Fuzzes the names of reservations with arbitrary scopes and addresses, and the parser of
//! reservations.
//!
//! Invariants: names and addresses of scopes correspond one to one; a reservation is valid only if
//! it has the name of its address; and no reservation has the name of an object that declares the
//! block length of a network.
//!
//! Run with `cargo +nightly fuzz run reservations`.

#![no_main]

use std::net::IpAddr;

use capi_ipam_api::{IPReservation, InClusterKind, PoolKey, Scope, Slot};
use capi_ipam_ip::Block;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    one: Place,
    other: Place,
    /// The fields of a reservation as text: name, scope, address, kind of the pool, its namespace
    /// and name.
    texts: [&'a str; 6],
    length: Option<i32>,
    json: &'a str,
}

/// An address or prefix of some scope.
#[derive(Arbitrary, Debug)]
struct Place {
    kind: u8,
    namespace: Vec<u8>,
    name: Vec<u8>,
    /// The number of letters appended to the name.
    longer: u8,
    network: Option<Vec<u8>>,
    address: IpAddr,
    length: u8,
}

impl Place {
    fn pool(&self) -> PoolKey {
        let kind = InClusterKind::ALL[usize::from(self.kind) % InClusterKind::ALL.len()];
        let namespace = (!kind.is_global()).then(|| text(&self.namespace, b"a0-1"));
        let name = text(&self.name, b"a0-.1f/") + &"x".repeat(self.longer.into());
        PoolKey::new(kind, namespace.as_deref(), &name.replace('/', "ffff"))
    }

    fn slot(&self) -> Slot {
        let network = self.network.as_ref().map(|name| text(name, b"a0-1ipv46"));
        let scope = Scope::of(&self.pool(), network.as_deref());
        // A reservation never has an IPv4-mapped address.
        Slot {
            scope,
            block: Block::new(self.address.to_canonical(), self.length),
        }
    }
}

/// A non-empty name of these letters.
fn text(bytes: &[u8], letters: &[u8]) -> String {
    let letters = bytes
        .iter()
        .map(|byte| char::from(letters[usize::from(*byte) % letters.len()]));
    std::iter::once('a').chain(letters.take(60)).collect()
}

fuzz_target!(|input: Input<'_>| {
    let (one, other) = (input.one.slot(), input.other.slot());
    assert_eq!(
        one.reservation_name() == other.reservation_name(),
        one == other,
        "{one} and {other}"
    );
    assert_eq!(
        one.scope.name() == other.scope.name(),
        one.scope == other.scope,
        "{one} and {other}"
    );
    for place in [&input.one, &input.other] {
        let (slot, pool) = (place.slot(), place.pool());
        assert!(slot.reservation_name().len() <= 253);
        assert_eq!(
            Scope::parse(&slot.scope.name(), &pool),
            Some(slot.scope.clone())
        );
        let written = written(&slot, &pool, &slot.reservation_name());
        assert_eq!(written.slot(), Ok((slot.clone(), pool.clone())));
        let misnamed = [
            one.reservation_name(),
            other.reservation_name(),
            input.texts[0].to_owned(),
        ];
        for name in misnamed
            .iter()
            .filter(|name| **name != slot.reservation_name())
        {
            assert!(
                self::written(&slot, &pool, name).slot().is_err(),
                "{slot} as {name}"
            );
        }
    }

    let [name, scope, address, kind, namespace, pool] = input.texts;
    let texts = json!({
        "metadata": {"name": name},
        "spec": {"scope": scope, "address": address, "prefixLength": input.length,
                 "poolRef": {"kind": kind, "namespace": namespace, "name": pool}},
    });
    check(texts);
    check(
        serde_json::from_str::<Map<String, Value>>(input.json)
            .unwrap_or_default()
            .into(),
    );
});

fn written(slot: &Slot, pool: &PoolKey, name: &str) -> IPReservation {
    let length = (!slot.block.is_address()).then(|| slot.block.length());
    let reservation = json!({
        "metadata": {"name": name},
        "spec": {"scope": slot.scope.name(), "address": slot.block.base().to_string(), "prefixLength": length,
                 "poolRef": pool.to_reference()},
    });
    serde_json::from_value(reservation).expect("a reservation")
}

/// Every decoded reservation names its address, or its problem.
fn check(object: Value) {
    let Ok(reservation) = serde_json::from_value::<IPReservation>(object) else {
        return;
    };
    match reservation.slot() {
        Ok((slot, _)) => assert_eq!(reservation.metadata.name, Some(slot.reservation_name())),
        Err(problem) => assert!(problem.to_string().starts_with(problem.field())),
    }
}
