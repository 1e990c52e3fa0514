//! Reports as text.

mod details;
mod findings;
mod grid;
mod lists;
mod names;
mod registries;
mod style;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) use self::details::{body, details, head};
pub(crate) use self::grid::clean;
pub(crate) use self::names::names;
pub(crate) use self::registries::{block_holders, record_change_lines};
pub(crate) use self::style::Style;
pub(crate) use self::words::age;
use self::words::dry_run_text;
use crate::model::{
    BlockLine, BlockState, Holder, HolderState, PoolMatch, Report, ReservationAction,
    ReservationChange,
};

/// The text of `-o table` and `-o wide`.
pub(crate) fn text(report: &Report, style: Style) -> String {
    match report {
        Report::PoolDetails(pool) => details(pool, style),
        Report::ReservationChange(change) => change_text(change),
        Report::HolderList {
            pools,
            holders: all,
            address,
            blocks,
        } => {
            let holders = match all.as_deref() {
                None => no_holder(address, false, blocks),
                Some([]) => no_holder(address, true, blocks),
                Some(holders) => holder_texts(holders, style),
            };
            let blocks = block_holders(blocks);
            let shared = shared_addresses(all.as_deref().unwrap_or_default());
            let pools = memberships(pools.as_deref());
            format!("{pools}{blocks}{holders}{shared}")
        }
        Report::FindingList(list) => findings::text(list, style),
        Report::PoolList { pools } => lists::pools(pools, style).text(style.headers),
        Report::NetworkList { networks } => lists::networks(networks, style).text(style.headers),
        Report::ClaimList { claims } => lists::claims(claims, style).text(style.headers),
        Report::ClusterList { clusters } => lists::clusters(clusters, style).text(style.headers),
        Report::RolloutPlan { lines, pools } => lists::plan(lines, pools, style),
        Report::AllocationHistory { events, .. } => {
            lists::history(events, style).text(style.headers)
        }
        Report::RegistryList { registries } => registries::registries(registries, style),
        Report::RegistryCheck(check) => registries::check(check, style),
        Report::RegistryRelease(release) => registries::release(release),
    }
}

/// What an output without a line means.
pub(crate) fn nothing(report: &Report) -> String {
    match report {
        // Without any check, nothing is found either.
        Report::FindingList(list) => findings::summary(list).trim_end().to_owned(),
        _ => "Nothing found.".to_owned(),
    }
}

/// The pools that contain an address; `None` if they may not be read.
pub(crate) fn memberships(pools: Option<&[PoolMatch]>) -> String {
    let text = |entry: &PoolMatch| {
        let network = match &entry.network {
            Some(name) => format!(", network {name}"),
            None => String::new(),
        };
        format!("{}{network}: {:?}\n", entry.pool, entry.membership)
    };
    match pools {
        None => "It is unknown which pools contain the address.\n".to_owned(),
        Some([]) => "No pool contains the address.\n".to_owned(),
        Some(pools) => pools.iter().map(text).collect(),
    }
}

/// The text for an address without a holder in this management cluster. Without all IPAddresses and
/// reservations, it is unknown. `blocks` are those that contain the address: another management
/// cluster can have it in use.
pub(crate) fn no_holder(address: &str, is_known: bool, blocks: &[BlockLine]) -> String {
    let address = clean(address);
    if !is_known {
        return format!("\nIt is unknown who holds {address}.\n");
    }
    for block in blocks {
        let mut others = block.clusters.iter().skip(usize::from(block.is_own));
        if let Some(cluster) = others.next() {
            let cluster = clean(cluster);
            return format!(
                "\nNothing in this management cluster holds {address}. Management cluster {cluster} can have it in use: \
                 run the same command there.\n"
            );
        }
    }
    let is_unknown =
        |block: &BlockLine| matches!(block.state, BlockState::Unreadable | BlockState::Unknown);
    if blocks.iter().any(is_unknown) {
        return format!(
            "\nNothing in this management cluster holds {address}. It is unknown whether another one has it in use.\n"
        );
    }
    format!("\nNothing holds {address}.\n")
}

/// The missing permissions, as the last lines of a text.
pub(crate) fn incomplete(missing: &[String]) -> String {
    let mut text = String::new();
    for right in missing {
        let start = if text.is_empty() { "\n" } else { "" };
        let _ = writeln!(text, "{start}Incomplete: {}", clean(right));
    }
    text
}

pub(crate) fn holder_texts<'a>(
    holders: impl IntoIterator<Item = &'a Holder>,
    style: Style,
) -> String {
    holders
        .into_iter()
        .map(|holder| details::holder(holder, style))
        .collect()
}

/// The addresses that several claims have.
pub(crate) fn shared_addresses(holders: &[Holder]) -> String {
    let mut claims: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for holder in holders {
        let is_allocated = matches!(
            holder.state,
            HolderState::Allocated | HolderState::Releasing
        );
        // An address is unique in a network, or else in a pool.
        let scope = match holder.network.known() {
            Some(network) => format!("network {network}"),
            None => holder.pool.to_string(),
        };
        if is_allocated {
            let count = claims.entry((&holder.address, scope)).or_default();
            *count = count.saturating_add(1);
        }
    }
    let mut text = String::new();
    for ((address, scope), count) in claims.into_iter().filter(|(_, count)| *count > 1) {
        let address = clean(address);
        let _ = writeln!(
            text,
            "\n{count} claims have {address} of {scope}. Find out how to repair it with: kubectl ipam doctor"
        );
    }
    text
}

/// Written as kubectl writes changes.
fn change_text(change: &ReservationChange) -> String {
    let action = format!("{:?}", change.action).to_lowercase();
    let dry_run = dry_run_text(change.dry_run, change.unchecked);
    let address = &change.address;
    let purpose = match (change.action, &change.claim) {
        (ReservationAction::Deleted, _) => String::new(),
        (ReservationAction::Quarantined, _) => {
            let until = change.until.map(|until| format!(" before {until:.0}"));
            format!(": {address} is not allocated{}", until.unwrap_or_default())
        }
        (ReservationAction::Requested, claim) => {
            let claim = claim.as_deref().unwrap_or_default();
            return format!(
                "ipaddressclaim {claim} annotated{dry_run}: {address} is in use, and is quarantined when this claim \
                 is deleted\n"
            );
        }
        (ReservationAction::Created, Some(claim)) => {
            format!(": {address} is reserved for the claim {claim}")
        }
        (ReservationAction::Created, None) => format!(": {address} is excluded from allocation"),
    };
    format!("ipreservation {} {action}{dry_run}{purpose}\n", change.name)
}

/// Each text in a line.
pub(crate) fn lines<T: AsRef<str>>(texts: &[T]) -> String {
    texts
        .iter()
        .flat_map(|text| [text.as_ref(), "\n"])
        .collect()
}

#[cfg(test)]
mod tests;
