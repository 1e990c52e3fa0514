//! Which management clusters have the blocks of an address.

use std::collections::BTreeSet;

use capi_ipam_api::{IPSlice, Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use crate::cli::RegistryAccess;
use crate::error::Error;
use crate::load::Loader;
use crate::model::{
    BlockLine, block_holder, contains, held_block, is_in_network, key_of, searched_blocks,
    unknown_block,
};
use crate::objects::{Kind, NetworkRow, Objects};
use crate::registry;

/// Describes who has the blocks of an address, one for each network that shares blocks and contains
/// it. Asks the registry about blocks that this management cluster does not have.
pub(super) async fn read(loader: &mut Loader<'_>, address: Block) -> Result<Vec<BlockLine>, Error> {
    if !is_in_network(&loader.objects, address) {
        return Ok(Vec::new());
    }
    loader.read(&[Kind::Network], None).await?;
    let mut searched = Vec::new();
    for (network, block) in searched_blocks(&loader.objects, address) {
        searched.push((network.clone(), block));
    }
    let mut found = unknown_networks(&loader.objects, address);
    for (network, block) in &searched {
        let holder = match own_slice(loader, network, *block).await? {
            Some(cluster) => held_block(network, *block, cluster),
            None => ask(loader, network, *block).await?,
        };
        found.push(holder);
    }
    Ok(found)
}

/// The networks of pools with an address that may not be listed: they can share blocks.
fn unknown_networks(objects: &Objects, address: Block) -> Vec<BlockLine> {
    let lacking = objects.lacking(&[Kind::Network]);
    let Some(right) = lacking.first() else {
        return Vec::new();
    };
    let pools = objects.pools().into_iter();
    let names = pools.filter(|pool| contains(pool, address));
    let names: BTreeSet<&str> = names.filter_map(|pool| pool.network.as_deref()).collect();
    let unknown = |name: &str| unknown_block(name, address, right.to_string());
    names.into_iter().map(unknown).collect()
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
    let name = network.registry().unwrap_or_default();
    loader.read(&[Kind::Registry], None).await?;
    let Some(row) = loader.objects.registry(name).cloned() else {
        let problem = match loader.objects.lacking(&[Kind::Registry]).first() {
            Some(right) => right.to_string(),
            None => format!("IPRegistry {name} does not exist"),
        };
        return Ok(block_holder(network, block, None, Err(problem)));
    };
    let own = registry::identity(loader.cluster, &row).await?;
    let access = RegistryAccess::default();
    let found = match registry::open(loader, &row, &access).await? {
        Ok(opened) => {
            let read = opened.read(&key_of(&network.name, block)).await;
            read.map_err(|error| error_chain(&error))
        }
        Err(unread) => Err(unread.reason),
    };
    let found = found.as_ref().map(Option::as_ref).map_err(Clone::clone);
    Ok(block_holder(network, block, own.as_deref(), found))
}
