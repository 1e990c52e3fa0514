//! Which management clusters have the blocks of an address.

use capi_ipam_api::{IPSlice, Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use crate::cli::RegistryAccess;
use crate::error::Error;
use crate::load::Loader;
use crate::model::BlockLine;
use crate::model::registry::{held_block, key_of, networks_with, of_record, unknown_block};
use crate::objects::{Kind, NetworkRow};
use crate::registry;

/// Describes who has the blocks of an address, one for each network that shares blocks and contains
/// it. Asks the registry about blocks that this management cluster does not have.
pub(super) async fn read(loader: &mut Loader<'_>, address: Block) -> Result<Vec<BlockLine>, Error> {
    let names = networks_with(&loader.objects, address);
    let mut found = Vec::new();
    if names.is_empty() {
        return Ok(found);
    }
    loader.read(&[Kind::Network], None).await?;
    // A network that may not be listed can share blocks.
    if let Some(right) = loader.objects.lacking(&[Kind::Network]).first() {
        let unknown = |name: &String| unknown_block(name, address, right.to_string());
        return Ok(names.iter().map(unknown).collect());
    }
    for name in names {
        if let Some(network) = loader.objects.network(&name).cloned()
            && let Some(block) = network.block_of(address)
        {
            found.push(match own_slice(loader, &network, block).await? {
                Some(cluster) => held_block(&network, block, cluster),
                None => ask(loader, &network, block).await?,
            });
        }
    }
    Ok(found)
}

/// The management cluster in the IPSlice of a block, without a conflict; `None` if the registry has
/// to be asked.
async fn own_slice(
    loader: &mut Loader<'_>,
    network: &NetworkRow,
    block: Block,
) -> Result<Option<String>, Error> {
    let scope = Scope::Network(network.name.as_str().into());
    let name = reservation_name(&scope, block);
    match loader.read_named::<IPSlice>(Kind::Slice, None, &name).await {
        // The registry knows it, too.
        Ok(()) | Err(Error::Forbidden(_)) => {}
        Err(error) => return Err(error),
    }
    let found = loader.objects.slices.get(&NamespacedName::new("", &name));
    let certain = found.filter(|it| it.is_confirmed && it.conflict.is_none());
    Ok(certain
        .filter(|slice| slice.shared_block().is_some())
        .map(|slice| slice.owner.name.clone()))
}

/// Reads the record of a block.
async fn ask(
    loader: &mut Loader<'_>,
    network: &NetworkRow,
    block: Block,
) -> Result<BlockLine, Error> {
    let unknown = |reason| Ok(unknown_block(&network.name, block, reason));
    let name = network.registry().unwrap_or_default();
    loader.read(&[Kind::Registry], None).await?;
    let Some(row) = loader.objects.registry(name).cloned() else {
        return unknown(match loader.objects.lacking(&[Kind::Registry]).first() {
            Some(right) => right.to_string(),
            None => format!("IPRegistry {name} does not exist"),
        });
    };
    let own = registry::identity(loader.cluster, &row).await?;
    let opened = registry::open(loader, &row, &RegistryAccess::default()).await;
    let opened = match registry::unless_unread(opened)? {
        Ok(opened) => opened,
        Err(unread) => return unknown(unread.reason),
    };
    match opened.read(&key_of(&network.name, block)).await {
        Ok(entry) => Ok(of_record(
            &network.name,
            block,
            entry.as_ref(),
            own.as_deref(),
        )),
        Err(error) => unknown(error_chain(&error)),
    }
}
