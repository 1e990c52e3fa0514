//! `registry return`: returns a block of this management cluster before it is empty for as long as the
//! network keeps it.
//!
//! The command writes `spec.emptySince` of the IPSlice, a time that is more than
//! `spec.blocks.keepSeconds` ago. From then on, the manager allocates no address of the block. It
//! deletes the slice after a list shows that no address of the block is in use or reserved, or removes
//! `spec.emptySince` if it needs the block.

use capi_ipam_api::IPSlice;
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::cli::{Global, ReturnFlags};
use crate::cluster::{Cluster, Identity};
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::load::Loader;
use crate::model::registry::{members, returned_block};
use crate::model::{RegistryRelease, Report};
use crate::objects::{Kind, NetworkRow, Objects, SliceRow};
use crate::{output, registry};

pub(super) async fn run(global: &Global, wanted: &ReturnFlags) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?.with_dry_run(wanted.dry_run);
    let mut loader = Loader::new(&cluster);
    let report = Report::RegistryRelease(return_block(&mut loader, wanted).await?);
    output::finish(&loader, &report, global.output, output::style(global))
}

async fn return_block(
    loader: &mut Loader<'_>,
    wanted: &ReturnFlags,
) -> Result<RegistryRelease, Error> {
    let block = parse_block(&wanted.block, true)?;
    let in_use = || format!("whether block {} is in use", wanted.block);
    loader.require(&[Kind::Network], None, in_use).await?;
    let slices = loader.read_objects::<IPSlice>(Kind::Slice, None).await?;
    loader.require_known(&[Kind::Slice], || {
        "which blocks this management cluster has".to_owned()
    })?;
    let network = network(&loader.objects, block, wanted)?.clone();
    let rules = network.blocks.as_ref().and_then(|it| it.rules().ok());
    let Some(rules) = rules else {
        return Err(Error::Argument(format!(
            "network {} has no valid spec.blocks: its blocks return as their addresses are released",
            network.name
        )));
    };
    let row = registry::find(loader, Some(&rules.registry)).await?;
    let own = registry::known_identity(loader.cluster, &row).await?;
    loader.require(&Kind::POOLS, None, in_use).await?;
    let holders = [Kind::Address, Kind::Reservation];
    loader.require(&holders, None, in_use).await?;
    let mut of_network = loader.objects.slices_of(&network.name);
    of_network.retain(|slice| slice.owner.name == own);
    let is_wanted = |row: &&&SliceRow| row.shared_block() == Some((&network.name, block));
    let held = of_network.iter().find(is_wanted);
    let is_held = |slice: &&IPSlice| held.is_some_and(|row| slice.name_any() == row.name);
    let Some(slice) = slices.iter().find(is_held) else {
        return Err(not_held(wanted, &network.name));
    };
    let change = returned_block(
        &network.name,
        block,
        &rules,
        &of_network,
        &members(&loader.objects, &network.name),
        &loader.objects,
    )?;
    let empty_since = clock::timestamp()
        .checked_sub(SignedDuration::from_secs(rules.keep_seconds))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let version = Identity::of(&slice.metadata);
    loader
        .cluster
        .mark_slice(&slice.name_any(), &version, empty_since)
        .await?;
    Ok(RegistryRelease {
        registry: row.name,
        cluster: own,
        last_seen: None,
        dry_run: wanted.dry_run.is_dry_run(),
        changes: vec![change],
    })
}

/// The network of the flag, or the only one with the block.
fn network<'a>(
    objects: &'a Objects,
    block: Block,
    wanted: &ReturnFlags,
) -> Result<&'a NetworkRow, Error> {
    let mut slices = objects.slices.sorted();
    slices.retain(|slice| slice.shared_block().is_some_and(|(_, it)| it == block));
    let networks = slices.into_iter().filter_map(SliceRow::shared_block);
    let names: Vec<&str> = networks.map(|(name, _)| name).collect();
    let name = match (&wanted.network, names.as_slice()) {
        (Some(name), _) => name.as_str(),
        (None, [name]) => name,
        (None, []) => return Err(not_held(wanted, "of any registry")),
        (None, _) => {
            return Err(Error::Argument(format!(
                "several networks have the block: write --network {}",
                names.join(" or --network ")
            )));
        }
    };
    objects.network(name).ok_or_else(|| Error::NoNetwork {
        name: name.to_owned(),
    })
}

fn not_held(wanted: &ReturnFlags, network: &str) -> Error {
    Error::NotFound(format!(
        "this management cluster has no block {} in network {network}",
        wanted.block
    ))
}
