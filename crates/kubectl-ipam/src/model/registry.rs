//! Reports about registries of blocks that management clusters share, from objects and records.

mod block_map;
mod block_use;
mod check;
mod facts;
mod holder;
mod layout;
mod list;
mod liveness;
mod network_blocks;
mod plain;
mod release;

#[cfg(test)]
pub(crate) use self::block_map::BlockCell;
#[cfg(test)]
pub(crate) use self::block_use::BlockUse;
pub use self::check::{BlockState, CheckedBlock, RegistryCheck};
pub(crate) use self::check::{Checked, check_command, check_network};
pub(crate) use self::facts::{LastRecords, RegistryFacts, Unread};
pub use self::holder::{BlockHolder, BlockHolderState};
pub(crate) use self::holder::{block_holder, held_block, is_in_network, key_of, searched_blocks};
pub(crate) use self::layout::BlockNumbers;
pub(crate) use self::list::registry_lines;
pub use self::list::{ClusterLine, NetworkBlocksLine, RecordProblem, RegistryLine};
pub use self::liveness::ClusterState;
pub(crate) use self::liveness::STALE_AFTER;
pub(crate) use self::network_blocks::{BlockObjects, NetworkBlocks, network_blocks};
pub(crate) use self::release::{Change, Plan, adoption, plan};
pub use self::release::{RecordAction, RecordChange, RegistryRelease};

#[cfg(test)]
pub(crate) mod tests;
