//! The index itself, without locks and without wakers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_ip::Family;
use capi_ipam_provider::api::Uid;

use crate::api::{InClusterKind, IPReservation, PoolKey, Scope, Slot};
use super::pool::{Marked, PoolEntry};
use super::tombstones::Tombstones;
use super::usage::{Holder, Reserved, ScopeEntry, AddressUsage};
use super::{ClaimKey, PoolInfo, Proposal, Priority};

#[derive(Default)]
pub(super) struct State {
    pub(super) pools: HashMap<PoolKey, PoolEntry>,
    pub(super) scopes: HashMap<Scope, ScopeEntry>,
    /// Reservations by the uid of the claim that holds them.
    pub(super) held: HashMap<Uid, Vec<Slot>>,
    /// Reservations promised to a claim by name.
    pub(super) promised: HashMap<ClaimKey, Vec<Slot>>,
    /// Addresses proposed to a claim that is about to reserve them, and the pool they were taken from.
    pub(super) proposals: HashMap<Slot, PoolKey>,
    /// Reservations that reserve nothing, by name.
    pub(super) ignored: BTreeMap<String, Ignored>,
    /// Addresses that claims tried to reserve without an answer, by the uid of the claim.
    pub(super) attempts: HashMap<Uid, (PoolKey, Slot)>,
    /// Reservations that ended a short time ago.
    tombstones: Tombstones,
    /// A cool-down may end at another time than before.
    pub(super) cooldowns_changed: bool,
    pub(super) listings: Listings,
    /// Claims in line that a listing under way has not named yet.
    pub(super) unlisted: HashSet<(PoolKey, ClaimKey)>,
    /// Pools whose counts or conditions may have changed since this was last emptied.
    pub(super) touched: Vec<PoolKey>,
    /// Claims that waited for their pool, which has changed since this was last emptied.
    pub(super) unblocked: Vec<ClaimKey>,
    units: HashMap<(Arc<str>, Family), Unit>,
}

/// Where the state of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A watch, which reports every state in order, also after a restore has set versions back.
    Watch,
    /// The answer to a call, which may be older than what the watch has reported since.
    Call,
}

/// Counters of full listings, one for each kind; what an older listing named and the newest does not is gone.
#[derive(Default)]
pub(super) struct Listings {
    pub(super) addresses: u32,
    pub(super) reservations: u32,
    pub(super) pools: [u32; InClusterKind::ALL.len()],
}

impl Listings {
    pub(super) fn of_kind(&mut self, kind: InClusterKind) -> Option<&mut u32> {
        self.pools.get_mut(kind as usize)
    }
}

/// A reservation that reserves nothing.
pub(super) struct Ignored {
    pub(super) uid: Box<str>,
    pub(super) why: String,
    listing: u32,
}

/// How long the blocks are that a network gives out.
struct Unit {
    length: u8,
    uid: Box<str>,
    listing: u32,
}

impl State {
    /// The same key, sharing its text with the one that is kept already.
    pub(super) fn shared_key(&self, key: PoolKey) -> PoolKey {
        self.pools.get_key_value(&key).map_or(key, |(kept, _)| kept.clone())
    }

    fn shared_scope(&self, scope: Scope) -> Scope {
        self.scopes.get_key_value(&scope).map_or(scope, |(kept, _)| kept.clone())
    }

    /// Where the addresses of a pool are looked up.
    pub(super) fn scope_of(&self, pool: &PoolKey) -> Scope {
        self.pools.get(pool).map_or_else(|| Scope::Pool(pool.clone()), |entry| entry.scope(pool))
    }

    pub(super) fn taken(&self, slot: &Slot) -> Option<&AddressUsage> {
        self.scopes.get(&slot.scope)?.taken.get(&slot.block)
    }

