//! `who`: what contains and holds an address. It reads lists of the whole cluster.

use capi_ipam_ip::Block;

use super::{block_holders, claims};
use crate::cli::Global;
use crate::error::{Code, Error};
use crate::input::{is_address_like, parse_block};
use crate::load::Loader;
use crate::model::{Holder, Report, holders, list, matches_of};
use crate::objects::{Kind, Objects};
use crate::output;
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
        blocks: block_holders::read(loader, block).await?,
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
