//! Reservations.

use serde_json::{Value, json};

use crate::table::{ADDRESSES, Table};
use crate::{ControlPlane, object};

pub(super) fn reservations(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let reservation = |name: &str, change: Value| {
        let pool = json!({"kind": ADDRESSES, "namespace": "a", "name": "b"});
        let mut spec = json!({"scope": "p.a.b", "address": "10.0.0.5", "poolRef": pool});
        json_patch::merge(&mut spec, &change);
        object("IPReservation", name, &spec)
    };
    table.accepts_object(&reservation("p.a.b.10.0.0.5", json!({})));
    table.accepts_object(&reservation("h.0123abcd.10.0.0.5", json!({})));
    let prefix = json!({"address": "fd00::", "prefixLength": 8});
    table.accepts_object(&reservation(
        "p.a.b.fd00-0000-0000-0000-0000-0000-0000-0000-8",
        prefix,
    ));

    table.rejects_object(
        &reservation("p.a.c.10.0.0.5", json!({})),
        "metadata",
        "the name must be spec.scope",
    );
    table.rejects_object(
        &reservation("p.a.b", json!({})),
        "metadata",
        "the name must be spec.scope",
    );
    let name = "p.a.b.10.0.0.5";
    table.rejects_object(
        &reservation(name, json!({"address": "nonsense"})),
        "spec.address",
        "must be an IPv4 or IPv6",
    );
    // The webhook checks that the address is the first one of its prefix.
    let inside = json!({"address": "10.0.0.5", "prefixLength": 24});
    table.accepts_object(&reservation(name, inside));
    table.done();
}
