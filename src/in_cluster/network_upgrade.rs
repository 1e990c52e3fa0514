//! Creates IPNetworks for the networks of earlier versions.
//!
//! Versions without the kind IPNetwork store the block length of each network in an IPReservation
//! named `n.NETWORK.ipv4` or `n.NETWORK.ipv6`. For each of them an IPNetwork is created that allows
//! the namespaces whose pools name the network, and then the record is deleted. Until the network
//! exists, its pools keep their scope and do not allocate. A network without a record never had a
//! reservation, so naming a network does not create it.
//!
//! This is not a step before the start of the controllers: the watch of reservations shows the
//! records without another list, and also those that a version before this one creates after a
//! rollback.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{
    BlockLengths, IPNetwork, IPNetworkSpec, NamespaceAccess, NamespaceSource, names,
};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_ledger::LengthRecord;
use kube::api::ObjectMeta;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::context::Context;

/// How often the records are looked for.
const INTERVAL: Duration = Duration::from_secs(2);

/// Creates networks until `stop` is cancelled. Waits for all `gates` first.
pub(super) async fn run(
    context: Arc<Context>,
    networks: ResourceClient<IPNetwork>,
    gates: Vec<ReadinessGate>,
    stop: CancellationToken,
) {
    let work = async {
        for gate in &gates {
            gate.wait().await;
        }
        loop {
            let mut by_network: BTreeMap<Arc<str>, Vec<LengthRecord>> = BTreeMap::new();
            for (record, _) in context.ledger.length_records() {
                by_network
                    .entry(record.network.clone())
                    .or_default()
                    .push(record);
            }
            for (network, records) in by_network {
                if let Err(error) = create(&context, &networks, &network, &records).await {
                    let error = error_chain(&error);
                    warn!(%network, error, "cannot create the IPNetwork of an earlier version, will retry");
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let _ = stop.run_until_cancelled(work).await;
}

/// Creates a network if it does not exist, and deletes the records of the earlier version.
async fn create(
    context: &Context,
    networks: &ResourceClient<IPNetwork>,
    network: &Arc<str>,
    records: &[LengthRecord],
) -> Result<(), CallError> {
    let names: Vec<String> = context
        .ledger
        .namespaces_naming(network)
        .into_iter()
        .collect();
    let mut lengths = BlockLengths::default();
    records
        .iter()
        .for_each(|record| lengths.set(record.family, record.length));
    let access = NamespaceAccess {
        from: NamespaceSource::Names,
        selector: None,
        names,
    };
    let wanted = IPNetwork {
        api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
        kind: Some("IPNetwork".to_owned()),
        metadata: ObjectMeta {
            name: Some(network.to_string()),
            ..ObjectMeta::default()
        },
        spec: IPNetworkSpec {
            namespaces: Some(access).filter(|access| !access.names.is_empty()),
            block_lengths: Some(lengths),
            ..IPNetworkSpec::default()
        },
        status: None,
    };
    match networks.create(&wanted).await {
        Ok(created) => {
            info!(%network, "created the IPNetwork of pools that an earlier version has put into a network");
            context.ledger.insert_network(&created);
        }
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error),
    }
    for record in records {
        context
            .reservations
            .delete_other(&record.name, &record.uid)
            .await?;
    }
    Ok(())
}
