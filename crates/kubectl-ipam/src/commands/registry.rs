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
    let list = RegistryCommand::List {
        names: Vec::new(),
        list: ListFlags::default(),
        access: RegistryAccess::default(),
    };
    match command.unwrap_or(&list) {
        RegistryCommand::List {
            names,
            list: flags,
            access,
        } => {
            let style = output::list_style(global, flags);
            let read =
                async |loader: &mut Loader<'_>| list::report(loader, names, flags, access).await;
            super::print(global, style, read).await
        }
        RegistryCommand::Check(wanted) => {
            let read = async |loader: &mut Loader<'_>| check::report(loader, wanted).await;
            super::print(global, output::style(global), read).await
        }
        RegistryCommand::Return(wanted) => return_block::run(global, wanted).await,
        RegistryCommand::Change(command) => change::run(global, command).await,
    }
}
