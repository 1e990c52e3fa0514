//! The ledger's entry of one pool: what its object declares, its counts, free addresses and wait queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::finalizer;
use capi_ipam_controller::object_map::ListEpoch;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};
use capi_ipam_provider::api::is_paused;
use kube::ResourceExt;

use super::ClaimKey;
use super::networks::NetworkRefusal;
use super::order::Order;
use super::quota::{Group, LimitReached, Quota};
use super::slices::{Choice, SliceInfo, SliceRefusal, Slices};
use super::usage::AddressUsage;
use super::wait_queue::{Answer, ClaimAttributes, Freed, Supply, WaitQueue};
use crate::api::{
    AccessRules, AddressCounts, AllocationOrder, Pool, PoolKey, PoolSpec, Scope, SliceCounts, SliceOwner, SliceRules,
    Slot, names,
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
    /// Who may use the pool; `None` without restrictions.
    pub access: Option<Arc<AccessRules>>,
    /// How the pool is divided into slices; `None` without slices.
    pub slices: Option<Arc<SliceRules>>,
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
        let Parsed { usable, access, slices } = known.map_or_else(
            || read_all(spec, pool.kind.is_global()),
            |known| Parsed { usable: known.usable.clone(), access: known.access.clone(), slices: known.slices.clone() },
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
            access,
            slices,
            generation: meta.generation,
        }
    }

    /// Whether the pool can allocate addresses to claims.
    pub fn can_allocate(&self) -> bool {
        self.can_bind() && !self.deleting && self.network_problem.is_none()
    }

    /// Whether claims that already hold an address of the pool can be bound: also while the pool is being deleted.
    pub fn can_bind(&self) -> bool {
        let is_refused = self.network_problem.as_ref().is_some_and(|refusal| !refusal.keeps_members());
        self.usable.is_ok() && !self.paused && self.initialized && !is_refused
    }
}

/// What is parsed of a specification.
struct Parsed {
    usable: Usable,
    access: Option<Arc<AccessRules>>,
    slices: Option<Arc<SliceRules>>,
}

/// Parses the blocks of a pool, who may use it, and its slices.
fn read_all(spec: &PoolSpec, is_global: bool) -> Parsed {
    let mut problems = Vec::new();
    let mut add = |found: Vec<String>| problems.extend(found);
    let usable = spec.usable().map_err(|found| add(found.iter().map(ToString::to_string).collect())).ok();
    let access = if is_global { spec.access().rules() } else { Ok(None) };
    let access = access.map_err(|found| add(found.iter().map(ToString::to_string).collect())).ok().flatten();
    let slices = usable.as_ref().map_or(Ok(None), |usable| spec.slice_rules(usable));
    let slices = slices.map_err(|found| add(found.iter().map(ToString::to_string).collect())).ok().flatten();
    let usable = match usable {
        Some(usable) if problems.is_empty() => Ok(Arc::new(usable)),
        _ => Err(problems.join("; ").into()),
    };
    Parsed { usable, access: access.map(Arc::new), slices: slices.map(Arc::new) }
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
    /// The IPSlices of the pool.
    pub(super) slice_objects: BTreeMap<Block, SliceInfo>,
    /// How the pool is divided into slices; only with slices in its specification.
    slices: Option<Box<Slices>>,
}

