//! Reports about registries of blocks that management clusters share, from objects and records.

mod block_lines;
mod check;
mod facts;
mod holder;
mod list;
mod liveness;
mod network_blocks;
mod plain;
mod release;
mod returned;

pub(crate) use self::block_lines::of_record;
pub use self::block_lines::{BlockLine, BlockState};
pub use self::check::RegistryCheck;
pub(crate) use self::check::{check_command, members};
pub(crate) use self::facts::{LastRecords, RegistryFacts, Unread};
pub(crate) use self::holder::{held_block, key_of, networks_with, unknown_block};
pub use self::list::{ClusterLine, NetworkBlocksLine, RecordProblem, RegistryLine, RegistryState};
pub(crate) use self::list::{clusters_of, registry_lines};
pub use self::liveness::ClusterState;
pub(crate) use self::liveness::STALE_AFTER;
pub(crate) use self::network_blocks::{NetworkBlocks, block_count, network_blocks};
pub(crate) use self::release::{Change, Plan, Write, adoption, creation, plan, unknown};
pub use self::release::{RecordAction, RecordChange, RegistryRelease};
pub(crate) use self::returned::returned_block;

#[cfg(test)]
pub(crate) mod tests;
