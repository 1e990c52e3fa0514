//! `registry`: the registries of blocks that management clusters share.

mod change;
mod check;
mod list;
mod return_block;

use crate::cli::{Global, ListFlags, RegistryAccess, RegistryCommand};
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::output;

/// Runs a subcommand; `None` is `list`.
pub(super) async fn run(global: &Global, command: Option<&RegistryCommand>) -> Result<Code, Error> {
    match command {
        None => {
            let flags = ListFlags::default();
            list(global, &[], &flags, &RegistryAccess::default()).await
        }
        Some(RegistryCommand::List {
            names,
            list: flags,
            access,
        }) => list(global, names, flags, access).await,
        Some(RegistryCommand::Check(wanted)) => check::run(global, wanted).await,
        Some(RegistryCommand::Return(wanted)) => return_block::run(global, wanted).await,
        Some(RegistryCommand::Change(command)) => change::run(global, command).await,
    }
}

async fn list(
    global: &Global,
    names: &[String],
    flags: &ListFlags,
    access: &RegistryAccess,
) -> Result<Code, Error> {
    let style = output::list_style(global, flags);
    let read = async |loader: &mut Loader<'_>| list::report(loader, names, flags, access).await;
    super::print(global, style, read).await
}
