//! `export`: pools, and the reservations of users in them, as manifests.

use std::collections::HashSet;

use capi_ipam_api::{IPReservation, Pool, PoolKey};
use kube::ResourceExt;

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::PoolText;
use crate::load::Loader;
use crate::manifests::{self, plain_pool, plain_reservation, value};
use crate::objects::Kind;

pub(super) async fn run(global: &Global, names: &[String]) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let pools = pools(&mut loader, namespace, names).await?;
    let (reservations, left_out) = reservations(&mut loader, &pools).await?;
    let mut objects = Vec::new();
    for pool in &pools {
        objects.push(value(pool)?);
    }
    for reservation in &reservations {
        objects.push(value(reservation)?);
    }
    manifests::print(&loader, &objects, &left_out, global.output)
}

/// The pools of a namespace, or of all, and the global pools. With names, only these.
async fn pools(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    names: &[String],
) -> Result<Vec<Pool>, Error> {
    let mut pools: Vec<Pool> = Vec::new();
    // A name can have another namespace.
    let names_namespaces = names
        .iter()
        .any(|it| PoolText::parse(it).namespace.is_some());
    let listed = namespace.filter(|_| !names_namespaces);
    for kind in Kind::POOLS {
        let found = loader.read_objects::<Pool>(kind, listed).await?;
        pools.extend(found.iter().map(plain_pool));
    }
    pools.sort_by_key(PoolKey::of);
    if !pools.iter().any(|pool| pool.metadata.namespace.is_some()) {
        loader.require_namespace(listed).await?;
    }
    if names.is_empty() {
        return Ok(pools);
    }
    for name in names {
        if !pools.iter().any(|pool| is_named(pool, name, namespace)) {
            let searched = PoolText::parse(name).namespace.or(namespace);
            let place = match searched {
                Some(namespace) => {
                    format!("the namespace {namespace} or among the global pools")
                }
                None => "any namespace".to_owned(),
            };
            return Err(Error::NoPool {
                name: name.clone(),
                place,
            });
        }
    }
    pools.retain(|pool| names.iter().any(|name| is_named(pool, name, namespace)));
    Ok(pools)
}

/// Whether a pool has the name that a user wrote. A name without a namespace is that of a pool of the
/// listed one, or of a global pool.
fn is_named(pool: &Pool, name: &str, listed: Option<&str>) -> bool {
    let key = PoolKey::of(pool);
    let wanted = PoolText::parse(name);
    let namespace = key.namespace.as_deref();
    let is_listed = namespace.is_none() || listed.is_none() || namespace == listed;
    wanted.matches(&key) && (wanted.namespace.is_some() || is_listed)
}

/// The reservations of users in some pools, and those that are left out with the reason.
async fn reservations(
    loader: &mut Loader<'_>,
    pools: &[Pool],
) -> Result<(Vec<IPReservation>, Vec<String>), Error> {
    let keys: HashSet<PoolKey> = pools.iter().map(PoolKey::of).collect();
    let mut found: Vec<IPReservation> = Vec::new();
    let mut left_out = Vec::new();
    let listed = loader.read_objects::<IPReservation>(Kind::Reservation, None);
    for reservation in listed.await? {
        let pool = PoolKey::of_reservation(&reservation.spec.pool_ref);
        if !is_of_user(&reservation) || pool.is_none_or(|pool| !keys.contains(&pool)) {
            continue;
        }
        match reservation.slot() {
            Ok(_) => found.push(plain_reservation(reservation)),
            Err(problem) => left_out.push(format!(
                "IPReservation {} is left out: {problem}",
                reservation.name_any()
            )),
        }
    }
    found.sort_by_key(|reservation| reservation.slot().ok());
    Ok((found, left_out))
}

/// Whether neither a claim has the address nor it cools down.
fn is_of_user(reservation: &IPReservation) -> bool {
    let spec = &reservation.spec;
    let is_held = match &spec.claim_ref {
        Some(claim) => claim.uid.is_some(),
        None => false,
    };
    !is_held && spec.released_at.is_none()
}
