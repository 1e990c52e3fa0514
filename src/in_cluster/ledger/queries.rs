//! What can be asked of the ledger without changing it.

use std::sync::Arc;

use capi_ipam_ip::{Block, Family, Usable};
use capi_ipam_provider::api::Uid;

use crate::api::{AddressCounts, Audience, Scope, Slot};
use super::pool::PoolEntry;
use super::state::State;
use super::usage::{Holder, Origin, AddressUsage};
use super::{ClaimKey, Ledger, PoolInfo, PoolKey};

/// An address without anybody who has a right to it, as far as the ledger knows. To be checked against the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Suspect {
    /// A reservation held by a claim.
    Reservation {
        /// Scope and address.
        slot: Slot,
        /// The claim that holds it.
        claim: ClaimKey,
        /// That claim's uid.
        uid: Uid,
    },
    /// An IPAddress, by the namespace and name that its claim had.
    Address {
        /// Scope and address.
        slot: Slot,
        /// Namespace and name.
        claim: ClaimKey,
    },
}

impl Suspect {
    /// Scope and address.
    pub fn slot(&self) -> &Slot {
        match self {
            Self::Reservation { slot, .. } | Self::Address { slot, .. } => slot,
        }
    }
}

/// An address in use without a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreserved {
    /// Scope and address.
    pub slot: Slot,
    /// Namespace and name of the claims that have it, and the pool that each has it from: one, unless something went
    /// wrong.
    pub claims: Vec<(ClaimKey, PoolKey)>,
}

/// An address that a claim has though it is reserved for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Scope and address.
    pub slot: Slot,
    /// The claim that has it.
    pub claim: ClaimKey,
    /// The claim that it is reserved for.
    pub reservations_of: ClaimKey,
    /// That claim's uid.
    pub uid: Uid,
    /// Whether that claim has an IPAddress with it, as far as is known here.
    pub both_have_it: bool,
}

/// A reservation whose cool-down has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CooledDown {
    /// Scope and address.
    pub slot: Slot,
    /// Unique id of the reservation.
    pub uid: String,
    /// Its resource version as last seen.
    pub version: String,
}

/// An IPAddress that somebody made by hand, without a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unclaimed {
    /// Scope and address.
    pub slot: Slot,
    /// Namespace and name of the IPAddress.
    pub name: ClaimKey,
}

/// An IPReservation made by hand that does not do what it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReservation {
    /// Its name.
    pub name: String,
    /// Its unique id.
    pub uid: String,
    /// What is wrong with it.
    pub why: String,
}

impl State {
    fn all_taken(&self) -> impl Iterator<Item = (&Scope, Block, &AddressUsage)> {
        self.scopes
            .iter()
            .flat_map(|(scope, entry)| entry.taken.iter().map(move |(block, taken)| (scope, *block, taken)))
    }
}

impl Ledger {
    /// What is known of a pool.
    pub fn facts(&self, pool: &PoolKey) -> Option<PoolInfo> {
        self.lock().pools.get(pool)?.facts.clone()
    }

    /// Whether that is what the pool can give to claims now.
    pub fn gives(&self, pool: &PoolKey, usable: &Arc<Usable>) -> bool {
        let state = self.lock();
        let facts = state.pools.get(pool).and_then(|entry| entry.facts.as_ref());
        facts.and_then(|facts| facts.usable.as_ref().ok()).is_some_and(|given| Arc::ptr_eq(given, usable))
    }

    /// The set within which the addresses of a pool are unique.
    pub fn scope(&self, pool: &PoolKey) -> Scope {
        self.lock().scope_of(pool)
    }

    /// The network, family and length of blocks that have to be agreed on before the pool can serve.
    pub fn missing_block_length(&self, pool: &PoolKey) -> Option<(Arc<str>, Family, u8)> {
        self.lock().missing_block_length(pool)
    }

