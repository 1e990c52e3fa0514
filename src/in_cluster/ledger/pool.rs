//! The ledger's entry of one pool: what its object declares, its counts, free addresses and wait queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::finalizer;
use capi_ipam_controller::object_map::ListEpoch;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};
use capi_ipam_provider::api::is_paused;
use kube::ResourceExt;

use super::ClaimKey;
use super::draining::Draining;
use super::networks::NetworkRefusal;
use super::order::Order;
use super::quota::{LimitReached, Quota};
use super::usage::AddressUsage;
use super::wait_queue::{Answer, ClaimAttributes, Supply, WaitQueue};
use crate::api::{
    AccessRules, AddressCounts, AddressMetadata, AllocationOrder, Pool, PoolKey, PoolSpec, Scope, Slot, names,
};

/// The blocks that a pool can allocate, or the problems of its specification.
type Usable = Result<Arc<UsableBlocks>, Arc<str>>;

/// What the ledger keeps of a pool object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInfo {
    /// The uid of the pool.
    pub uid: String,
    /// Whether the pool has the annotation that pauses it.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether the pool has our finalizer, and the block length of its network is set.
    pub initialized: bool,
    /// The seconds before a released address can be reused; 0 without a cool-down.
    pub cooldown_seconds: i64,
    /// The scope within which its addresses are unique.
    pub scope: Scope,
    /// The network that the spec names.
    pub network: Option<Arc<str>>,
    /// Why the pool must not use the network that it names, or that selects it. It neither allocates nor changes its
    /// reservations then.
    pub network_problem: Option<NetworkRefusal>,
    /// The labels, by which networks select pools.
    pub labels: Arc<BTreeMap<String, String>>,
    /// When the pool was created, in seconds since the Unix epoch.
    pub created: i64,
    /// The blocks that can be allocated, or the problems of the spec.
    pub usable: Usable,
    /// The order in which they are allocated.
    pub order: AllocationOrder,
    /// Whether the spec names draining parts.
    pub is_draining: bool,
    /// Labels and annotations of new IPAddress objects.
    pub metadata: Option<Arc<AddressMetadata>>,
    /// Who may use the pool; `None` without restrictions.
    pub access: Option<Arc<AccessRules>>,
    /// The `metadata.generation` of the spec.
    pub generation: Option<i64>,
}

impl PoolInfo {
    /// Reads a pool object.
    pub fn of(pool: &Pool) -> Self {
        Self::updated(None, pool)
    }

    /// Reads a pool object. The blocks are those of `known`, the previous state of the pool, unless the generation has
    /// changed: a status update does not parse thousands of addresses again.
    pub(super) fn updated(known: Option<&Self>, pool: &Pool) -> Self {
        let Pool { spec, metadata: meta, .. } = pool;
        let known = known.filter(|known| meta.generation.is_some() && known.generation == meta.generation);
        let known = known.filter(|known| meta.uid.as_ref() == Some(&known.uid));
        let (usable, access, metadata) = known.map_or_else(
            || read_all(spec, pool.kind.is_global()),
            |known| (known.usable.clone(), known.access.clone(), known.metadata.clone()),
        );
        Self {
            uid: pool.uid().unwrap_or_default(),
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            initialized: finalizer::is_set(pool, names::PROTECT_POOL),
            cooldown_seconds: spec.cooldown_seconds(),
            scope: Scope::Pool(PoolKey::of(pool)),
            network: spec.network().map(Into::into),
            network_problem: None,
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            created: meta.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default(),
            usable,
            order: spec.order(),
            is_draining: !spec.draining().is_empty(),
            metadata,
            access,
            generation: meta.generation,
        }
    }

    /// Whether the pool can allocate addresses to claims.
    pub fn can_allocate(&self) -> bool {
        self.can_bind() && !self.deleting && self.network_problem.is_none()
    }

    /// The gateways of the pool and of its ranges.
    pub(super) fn gateways(&self) -> BTreeSet<IpAddr> {
        self.usable.iter().flat_map(|usable| usable.gateways()).collect()
    }

    /// Whether claims that already hold an address of the pool can be bound: also while the pool is being deleted.
    pub fn can_bind(&self) -> bool {
        let is_refused = self.network_problem.as_ref().is_some_and(|refusal| !refusal.keeps_members());
        self.usable.is_ok() && !self.paused && self.initialized && !is_refused
    }
}

