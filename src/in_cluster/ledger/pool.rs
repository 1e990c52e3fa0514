//! The addresses of one pool.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Instant;

use super::{ClaimKey, Line, PoolFacts, PoolKey, Proposal, Suspect, Ticket};
use crate::addr::{Family, FreeSet, SpanSet};
use crate::api::{AddressCounts, IPReservation, Uid};

/// One pool, whether its object exists or not: addresses can be in use without it.
#[derive(Default)]
pub(super) struct PoolEntry {
    pub(super) facts: Option<PoolFacts>,
    pub(super) line: Line,
    pub(super) listing: u32,
    taken: HashMap<IpAddr, Taken>,
    free: Option<FreeSet>,
    /// Addresses with an IPAddress object, in the pool's range and outside of it.
    used: usize,
    out_of_range: usize,
    /// Addresses that rest, by the second in which they were released.
    resting: BTreeSet<(i64, IpAddr)>,
}

/// Why an address is not free.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) reserved: Option<Reserved>,
    /// The IPAddress objects with this address: one, unless something went wrong.
    holders: Vec<Holder>,
    /// Proposed to a claim that is about to create the reservation.
    pub(super) proposed: bool,
}

/// An IPReservation.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) uid: Box<str>,
    pub(super) claim: Option<ClaimKey>,
    pub(super) claim_uid: Option<Uid>,
    /// In seconds since 1970.
    pub(super) released_at: Option<i64>,
    listing: u32,
}

/// An IPAddress.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) name: ClaimKey,
    pub(super) listing: u32,
}

impl Reserved {
    pub(super) fn of(reservation: &IPReservation, listing: u32) -> Self {
        let claim = reservation.spec.claim_ref.as_ref();
        Self {
            uid: reservation.metadata.uid.as_deref().unwrap_or_default().into(),
            claim: claim.map(|claim| (claim.namespace.clone(), claim.name.clone())),
            claim_uid: claim.and_then(|claim| claim.uid.as_deref()).map(Uid::of),
            released_at: reservation.spec.released_at.as_ref().map(|time| time.0.as_second()),
            listing,
        }
    }
}

impl Taken {
    fn is_free(&self) -> bool {
        self.reserved.is_none() && self.holders.is_empty() && !self.proposed
    }

    fn resting_since(&self) -> Option<i64> {
        self.reserved.as_ref()?.released_at
    }

    pub(super) fn hold(&mut self, holder: Holder) {
        match self.holders.iter_mut().find(|present| present.name == holder.name) {
            Some(present) => *present = holder,
            None => self.holders.push(holder),
        }
    }

    pub(super) fn let_go(&mut self, name: &ClaimKey) {
        self.holders.retain(|holder| holder.name != *name);
    }
}

impl PoolEntry {
    fn number_in_range(&self, address: IpAddr) -> Option<u128> {
        let usable = self.facts.as_ref()?.usable.as_ref().ok()?;
        let number = Family::to_number(address);
        (usable.family == Family::of(address) && usable.set.contains(number)).then_some(number)
    }

    pub(super) fn taken(&self, address: IpAddr) -> Option<&Taken> {
        self.taken.get(&address)
    }

    /// The names of the IPAddress objects with that address.
    pub(super) fn holders(&self, address: IpAddr) -> Vec<ClaimKey> {
        let taken = self.taken.get(&address);
        taken.into_iter().flat_map(|taken| &taken.holders).map(|holder| holder.name.clone()).collect()
    }

    /// Changes what is known of an address, and keeps the free set and the counts right.
    pub(super) fn update(&mut self, address: IpAddr, change: impl FnOnce(&mut Taken)) {
        let number = self.number_in_range(address);
        let taken = self.taken.entry(address).or_default();
        let (was_used, rested) = (!taken.holders.is_empty(), taken.resting_since());
        change(taken);
        let (used, rests, is_free) = (!taken.holders.is_empty(), taken.resting_since(), taken.is_free());
        if is_free {
            self.taken.remove(&address);
        }
        if let Some((number, free)) = number.zip(self.free.as_mut()) {
            if is_free {
                free.give_back(number)
            } else {
                free.take(number)
            };
        }
        let count = if number.is_some() { &mut self.used } else { &mut self.out_of_range };
        match (was_used, used) {
            (false, true) => *count = count.saturating_add(1),
            (true, false) => *count = count.saturating_sub(1),
            _ => {}
        }
        if rested != rests {
            rested.map(|second| self.resting.remove(&(second, address)));
            rests.map(|second| self.resting.insert((second, address)));
        }
    }

