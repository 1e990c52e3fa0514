//! How far the ledger is after the start: the initial lists, and what is computed after them.

use std::collections::BTreeMap;

use capi_ipam_api::InClusterKind;

/// A list of objects that decide what pools can allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolInput {
    /// The pools of a kind.
    Pools(InClusterKind),
    /// The networks.
    Networks,
    /// The namespaces.
    Namespaces,
    /// The slices: pools of a network whose blocks have slices allocate only addresses of these.
    Slices,
    /// The reservations: a pool with some in a network stays in it.
    Reservations,
    /// The IPAddresses, which are in use also without a reservation.
    Addresses,
}

/// How far the ledger is after the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// One of the initial lists is not complete.
    Listing,
    /// All pools are assigned to networks. After that all gateways of each network are known.
    Placing,
    /// What no pool of a network allocates is removed from the blocks of all pools.
    Excluding,
    /// All pools are computed. Changes are processed one by one, also those that a later list
    /// shows.
    #[default]
    Complete,
}

/// The initial lists, and what is done after them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// Whether each list that has begun was complete once.
    lists: BTreeMap<PoolInput, bool>,
    pub(crate) phase: Phase,
}

impl Start {
    /// Records that a list begins, the first one or a later one.
    pub(crate) fn begin_list(&mut self, input: PoolInput) {
        let was_complete = *self.lists.entry(input).or_insert(false);
        if !was_complete {
            self.phase = Phase::Listing;
        }
    }

    /// Records that a list is complete. Returns whether it was the last one of the initial lists.
    pub(crate) fn end_list(&mut self, input: PoolInput) -> bool {
        self.lists.insert(input, true);
        let is_last =
            self.phase == Phase::Listing && self.lists.values().all(|is_complete| *is_complete);
        if is_last {
            self.phase = Phase::Placing;
        }
        is_last
    }

    /// Whether all reservations and IPAddresses were listed once, if they are listed at all.
    pub(crate) fn knows_usage(&self) -> bool {
        let inputs = [PoolInput::Reservations, PoolInput::Addresses];
        inputs
            .iter()
            .all(|input| self.lists.get(input) != Some(&false))
    }

    /// Whether pools have all their blocks, also the gateways of other pools: those are not all
    /// known.
    pub(crate) fn defers_exclusions(&self) -> bool {
        self.phase <= Phase::Placing
    }

    /// Whether all pools are computed.
    pub(crate) fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }
}
