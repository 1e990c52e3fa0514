//! Reports about registries of blocks that management clusters share, from objects and records.

mod block_lines;
mod check;
mod facts;
mod list;
mod network_blocks;
mod plain;
mod release;
mod returned;

pub use self::block_lines::{BlockLine, BlockState};
pub(crate) use self::block_lines::{held_block, key_of, networks_with, of_record, unknown_block};
pub use self::check::RegistryCheck;
pub(crate) use self::check::{check_command, members};
pub(crate) use self::facts::{LastRecords, RegistryFacts, Unread};
pub use self::list::{
    ClusterLine, ClusterState, NetworkBlocksLine, ReadyState, RecordProblem, RegistryLine,
};
pub(crate) use self::list::{STALE_AFTER, clusters_of, number, registry_lines};
pub(crate) use self::network_blocks::{NetworkBlocks, block_count, network_blocks};
pub(crate) use self::release::{Change, Plan, Write, adoption, creation, plan};
pub use self::release::{RecordAction, RecordChange, RegistryRelease};
pub(crate) use self::returned::returned_block;

#[cfg(test)]
pub(crate) mod tests;
