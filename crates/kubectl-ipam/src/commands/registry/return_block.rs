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

use super::check::members;
use crate::cli::{Global, ReturnFlags};
use crate::cluster::{Cluster, Identity, Kind};
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::load::Loader;
use crate::model::{Held, Refusal, RegistryRelease, Report, Returned};
use crate::objects::{NetworkRow, SliceRow};
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
    let unknown = || format!("whether block {} is in use", wanted.block);
    let networks = loader.networks().await?.require(unknown)?;
    let slices = slices(loader).await?;
    let network = network(&networks, &slices, wanted)?;
    let rules = network.blocks.as_ref().and_then(|it| it.rules().ok());
    let Some(rules) = rules else {
        return Err(Error::Argument(format!(
            "network {} has no valid spec.blocks: its blocks return as their addresses are released",
            network.name
        )));
    };
    let row = registry::find(loader, Some(&rules.registry)).await?;
    let Some(own) = registry::identity(loader.cluster, &row).await? else {
        return Err(Error::NoIdentity { registry: row.name });
    };
    let pools = loader.pools(None).await?.require(unknown)?;
    let addresses = loader.addresses(|_| true).await?.require(unknown)?;
    let reservations = loader.reservations(|_| true).await?.require(unknown)?;
    let (of_network, found) = slices_of(&slices, &own, &network.name, block);
    let Some((slice, version)) = found else {
        return Err(not_held(wanted, &network.name).into());
    };
    let returned = Returned {
        network: &network.name,
        block,
        rules: &rules,
        slices: &of_network,
        held: Held {
            pools: &members(pools, &network.name),
            addresses: &addresses,
            reservations: &reservations,
        },
    };
    returned.check()?;
    let empty_since = clock::timestamp()
        .checked_sub(SignedDuration::from_secs(rules.keep_seconds))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let dry_run = wanted.dry_run.is_dry_run();
    loader
        .cluster
        .mark_slice(&slice.name, version, empty_since, dry_run)
        .await?;
    Ok(RegistryRelease {
        registry: row.name,
        cluster: own,
        last_seen: None,
        dry_run,
        changes: vec![returned.line()],
    })
}

/// The slices of this management cluster in a network, and that of a block.
fn slices_of<'a>(
    slices: &'a [(SliceRow, Identity)],
    own: &str,
    network: &str,
    block: Block,
) -> (Vec<&'a SliceRow>, Option<&'a (SliceRow, Identity)>) {
    let mut of_network = Vec::new();
    let mut found = None;
    for known in slices {
        let (slice, _) = known;
        let place = slice.shared_block().filter(|_| slice.owner.name == own);
        if let Some((name, its_block)) = place
            && name == network
        {
            of_network.push(slice);
            if its_block == block {
                found = Some(known);
            }
        }
    }
    (of_network, found)
}

/// All slices, with their versions.
async fn slices(loader: &mut Loader<'_>) -> Result<Vec<(SliceRow, Identity)>, Error> {
    let mut slices = Vec::new();
    let each = |slice: IPSlice| {
        let version = Identity::of(&slice.metadata);
        slices.push((SliceRow::from(slice), version));
    };
    let read = loader.list(Kind::Slice, None, each).await?;
    read.require(|| "which blocks this management cluster has".to_owned())?;
    Ok(slices)
}

/// The network of the flag, or the only one with the block.
fn network<'a>(
    networks: &'a [NetworkRow],
    slices: &[(SliceRow, Identity)],
    wanted: &ReturnFlags,
) -> Result<&'a NetworkRow, Error> {
    let block = parse_block(&wanted.block, true)?;
    let mut names: Vec<&str> = Vec::new();
    for (slice, _) in slices {
        if let Some((name, its_block)) = slice.shared_block()
            && its_block == block
        {
            names.push(name);
        }
    }
    let name = match (&wanted.network, names.as_slice()) {
        (Some(name), _) => name.as_str(),
        (None, [name]) => name,
        (None, []) => return Err(not_held(wanted, "of any registry").into()),
        (None, _) => {
            return Err(Error::Argument(format!(
                "several networks have the block: write --network {}",
                names.join(" or --network ")
            )));
        }
    };
    let found = networks.iter().find(|row| row.name == name);
    found.ok_or_else(|| Error::NoNetwork {
        name: name.to_owned(),
    })
}

fn not_held(wanted: &ReturnFlags, network: &str) -> Refusal {
    Refusal::NotHeld {
        block: wanted.block.clone(),
        network: network.to_owned(),
    }
}