/// What is parsed of a specification: the blocks, who may use them, and the metadata of their IPAddress objects.
type Parsed = (Usable, Option<Arc<AccessRules>>, Option<Arc<AddressMetadata>>);

fn read_all(spec: &PoolSpec, is_global: bool) -> Parsed {
    fn join(problems: &[impl ToString]) -> Arc<str> {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ").into()
    }
    let metadata = spec.address_metadata();
    let usable = spec.usable().map(Arc::new).map_err(|problems| join(&problems));
    let usable = match metadata.map(AddressMetadata::problems).filter(|problems| !problems.is_empty()) {
        Some(problems) => usable.and(Err(join(&problems))),
        None => usable,
    };
    let metadata = metadata.map(|metadata| Arc::new(metadata.clone()));
    if !is_global {
        return (usable, None, metadata);
    }
    match spec.access().rules() {
        Ok(access) => (usable, access.map(Arc::new), metadata),
        Err(problems) => (usable.and(Err(join(&problems))), None, metadata),
    }
}

/// One pool. Its object may be missing: addresses can be in use after the pool is deleted.
#[derive(Default)]
pub(super) struct PoolEntry {
    /// As the pool object declares it; `None` without an object.
    pub(super) declared: Option<PoolInfo>,
    /// The same, with the restrictions of its network.
    pub(super) info: Option<PoolInfo>,
    pub(super) wait_queue: WaitQueue,
    pub(super) list: ListEpoch,
    /// Whether the pool's controller is already enqueued for the latest changes.
    pub(super) notified: bool,
    /// The scope of its addresses; kept while a deleted pool still has addresses in use.
    pub(super) scope: Option<Scope>,
    /// The free numbers of the pool; `None` while all of them are free.
    free: Option<FreeSet>,
    pub(super) order: Order,
    /// Numbers that overlap with a used block of another length.
    other_lengths: SpanSet,
    pub(super) draining: Draining,
    /// IPAddress objects of the pool with an address in its range.
    used: usize,
    /// IPAddress objects of the pool with another address.
    out_of_range: usize,
    /// Addresses that are held for claims of the pool whose reservation is being created.
    candidates: usize,
    /// Addresses that cool down, ordered by the second in which they were released.
    cooldowns: BTreeSet<(i64, Slot)>,
    /// How many of these are in the pool's range.
    cooling_down: usize,
    /// The scopes in which addresses of this pool are reserved or proposed, and how many: more than one while the pool
    /// joins or leaves a network.
    pub(super) holds: Vec<(Scope, usize)>,
    /// The addresses by namespace and Cluster; only of a pool with access rules.
    pub(super) quota: Option<Box<Quota>>,
}

/// How a block that became used or free affects a pool.
pub(super) enum Effect {
    /// Not at all: the block is not in the pool.
    OutOfPool,
    /// The free set was updated.
    Updated,
    /// The block has another length than those of the pool: the pool has to be recounted.
    LengthMismatch,
}

impl PoolEntry {
    fn usable(&self) -> Option<&UsableBlocks> {
        self.info.as_ref()?.usable.as_deref().ok()
    }

    pub(super) fn scope(&self, key: &PoolKey) -> Scope {
        self.scope.clone().unwrap_or_else(|| Scope::Pool(key.clone()))
    }

    /// The scope of the pool, if its object exists and that is not `scope`.
    pub(super) fn other_scope(&self, scope: &Scope) -> Option<Scope> {
        let own = self.scope.as_ref().filter(|_| self.info.is_some())?;
        (own != scope).then(|| own.clone())
    }

    /// Whether a block is in a draining part of the pool.
    pub(super) fn is_draining(&self, block: Block) -> bool {
        self.usable().is_some_and(|usable| usable.is_draining(block))
    }