    /// Changes what is known of an address, and keeps the counts of all pools concerned right.
    pub(super) fn update(&mut self, slot: &Slot, change: impl FnOnce(&mut AddressUsage)) {
        let Self { pools, scopes, touched, unblocked, cooldowns_changed, .. } = self;
        let scope = scopes.entry(slot.scope.clone()).or_default();
        let taken = scope.taken.entry(slot.block).or_default();
        let (users, rested) = (taken.users(), taken.cooling_down());
        change(taken);
        let (users_now, rests, is_free) = (taken.users(), taken.cooling_down(), taken.is_free());
        if users_now.is_empty() && !users.is_empty() {
            // Somebody else had what was promised; now it can be kept.
            unblocked.extend(taken.promised_to().cloned());
        }
        if is_free {
            scope.taken.remove(&slot.block);
        }
        for (pool, came) in differences(&users, &users_now) {
            pools.entry(pool.clone()).or_default().count(slot.block, came);
            touched.push(pool.clone());
        }
        if rested != rests {
            *cooldowns_changed = true;
            for ((pool, since), begins) in
                rested.map(|rest| (rest, false)).into_iter().chain(rests.map(|rest| (rest, true)))
            {
                pools.entry(pool.clone()).or_default().rest(since, slot.clone(), begins);
                touched.push(pool);
            }
        }
        for member in &scope.members {
            let Some(pool) = pools.get_mut(member) else { continue };
            match pool.mark(slot.block, is_free) {
                Marked::NotMine => continue,
                Marked::Changed => {}
                Marked::Odd => pool.recount(member, &scope.taken),
            }
            touched.push(member.clone());
        }
        if scope.is_empty() {
            scopes.remove(&slot.scope);
        }
    }

    pub(super) fn propose(&mut self, pool: &PoolKey, claim: &ClaimKey, priority: Priority, now: Instant) -> Proposal {
        let Some(entry) = self.pools.get_mut(pool) else { return Proposal::Wait };
        let Some(block) = entry.propose(claim, priority, now) else { return Proposal::Wait };
        let slot = Slot { scope: entry.scope(pool), block };
        self.announce(pool, &slot);
        Proposal::Slot(slot)
    }

    pub(super) fn announce(&mut self, pool: &PoolKey, slot: &Slot) -> bool {
        if self.proposals.contains_key(slot) {
            return false;
        }
        self.proposals.insert(slot.clone(), pool.clone());
        self.update(slot, |taken| taken.proposed = true);
        true
    }

    pub(super) fn withdraw(&mut self, slot: &Slot) {
        if self.proposals.remove(slot).is_some() {
            self.update(slot, |taken| taken.proposed = false);
        }
    }
}

/// Pools, and what is known of networks.
impl State {
    /// Replaces what is known of a pool object.
    pub(super) fn set_pool(&mut self, key: &PoolKey, object: Option<PoolInfo>) {
        let facts = object.as_ref().map(|object| self.in_its_network(object));
        let before = self.scope_of(key);
        let after = facts.as_ref().map_or_else(|| before.clone(), |facts| self.shared_scope(facts.scope.clone()));
        let entry = self.pools.entry(key.clone()).or_default();
        let gives = |facts: &Option<PoolInfo>| facts.as_ref()?.usable.as_ref().ok().cloned();
        let same = before == after && entry.facts.is_some() == facts.is_some() && gives(&entry.facts) == gives(&facts);
        if !same {
            let overlapped = self.overlapping(key);
            self.touched.extend(overlapped);
        }
        let Some(entry) = self.pools.get_mut(key) else { return };
        self.cooldowns_changed |= entry.has_cooldowns();
        let exists = facts.is_some();
        (entry.object, entry.facts, entry.scope) = (object, facts, Some(after.clone()));
        self.touched.push(key.clone());
        if same {
            return;
        }
        self.join(key, &before, &after, exists);
        if let Some((entry, scope)) = self.pools.get_mut(key).zip(self.scopes.get(&after)) {
            entry.recount(key, &scope.taken);
        } else if let Some(entry) = self.pools.get_mut(key) {
            entry.recount(key, &HashMap::new());
        }
        let overlapping = self.overlapping(key);
        self.touched.extend(overlapping);
        let promised_to = self.promised_to(key, &after);
        self.unblocked.extend(promised_to);
    }

    /// The claims that an address of the pool is promised to: the pool may have it only now.
    fn promised_to(&self, pool: &PoolKey, scope: &Scope) -> Vec<ClaimKey> {
        let taken = self.scopes.get(scope).into_iter().flat_map(|scope| scope.taken.values());
        let mine = taken.filter(|taken| taken.reserved.as_ref().is_some_and(|reserved| reserved.pool == *pool));
        mine.filter_map(AddressUsage::promised_to).cloned().collect()
    }

