//! One list of the reservations for all blocks that are returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{IPReservation, PoolKey, PoolSetKey, Scope, block_of_name};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ip::Block;
use capi_ipam_provider::api::IPAddress;
use kube::Resource;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::addresses::Addresses;
use crate::in_cluster::context::Context;

/// The time before the reservations are listed again after a failed list.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The reserved addresses of networks, as a list has shown them.
#[derive(Debug)]
pub(super) struct ReservationList {
    began: Instant,
    by_network: BTreeMap<Arc<str>, Addresses>,
}

impl ReservationList {
    /// Whether the list shows a reservation of an address of a block. True in a network that was not
    /// listed.
    pub(super) fn uses(&self, network: &str, block: Block) -> bool {
        match self.by_network.get(network) {
            Some(reserved) => reserved.overlaps(block),
            None => true,
        }
    }
}

/// The last list of the reservations, and the one that is being read. It is read by a task, so a claim
/// that needs a block does not wait for it.
#[derive(Default)]
pub(super) struct ReservationLists {
    last: Option<Arc<ReservationList>>,
    running: JoinSet<Result<ReservationList, CallError>>,
    is_wanted: bool,
}

impl ReservationLists {
    /// The last list, if it began at `since` or later. Otherwise one is read after the pass.
    pub(super) fn after(&mut self, since: Instant) -> Option<Arc<ReservationList>> {
        match &self.last {
            Some(list) if list.began >= since => Some(Arc::clone(list)),
            _ => {
                self.is_wanted = true;
                None
            }
        }
    }

    /// Reads the list that the pass has asked for.
    pub(super) fn start(&mut self, context: &Arc<Context>, networks: Vec<Arc<str>>) {
        if self.is_wanted && self.running.is_empty() {
            self.is_wanted = false;
            self.running.spawn(read(Arc::clone(context), networks));
        }
    }

    /// Waits until a list is complete. Does not end while none is read.
    pub(super) async fn done(&mut self) {
        match self.running.join_next().await {
            Some(Ok(Ok(list))) => self.last = Some(Arc::new(list)),
            Some(Ok(Err(error))) => debug!(
                error = error_chain(&error),
                "cannot list the reservations, will retry"
            ),
            // The task was aborted: the next pass asks for another list.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }
}

/// Lists the addresses of networks that are reserved or in use. Other managers of this management cluster reserve
/// what is in use in their parts of the objects: until they have done so, only the IPAddress shows it.
async fn read(
    context: Arc<Context>,
    networks: Vec<Arc<str>>,
) -> Result<ReservationList, CallError> {
    let began = Instant::now();
    let scopes: Vec<Scope> = networks.iter().cloned().map(Scope::Network).collect();
    let mut found: Vec<Vec<Block>> = vec![Vec::new(); scopes.len()];
    // The name decides: it reserves the address, also if the object is not valid.
    let use_object = |object: &MaybeInvalid<IPReservation>| {
        let name = object.meta().name.as_deref().unwrap_or_default();
        for (scope, blocks) in scopes.iter().zip(&mut found) {
            blocks.extend(block_of_name(scope, name));
        }
    };
    let mut listed = context.reservations.for_each(use_object).await;
    let mut is_complete = true;
    if listed.is_ok() && !context.selection.is_everything() {
        let use_page = |page: Vec<MaybeInvalid<IPAddress>>| {
            for address in page {
                let address = match address.0 {
                    Ok(address) => address,
                    Err(invalid) => {
                        let name = NamespacedName::of(&invalid.metadata);
                        warn!(%name, "an IPAddress cannot be decoded: no block is returned");
                        is_complete = false;
                        continue;
                    }
                };
                let Some((block, scope)) = place_of(&context, &address) else {
                    continue;
                };
                for (known, blocks) in scopes.iter().zip(&mut found) {
                    if scope.as_ref().is_none_or(|scope| scope == known) {
                        blocks.push(block);
                    }
                }
            }
        };
        listed = context.contract.addresses("").for_each_page(use_page).await;
    }
    if let Err(error) = listed {
        tokio::time::sleep(RETRY_DELAY).await;
        return Err(error);
    }
    let mut by_network = BTreeMap::new();
    // An IPAddress that cannot be decoded can be in use in any block of any network.
    if is_complete {
        for (network, blocks) in networks.into_iter().zip(found) {
            by_network.insert(network, blocks.into_iter().collect());
        }
    }
    Ok(ReservationList { began, by_network })
}

/// The address of an IPAddress, and the scope of its pool. A pool that is not known can be one of any
/// network, and so can the member of a set: a user can change the annotation that names it.
fn place_of(context: &Context, address: &IPAddress) -> Option<(Block, Option<Scope>)> {
    let is_of_set = PoolSetKey::of_address(address).is_some();
    let pool = PoolKey::of_address(address).filter(|_| !is_of_set);
    if pool.is_none() && !is_of_set {
        return None;
    }
    let info = pool.and_then(|pool| {
        let ledger = &context.ledger;
        ledger.read(|ledger| ledger.pools().pool_info(&pool))
    });
    let block = Block::address(address.spec.address.parse().ok()?);
    Some((block, info.map(|info| info.scope.clone())))
}
