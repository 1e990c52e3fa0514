//! Reports as text.

mod details;
mod findings;
mod grid;
mod lists;
mod style;
mod words;

use std::fmt::Write;

pub(crate) use self::details::{body, details, head};
pub(crate) use self::grid::{Grid, clean};
pub(crate) use self::style::{Color, Style};
use self::words::full;
use crate::model::{
    Holder, ImportChange, ImportProblem, ImportSummary, PoolMatch, PoolName, Report,
    ReservationAction, ReservationChange,
};

/// The text of `-o table` and `-o wide`.
pub(crate) fn text(report: &Report, style: Style) -> String {
    match report {
        Report::PoolDetails(pool) => details(pool, style),
        Report::ReservationChange(change) => change_text(change),
        Report::ImportSummary(summary) => import_text(summary, style),
        Report::HolderList {
            pools,
            holders,
            address,
        } => {
            let holders = match holders.as_deref() {
                None => no_holder(address, false),
                Some([]) => no_holder(address, true),
                Some(holders) => holder_texts(holders, style),
            };
            format!("{}{holders}", memberships(pools.as_deref()))
        }
        Report::FreeList {
            addresses, note, ..
        } => {
            let mut text = lines(addresses);
            text.extend(note.as_ref().map(|note| format!("{}\n", clean(note))));
            text
        }
        Report::FindingList(list) => findings::text(list, style),
        Report::PoolList { .. }
        | Report::NetworkList { .. }
        | Report::ClaimList { .. }
        | Report::StatusList { .. } => grid(report, style).text(style.headers),
    }
}

/// The pools that contain an address; `None` if they may not be read.
pub(crate) fn memberships(pools: Option<&[PoolMatch]>) -> String {
    let text = |entry: &PoolMatch| {
        let network = match &entry.network {
            Some(name) => format!(", network {name}"),
            None => String::new(),
        };
        format!("{}{network}: {:?}\n", full(&entry.pool), entry.membership)
    };
    match pools {
        None => "It is unknown which pools contain the address.\n".to_owned(),
        Some([]) => "No pool contains the address.\n".to_owned(),
        Some(pools) => pools.iter().map(text).collect(),
    }
}

/// The text for an address without a holder. Without all IPAddresses and reservations, it is
/// unknown.
pub(crate) fn no_holder(address: &str, is_known: bool) -> String {
    let address = clean(address);
    if is_known {
        format!("\nNothing holds {address}.\n")
    } else {
        format!("\nIt is unknown who holds {address}.\n")
    }
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

/// What kubectl adds to a change that was not made.
fn dry_run_text(is_dry_run: bool, is_unchecked: bool) -> &'static str {
    match (is_dry_run, is_unchecked) {
        (false, _) => "",
        (true, true) => " (dry run)",
        (true, false) => " (server dry run)",
    }
}

/// Written as kubectl writes changes.
fn change_text(change: &ReservationChange) -> String {
    let action = format!("{:?}", change.action).to_lowercase();
    let dry_run = dry_run_text(change.dry_run, change.unchecked);
    let address = &change.address;
    let purpose = match (change.action, &change.claim) {
        (ReservationAction::Deleted, _) => String::new(),
        (ReservationAction::Created, Some(claim)) => {
            format!(": {address} is reserved for the claim {claim}")
        }
        (ReservationAction::Created, None) => format!(": {address} is excluded from allocation"),
    };
    format!("ipreservation {} {action}{dry_run}{purpose}\n", change.name)
}

/// The problems by line, the changes if they cannot be seen from the counts, and the counts.
fn import_text(summary: &ImportSummary, style: Style) -> String {
    let mut text = String::new();
    for ImportProblem { line, problem } in &summary.problems {
        let place = match line {
            Some(line) => format!("line {line}"),
            None => "not in the file".to_owned(),
        };
        let _ = writeln!(
            text,
            "{}: {}",
            style.paint(&place, Color::Red),
            clean(problem)
        );
    }
    let ImportSummary {
        dry_run,
        unchecked,
        created,
        updated,
        deleted,
        unchanged,
        not_made,
        ..
    } = summary;
    let dry_run_text = dry_run_text(*dry_run, *unchecked);
    if *dry_run || *not_made > 0 || style.wide {
        for ImportChange { action, object, .. } in &summary.changes {
            let action = format!("{action:?}").to_lowercase();
            let _ = writeln!(text, "{} {action}{dry_run_text}", clean(object));
        }
    }
    let problems = summary.problems.len();
    let _ = writeln!(
        text,
        "{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged, {problems} problems{dry_run_text}"
    );
    if *not_made > 0 {
        let _ = writeln!(
            text,
            "{not_made} changes were not made; run the same import again to make them"
        );
    }
    text
}

