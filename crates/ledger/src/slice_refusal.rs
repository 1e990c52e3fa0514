//! Why a claim gets no address of a pool with slices.

use std::fmt;
use std::sync::Arc;

use capi_ipam_api::SliceOwner;

/// Why a claim gets no address of a pool with slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceRefusal {
    /// A slice is being assigned to the owner.
    Pending {
        /// The owner.
        owner: Arc<SliceOwner>,
    },
    /// The owner has as many slices as it may have.
    Limit {
        /// The owner.
        owner: Arc<SliceOwner>,
        /// The maximum number of slices.
        most: usize,
    },
    /// No slice can be assigned to the owner.
    NoFreeSlice {
        /// The owner.
        owner: Arc<SliceOwner>,
        /// The number of its slices.
        slices: usize,
    },
}

impl fmt::Display for SliceRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { owner } => write!(formatter, "a slice is being assigned to {owner}"),
            Self::Limit { owner, most } => {
                write!(
                    formatter,
                    "{owner} has {most} of {most} slices that the pool allows each owner (spec.slices.mostEach), without a free address"
                )
            }
            Self::NoFreeSlice { owner, slices: 0 } => {
                write!(formatter, "no slice is free for {owner}")
            }
            Self::NoFreeSlice { owner, slices } => {
                write!(
                    formatter,
                    "the slices of {owner} ({slices}) have no free address, and no slice is free"
                )
            }
        }
    }
}
