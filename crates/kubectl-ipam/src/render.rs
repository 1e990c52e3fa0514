//! Reports as text.

mod details;
mod grid;
mod lists;

use std::fmt::Write;

use jiff::Timestamp;

pub(crate) use self::details::{body, details, head};
pub(crate) use self::grid::{Grid, clean};
use crate::model::{
    Finding, Holder, ImportChange, ImportProblem, ImportSummary, PoolMatch, PoolName, Report, ReservationAction,
    ReservationChange, Severity,
};

/// How text is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) color: bool,
    pub(crate) wide: bool,
    /// Whether objects of several namespaces are shown.
    pub(crate) namespaces: bool,
    pub(crate) now: Timestamp,
}

/// A color of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Color {
    Red,
    Green,
    Yellow,
    Blue,
}

impl Style {
    pub(crate) fn paint(self, text: &str, color: Color) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Blue => 34,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// The text of `-o table` and `-o wide`.
pub(crate) fn text(report: &Report, style: Style) -> String {
    match report {
        Report::PoolDetails(pool) => details(pool, style),
        Report::ReservationChange(change) => change_text(change),
        Report::ImportSummary(summary) => import_text(summary, style),
        Report::HolderList { pools, holders, address } => {
            let holders = if holders.is_empty() { nothing_holds(address) } else { holder_texts(holders, style) };
            format!("{}{holders}", memberships(pools))
        }
        Report::FreeList { addresses, note, .. } => {
            let mut text = lines(addresses);
            text.extend(note.as_ref().map(|note| format!("{}\n", clean(note))));
            text
        }
        Report::FindingList { findings } => finding_text(findings, style),
        Report::PoolList { .. } | Report::NetworkList { .. } | Report::ClaimList { .. } => grid(report, style).text(),
    }
}

/// The pools that contain an address.
pub(crate) fn memberships(pools: &[PoolMatch]) -> String {
    if pools.is_empty() {
        return "No pool contains the address.\n".to_owned();
    }
    let text = |entry: &PoolMatch| {
        let network = entry.network.as_deref().map(|name| format!(", network {name}")).unwrap_or_default();
        format!("{}{network}: {:?}\n", full(&entry.pool), entry.membership)
    };
    pools.iter().map(text).collect()
}

pub(crate) fn nothing_holds(address: &str) -> String {
    format!("\nNothing holds {}.\n", clean(address))
}

pub(crate) fn holder_texts<'a>(holders: impl IntoIterator<Item = &'a Holder>, style: Style) -> String {
    holders.into_iter().map(|holder| details::holder(holder, style)).collect()
}

/// One paragraph for each finding: its lines are too long for a table.
fn finding_text(findings: &[Finding], style: Style) -> String {
    if findings.is_empty() {
        return "No problems found.\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        let color = if finding.severity == Severity::Error { Color::Red } else { Color::Yellow };
        let check = style.paint(&format!("{:?}", finding.check), color);
        let _ = writeln!(text, "{check}: {}\n  {}", clean(&finding.object), clean(&finding.problem));
        let _ = writeln!(text, "  Repair: {}", clean(&finding.repair));
    }
    text
}

/// Written as kubectl writes changes.
fn change_text(change: &ReservationChange) -> String {
    let action = format!("{:?}", change.action).to_lowercase();
    let dry_run = if change.dry_run { " (server dry run)" } else { "" };
    let purpose = change.claim.as_deref().map_or_else(
        || format!("{} is excluded from allocation", change.address),
        |claim| format!("{} is reserved for the claim {claim}", change.address),
    );
    let purpose = if change.action == ReservationAction::Created { format!(": {purpose}") } else { String::new() };
    format!("ipreservation {} {action}{dry_run}{purpose}\n", change.name)
}

/// The problems by line, the changes if they cannot be seen from the counts, and the counts.
fn import_text(summary: &ImportSummary, style: Style) -> String {
    let mut text = String::new();
    for ImportProblem { line, problem } in &summary.problems {
        let place = line.map_or_else(|| "not in the file".to_owned(), |line| format!("line {line}"));
        let _ = writeln!(text, "{}: {}", style.paint(&place, Color::Red), clean(problem));
    }
    let ImportSummary { dry_run, created, updated, deleted, unchanged, not_made, .. } = summary;
    let dry_run_text = if *dry_run { " (server dry run)" } else { "" };
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
        let _ = writeln!(text, "{not_made} changes were not made; run the same import again to make them");
    }
    text
}

