//! `who`: what contains and holds an address. It reads lists of the whole cluster.

use capi_ipam_ip::Block;

use super::{block_holders, claims};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::{is_address_like, parse_block};
use crate::load::Loader;
use crate::model::{Report, holders, list, matches_of};
use crate::objects::Kind;
use crate::output;
use crate::render::Style;

pub(super) async fn run(global: &Global, target: &str) -> Result<Code, Error> {
    // An empty text is no name either.
    if !target.is_empty() && !is_address_like(target) {
        return run_for_name(global, target).await;
    }
    let block = parse_block(target, false)?;
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let style = output::style(global);
    let report = report(&mut loader, block).await?;
    output::finish(&loader, &report, global.output, style)
}

/// The addresses that a claim, machine or Cluster has.
async fn run_for_name(global: &Global, name: &str) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let claims = claims::named(&mut loader, namespace, name).await?;
    let report = Report::ClaimList { claims };
    let style = Style {
        wide: output::is_text(global.output),
        ..output::style(global)
    };
    output::finish(&loader, &report, global.output, style)
}

/// Reads everything that can hold an address, and describes it.
async fn report(loader: &mut Loader<'_>, block: Block) -> Result<Report, Error> {
    loader.read(&Kind::POOLS, None).await?;
    loader
        .read(&[Kind::Address, Kind::Reservation], None)
        .await?;
    let objects = &loader.objects;
    let has_holder = objects
        .addresses
        .iter()
        .any(|row| row.block.overlaps(block))
        || objects
            .reservations
            .iter()
            .any(|row| row.slot.block.overlaps(block));
    if has_holder {
        loader.read(&[Kind::Claim], None).await?;
    }
    let objects = &loader.objects;
    let pools = matches_of(objects, block);
    let addresses = objects.addresses.iter();
    let addresses = addresses.filter(|row| row.block.overlaps(block));
    let reservations = objects.reservations.iter();
    let reservations = reservations.filter(|row| row.slot.block.overlaps(block));
    let holders = holders(objects, addresses, reservations);
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