/// What a claim gets of a pool.
pub(super) enum Next {
    /// This block.
    Block(Block),
    /// Nothing: it waits in the queue.
    Wait,
    /// Nothing: its namespace or Cluster may have no further address.
    LimitReached(LimitReached),
    /// This slice has to be assigned to its owner first.
    AssignSlice(Block),
    /// The mark that this slice is empty has to be removed first.
    ResumeSlice(Block),
    /// Nothing: the owner of its slices may have no further address.
    SliceUnavailable(SliceRefusal),
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
        match &mut self.free {
            Some(free) if !is_free => {
                if free.take(number) {
                    self.order.set_free(number, false);
                    if let Some(slices) = &mut self.slices {
                        slices.set_free(number, false);
                    }
                }
            }
            Some(free) if !self.other_lengths.contains(number) => {
                if free.release(number) {
                    self.order.set_free(number, true);
                    if let Some(slices) = &mut self.slices {
                        slices.set_free(number, true);
                    }
                }
            }
            None if !is_free => {
                self.free = Some(FreeSet::without(&usable.set, std::iter::once(number)));
                if let Some(slices) = &mut self.slices {
                    slices.set_free(number, false);
                }
            }
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
            self.out_of_range = usage.values().filter(|usage| usage.pools().contains(key)).count();
            self.slices = None;
            return;
        };
        let mut numbers = usage
            .keys()
            .filter_map(|block| usable.number(*block))
            .filter(|number| usable.set.contains(*number))
            .peekable();
        let other_lengths = usage.keys().filter(|block| usable.number(**block).is_none());
        let other_lengths: SpanSet = other_lengths.filter_map(|block| usable.numbers_overlapping(*block)).collect();
        let is_all_free = other_lengths.is_empty() && numbers.peek().is_none();
        let free = (!is_all_free).then(|| FreeSet::without(&usable.set.subtract(&other_lengths), numbers));
        let mine = usage.iter().filter(|(_, usage)| usage.owners.iter().any(|owner| owner.pool == *key));
        let (inside, outside): (Vec<_>, Vec<_>) = mine.partition(|(block, _)| usable.contains(**block));
        (self.used, self.out_of_range) = (inside.len(), outside.len());
        self.cooling_down = self.cooldowns.iter().filter(|(_, slot)| usable.contains(slot.block)).count();
        (self.free, self.other_lengths) = (free, other_lengths);
        self.divide();
    }

    /// Divides the pool into slices again, after a change of its blocks, its rules or its slices.
    pub(super) fn divide(&mut self) {
        let pending = self.slices.take().map(|slices| slices.take_pending()).unwrap_or_default();
        let Some(info) = &self.info else { return };
        let (Ok(usable), Some(rules)) = (&info.usable, &info.slices) else { return };
        let all = usable.set.subtract(&self.other_lengths);
        let (rules, free) = (Arc::clone(rules), self.free.as_ref());
        self.slices = Some(Box::new(Slices::new(rules, usable, &all, free, &self.slice_objects, pending)));
    }

    /// Records an IPSlice of the pool.
    pub(super) fn insert_slice(&mut self, block: Block, slice: SliceInfo) {
        self.slice_objects.insert(block, slice.clone());
        let usable = self.info.as_ref().and_then(|info| info.usable.as_deref().ok());
        if let (Some(slices), Some(usable)) = (&mut self.slices, usable) {
            slices.insert(usable, self.free.as_ref(), block, slice);
        }
    }

    /// Removes an IPSlice of the pool.
    pub(super) fn remove_slice(&mut self, block: Block) {
        self.slice_objects.remove(&block);
        let usable = self.info.as_ref().and_then(|info| info.usable.as_deref().ok());
        if let (Some(slices), Some(usable)) = (&mut self.slices, usable) {
            slices.remove(usable, block);
            if slices.len() < self.slice_objects.len() {
                // Another slice that overlaps with it may have an effect now.
                self.divide();
            }
        }
    }

    /// Records that a slice could not be assigned.
    pub(super) fn end_slice_assignment(&mut self, block: Block) {
        let usable = self.info.as_ref().and_then(|info| info.usable.as_deref().ok());
        if let (Some(slices), Some(usable)) = (&mut self.slices, usable) {
            slices.end_assignment(usable, block);
        }
    }

    /// The counts of the slices; `None` without slices.
    pub(super) fn slice_counts(&self) -> Option<SliceCounts> {
        self.slices.as_ref().map(|slices| slices.counts())
    }

    /// Whether an address of a block of the pool is in use, or not free for another reason. Linear in the free spans of
    /// the block; an address outside of the range of the pool is looked up in `usage`.
    pub(super) fn has_address_in(&self, block: Block, usage: Option<&HashMap<Block, AddressUsage>>) -> bool {
        let span = block.span();
        let overlaps = |other: &Block| {
            let other_span = other.span();
            other.family() == block.family() && other_span.first() <= span.last() && span.first() <= other_span.last()
        };
        let in_pool = self.usable().zip(self.usable().and_then(|usable| usable.numbers_overlapping(block)));
        let contained = in_pool.map(|(usable, numbers)| usable.set.intersect(&SpanSet::from(numbers)));
        let size = in_pool.map(|(_, numbers)| numbers.len()).unwrap_or_default();
        let is_in_use = contained.as_ref().is_some_and(|contained| {
            let free = self.free.as_ref();
            let count = |free: &FreeSet| {
                let spans = contained.spans().iter().flat_map(|span| free.within(*span));
                spans.fold(0_u128, |sum, span| sum.saturating_add(span.len()))
            };
            free.is_some_and(|free| count(free) < contained.len())
        });
        // The gateway and reserved addresses of the subnet are not in the pool, and not in use either.
        let is_contained = contained.is_some_and(|contained| contained.len() == size);
        is_in_use || (!is_contained && self.out_of_range > 0 && usage.is_some_and(|usage| usage.keys().any(overlaps)))
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
        let groups = self.quota.as_mut().map(|quota| quota.take_freed()).unwrap_or_default();
        let (owners, is_slice_free) = self.slices.as_mut().map(|slices| slices.take_freed()).unwrap_or_default();
        let groups = groups.into_iter().chain(owners.into_iter().map(Group::Owner)).collect();
        let supply = Supply { free, headroom, quota: self.quota.as_deref(), slices: self.slices.as_deref() };
        self.wait_queue.grant(supply, Freed { groups, is_slice_free }, now)
    }

    /// Returns what the claim gets. If it is not its turn, it is enqueued.
    pub(super) fn propose(&mut self, claim: &ClaimKey, attributes: &ClaimAttributes) -> Next {
        let (free, headroom) = (self.free_count(), self.headroom());
        let supply = Supply { free, headroom, quota: self.quota.as_deref(), slices: self.slices.as_deref() };
        match self.wait_queue.request(claim, attributes, supply) {
            Answer::Served => match (&mut self.slices, &attributes.slice_owner) {
                (Some(_), Some(owner)) => self.next_of_owner(owner),
                (Some(_), None) => Next::Wait,
                (None, _) => {
                    let kept = if attributes.uses_headroom { 0 } else { headroom };
                    self.next_free(kept).map_or(Next::Wait, Next::Block)
                }
            },
            Answer::Blocked(Group::Owner(owner)) => match &self.slices {
                Some(slices) => Next::SliceUnavailable(slices.describe(&owner)),
                None => Next::Wait,
            },
            Answer::Blocked(group) => {
                self.quota.as_ref().map_or(Next::Wait, |quota| Next::LimitReached(quota.describe(&group)))
            }
            Answer::Wait => Next::Wait,
        }
    }

    /// What a claim of an owner of slices gets.
    fn next_of_owner(&mut self, owner: &Arc<SliceOwner>) -> Next {
        let Some(info) = &self.info else { return Next::Wait };
        let (Ok(usable), Some(slices)) = (&info.usable, &mut self.slices) else { return Next::Wait };
        match slices.choose(owner, info.order, usable, |count| rand::random_range(0..count)) {
            Choice::Number(number) => Next::Block(usable.block(number)),
            Choice::Assign(block) => Next::AssignSlice(block),
            Choice::Resume(block) => Next::ResumeSlice(block),
            Choice::None => Next::SliceUnavailable(slices.describe(owner)),
        }
    }

    /// The free block that the order of the pool chooses, but none of the `kept` highest ones.
    fn next_free(&mut self, kept: u128) -> Option<Block> {
        let info = self.info.as_ref()?;
        let usable = info.usable.as_deref().ok()?;
        let number = match (&mut self.free, info.order) {
            (None, AllocationOrder::LowestFirst) => usable.set.lowest(),
            (free, order) => {
                let free = free.get_or_insert_with(|| FreeSet::new(&usable.set));
                self.order.choose(
                    order,
                    usable,
                    || usable.set.clone(),
                    free,
                    kept,
                    |count| rand::random_range(0..count),
                )
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
        let (used, cooling_down) = (self.used as u128, self.cooling_down as u128);
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(used),
            out_of_range: capped(self.out_of_range as u128),
            cooling_down: capped(cooling_down),
            reserved: capped(total.saturating_sub(free).saturating_sub(used).saturating_sub(cooling_down)),
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
            && self.slice_objects.is_empty()
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