    /// Makes a pool a member of its scope, and takes its addresses along when the scope is another than before.
    fn join(&mut self, key: &PoolKey, before: &Scope, after: &Scope, exists: bool) {
        if let Some(scope) = self.scopes.get_mut(before) {
            scope.members.retain(|member| member != key);
        }
        if exists {
            let shared = self.shared_key(key.clone());
            self.scopes.entry(after.clone()).or_default().members.push(shared);
        }
        if before != after {
            let mut moved = Vec::new();
            let taken = self.scopes.get_mut(before).into_iter().flat_map(|scope| &scope.taken);
            let mine = |(block, taken): (&_, &AddressUsage)| {
                let holders = taken.holders.iter().filter(|holder| holder.pool == *key);
                holders.map(|holder| (*block, holder.name.clone(), holder.origin, holder.listing)).collect::<Vec<_>>()
            };
            moved.extend(taken.flat_map(mine));
            for (block, name, origin, listing) in moved {
                self.update(&Slot { scope: before.clone(), block }, |taken| taken.remove_address(&name));
                let pool = key.clone();
                let holder = Holder { name, pool, origin, listing };
                self.update(&Slot { scope: after.clone(), block }, |taken| taken.hold(holder));
            }
        }
        if self.scopes.get(before).is_some_and(ScopeEntry::is_empty) {
            self.scopes.remove(before);
        }
    }

    /// What is known of a pool, and of the network that it names: a pool serves nothing before its network is prepared,
    /// and never when its network gives out blocks of another length.
    fn in_its_network(&self, object: &PoolInfo) -> PoolInfo {
        let mut facts = object.clone();
        let (Scope::Network(network), Ok(usable)) = (&object.scope, &object.usable) else { return facts };
        match self.units.get(&(network.clone(), usable.family)) {
            None => facts.protected = false,
            Some(unit) if unit.length == usable.length => {}
            Some(unit) => {
                let problem = format!(
                    "spec.network: the pools of network {network} give out {} blocks of length {}, and this one of \
                     length {}; give it a network of its own",
                    usable.family, unit.length, usable.length
                );
                facts.usable = Err(problem.into());
            }
        }
        facts
    }

    /// The network, family and length of blocks that have to be agreed on before a pool can serve.
    pub(super) fn missing_block_length(&self, key: &PoolKey) -> Option<(Arc<str>, Family, u8)> {
        let object = self.pools.get(key)?.object.as_ref()?;
        let (Scope::Network(network), Ok(usable)) = (&object.scope, &object.usable) else { return None };
        let unknown = !self.units.contains_key(&(network.clone(), usable.family));
        unknown.then(|| (network.clone(), usable.family, usable.length))
    }

    pub(super) fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.units.get(&(network.into(), family)).map(|unit| unit.length)
    }

    fn set_unit(&mut self, network: &Arc<str>, family: Family, unit: Option<Unit>) {
        let key = (network.clone(), family);
        match unit {
            Some(unit) => self.units.insert(key, unit),
            None => self.units.remove(&key),
        };
        let members = self.scopes.get(&Scope::Network(network.clone())).map(|scope| scope.members.clone());
        for member in members.unwrap_or_default() {
            let object = self.pools.get(&member).and_then(|entry| entry.object.clone());
            self.set_pool(&member, object);
            let blocked = self.pools.get_mut(&member).map(|entry| entry.line.unblock()).unwrap_or_default();
            self.unblocked.extend(blocked);
        }
    }
}

/// Reservations.
impl State {
    pub(super) fn insert(&mut self, reservation: &IPReservation, source: Source) -> Option<ClaimKey> {
        let listing = self.listings.reservations;
        let uid = || reservation.metadata.uid.as_deref().unwrap_or_default().into();
        match source {
            Source::Watch => self.tombstones.remove(uid_of(reservation)),
            Source::Call if self.tombstones.contains(uid_of(reservation)) => return None,
            Source::Call => {}
        }
        match reservation.slot() {
            Ok((slot, pool)) => {
                let slot = Slot { scope: self.shared_scope(slot.scope), block: slot.block };
                let reserved = Reserved::of(reservation, self.shared_key(pool), listing);
                let known = self.taken(&slot).and_then(|taken| taken.reserved.as_ref());
                if source == Source::Call && known.is_some_and(|known| known.version > reserved.version) {
                    return None;
                }
                self.insert_reserved(&slot, reserved)
            }
            Err(problem) => {
                if let Some((network, family, length)) = reservation.network_block_length() {
                    self.set_unit(&network, family, Some(Unit { length, uid: uid(), listing }));
                } else if let Some(name) = &reservation.metadata.name {
                    let ignored = Ignored { uid: uid(), why: problem.to_string(), listing };
                    self.ignored.insert(name.clone(), ignored);
                }
                None
            }
        }
    }

