//! Which management clusters have the blocks of an address.

use capi_ipam_api::{IPSlice, Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_ip::Block;

use crate::cli::RegistryAccess;
use crate::cluster::{Kind, ListError};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{BlockHolder, block_holder, held_block, is_in_network, key_of, searched_blocks};
use crate::objects::{NetworkRow, PoolRow, SliceRow};
use crate::registry;

/// Describes who has the blocks of an address, one for each network that shares blocks and contains
/// it. Asks the registry about blocks that this management cluster does not have.
pub(super) async fn read(
    loader: &mut Loader<'_>,
    pools: &[PoolRow],
    address: Block,
) -> Result<Vec<BlockHolder>, Error> {
    if !is_in_network(pools, address) {
        return Ok(Vec::new());
    }
    let networks = loader.networks().await?.into_seen();
    let mut found = Vec::new();
    for (network, block) in searched_blocks(&networks, pools, address) {
        let holder = match own_slice(loader, network, block).await? {
            Some(cluster) => held_block(network, block, cluster),
            None => ask(loader, network, block).await?,
        };
        found.push(holder);
    }
    Ok(found)
}

/// The management cluster in the IPSlice of a block, without a conflict; `None` if the registry has
/// to be asked.
async fn own_slice(
    loader: &Loader<'_>,
    network: &NetworkRow,
    block: Block,
) -> Result<Option<String>, Error> {
    let scope = Scope::Network(network.name.as_str().into());
    let name = reservation_name(&scope, block);
    let mut found = None;
    let each = |slice: IPSlice| found = Some(SliceRow::from(slice));
    match loader
        .cluster
        .list_named(Kind::Slice, None, &name, each)
        .await
    {
        // The registry knows it, too.
        Ok(_) | Err(ListError::Forbidden(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let certain = found.filter(|it: &SliceRow| it.is_confirmed && it.conflict.is_none());
    Ok(certain
        .filter(|slice| slice.shared_block().is_some())
        .map(|slice| slice.owner.name))
}

/// Reads the record of a block.
async fn ask(
    loader: &mut Loader<'_>,
    network: &NetworkRow,
    block: Block,
) -> Result<BlockHolder, Error> {
    let name = network.registry().unwrap_or_default();
    let rows = registry::rows(loader).await?;
    let found = rows.seen().iter().find(|row| row.name == name);
    let Some(row) = found.cloned() else {
        let problem = match rows.missing().first() {
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
