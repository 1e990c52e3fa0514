//! `adopt`: reservations for addresses that Machines use and no IPAddress has, as manifests.

use capi_ipam_api::NamedPool;
use capi_ipam_provider::api::IPAddressClaim;

use super::cluster_api;
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::convert::set_source;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::manifests::{self, value};
use crate::model::adopt;
use crate::objects::Kind;

pub(super) async fn run(global: &Global, template: Option<&str>) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let machines = cluster_api::machines(&loader, namespace).await?;
    if machines.is_empty() {
        loader.require_namespace(namespace).await?;
    }
    // Claims of other namespaces use global pools and networks.
    let claims: Vec<IPAddressClaim> = loader.read_objects(Kind::Claim, namespace).await?;
    let named = claims.iter().filter_map(NamedPool::of_claim);
    loader.read_sets(named, None).await?;
    let kinds = [&Kind::POOLS[..], &[Kind::Address, Kind::Reservation]].concat();
    loader.read(&kinds, None).await?;
    let ledger = loader.ledger.take().unwrap_or_default();
    loader.require_known(&Kind::ALL, || {
        "which addresses have no IPAddress".to_owned()
    })?;
    let adoption = adopt(&machines, &claims, (&loader.objects, &ledger), template);
    let mut objects = Vec::new();
    for reservation in &adoption.reservations {
        let mut object = value(reservation)?;
        set_source(&mut object, "adopt");
        objects.push(object);
    }
    manifests::print(&loader, &objects, &adoption.left_out, global.output)
}
