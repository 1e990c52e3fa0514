//! Snapshots of all objects, and their invariants.

use std::net::Ipv6Addr;
use support::prelude::*;

use crate::store::{Store, key, text};

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

const POOLS: [&str; 4] = [
    "InClusterIPPool",
    "GlobalInClusterIPPool",
    "InClusterPrefixPool",
    "GlobalInClusterPrefixPool",
];

/// All claims, addresses, pools and reservations.
pub(crate) struct Snapshot {
    objects: Objects,
}

impl Snapshot {
    pub(crate) async fn of(store: &Store) -> Self {
        let mut objects = Objects::new();
        for kind in ["IPAddressClaim", "IPAddress", "IPReservation"]
            .iter()
            .chain(&POOLS)
        {
            for object in store.list(kind).await {
                let (namespace, name) = key(&object);
                objects.insert(((*kind).to_owned(), namespace, name), object);
            }
        }
        Self { objects }
    }

    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects
            .get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |((found, ..), _)| found == kind)
            .map(|(_, object)| object)
    }

    /// Namespace and name of all claims or addresses that differ in a later snapshot.
    pub(crate) fn changed(&self, kind: &str, later: &Self) -> BTreeSet<String> {
        let version = |object: Option<&Value>| {
            object.map(|object| object["metadata"]["resourceVersion"].clone())
        };
        let changed = |object: &&Value| {
            let (namespace, name) = key(object);
            version(Some(object)) != version(later.get(kind, &namespace, &name))
        };
        self.of_kind(kind).filter(changed).map(path).collect()
    }

    /// Asserts that every address except those in `gone` exists in the later snapshot: the same
    /// object with the same spec.
    pub(crate) fn assert_addresses_kept(&self, later: &Self, gone: &[&str]) {
        for address in self
            .of_kind("IPAddress")
            .filter(|address| !gone.contains(&path(address).as_str()))
        {
            let (namespace, name) = key(address);
            let kept = later.get("IPAddress", &namespace, &name);
            let kept = kept.unwrap_or_else(|| panic!("the IPAddress {namespace}/{name} is gone"));
            assert_eq!(
                (&kept["metadata"]["uid"], &kept["spec"]),
                (&address["metadata"]["uid"], &address["spec"])
            );
        }
    }

    /// Violations: addresses that are allocated twice or without exactly one reservation for their
    /// claim, and reservations for claims without the address.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
        for address in self.of_kind("IPAddress") {
            let (namespace, name) = key(address);
            let claim = self.get("IPAddressClaim", &namespace, &name);
            let uid = claim
                .map(|claim| claim["metadata"]["uid"].clone())
                .unwrap_or_default();
            let holder = json!({"namespace": namespace, "name": name, "uid": uid});
            let reservation = reservation_name(address);
            if let Some(other) = wanted.insert(reservation.clone(), holder.clone()) {
                problems.push(format!(
                    "{reservation} is given twice: to {other} and to {holder}"
                ));
            }
        }
        for reservation in self.of_kind("IPReservation") {
            let (spec, name) = (&reservation["spec"], key(reservation).1);
            let uid = text(spec, "/claimRef/uid");
            match wanted.remove(&name) {
                Some(holder) if holder == claim_of(spec) && spec["releasedAt"].is_null() => {
                    assert!(
                        name.starts_with(&format!("{}.", text(spec, "/scope"))),
                        "{reservation}"
                    );
                }
                Some(holder) => problems.push(format!(
                    "{name} is for {}, in use by {holder}",
                    spec["claimRef"]
                )),
                None if uid.is_empty() || !spec["releasedAt"].is_null() => {}
                None => problems.push(format!("{name} is for {} and not in use", spec["claimRef"])),
            }
        }
        problems.extend(
            wanted
                .into_iter()
                .map(|(name, holder)| format!("{name} is missing, in use by {holder}")),
        );
        problems
    }
}

/// Namespace and name, separated by a slash.
pub(crate) fn path(object: &Value) -> String {
    let (namespace, name) = key(object);
    format!("{namespace}/{name}")
}

/// The required name of the reservation of an IPAddress.
pub(crate) fn reservation_name(address: &Value) -> String {
    let (namespace, pool) = (key(address).0, text(address, "/spec/poolRef/name"));
    let kind = text(address, "/spec/poolRef/kind");
    let scope = match kind {
        "InClusterIPPool" => format!("p.{namespace}.{pool}"),
        "GlobalInClusterIPPool" => format!("g.{pool}"),
        "InClusterPrefixPool" => format!("pp.{namespace}.{pool}"),
        _ => format!("gp.{pool}"),
    };
    let value = text(address, "/spec/address");
    let value = match value.parse::<Ipv6Addr>() {
        Ok(address) => address
            .segments()
            .map(|segment| format!("{segment:04x}"))
            .join("-"),
        Err(_) => value.to_owned(),
    };
    let length = if kind.ends_with("PrefixPool") {
        format!("-{}", address["spec"]["prefix"])
    } else {
        String::new()
    };
    format!("{scope}.{value}{length}")
}

/// The claim of a reservation, without its Cluster.
fn claim_of(spec: &Value) -> Value {
    let mut claim = spec["claimRef"].clone();
    if let Some(fields) = claim.as_object_mut() {
        fields.remove("cluster");
    }
    claim
}