    /// Replaces what is known of the pool object, and counts anew if its addresses changed.
    pub(super) fn set_facts(&mut self, facts: Option<PoolFacts>) {
        let usable = |facts: &Option<PoolFacts>| Some(facts.as_ref()?.usable.as_ref().ok()?.clone());
        let (before, after) = (usable(&self.facts), usable(&facts));
        self.facts = facts;
        if before == after {
            return;
        }
        let in_range = |address: &IpAddr| self.number_in_range(*address);
        let numbers: Vec<u128> = self.taken.keys().filter_map(in_range).collect();
        let used = |inside: bool| {
            let counts = |(address, taken): &(&IpAddr, &Taken)| {
                !taken.holders.is_empty() && in_range(address).is_some() == inside
            };
            self.taken.iter().filter(counts).count()
        };
        let (used, out_of_range) = (used(true), used(false));
        self.free = after.map(|usable| FreeSet::without(&usable.set, numbers.into_iter()));
        (self.used, self.out_of_range) = (used, out_of_range);
    }

    fn free_count(&self) -> u128 {
        let serves = self.facts.as_ref().is_some_and(PoolFacts::serves);
        self.free.as_ref().filter(|_| serves).map(FreeSet::len).unwrap_or_default()
    }

    pub(super) fn serve_line(&mut self, now: Instant) -> Vec<ClaimKey> {
        let free = self.free_count();
        self.line.call(free, now)
    }

    pub(super) fn propose(&mut self, claim: &ClaimKey, ticket: Ticket, now: Instant) -> Proposal {
        let free = self.free_count();
        if !self.line.admit(claim, ticket, free, now) {
            return Proposal::Wait;
        }
        let family = self.facts.as_ref().and_then(|facts| Some(facts.usable.as_ref().ok()?.family));
        let lowest = self.free.as_ref().and_then(FreeSet::lowest);
        let Some(address) = family.zip(lowest).map(|(family, number)| family.address(number)) else {
            return Proposal::Wait;
        };
        self.line.leave(claim);
        self.update(address, |taken| taken.proposed = true);
        Proposal::Address(address)
    }

    pub(super) fn counts(&self) -> AddressCounts {
        let usable = self.facts.as_ref().and_then(|facts| facts.usable.as_ref().ok());
        let total = usable.map(|usable| SpanSet::len(&usable.set)).unwrap_or_default();
        let free = self.free.as_ref().map(FreeSet::len).unwrap_or_default();
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(self.used as u128),
            out_of_range: capped(self.out_of_range as u128),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.used > 0 || self.out_of_range > 0 || self.taken.values().any(|taken| taken.proposed)
    }

    pub(super) fn taken_count(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_none() && self.taken.is_empty() && self.line.is_empty()
    }

    pub(super) fn anything_rests(&self) -> bool {
        !self.resting.is_empty()
    }

    pub(super) fn rested(&self, now: i64) -> Vec<IpAddr> {
        // Nobody waits for the rest of a pool that is going.
        let rest = self.facts.as_ref().filter(|facts| !facts.deleting).map_or(0, |facts| facts.rest);
        // Times are kept in whole seconds, cut off: the last one has to be over.
        let over = |(since, _): &&(i64, IpAddr)| rest == 0 || since.saturating_add(rest) < now;
        self.resting.iter().take_while(over).map(|(_, address)| *address).collect()
    }

    pub(super) fn unreserved(&self) -> impl Iterator<Item = (IpAddr, ClaimKey)> {
        let exists = self.facts.as_ref().is_some_and(|facts| !facts.deleting);
        self.taken
            .iter()
            .filter(move |(_, taken)| exists && taken.reserved.is_none() && !taken.proposed)
            .filter_map(|(address, taken)| taken.holders.first().map(|holder| (*address, holder.name.clone())))
    }

    pub(super) fn suspects(
        &self,
        key: &PoolKey,
        has_a_right: &impl Fn(&ClaimKey, Option<Uid>, bool) -> bool,
    ) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        for (address, taken) in &self.taken {
            let slot = || (key.clone(), *address);
            if let Some(reserved) = &taken.reserved
                && let Some((claim, uid)) = reserved.claim.as_ref().zip(reserved.claim_uid)
                && reserved.released_at.is_none()
                && !has_a_right(claim, Some(uid), taken.holders.iter().any(|holder| holder.name == *claim))
            {
                suspects.push(Suspect::Reservation { slot: slot(), claim: claim.clone(), uid });
            }
            for holder in taken.holders.iter().filter(|holder| !has_a_right(&holder.name, None, true)) {
                suspects.push(Suspect::Address { slot: slot(), claim: holder.name.clone() });
            }
        }
        suspects
    }

    pub(super) fn drop_addresses_before(&mut self, listing: u32) {
        let old = |taken: &Taken| taken.holders.iter().any(|holder| holder.listing != listing);
        let addresses: Vec<IpAddr> =
            self.taken.iter().filter(|(_, taken)| old(taken)).map(|(address, _)| *address).collect();
        for address in addresses {
            self.update(address, |taken| taken.holders.retain(|holder| holder.listing == listing));
        }
    }

    pub(super) fn reservations_before(&self, listing: u32) -> Vec<IpAddr> {
        let old = |taken: &Taken| taken.reserved.as_ref().is_some_and(|reserved| reserved.listing != listing);
        self.taken.iter().filter(|(_, taken)| old(taken)).map(|(address, _)| *address).collect()
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
