//! The ledger: an in-memory index of the addresses in use, the free addresses and the waiting
//! claims.
//!
//! It is updated by watches and by the responses to our own writes, and never stored. It can lag
//! behind the API server: then it proposes an address that is in use, and the API server rejects
//! the reservation.
//!
//! Addresses are indexed by scope, which is a pool, or the network of several pools. An address in
//! use in a scope is in use for all pools of the scope. Single addresses and prefixes are handled
//! alike, as blocks of some length.

mod addresses;
mod allocate;
mod block_changes;
mod block_queries;
mod block_supply;
mod blocks;
mod effects;
mod ledger;
mod network_view;
mod networks;
mod observe;
mod order;
mod outcome;
mod pool_info;
mod pools;
mod quota;
mod registry_names;
mod repairs;
mod report;
mod set_members;
mod sets;
mod slice_changes;
mod slice_refusal;
mod slices;
mod supply_changes;
mod unavailable;
mod wait_queue;

pub use self::addresses::{Addresses, Held, KnownReservation};
pub use self::allocate::{LimitCheck, PoolLookup};
pub use self::block_queries::{BlockMember, BlockView, NetworkBlocks};
pub use self::block_supply::{BlockObstacle, BlockSupply, MissingBlock, WaitingForBlock};
pub use self::blocks::BlockSlice;
pub use self::effects::Effects;
pub use self::observe::{Observe, allocated_block, block_of};

pub use self::addresses::problems::{
    AbandonedReservation, Conflict, InvalidReservation, Unreserved, Validity,
};
pub use self::ledger::Ledger;
pub use self::networks::Networks;
pub use self::networks::counts::NetworkCounts;
pub use self::outcome::{Outcome, Preparation, Reason};
pub use self::pool_info::PoolInfo;
pub use self::pools::{MAX_OVERLAPS, Nearby, Pools};
pub use self::quota::LimitReached;
pub use self::repairs::Misplaced;
pub use self::report::{DrainingUse, NetworkReport, PoolCounts, PoolReport, PoolUse};
pub use self::set_members::{Domains, SetReport, failure_domain, machine_failure_domain};
pub use self::sets::SetInfo;
pub use self::slice_refusal::SliceRefusal;
pub use self::slices::view::{SliceRetention, SliceStep, SliceView};
pub use self::unavailable::Unavailable;
pub use self::wait_queue::{ClaimAttributes, Priority, priority};
use capi_ipam_api::PoolKey;

#[cfg(test)]
mod tests;

/// Counts one more, or one less.
fn count(number: &mut usize, is_added: bool) {
    *number = if is_added {
        number.saturating_add(1)
    } else {
        number.saturating_sub(1)
    };
}
