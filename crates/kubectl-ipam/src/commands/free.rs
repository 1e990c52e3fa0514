//! `free`: the next addresses that a pool allocates, as the ledger of the manager proposes them.

use capi_ipam_api::AllocationOrder;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, Outcome};

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::show_command;
use crate::load::Loader;
use crate::model::Report;
use crate::objects::PoolRow;
use crate::output;

pub(super) async fn run(global: &Global, pool: &str, count: u16) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let pool = loader.find_pool(pool).await?;
    let (addresses, note) = if pool.spec.slices().is_some() {
        let key = &pool.key;
        let note = format!(
            "{key} has slices: the next address depends on the owner of the claim. List the slices with: {}",
            show_command(key)
        );
        (Vec::new(), Some(note))
    } else {
        let ledger = loader.supply(&pool).await?.into_ledger();
        let mut ledger = ledger.require(|| format!("the next address of {}", pool.key))?;
        let addresses = next_addresses(&mut ledger, &pool, count);
        let note = note(&pool, addresses.len(), count);
        (addresses, note)
    };
    let report = Report::FreeList {
        pool: (&pool.key).into(),
        addresses,
        note,
    };
    output::finish(&loader, &report, global.output, output::style(global))
}

fn next_addresses(ledger: &mut Ledger, pool: &PoolRow, count: u16) -> Vec<String> {
    let mut addresses = Vec::new();
    for number in 0..count {
        // Each proposal holds its address for a claim that does not exist, in a namespace without
        // another address.
        let claim = NamespacedName::new(&format!("-{number}"), "");
        match ledger.propose(&pool.key, &claim, i64::from(number)) {
            Outcome::Offer(slot) => addresses.push(slot.block.to_string()),
            _ => break,
        }
    }
    addresses
}

/// Why there are fewer addresses than requested, or why others can be allocated.
fn note(pool: &PoolRow, found: usize, count: u16) -> Option<String> {
    if found < usize::from(count) {
        return Some(shortage(pool, found));
    }
    if pool.spec.order() == AllocationOrder::Random {
        return Some(format!(
            "{} allocates in random order: these addresses are examples.",
            pool.key
        ));
    }
    None
}

/// Why a pool has fewer free addresses than requested.
fn shortage(pool: &PoolRow, found: usize) -> String {
    let key = &pool.key;
    match &pool.usable {
        Err(problem) => format!("The specification of {key} is invalid: {problem}"),
        Ok(_) if pool.is_deleting() => {
            format!("{key} is being deleted and allocates no addresses.")
        }
        Ok(_) if pool.paused => format!("{key} is paused and allocates no addresses."),
        Ok(_) if !pool.initialized => {
            format!("{key} is not initialized yet: its finalizer is missing.")
        }
        Ok(_) if pool.has_headroom() => {
            format!(
                "{key} has no other free address for claims that its spec.headroom does not select."
            )
        }
        Ok(_) if found == 0 => format!("{key} has no free address."),
        Ok(_) => format!("{key} has no other free address."),
    }
}
