//! The state of the API server as far as the invariants need it, and its changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;

/// Namespace (empty for none) and name.
pub type Name = (String, String);

/// A pool: its kind, and its name.
pub type PoolName = (String, Name);

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource version, which orders the changes of all kinds.
    pub version: u64,
    /// The current or last state of the object.
    pub object: Object,
    /// The object was deleted.
    pub gone: bool,
}

/// An object of a relevant kind.
#[derive(Clone, Debug)]
pub enum Object {
    Claim(Name, Claim),
    Address(Name, Address),
    Reservation(String, Reservation),
    Pool(PoolName, Pool),
    Slice(String, Slice),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    pub uid: String,
    pub pool: PoolName,
    /// The IPAddress that the status names.
    pub bound: Option<String>,
    pub deleting: bool,
    /// It has the finalizer of the provider.
    pub held: bool,
    /// It has foreign finalizers.
    pub in_use: bool,
    /// It has the annotation that requests its release, with its uid.
    pub release_requested: bool,
    /// The value of its label, by which the pools assign their slices.
    pub label: Option<String>,
    /// The reason why it is not ready, if reported.
    pub reason: Option<String>,
}

impl Claim {
    /// Whether its address may be released: no other controller keeps it, or a user requested the
    /// early release and the claim reports it.
    pub fn is_let_go(&self) -> bool {
        let released_early =
            self.release_requested && self.reason.as_deref() == Some("ReleasedEarly");
        self.deleting && (!self.in_use || released_early)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Address {
    pub uid: String,
    /// The uid of the claim that owns it.
    pub owner: Option<String>,
    pub pool: PoolName,
    pub value: String,
    pub deleting: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    pub uid: String,
    /// The uid of the claim that it is for.
    pub holder: Option<String>,
    pub pool: PoolName,
    /// The network in whose scope it is; `None` for that of its pool.
    pub network: Option<String>,
    /// The address.
    pub value: String,
    /// It cools down.
    pub released: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    pub uid: String,
    /// Single addresses and ranges.
    pub addresses: Vec<String>,
    /// The number of addresses of one block.
    pub block: u32,
    /// The network that it names, or that selects it.
    pub network: Option<String>,
    pub deleting: bool,
    pub paused: bool,
    /// A released address is not reused at once.
    pub has_cooldown: bool,
    /// The counts in the status: total, free, used, out of range.
    pub counts: Option<(i64, i64, i64, i64)>,
    /// The number of assigned slices in the status.
    pub slices: Option<i64>,
}

/// A slice that is assigned to a value of the label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    pub uid: String,
    pub pool: PoolName,
    /// The first and the last address.
    pub block: Option<(Ipv4Addr, Ipv4Addr)>,
    pub owner: String,
    /// It is marked as empty.
    pub is_marked: bool,
}

impl Slice {
    /// Whether the slice has the address.
    pub fn contains(&self, address: &str) -> bool {
        let address = address.parse::<Ipv4Addr>();
        address.is_ok_and(|address| {
            self.block
                .is_some_and(|(first, last)| (first..=last).contains(&address))
        })
    }
}

impl Pool {
    /// Whether the pool has the address.
    pub fn contains(&self, address: &str) -> bool {
        let Ok(address) = address.parse::<Ipv4Addr>() else {
            return false;
        };
        self.ranges()
            .any(|(first, last)| (first..=last).contains(&address))
    }

    /// How many addresses or blocks the pool has.
    pub fn size(&self) -> i64 {
        let addresses: i64 = self
            .ranges()
            .map(|(first, last)| i64::from(u32::from(last)) - i64::from(u32::from(first)) + 1)
            .sum();
        addresses / i64::from(self.block.max(1))
    }

