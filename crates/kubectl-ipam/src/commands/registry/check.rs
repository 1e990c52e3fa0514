//! `registry check`: who has the blocks of the addresses in use of a network, before it shares them.

use capi_ipam_registry::RecordCache;

use crate::cli::CheckFlags;
use crate::error::Error;
use crate::load::Loader;
use crate::model::registry::members;
use crate::model::{RegistryCheck, Report};
use crate::objects::{Kind, NetworkRow};
use crate::registry;

pub(super) async fn report(loader: &mut Loader<'_>, wanted: &CheckFlags) -> Result<Report, Error> {
    let unknown = || format!("which addresses of network {} are in use", wanted.network);
    loader.require(&[Kind::Network], None, unknown).await?;
    loader.require(&Kind::POOLS, None, unknown).await?;
    let network = loader.objects.network(&wanted.network).cloned();
    if network.is_none() && members(&loader.objects, &wanted.network).is_empty() {
        return Err(Error::NoNetwork {
            name: wanted.network.clone(),
        });
    }
    let of_network = network.as_ref().and_then(NetworkRow::registry);
    let name = wanted.registry.as_deref().or(of_network);
    let row = registry::find(loader, name).await?;
    let records = registry::records(loader, &row, &wanted.access).await?;
    let id = registry::known_identity(loader.cluster, &row).await?;
    let holders = [Kind::Address, Kind::Reservation];
    loader.require(&holders, None, unknown).await?;
    let size = size(wanted, network.as_ref(), &records)?;
    let lengths = network.and_then(|network| network.status.block_lengths);
    let mut check = RegistryCheck {
        registry: row.name,
        network: wanted.network.clone(),
        cluster_id: id,
        size,
        blocks: Vec::new(),
        problems: Vec::new(),
    };
    check.run(lengths.unwrap_or_default(), &loader.objects, &records);
    Ok(Report::RegistryCheck(check))
}

/// The number of addresses of a block: that of the flag, that of the network, or that on which the
/// other management clusters agree.
fn size(
    wanted: &CheckFlags,
    network: Option<&NetworkRow>,
    records: &RecordCache,
) -> Result<u64, Error> {
    let of_network = wanted
        .size
        .or_else(|| network.and_then(NetworkRow::block_size));
    let agreed = records.network(&wanted.network).map(|record| record.size);
    let Some(size) = of_network.or(agreed) else {
        return Err(Error::Argument(format!(
            "network {} has no spec.blocks, and no management cluster shares its blocks yet: write --size, the number of \
             addresses of a block",
            wanted.network
        )));
    };
    if size.is_power_of_two() {
        return Ok(size);
    }
    Err(Error::Argument(format!(
        "invalid size {size}: write a power of two"
    )))
}
