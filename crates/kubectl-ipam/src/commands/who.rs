//! `who`: what contains and holds an address. It reads lists of the whole cluster.

use capi_ipam_api::{IPSlice, Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ip::Block;

use super::claims;
use crate::cli::{Global, RegistryAccess};
use crate::cluster::named;
use crate::error::{Code, Error};
use crate::input::{is_address_like, parse_block};
use crate::load::Loader;
use crate::model::registry::{held_block, key_of, networks_with, of_record, unknown_block};
use crate::model::{BlockLine, Holder, Report, holders, list, matches_of};
use crate::objects::{Kind, NetworkRow, Objects, SliceRow};
use crate::output;
use crate::registry;
use crate::render::Style;

pub(super) async fn run(global: &Global, target: &str) -> Result<Code, Error> {
    // An empty text is no name either.
    if !target.is_empty() && !is_address_like(target) {
        return run_for_name(global, target).await;
    }
    let block = parse_block(target, false)?;
    let read = async |loader: &mut Loader<'_>| report(loader, block).await;
    super::print(global, output::style(global), read).await
}

/// The addresses that a claim, machine or Cluster has.
async fn run_for_name(global: &Global, name: &str) -> Result<Code, Error> {
    let style = Style {
        wide: output::is_text(global.output),
        ..output::style(global)
    };
    super::print(global, style, async |loader: &mut Loader<'_>| {
        let namespace = global.listed_namespace(&loader.cluster.namespace);
        let claims = claims::named(loader, namespace, name).await?;
        Ok(Report::ClaimList { claims })
    })
    .await
}

/// Reads everything that can hold an address, and describes it.
async fn report(loader: &mut Loader<'_>, block: Block) -> Result<Report, Error> {
    loader.read(&Kind::POOLS, None).await?;
    loader
        .read(&[Kind::Address, Kind::Reservation], None)
        .await?;
    // Without a holder, no claim is of interest.
    if !holders_of(&loader.objects, block).is_empty() {
        loader.read(&[Kind::Claim], None).await?;
    }
    let objects = &loader.objects;
    let pools = matches_of(objects, block);
    let holders = holders_of(objects, block);
    let has_pools = objects.has(&Kind::POOLS);
    let has_holders = objects.has(&[Kind::Address, Kind::Reservation]);
    if pools.is_empty() && holders.is_empty() && has_pools && has_holders {
        return Err(Error::NoHolder {
            address: block.to_string(),
        });
    }
    Ok(Report::HolderList {
        address: block.to_string(),
        pools: list(pools, has_pools),
        holders: list(holders, has_holders),
        blocks: block_holders(loader, block).await?,
    })
}

fn holders_of(objects: &Objects, block: Block) -> Vec<Holder> {
    let addresses = objects.addresses.iter();
    let reservations = objects.reservations.iter();
    holders(
        objects,
        addresses.filter(|row| row.block.overlaps(block)),
        reservations.filter(|row| row.slot.block.overlaps(block)),
    )
}

/// Describes who has the blocks of an address, one for each network that shares blocks and contains
/// it. Asks the registry about blocks that this management cluster does not have.
async fn block_holders(loader: &mut Loader<'_>, address: Block) -> Result<Vec<BlockLine>, Error> {
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
    loader: &Loader<'_>,
    network: &NetworkRow,
    block: Block,
) -> Result<Option<String>, Error> {
    let scope = Scope::Network(network.name.as_str().into());
    let name = reservation_name(&scope, block);
    // The registry knows it, too, if the slices may not be read.
    let found = loader
        .cluster
        .list_if_allowed::<MaybeInvalid<IPSlice>>(&named(&name))
        .await?;
    let mut slices = found.into_iter().filter_map(|slice| slice.0.ok());
    let slice = slices.next().map(SliceRow::from);
    let certain = slice.filter(|it| it.is_confirmed && it.conflict.is_none());
    Ok(certain
        .filter(|slice| slice.shared_block().is_some())
        .map(|slice| slice.owner.name))
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