/// Each text in a line.
pub(crate) fn lines<T: AsRef<str>>(texts: &[T]) -> String {
    texts
        .iter()
        .flat_map(|text| [text.as_ref(), "\n"])
        .collect()
}

/// The rows of a report, for text and for CSV.
pub(crate) fn grid(report: &Report, style: Style) -> Grid {
    match report {
        Report::PoolList { pools } => lists::pools(pools, style),
        Report::NetworkList { networks } => lists::networks(networks, style),
        Report::ClaimList { claims } => lists::claims(claims, style),
        Report::HolderList { holders, .. } => {
            lists::holders(holders.as_deref().unwrap_or_default(), style)
        }
        Report::FreeList { addresses, .. } => {
            let mut grid = Grid::new(&["ADDRESS"]);
            addresses
                .iter()
                .for_each(|address| grid.row(vec![address.clone()]));
            grid
        }
        Report::FindingList(list) => findings::grid(list),
        Report::StatusList { parts } => lists::parts(parts, style),
        Report::PoolDetails(pool) => {
            lists::holders(pool.holders.as_deref().unwrap_or_default(), style)
        }
        Report::ReservationChange(change) => {
            let mut grid = Grid::new(&["ACTION", "NAME", "ADDRESS", "CLAIM"]);
            let claim = change.claim.clone().unwrap_or_default();
            grid.row(vec![
                format!("{:?}", change.action),
                change.name.clone(),
                change.address.clone(),
                claim,
            ]);
            grid
        }
        Report::ImportSummary(summary) => {
            let mut grid = Grid::new(&["LINE", "ACTION", "OBJECT", "PROBLEM"]);
            let number = |line: &Option<u64>| line.map(|line| line.to_string()).unwrap_or_default();
            for ImportChange {
                line,
                action,
                object,
            } in &summary.changes
            {
                grid.row(vec![
                    number(line),
                    format!("{action:?}"),
                    object.clone(),
                    String::new(),
                ]);
            }
            for ImportProblem { line, problem } in &summary.problems {
                grid.row(vec![
                    number(line),
                    String::new(),
                    String::new(),
                    problem.clone(),
                ]);
            }
            grid
        }
    }
}

/// The names of `-o name`.
pub(crate) fn names(report: &Report) -> Vec<String> {
    match report {
        Report::PoolList { pools } => each(pools, |line| pool_resource(&line.pool)),
        Report::NetworkList { networks } => each(networks, |it| of_group("ipnetwork", &it.name)),
        Report::ClaimList { claims } => each(claims, |it| of_group("ipaddressclaim", &it.name)),
        Report::HolderList { holders, .. } => {
            let mut names = Vec::new();
            for holder in holders.iter().flatten() {
                names.extend(holder_resource(holder));
            }
            names
        }
        Report::FreeList { addresses, .. } => addresses.clone(),
        Report::FindingList(list) => each(&list.findings, |finding| finding.object.clone()),
        Report::StatusList { parts } => each(parts, |it| format!("{:?}", it.part).to_lowercase()),
        Report::PoolDetails(details) => vec![pool_resource(&details.pool)],
        Report::ReservationChange(change) => vec![of_group("ipreservation", &change.name)],
        Report::ImportSummary(summary) => each(&summary.changes, |it| resource(&it.object)),
    }
}

fn each<T>(items: &[T], name: impl Fn(&T) -> String) -> Vec<String> {
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        names.push(name(item));
    }
    names
}

/// An object as kubectl writes it: `ipnetwork.ipam.cluster.x-k8s.io/lab`.
fn of_group(kind: &str, name: &str) -> String {
    format!("{kind}.ipam.cluster.x-k8s.io/{name}")
}

fn pool_resource(pool: &PoolName) -> String {
    of_group(&pool.kind.to_lowercase(), &pool.name)
}

/// The IPAddress of a holder, or else its reservation.
fn holder_resource(holder: &Holder) -> Option<String> {
    if let Some((_, name)) = holder.ip_address.known().and_then(|it| it.split_once('/')) {
        return Some(of_group("ipaddress", name));
    }
    let reservation = holder.reservation.known()?;
    Some(of_group("ipreservation", reservation))
}

/// `InClusterIPPool team-a/web` as kubectl writes it: `inclusterippool.ipam.cluster.x-k8s.io/web`.
fn resource(object: &str) -> String {
    let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
    let name = name.rsplit('/').next().unwrap_or_default();
    of_group(&kind.to_lowercase(), name)
}

#[cfg(test)]
mod tests;