/// Each text in a line.
pub(crate) fn lines<T: AsRef<str>>(texts: &[T]) -> String {
    texts.iter().flat_map(|text| [text.as_ref(), "\n"]).collect()
}

/// The rows of a report, for text and for CSV.
pub(crate) fn grid(report: &Report, style: Style) -> Grid {
    match report {
        Report::PoolList { pools } => lists::pools(pools, style),
        Report::NetworkList { networks } => lists::networks(networks, style),
        Report::ClaimList { claims } => lists::claims(claims, style),
        Report::HolderList { holders, .. } => lists::holders(holders, style),
        Report::FreeList { addresses, .. } => {
            let mut grid = Grid::new(&["ADDRESS"]);
            addresses.iter().for_each(|address| grid.row(vec![address.clone()]));
            grid
        }
        Report::FindingList { findings } => {
            let mut grid = Grid::new(&["SEVERITY", "CHECK", "OBJECT", "PROBLEM", "REPAIR"]);
            for Finding { severity, check, object, problem, repair } in findings {
                let cells =
                    [format!("{severity:?}"), format!("{check:?}"), object.clone(), problem.clone(), repair.clone()];
                grid.row(cells.into());
            }
            grid
        }
        Report::PoolDetails(pool) => lists::holders(&pool.holders, style),
        Report::ReservationChange(change) => {
            let mut grid = Grid::new(&["ACTION", "NAME", "ADDRESS", "CLAIM"]);
            let claim = change.claim.clone().unwrap_or_default();
            grid.row(vec![format!("{:?}", change.action), change.name.clone(), change.address.clone(), claim]);
            grid
        }
        Report::ImportSummary(summary) => {
            let mut grid = Grid::new(&["LINE", "ACTION", "OBJECT", "PROBLEM"]);
            let number = |line: &Option<u64>| line.map(|line| line.to_string()).unwrap_or_default();
            for ImportChange { line, action, object } in &summary.changes {
                grid.row(vec![number(line), format!("{action:?}"), object.clone(), String::new()]);
            }
            for ImportProblem { line, problem } in &summary.problems {
                grid.row(vec![number(line), String::new(), String::new(), problem.clone()]);
            }
            grid
        }
    }
}

/// The names of `-o name`.
pub(crate) fn names(report: &Report) -> Vec<String> {
    let pool = |pool: &PoolName| format!("{}.ipam.cluster.x-k8s.io/{}", pool.kind.to_lowercase(), pool.name);
    let address = |holder: &Holder| {
        let name = holder.ip_address.as_deref().and_then(|name| name.split_once('/'));
        let address = name.map(|(_, name)| format!("ipaddress.ipam.cluster.x-k8s.io/{name}"));
        let reservation = holder.reservation.as_deref();
        address.or_else(|| reservation.map(|name| format!("ipreservation.ipam.cluster.x-k8s.io/{name}")))
    };
    match report {
        Report::PoolList { pools } => pools.iter().map(|line| pool(&line.pool)).collect(),
        Report::NetworkList { networks } => {
            networks.iter().map(|network| format!("ipnetwork.ipam.cluster.x-k8s.io/{}", network.name)).collect()
        }
        Report::ClaimList { claims } => {
            claims.iter().map(|claim| format!("ipaddressclaim.ipam.cluster.x-k8s.io/{}", claim.name)).collect()
        }
        Report::HolderList { holders, .. } => holders.iter().filter_map(address).collect(),
        Report::FreeList { addresses, .. } => addresses.clone(),
        Report::FindingList { findings } => findings.iter().map(|finding| finding.object.clone()).collect(),
        Report::PoolDetails(details) => vec![pool(&details.pool)],
        Report::ReservationChange(change) => vec![format!("ipreservation.ipam.cluster.x-k8s.io/{}", change.name)],
        Report::ImportSummary(summary) => summary.changes.iter().map(|change| resource(&change.object)).collect(),
    }
}

/// `InClusterIPPool team-a/web` as kubectl writes it: `inclusterippool.ipam.cluster.x-k8s.io/web`.
fn resource(object: &str) -> String {
    let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
    let name = name.rsplit('/').next().unwrap_or_default();
    format!("{}.ipam.cluster.x-k8s.io/{name}", kind.to_lowercase())
}

/// `InClusterIPPool team-a/web`.
pub(crate) fn full(pool: &PoolName) -> String {
    let namespace = pool.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", pool.kind, pool.name)
}

/// An age as kubectl shows it: `45s`, `12m`, `5h`, `3d`.
pub(crate) fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return "-".to_owned() };
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
