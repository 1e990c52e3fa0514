//! What the cluster contains, as far as an import has to know it.

use std::collections::{HashMap, HashSet};

use capi_ipam_api::{IPReservation, Pool, PoolKey, PoolSpec, Scope, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Ledger;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::record::{IMPORT_LABEL, Parsed, Texts};
use crate::cluster::{Identity, Kind};
use crate::error::Error;
use crate::load::Loader;
use crate::objects::{AddressRow, ReservationRow, scope_of};

/// What the cluster contains.
#[derive(Default)]
pub(super) struct Existing {
    pub(super) pools: HashMap<PoolKey, ExistingPool>,
    /// The reservations of the blocks of the file, and those of imports.
    pub(super) reservations: Vec<ExistingReservation>,
    /// The claims that have IPAddresses, by pool and address: those of the file only.
    pub(super) addresses: Vec<(PoolKey, Block, NamespacedName)>,
    /// Pools with IPAddresses or claims.
    pub(super) pools_in_use: HashSet<PoolKey>,
    /// Knows the networks: which of them selects a new pool.
    pub(super) networks: Ledger,
}

/// Labels and annotations of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) labels: Texts,
    pub(super) annotations: Texts,
}

impl Metadata {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        let texts = |texts: &Option<Texts>| texts.clone().unwrap_or_default();
        Self {
            labels: texts(&metadata.labels),
            annotations: texts(&metadata.annotations),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// The name of the import that created the object.
    pub(super) fn import(&self) -> Option<&str> {
        self.labels.get(IMPORT_LABEL).map(String::as_str)
    }
}

#[derive(Clone, Debug)]
pub(super) struct ExistingPool {
    pub(super) spec: PoolSpec,
    pub(super) scope: Scope,
    pub(super) metadata: Metadata,
    pub(super) version: Identity,
}

#[derive(Clone, Debug)]
pub(super) struct ExistingReservation {
    pub(super) name: String,
    pub(super) pool: PoolKey,
    pub(super) scope: Scope,
    pub(super) block: Block,
    pub(super) claim: Option<NamespacedName>,
    /// Whether a claim holds it, or the address cools down: it is not one of a user.
    pub(super) is_held: bool,
    pub(super) metadata: Metadata,
    pub(super) version: Identity,
}

impl ExistingReservation {
    /// The scope and the block.
    pub(super) fn slot(&self) -> Slot {
        Slot {
            scope: self.scope.clone(),
            block: self.block,
        }
    }

    /// `None` if the reservation has no effect.
    fn of(reservation: &IPReservation) -> Option<Self> {
        let row = ReservationRow::of(reservation)?;
        Some(Self {
            name: reservation.name_any(),
            pool: row.pool,
            scope: row.slot.scope,
            block: row.slot.block,
            claim: row.claim,
            is_held: row.has_uid || row.released.is_some(),
            metadata: Metadata::of(&reservation.metadata),
            version: Identity::of(&reservation.metadata),
        })
    }
}

/// Reads what a file is compared with, and keeps only that.
pub(super) async fn read(
    loader: &mut Loader<'_>,
    parsed: &Parsed,
    prune: bool,
) -> Result<Existing, Error> {
    let blocks: HashSet<Block> = parsed.reserved().map(|wanted| wanted.block).collect();
    let mut existing = Existing::default();
    read_pools(loader, &mut existing).await?;
    read_reservations(loader, &blocks, &mut existing).await?;
    if !blocks.is_empty() || prune {
        read_addresses(loader, &blocks, prune, &mut existing).await?;
    }
    if prune {
        read_claims(loader, &mut existing).await?;
    }
    read_networks(loader, parsed, &mut existing).await?;
    Ok(existing)
}

async fn read_pools(loader: &mut Loader<'_>, existing: &mut Existing) -> Result<(), Error> {
    let each = |pool: &Pool| {
        let entry = ExistingPool {
            spec: pool.spec.clone(),
            scope: scope_of(pool),
            metadata: Metadata::of(&pool.metadata),
            version: Identity::of(&pool.metadata),
        };
        existing.pools.insert(PoolKey::of(pool), entry);
    };
    let pools = loader.each_pool(None, each).await?;
    pools.require(|| "which pools exist".to_owned())
}

/// Reads the reservations of the blocks of the file, and those of imports.
async fn read_reservations(
    loader: &mut Loader<'_>,
    blocks: &HashSet<Block>,
    existing: &mut Existing,
) -> Result<(), Error> {
    let each = |reservation: IPReservation| {
        let Some(entry) = ExistingReservation::of(&reservation) else {
            return;
        };
        if entry.metadata.import().is_some() || blocks.contains(&entry.block) {
            existing.reservations.push(entry);
        }
    };
    let reservations = loader.list(Kind::Reservation, None, each).await?;
    reservations.require(|| "which reservations exist".to_owned())
}

/// Reads which claims use the blocks of the file, and, to prune, which pools are in use.
async fn read_addresses(
    loader: &mut Loader<'_>,
    blocks: &HashSet<Block>,
    prune: bool,
    existing: &mut Existing,
) -> Result<(), Error> {
    let is_wanted = |row: &AddressRow| prune || blocks.contains(&row.block);
    let rows = loader.addresses(is_wanted).await?;
    for row in rows.require(|| "which addresses are in use".to_owned())? {
        if prune {
            existing.pools_in_use.insert(row.pool.clone());
        }
        if blocks.contains(&row.block) {
            let claim = row.claim_key();
            existing.addresses.push((row.pool, row.block, claim));
        }
    }
    Ok(())
}

/// Reads which pools have claims. They cannot be pruned.
async fn read_claims(loader: &mut Loader<'_>, existing: &mut Existing) -> Result<(), Error> {
    let claims = loader.claims(None, |_| true).await?;
    for claim in claims.require(|| "which pools are in use".to_owned())? {
        existing.pools_in_use.insert(claim.pool);
    }
    Ok(())
}

/// Reads the networks if one of them could select a pool that the file creates or changes, and
/// reserves addresses of.
async fn read_networks(
    loader: &mut Loader<'_>,
    parsed: &Parsed,
    existing: &mut Existing,
) -> Result<(), Error> {
    let reserved: HashSet<&PoolKey> = parsed.reserved().map(|wanted| &wanted.pool).collect();
    let could_be_selected = parsed.pools().any(|wanted| {
        wanted.pool.spec.network().is_none() && reserved.contains(&PoolKey::of(&wanted.pool))
    });
    if !could_be_selected {
        return Ok(());
    }
    loader
        .fill_networks(&mut existing.networks)
        .await?
        .require(|| "the network of a pool of the file".to_owned())
}
