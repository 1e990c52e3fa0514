//! The turns of waiting claims: who gets an address next, and which blocked claims wait again.

use std::time::{Duration, Instant};

use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::{Group, Position, Supply, WaitQueue, Waiting};

/// How long an address is held for a claim whose turn it is and that is not reconciled.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_mins(1);

/// What may allow blocked claims to have an address.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Freed {
    /// The groups that have fewer addresses, or may have more.
    pub(in super::super) groups: Vec<Group>,
    /// Whether a slice can be assigned to any owner.
    pub(in super::super) is_slice_free: bool,
}

impl WaitQueue {
    /// The first waiting claim for which an address is free. Claims whose group is full are blocked
    /// on the way.
    pub(super) fn next(&mut self, supply: Supply<'_>) -> Option<NamespacedName> {
        let available = supply.free.saturating_sub(self.turns.len() as u128);
        loop {
            let first = self.first_waiting(supply, available)?.clone();
            match self.full_group(&first, supply) {
                Some(group) => self.block(&first, &group),
                None => return Some(first),
            }
        }
    }

    /// The first waiting claim that may have one of the `available` addresses.
    fn first_waiting(&self, supply: Supply<'_>, available: u128) -> Option<&NamespacedName> {
        let [others, privileged] = &self.waiting;
        let mut first = None;
        for (waiting, uses_headroom) in [(privileged, true), (others, false)] {
            if available > supply.kept_from(uses_headroom) {
                first = earlier(first, waiting.first_key_value());
                first = earlier(first, self.requests.first_ready(uses_headroom));
            }
        }
        let (_, claim) = first?;
        Some(claim)
    }

    /// Ends expired turns, then grants a turn to the first waiting claims as long as there are more
    /// free addresses than turns. `freed` is what has changed since the last call. Returns the
    /// claims that have to be reconciled: those that were granted a turn, and those of groups with
    /// fewer addresses that have reserved one.
    pub(in super::super) fn grant(
        &mut self,
        supply: Supply<'_>,
        freed: Freed,
        now: Instant,
    ) -> Vec<NamespacedName> {
        let mut expired = Vec::new();
        for (claim, granted_at) in &self.turns {
            if now.saturating_duration_since(*granted_at) >= TURN_TIMEOUT {
                expired.push(claim.clone());
            }
        }
        for claim in &expired {
            self.remove_turn(claim);
        }
        let mut groups = freed.groups;
        groups.append(&mut self.freed);
        let mut is_slice_free = freed.is_slice_free;
        for group in &groups {
            self.unblock(group, Some(supply), usize::MAX);
            is_slice_free |= matches!(group, Group::Owner(_));
        }
        if is_slice_free {
            self.unblock_owners(supply);
        }
        // Those that have reserved an address beyond a limit may keep it now.
        let mut granted = Vec::new();
        for group in &groups {
            if let Some(claims) = self.beyond_limit.remove(group) {
                granted.extend(claims);
            }
        }
        while let Some(claim) = self.next(supply) {
            self.remove_waiting(&claim);
            self.set_request_turn(&claim, true);
            self.count_turn(&claim, true);
            self.turns.insert(claim.clone(), now);
            if let Some(queued) = self.queued.get(&claim)
                && queued.requested.is_none()
            {
                self.due.insert(queued.position);
            }
            granted.push(claim);
        }
        granted
    }

    /// Lets the first blocked claim of some owners wait again: as many as there are slices that can
    /// be assigned, in the order of these claims.
    fn unblock_owners(&mut self, supply: Supply<'_>) {
        let Some(slices) = supply.slices else { return };
        let free_slices = slices.free_slices();
        if free_slices == 0 {
            return;
        }
        let mut owners: Vec<(Position, Group)> = Vec::new();
        for (group, claims) in &self.blocked {
            if let Group::Owner(owner) = group
                && slices.room(owner) > 0
                && let Some((position, _)) = claims.first_key_value()
            {
                owners.push((*position, group.clone()));
            }
        }
        owners.sort_unstable_by_key(|(position, _)| *position);
        owners.truncate(free_slices);
        for (_, owner) in &owners {
            self.unblock(owner, Some(supply), 1);
        }
    }

    /// Lets the first blocked claims of a group wait again, as many as it may have further
    /// addresses, at most `most`.
    fn unblock(&mut self, group: &Group, supply: Option<Supply<'_>>, most: usize) {
        let mut count = most;
        if let Some(supply) = supply
            && let Some(room) = supply.room(group)
        {
            // A claim with a turn gets one of these addresses.
            count = count.min(room.saturating_sub(self.turns_of(group)));
        }
        let Some(blocked) = self.blocked.get_mut(group) else {
            return;
        };
        let mut unblocked = Vec::new();
        while unblocked.len() < count
            && let Some(first) = blocked.pop_first()
        {
            unblocked.push(first);
        }
        if blocked.is_empty() {
            self.blocked.remove(group);
        }
        for (position, claim) in unblocked {
            self.insert_waiting(position, &claim);
        }
    }

    /// Records that the limits, the headroom or the slices of the pool have changed. Returns all
    /// claims that wait: they have to be reconciled.
    pub(in super::super) fn rules_changed(&mut self) -> Vec<NamespacedName> {
        let groups: Vec<Group> = self.blocked.keys().cloned().collect();
        for group in &groups {
            self.unblock(group, None, usize::MAX);
        }
        let mut waiting: Vec<NamespacedName> = self.queued.keys().cloned().collect();
        for claims in std::mem::take(&mut self.beyond_limit).into_values() {
            waiting.extend(claims);
        }
        self.sorted(waiting)
    }

    /// Removes the turn of a claim. Returns whether it had one.
    pub(super) fn remove_turn(&mut self, claim: &NamespacedName) -> bool {
        let had_turn = self.turns.remove(claim).is_some();
        if had_turn {
            self.remove_due(claim);
            self.set_request_turn(claim, false);
            self.count_turn(claim, false);
        }
        had_turn
    }

    fn set_request_turn(&mut self, claim: &NamespacedName, has_turn: bool) {
        if let Some(queued) = self.queued.get(claim)
            && let Some(block) = queued.requested
        {
            self.requests.set_turn(block, has_turn);
        }
    }

    /// The number of blocks for which a claim that requests one has a turn.
    pub(in super::super) fn granted_requests(&self) -> usize {
        self.requests.turns()
    }

    /// Whether a claim has a turn for this block.
    pub(in super::super) fn is_granted(&self, block: Block) -> bool {
        self.requests.has_turn(block)
    }

    /// Counts a turn of the groups of a claim that was granted or has ended.
    fn count_turn(&mut self, claim: &NamespacedName, is_added: bool) {
        let Some(queued) = self.queued.get(claim) else {
            return;
        };
        let Some(consumer) = &queued.consumer else {
            return;
        };
        for group in consumer.groups() {
            if is_added {
                let count = self.turns_of.entry(group).or_default();
                *count += 1;
            } else if let Some(count) = self.turns_of.get_mut(&group) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.turns_of.remove(&group);
                }
                self.freed.push(group);
            }
        }
    }
}

/// The one with the lower position.
fn earlier<'a>(one: Option<Waiting<'a>>, other: Option<Waiting<'a>>) -> Option<Waiting<'a>> {
    match (one, other) {
        (Some(one), Some(other)) if other.0 < one.0 => Some(other),
        (None, other) => other,
        (one, _) => one,
    }
}