    /// Records that a block of the pool's scope became used or free.
    pub(super) fn set_free(&mut self, block: Block, is_free: bool) -> Effect {
        let Some(usable) = self.info.as_ref().and_then(|info| info.usable.as_deref().ok()) else {
            return Effect::OutOfPool;
        };
        let Some(number) = usable.number(block) else {
            let numbers = usable.numbers_overlapping(block).map(SpanSet::from).unwrap_or_default();
            return if numbers.intersect(&usable.set).is_empty() { Effect::OutOfPool } else { Effect::LengthMismatch };
        };
        if !usable.set.contains(number) {
            return Effect::OutOfPool;
        }
        if usable.draining.contains(number) {
            self.draining.set_free(number, is_free && !self.other_lengths.contains(number));
            return Effect::Updated;
        }
        match &mut self.free {
            Some(free) if !is_free => {
                if free.take(number) {
                    self.order.set_free(number, false);
                }
            }
            Some(free) if !self.other_lengths.contains(number) => {
                if free.release(number) {
                    self.order.set_free(number, true);
                }
            }
            None if !is_free => self.free = Some(FreeSet::without(&usable.set, std::iter::once(number))),
            Some(_) | None => {}
        }
        Effect::Updated
    }

    /// Counts an IPAddress of this pool that was added or removed.
    pub(super) fn count_address(&mut self, block: Block, is_added: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(block));
        let count = if in_range { &mut self.used } else { &mut self.out_of_range };
        *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
    }

    /// Counts a reservation or candidate of this pool that was added or removed in a scope.
    pub(super) fn count_hold(&mut self, scope: &Scope, is_added: bool) {
        match self.holds.iter_mut().find(|(known, _)| known == scope) {
            Some((_, count)) if is_added => *count = count.saturating_add(1),
            Some((_, count)) => *count = count.saturating_sub(1),
            None if is_added => self.holds.push((scope.clone(), 1)),
            None => {}
        }
        self.holds.retain(|(_, count)| *count > 0);
    }

    /// Counts a candidate of this pool that was added or removed.
    pub(super) fn count_candidate(&mut self, is_added: bool) {
        let count = self.candidates;
        self.candidates = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
    }

    /// Records that a cool-down of an address of this pool started or ended.
    pub(super) fn set_cooldown(&mut self, since: i64, slot: Slot, is_started: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(slot.block));
        if is_started {
            let is_new = self.cooldowns.insert((since, slot));
            self.cooling_down = self.cooling_down.saturating_add(usize::from(is_new && in_range));
        } else {
            let was_known = self.cooldowns.remove(&(since, slot));
            self.cooling_down = self.cooling_down.saturating_sub(usize::from(was_known && in_range));
        }
    }

    /// Computes the free set and the counts again from all used blocks of the pool's scope.
    pub(super) fn recount(&mut self, key: &PoolKey, usage: &HashMap<Block, AddressUsage>) {
        self.order.reset();
        let Some(usable) = self.info.as_ref().and_then(|info| info.usable.as_ref().ok()) else {
            (self.free, self.other_lengths, self.used, self.cooling_down) = (None, SpanSet::default(), 0, 0);
            self.draining = Draining::default();
            self.out_of_range = usage.values().filter(|usage| usage.pools().contains(key)).count();
            return;
        };
        let mut numbers = usage
            .keys()
            .filter_map(|block| usable.number(*block))
            .filter(|number| usable.set.contains(*number))
            .peekable();
        let other_lengths = usage.keys().filter(|block| usable.number(**block).is_none());
        let other_lengths: SpanSet = other_lengths.filter_map(|block| usable.numbers_overlapping(*block)).collect();
        let is_all_free = other_lengths.is_empty() && usable.draining.is_empty() && numbers.peek().is_none();
        let free = (!is_all_free).then(|| FreeSet::without(&usable.allocatable().subtract(&other_lengths), numbers));
        self.draining = Draining::of(key, usable, &other_lengths, usage);
        let mine = usage.iter().filter(|(_, usage)| usage.owners.iter().any(|owner| owner.pool == *key));
        let (inside, outside): (Vec<_>, Vec<_>) = mine.partition(|(block, _)| usable.contains(**block));
        (self.used, self.out_of_range) = (inside.len(), outside.len());
        self.cooling_down = self.cooldowns.iter().filter(|(_, slot)| usable.contains(slot.block)).count();
        (self.free, self.other_lengths) = (free, other_lengths);
    }

    fn free_count(&self) -> u128 {
        let can_allocate = self.info.as_ref().is_some_and(PoolInfo::can_allocate);
        if can_allocate { self.free_addresses() } else { 0 }
    }

    fn free_addresses(&self) -> u128 {
        let all = || self.usable().map(|usable| usable.set.len()).unwrap_or_default();
        self.free.as_ref().map_or_else(all, FreeSet::len)
    }

    pub(super) fn grant_turns(&mut self, now: Instant) -> Vec<ClaimKey> {
        let (free, headroom) = (self.free_count(), self.headroom());
        let freed = self.quota.as_mut().map(|quota| quota.take_freed()).unwrap_or_default();
        let supply = Supply { free, headroom, quota: self.quota.as_deref() };
        self.wait_queue.grant(supply, freed, now)
    }

    /// Returns the next free block if it is the claim's turn; otherwise enqueues the claim. Fails if the namespace or
    /// Cluster of the claim may have no further address.
    pub(super) fn propose(
        &mut self,
        claim: &ClaimKey,
        attributes: &ClaimAttributes,
    ) -> Result<Option<Block>, LimitReached> {
        let (free, headroom) = (self.free_count(), self.headroom());
        let supply = Supply { free, headroom, quota: self.quota.as_deref() };
        match (self.wait_queue.request(claim, attributes, supply), supply.quota) {
            (Answer::Served, _) => Ok(self.next_free(if attributes.uses_headroom { 0 } else { headroom })),
            (Answer::Blocked(group), Some(quota)) => Err(quota.describe(&group)),
            (Answer::Wait | Answer::Blocked(_), _) => Ok(None),
        }
    }

    /// The free block that the order of the pool chooses, but none of the `kept` highest ones.
    fn next_free(&mut self, kept: u128) -> Option<Block> {
        let info = self.info.as_ref()?;
        let usable = info.usable.as_deref().ok()?;
        let number = match (&mut self.free, info.order) {
            (None, AllocationOrder::LowestFirst) if usable.ranges.len() <= 1 => usable.set.lowest(),
            (free, order) => {
                let free = free.get_or_insert_with(|| FreeSet::new(&usable.set));
                self.order.choose(order, usable, free, kept, |count| rand::random_range(0..count))
            }
        };
        Some(usable.block(number?))
    }

    fn headroom(&self) -> u128 {
        let access = self.info.as_ref().and_then(|info| info.access.as_ref());
        access.and_then(|access| access.headroom.as_ref()).map_or(0, |(addresses, _)| *addresses)
    }

    pub(super) fn counts(&self) -> AddressCounts {
        let total = self.usable().map(|usable| usable.set.len()).unwrap_or_default();
        let free = self.free_addresses();
        let (used, cooling_down, drained) = (self.used as u128, self.cooling_down as u128, self.draining.unused());
        let others = [free, used, cooling_down, drained];
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(used),
            out_of_range: capped(self.out_of_range as u128),
            cooling_down: capped(cooling_down),
            drained: capped(drained),
            reserved: capped(others.into_iter().fold(total, u128::saturating_sub)),
        }
    }

    #[cfg(test)]
    pub(super) fn has_free_list(&self) -> bool {
        self.free.is_some()
    }

    /// Whether an IPAddress is of this pool, or the reservation of an address of this pool is being created.
    pub(super) fn is_in_use(&self) -> bool {
        self.used > 0 || self.out_of_range > 0 || self.candidates > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.info.is_none()
            && !self.is_in_use()
            && self.cooldowns.is_empty()
            && self.holds.is_empty()
            && self.wait_queue.is_empty()
    }

    pub(super) fn has_cooldowns(&self) -> bool {
        !self.cooldowns.is_empty()
    }

    pub(super) fn cooling_down(&self) -> impl Iterator<Item = &Slot> {
        self.cooldowns.iter().map(|(_, slot)| slot)
    }

    /// The first second at which an address released at `since` can be reused. Times are truncated to seconds, so the
    /// last second of the cool-down has to be over. In a pool that is deleted or has no grace period, a cool-down ends
    /// immediately.
    fn cooldown_end(&self, since: i64) -> i64 {
        let pool = self.info.as_ref().filter(|info| !info.deleting && info.cooldown_seconds > 0);
        pool.map_or(i64::MIN, |info| since.saturating_add(info.cooldown_seconds).saturating_add(1))
    }

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(super) fn next_cooldown_end(&self) -> Option<i64> {
        self.cooldowns.first().map(|(since, _)| self.cooldown_end(*since))
    }

    /// The addresses whose cool-down has ended at the second `now`.
    pub(super) fn cooled_down(&self, now: i64) -> impl Iterator<Item = &Slot> {
        let over = move |(since, _): &&(i64, Slot)| self.cooldown_end(*since) <= now;
        self.cooldowns.iter().take_while(over).map(|(_, slot)| slot)
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
