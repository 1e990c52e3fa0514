//! `registry`: the registries of blocks that management clusters share.

mod change;
mod check;
mod list;
mod return_block;

use crate::cli::{Global, ListFlags, RegistryAccess, RegistryCommand};
use crate::error::{Code, Error};

/// Runs a subcommand; `None` is `list`.
pub(super) async fn run(global: &Global, command: Option<&RegistryCommand>) -> Result<Code, Error> {
    match command {
        None => {
            let flags = ListFlags::default();
            list::run(global, &[], &flags, &RegistryAccess::default()).await
        }
        Some(RegistryCommand::List {
            names,
            list,
            access,
        }) => list::run(global, names, list, access).await,
        Some(RegistryCommand::Check(wanted)) => check::run(global, wanted).await,
        Some(RegistryCommand::Return(wanted)) => return_block::run(global, wanted).await,
        Some(RegistryCommand::Change(command)) => change::run(global, command).await,
    }
}