    /// The length of the blocks that a network gives out, once it has been agreed on.
    pub fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.lock().network_length(network, family)
    }

    /// The pools that name a network.
    pub fn members(&self, network: &str) -> Vec<PoolKey> {
        let scope = Scope::Network(network.into());
        self.lock().scopes.get(&scope).map(|scope| scope.members.clone()).unwrap_or_default()
    }

    /// The addresses reserved for a claim by uid, and those promised to it by name, with the pools they are from.
    pub fn reservations_of(&self, claim: &ClaimKey, uid: Uid) -> Vec<(Slot, PoolKey)> {
        let state = self.lock();
        let held = state.held.get(&uid).into_iter().flatten();
        let slots = held.chain(state.promised.get(claim).into_iter().flatten());
        slots.filter_map(|slot| Some((slot.clone(), state.taken(slot)?.reserved.as_ref()?.pool.clone()))).collect()
    }

    /// Whether the address is promised to a claim by name, whichever claim has that name.
    pub fn is_promise(&self, slot: &Slot) -> bool {
        let state = self.lock();
        let reserved = state.taken(slot).and_then(|taken| taken.reserved.as_ref());
        reserved.is_some_and(|reserved| reserved.claim.is_some() && reserved.is_by_hand())
    }

    /// A reservation by which a claim holds an address of the pool, if there is one.
    pub fn held_in(&self, pool: &PoolKey) -> Option<Slot> {
        let state = self.lock();
        let scope = state.scope_of(pool);
        let is_held = |taken: &AddressUsage| {
            let reserved = taken.reserved.as_ref();
            reserved.is_some_and(|held| held.pool == *pool && !held.is_by_hand() && held.released_at.is_none())
        };
        let (block, _) = state.scopes.get(&scope)?.taken.iter().find(|(_, taken)| is_held(taken))?;
        Some(Slot { scope, block: *block })
    }

    /// Whether a claim holds an address of the pool by its uid.
    pub fn holds(&self, claim: Uid, pool: &PoolKey) -> bool {
        let state = self.lock();
        let mut held = state.held.get(&claim).into_iter().flatten().filter_map(|slot| state.taken(slot));
        held.any(|taken| taken.reserved.as_ref().is_some_and(|reserved| reserved.pool == *pool))
    }

    /// Whether there is a reservation of an address, whoever holds it.
    pub fn is_reserved(&self, slot: &Slot) -> bool {
        self.lock().taken(slot).is_some_and(|taken| taken.reserved.is_some())
    }

    /// The uid of the reservation of an address, as text, if the claim of that uid holds it.
    pub fn reservation_uid(&self, slot: &Slot, claim: Uid) -> Option<String> {
        let state = self.lock();
        let reserved = state.taken(slot)?.reserved.as_ref().filter(|reserved| reserved.claim_uid == Some(claim))?;
        Some(reserved.uid.to_string())
    }

    /// The pool's counts.
    pub fn counts(&self, pool: &PoolKey) -> AddressCounts {
        self.lock().pools.get(pool).map(PoolEntry::counts).unwrap_or_default()
    }

    /// Whether an address of the pool is in use or about to be.
    pub fn is_in_use(&self, pool: &PoolKey) -> bool {
        let state = self.lock();
        state.pools.get(pool).is_some_and(PoolEntry::has_addresses) || state.proposals.values().any(|from| from == pool)
    }

    /// The addresses of a pool that are in use and that `of_interest` says yes to, in ascending order. An address counts
    /// as in use when a claim holds it, also in a namespace whose claims this process does not see.
    pub fn in_use(&self, pool: &PoolKey, of_interest: &dyn Fn(Block) -> bool) -> Vec<Block> {
        let state = self.lock();
        let holds = |taken: &AddressUsage| {
            let reserved = taken.reserved.as_ref().is_some_and(|reserved| {
                reserved.pool == *pool && !reserved.is_by_hand() && reserved.released_at.is_none()
            });
            reserved || taken.holders.iter().any(|holder| holder.pool == *pool)
        };
        let scope = state.scopes.get(&state.scope_of(pool));
        let taken = scope.into_iter().flat_map(|scope| &scope.taken);
        let in_use = taken.filter(|(block, taken)| of_interest(**block) && holds(taken));
        let mut blocks: Vec<Block> = in_use.map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Namespace and name of the IPAddress objects with that address.
    pub fn holders(&self, slot: &Slot) -> Vec<ClaimKey> {
        let state = self.lock();
        let holders = state.taken(slot).into_iter().flat_map(|taken| &taken.holders);
        holders.map(|holder| ClaimKey::clone(&holder.name)).collect()
    }

    /// Whether somebody else than that claim has an address in common with the slot.
    pub fn touches_another(&self, slot: &Slot, claim: &ClaimKey) -> bool {
        let (state, span) = (self.lock(), slot.block.span());
        let touches = |block: &Block| {
            let other = block.span();
            block.family() == slot.block.family() && span.first() <= other.last() && other.first() <= span.last()
        };
        let another = |taken: &AddressUsage| {
            let reserved = taken.reserved.as_ref().is_some_and(|reserved| reserved.claim.as_deref() != Some(claim));
            reserved || taken.proposed || taken.holders.iter().any(|holder| *holder.name != *claim)
        };
        let scope = state.scopes.get(&slot.scope);
        scope.is_some_and(|scope| scope.taken.iter().any(|(block, taken)| touches(block) && another(taken)))
    }

    /// How many addresses of a scope are taken in any way.
    pub fn taken(&self, scope: &Scope) -> usize {
        self.lock().scopes.get(scope).map(|scope| scope.taken.len()).unwrap_or_default()
    }

    /// Reservations whose cool-down has ended at the given time, in seconds since 1970, and those whose pool is gone. For
    /// pools that `is_served` says no to, the cool-down counts as `delay` seconds longer.
    pub fn cooled_down(&self, now: i64, is_served: impl Fn(&PoolKey) -> bool, delay: i64) -> Vec<CooledDown> {
        let state = self.lock();
        let ended = state
            .pools
            .iter()
            .flat_map(|(pool, entry)| entry.cooled_down(if is_served(pool) { now } else { now.saturating_sub(delay) }));
        let described = ended.filter_map(|slot| {
            let reserved = state.taken(slot)?.reserved.as_ref()?;
            Some(CooledDown {
                slot: slot.clone(),
                uid: reserved.uid.to_string(),
                version: reserved.version.to_string(),
            })
        });
        described.collect()
    }

    /// When the next cool-down ends, in seconds since 1970; as [`Self::cooled_down`] counts. `None` when none is going on.
    pub fn next_cooldown_end(&self, is_served: impl Fn(&PoolKey) -> bool, delay: i64) -> Option<i64> {
        let state = self.lock();
        let ends = state.pools.iter().filter_map(|(pool, entry)| {
            let end = entry.next_cooldown_end()?;
            Some(if is_served(pool) { end } else { end.saturating_add(delay) })
        });
        ends.min()
    }

    /// When the next cool-down of a pool ends, in seconds since 1970.
    pub fn cooldown_end(&self, pool: &PoolKey) -> Option<i64> {
        self.lock().pools.get(pool)?.next_cooldown_end()
    }

    /// Addresses that rest though a claim has an IPAddress with them, and that claim. A uid stands by it where the claim
    /// of that name gave the address back: it did not if it lives and has that uid.
    pub fn cooling_down_in_use(&self) -> Vec<(Slot, ClaimKey, Option<Uid>)> {
        let state = self.lock();
        let in_use = |slot: &Slot| {
            let taken = state.taken(slot)?;
            let reserved = taken.reserved.as_ref()?;
            let by_itself = |name: &ClaimKey| Some(name) == reserved.claim.as_deref();
            let other = taken.holders.iter().find(|holder| !by_itself(&holder.name));
            let name = &other.or(taken.holders.first())?.name;
            Some((slot.clone(), ClaimKey::clone(name), reserved.claim_uid.filter(|_| by_itself(name))))
        };
        state.pools.values().flat_map(PoolEntry::cooling_down).filter_map(in_use).collect()
    }

    /// Whether an address has no reservation and nobody is about to make one.
    pub fn is_unreserved(&self, slot: &Slot) -> bool {
        self.lock().taken(slot).is_some_and(AddressUsage::is_unreserved)
    }

    /// Addresses in use without a reservation, of pools that exist and stay, and of claims that `is_of_interest` says yes
    /// to; at most `most`.
    pub fn unreserved(&self, most: usize, is_of_interest: impl Fn(&ClaimKey) -> bool) -> Vec<Unreserved> {
        let state = self.lock();
        let stays = |pool: &PoolKey| {
            let facts = state.pools.get(pool).and_then(|entry| entry.facts.as_ref());
            facts.is_some_and(|facts| !facts.deleting)
        };
        let unreserved = state.all_taken().filter(|(_, _, taken)| taken.is_unreserved());
        let described = unreserved.filter_map(|(scope, block, taken)| {
            let holders = taken.holders.iter().filter(|holder| stays(&holder.pool));
            let claims: Vec<_> = holders.map(|holder| (ClaimKey::clone(&holder.name), holder.pool.clone())).collect();
            claims
                .iter()
                .any(|(claim, _)| is_of_interest(claim))
                .then(|| Unreserved { slot: Slot { scope: scope.clone(), block }, claims })
        });
        described.take(most).collect()
    }

    /// Addresses that claims have though they are reserved for other claims.
    pub fn contested(&self) -> Vec<Conflict> {
        let state = self.lock();
        let mut contested = Vec::new();
        for (scope, block, taken) in state.all_taken() {
            let reserved = taken.reserved.as_ref().filter(|reserved| reserved.released_at.is_none());
            let Some((reservations_of, uid)) =
                reserved.and_then(|reserved| reserved.claim.as_ref().zip(reserved.claim_uid))
            else {
                continue;
            };
            let both_have_it = taken.holders.iter().any(|holder| holder.name == *reservations_of);
            for holder in taken.holders.iter().filter(|holder| holder.name != *reservations_of) {
                contested.push(Conflict {
                    slot: Slot { scope: scope.clone(), block },
                    claim: ClaimKey::clone(&holder.name),
                    reservations_of: ClaimKey::clone(reservations_of),
                    uid,
                    both_have_it,
                });
            }
        }
        contested
    }

    /// The IPAddress objects made by hand for which `has_claim` says no.
    pub fn unclaimed(&self, has_claim: impl Fn(&ClaimKey) -> bool) -> Vec<Unclaimed> {
        let state = self.lock();
        let by_hand = state.all_taken().flat_map(|(scope, block, taken)| {
            let holders =
                taken.holders.iter().filter(|holder| holder.origin == Origin::Hand && !has_claim(&holder.name));
            holders.map(move |holder| (scope, block, holder))
        });
        let describe = |(scope, block, holder): (&Scope, Block, &Holder)| Unclaimed {
            slot: Slot { scope: Scope::clone(scope), block },
            name: ClaimKey::clone(&holder.name),
        };
        by_hand.map(describe).collect()
    }

    /// Everything for which `has_a_right` says no: it is asked with the claim, the uid of the claim that a reservation
    /// names (none for an IPAddress), and whether the claim of that name has an IPAddress with this very address. An
    /// IPAddress that was made by hand is not among it.
    pub fn suspects(&self, has_a_right: impl Fn(&ClaimKey, Option<Uid>, bool) -> bool) -> Vec<Suspect> {
        let state = self.lock();
        let mut suspects = Vec::new();
        for (scope, block, taken) in state.all_taken() {
            let slot = || Slot { scope: scope.clone(), block };
            if let Some(reserved) = &taken.reserved
                && let Some((claim, uid)) = reserved.claim.as_ref().zip(reserved.claim_uid)
                && reserved.released_at.is_none()
                && !has_a_right(claim, Some(uid), taken.holders.iter().any(|holder| holder.name == *claim))
            {
                suspects.push(Suspect::Reservation { slot: slot(), claim: ClaimKey::clone(claim), uid });
            }
            let by_provider = taken.holders.iter().filter(|holder| holder.origin == Origin::Provider);
            for holder in by_provider.filter(|holder| !has_a_right(&holder.name, None, true)) {
                suspects.push(Suspect::Address { slot: slot(), claim: ClaimKey::clone(&holder.name) });
            }
        }
        suspects
    }

    /// Reservations made by hand that reserve nothing, or an address that their pool does not have.
    pub fn invalid_reservations(&self) -> Vec<InvalidReservation> {
        let state = self.lock();
        let unread = state.ignored.iter().map(|(name, ignored)| InvalidReservation {
            name: name.clone(),
            uid: ignored.uid.to_string(),
            why: ignored.why.clone(),
        });
        let misplaced = state.all_taken().filter_map(|(scope, block, taken)| {
            let reserved = taken.reserved.as_ref().filter(|reserved| reserved.is_by_hand())?;
            let slot = Slot { scope: scope.clone(), block };
            let why = state.misplaced(&slot, &reserved.pool).or_else(|| promise_conflict(taken))?;
            Some(InvalidReservation { name: slot.reservation_name(), uid: reserved.uid.to_string(), why })
        });
        unread.chain(misplaced).collect()
    }

    /// Why a reservation made by hand would not do what it is made for, as far as its pool is known.
    pub fn misplaced(&self, slot: &Slot, pool: &PoolKey) -> Option<String> {
        self.lock().misplaced(slot, pool)
    }
}

/// Why a promise cannot be kept for now.
fn promise_conflict(taken: &AddressUsage) -> Option<String> {
    let promised_to = taken.promised_to()?;
    let holder = taken.holders.iter().find(|holder| *holder.name != *promised_to)?;
    let (namespace, name) = holder.name.as_ref();
    let other = Audience::of(None).object("IPAddress", namespace, name);
    Some(format!("spec.address: it is in use by {other}; release its claim"))
}

impl State {
    fn misplaced(&self, slot: &Slot, pool: &PoolKey) -> Option<String> {
        let facts = self.pools.get(pool)?.facts.as_ref()?;
        if facts.scope != slot.scope {
            return Some(format!(
                "spec.scope: {pool} is in the scope {}, not in {}",
                facts.scope.name(),
                slot.scope.name()
            ));
        }
        let usable = facts.usable.as_ref().ok()?;
        (!usable.contains(slot.block)).then(|| format!("spec.address: {pool} does not give out {}", slot.block))
    }
}