    /// Returns the claim that the address is promised to, if that is news.
    fn insert_reserved(&mut self, slot: &Slot, reserved: Reserved) -> Option<ClaimKey> {
        let known = self.taken(slot).and_then(|taken| taken.reserved.as_ref());
        let is_news = known.is_none_or(|known| known.uid != reserved.uid);
        self.forget_holder(slot);
        self.proposals.remove(slot);
        let mut promised_to = None;
        if let Some(claim) = reserved.claim.clone().filter(|_| reserved.released_at.is_none()) {
            match reserved.claim_uid {
                // Nearly always there is one.
                Some(uid) => self.held.entry(uid).or_insert_with(|| Vec::with_capacity(1)).push(slot.clone()),
                None => {
                    let claim = ClaimKey::clone(&claim);
                    self.promised.entry(claim.clone()).or_default().push(slot.clone());
                    promised_to = Some(claim).filter(|_| is_news);
                }
            }
        }
        self.update(slot, |taken| {
            taken.proposed = false;
            taken.reserve(reserved);
        });
        promised_to
    }

    pub(super) fn remove(&mut self, reservation: &IPReservation) -> Option<Slot> {
        let uid = reservation.metadata.uid.as_deref().unwrap_or_default();
        self.tombstones.insert(Uid::of(uid), Instant::now());
        if let Ok((slot, _)) = reservation.slot() {
            self.remove_reserved(&slot, Some(Uid::of(uid)));
            return Some(slot);
        }
        if let Some((network, family, _)) = reservation.network_block_length()
            && self.units.get(&(network.clone(), family)).is_some_and(|unit| *unit.uid == *uid)
        {
            self.set_unit(&network, family, None);
        }
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        if self.ignored.get(name).is_some_and(|ignored| *ignored.uid == *uid) {
            self.ignored.remove(name);
        }
        None
    }

    pub(super) fn remove_reserved(&mut self, slot: &Slot, uid: Option<Uid>) {
        let reserved = self.taken(slot).and_then(|taken| taken.reserved.as_ref());
        let Some(ended) = reserved.map(|reserved| Uid::of(&reserved.uid)) else { return };
        if uid.is_some_and(|uid| ended != uid) {
            return;
        }
        self.tombstones.insert(ended, Instant::now());
        self.forget_holder(slot);
        self.update(slot, |taken| taken.reserved = None);
    }

    /// Drops everything that an older listing of reservations named.
    pub(super) fn drop_reservations_not_listed(&mut self) {
        let newest = self.listings.reservations;
        let mut old = Vec::new();
        for (scope, entry) in &self.scopes {
            let is_old = |taken: &AddressUsage| taken.reserved.as_ref().is_some_and(|reserved| reserved.listing != newest);
            let blocks = entry.taken.iter().filter(|(_, taken)| is_old(taken)).map(|(block, _)| *block);
            old.extend(blocks.map(|block| Slot { scope: scope.clone(), block }));
        }
        old.iter().for_each(|slot| self.remove_reserved(slot, None));
        self.ignored.retain(|_, ignored| ignored.listing == newest);
        let units: Vec<_> =
            self.units.iter().filter(|(_, unit)| unit.listing != newest).map(|(key, _)| key.clone()).collect();
        units.iter().for_each(|(network, family)| self.set_unit(network, *family, None));
    }

    fn forget_holder(&mut self, slot: &Slot) {
        let Some(reserved) =
            self.scopes.get(&slot.scope).and_then(|scope| scope.taken.get(&slot.block)?.reserved.as_ref())
        else {
            return;
        };
        if let Some(uid) = reserved.claim_uid
            && let Some(slots) = self.held.get_mut(&uid)
        {
            slots.retain(|held| held != slot);
            if slots.is_empty() {
                self.held.remove(&uid);
            }
        } else if let Some(claim) = &reserved.claim
            && let Some(slots) = self.promised.get_mut(claim)
        {
            slots.retain(|promised| promised != slot);
            if slots.is_empty() {
                self.promised.remove(claim);
            }
        }
    }
}

fn uid_of(reservation: &IPReservation) -> Uid {
    Uid::of(reservation.metadata.uid.as_deref().unwrap_or_default())
}

/// What is in one list only: what went with `false`, what came with `true`.
fn differences<'a>(before: &'a [PoolKey], after: &'a [PoolKey]) -> impl Iterator<Item = (&'a PoolKey, bool)> {
    let went = before.iter().filter(|pool| !after.contains(pool)).map(|pool| (pool, false));
    went.chain(after.iter().filter(|pool| !before.contains(pool)).map(|pool| (pool, true)))
}
