//! Reports about registries of blocks that management clusters share, from objects and records.

mod check;
mod facts;
mod holder;
mod list;
mod liveness;
mod release;

pub use self::check::{BlockState, CheckedBlock, RegistryCheck};
pub(crate) use self::check::{Checked, check_network};
pub(crate) use self::facts::{RegistryFacts, Unread};
pub use self::holder::{BlockHolder, BlockHolderState};
pub(crate) use self::holder::{block_holder, held_block, is_in_network, key_of, searched_blocks};
pub(crate) use self::list::registry_lines;
pub use self::list::{ClusterLine, NetworkBlocksLine, RecordProblem, RegistryLine};
pub use self::liveness::ClusterState;
pub(crate) use self::liveness::STALE_AFTER;
pub(crate) use self::release::{Change, Plan, plan};
pub use self::release::{RecordAction, RecordChange, RegistryRelease};

#[cfg(test)]
pub(crate) mod tests;