    fn ranges(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> {
        self.addresses.iter().map(|entry| {
            let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
            let parse = |text: &str| {
                text.parse()
                    .expect("the workloads write addresses as they should be")
            };
            (parse(first), parse(last))
        })
    }
}

/// All objects at one moment, and the relevant history.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub claims: BTreeMap<Name, Claim>,
    pub addresses: BTreeMap<Name, Address>,
    pub reservations: BTreeMap<String, Reservation>,
    pub pools: BTreeMap<PoolName, Pool>,
    pub slices: BTreeMap<String, Slice>,
    /// The resource version of the last write of each reservation.
    pub written: HashMap<String, u64>,
    /// The network of each pool, kept when the pool is deleted.
    pub networks: HashMap<PoolName, String>,
    /// The states of each pool, by its name.
    pub past: HashMap<PoolName, Vec<Pool>>,
    /// The uids of IPAddress objects that were created by late writes, when their claims were
    /// deleted or being released. They belong to no claim.
    pub too_late: HashSet<String>,
    /// The first address of each bound claim, by the uid of the claim.
    pub given: HashMap<String, String>,
}

impl World {
    /// Applies all changes in the order of their versions.
    pub fn after(changes: &[Change]) -> Self {
        let mut world = Self::default();
        in_order(changes)
            .into_iter()
            .for_each(|change| world.apply(change));
        world
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change) {
        match &change.object {
            Object::Claim(name, claim) => put(&mut self.claims, name, claim, change.gone),
            Object::Address(name, address) => {
                let claim = self
                    .claims
                    .get(name)
                    .filter(|claim| address.owner.as_ref() == Some(&claim.uid));
                let is_new = self
                    .addresses
                    .get(name)
                    .is_none_or(|known| known.uid != address.uid);
                let is_let_go = claim.is_none_or(Claim::is_let_go);
                if is_new && is_let_go {
                    self.too_late.insert(address.uid.clone());
                } else if !is_let_go {
                    // A later claim of the same name has adopted it.
                    self.too_late.remove(&address.uid);
                }
                put(&mut self.addresses, name, address, change.gone);
            }
            Object::Reservation(name, reservation) => {
                put(&mut self.reservations, name, reservation, change.gone);
                self.written.insert(name.clone(), change.version);
            }
            Object::Slice(name, slice) => put(&mut self.slices, name, slice, change.gone),
            Object::Pool(name, pool) => {
                put(&mut self.pools, name, pool, change.gone);
                self.past
                    .entry(name.clone())
                    .or_default()
                    .push(pool.clone());
                match &pool.network {
                    Some(network) => drop(self.networks.insert(name.clone(), network.clone())),
                    None if change.gone => {}
                    None => drop(self.networks.remove(name)),
                }
            }
        }
        for (name, claim) in self
            .claims
            .iter()
            .filter(|(_, claim)| claim.bound.is_some())
        {
            if let Some(address) = self
                .addresses
                .get(name)
                .filter(|address| address.owner.as_ref() == Some(&claim.uid))
            {
                self.given
                    .entry(claim.uid.clone())
                    .or_insert_with(|| address.value.clone());
            }
        }
    }

    /// The scope in which the address of an IPAddress must be unique, and the address.
    pub fn slot(&self, address: &Address) -> (String, String) {
        let (kind, (namespace, name)) = &address.pool;
        let network = self
            .networks
            .get(&address.pool)
            .map(|network| format!("network {network}"));
        (
            network.unwrap_or_else(|| format!("{kind} {namespace}/{name}")),
            address.value.clone(),
        )
    }

    /// Whether a claim of that uid exists.
    pub fn lives(&self, uid: &str) -> bool {
        self.claims.values().any(|claim| claim.uid == uid)
    }

    /// The bound claim that an IPAddress belongs to.
    pub fn bound_to(&self, name: &Name, address: &Address) -> Option<&Claim> {
        let claim = self.claims.get(name)?;
        let bound =
            claim.bound.as_ref() == Some(&name.1) && address.owner.as_ref() == Some(&claim.uid);
        (bound && !self.too_late.contains(&address.uid)).then_some(claim)
    }
}

/// Changes in the order of their versions, without duplicates.
pub fn in_order(changes: &[Change]) -> Vec<&Change> {
    let mut ordered: Vec<&Change> = changes.iter().collect();
    // A list contains all objects with the versions of their last changes.
    ordered.sort_by_key(|change| change.version);
    ordered.dedup_by_key(|change| change.version);
    ordered
}

fn put<K: Clone + Ord, V: Clone>(map: &mut BTreeMap<K, V>, name: &K, value: &V, gone: bool) {
    if gone {
        map.remove(name);
    } else {
        map.insert(name.clone(), value.clone());
    }
}
