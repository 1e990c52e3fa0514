//! Reports as text.

mod details;
mod grid;

use std::fmt::Write;

use jiff::Timestamp;

pub(crate) use self::details::{body, details, head};
pub(crate) use self::grid::{Grid, clean};
use crate::model::{
    ClaimLine, Finding, Holder, ImportProblem, ImportSummary, PoolLine, PoolMatch, PoolName, Report, ReservationAction,
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
        Report::PoolList { .. } | Report::ClaimList { .. } => grid(report, style).text(),
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

/// The problems by line, then the counts.
fn import_text(summary: &ImportSummary, style: Style) -> String {
    let mut text = String::new();
    for ImportProblem { line, problem } in &summary.problems {
        let place = line.map_or_else(|| "not in the file".to_owned(), |line| format!("line {line}"));
        let _ = writeln!(text, "{}: {}", style.paint(&place, Color::Red), clean(problem));
    }
    let ImportSummary { dry_run, created, updated, deleted, unchanged, .. } = summary;
    let dry_run = if *dry_run { " (server dry run)" } else { "" };
    let problems = summary.problems.len();
    let _ = writeln!(
        text,
        "{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged, {problems} problems{dry_run}"
    );
    text
}

/// Each text in a line.
pub(crate) fn lines<T: AsRef<str>>(texts: &[T]) -> String {
    texts.iter().flat_map(|text| [text.as_ref(), "\n"]).collect()
}

/// The rows of a report, for text and for CSV.
pub(crate) fn grid(report: &Report, style: Style) -> Grid {
    match report {
        Report::PoolList { pools } => pool_grid(pools, style),
        Report::ClaimList { claims } => claim_grid(claims, style),
        Report::HolderList { holders, .. } => holder_grid(holders, style),
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
        Report::PoolDetails(pool) => holder_grid(&pool.holders, style),
        Report::ReservationChange(change) => {
            let mut grid = Grid::new(&["ACTION", "NAME", "ADDRESS", "CLAIM"]);
            let claim = change.claim.clone().unwrap_or_default();
            grid.row(vec![format!("{:?}", change.action), change.name.clone(), change.address.clone(), claim]);
            grid
        }
        Report::ImportSummary(summary) => {
            let mut grid = Grid::new(&["LINE", "PROBLEM"]);
            for ImportProblem { line, problem } in &summary.problems {
                grid.row(vec![line.map(|line| line.to_string()).unwrap_or_default(), problem.clone()]);
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
        Report::ClaimList { claims } => {
            claims.iter().map(|claim| format!("ipaddressclaim.ipam.cluster.x-k8s.io/{}", claim.name)).collect()
        }
        Report::HolderList { holders, .. } => holders.iter().filter_map(address).collect(),
        Report::FreeList { addresses, .. } => addresses.clone(),
        Report::FindingList { findings } => findings.iter().map(|finding| finding.object.clone()).collect(),
        Report::PoolDetails(details) => vec![pool(&details.pool)],
        Report::ReservationChange(change) => vec![format!("ipreservation.ipam.cluster.x-k8s.io/{}", change.name)],
        Report::ImportSummary(summary) => summary.problems.iter().map(|problem| problem.problem.clone()).collect(),
    }
}

/// `InClusterIPPool team-a/web`.
pub(crate) fn full(pool: &PoolName) -> String {
    let namespace = pool.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", pool.kind, pool.name)
}

fn short_kind(kind: &str) -> String {
    kind.replace("InCluster", "").replace("Pool", "")
}

fn pool_grid(pools: &[PoolLine], style: Style) -> Grid {
    let mut header = vec!["KIND", "NAME", "TOTAL", "USED", "FREE", "COOLING", "WAITING", "OCCUPANCY", "READY"];
    if style.namespaces || style.wide {
        header.insert(1, "NAMESPACE");
    }
    if style.wide {
        header.extend(["RESERVED", "OUTOFRANGE", "NETWORK", "REASON"]);
    }
    let mut grid = Grid::new(&header);
    for line in pools {
        let count = |count: Option<u64>| match count {
            None => "-".to_owned(),
            Some(count) if style.wide => count.to_string(),
            Some(count) => abbreviate(count),
        };
        let counts = line.counts.as_ref();
        let kind = if style.wide { line.pool.kind.clone() } else { short_kind(&line.pool.kind) };
        let color = if line.ready == "False" { Color::Red } else { Color::Green };
        let mut cells = vec![
            kind,
            line.pool.name.clone(),
            count(counts.map(|counts| counts.total)),
            count(counts.map(|counts| counts.used)),
            count(counts.map(|counts| counts.free)),
            count(counts.map(|counts| counts.cooling_down)),
            count(Some(line.waiting)),
            counts.map_or_else(|| "-".to_owned(), |counts| bar(counts.total, counts.free, style)),
            style.paint(&line.ready, color),
        ];
        if style.namespaces || style.wide {
            cells.insert(1, line.pool.namespace.clone().unwrap_or_default());
        }
        if style.wide {
            cells.push(count(counts.map(|counts| counts.reserved)));
            cells.push(count(counts.map(|counts| counts.out_of_range)));
            cells.push(line.network.clone().unwrap_or_default());
            cells.push(line.reason.clone().unwrap_or_default());
        }
        grid.row(cells);
    }
    grid
}

/// A bar of ten cells: the part of the addresses that is not free. A bar is full only if no address is free.
fn bar(total: u64, free: u64, style: Style) -> String {
    let taken = u128::from(total.saturating_sub(free)).saturating_mul(10);
    let full = if total == 0 { 0 } else { taken.div_ceil(u128::from(total)) };
    let full = usize::try_from(if free > 0 { full.min(9) } else { full }).unwrap_or_default();
    let color = match full {
        0..=6 => Color::Green,
        7..=8 => Color::Yellow,
        _ => Color::Red,
    };
    style.paint(&format!("{}{}", "#".repeat(full), ".".repeat(10_usize.saturating_sub(full))), color)
}

/// At most five characters, rounded down: `999`, `65.5k`, `1.0M`.
fn abbreviate(count: u64) -> String {
    if count < 10_000 {
        return count.to_string();
    }
    let units = [(1_000_000_000_000_000_000, "E"), (1_000_000_000_000_000, "P"), (1_000_000_000_000, "T")];
    let units = units.into_iter().chain([(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")]);
    let (unit, suffix) = units.into_iter().find(|(unit, _)| count >= *unit).unwrap_or((1, ""));
    let (whole, tenths) = (count / unit, count % unit / (unit / 10).max(1));
    if whole < 100 { format!("{whole}.{tenths}{suffix}") } else { format!("{whole}{suffix}") }
}

fn claim_grid(claims: &[ClaimLine], style: Style) -> Grid {
    let mut header = vec!["NAME", "POOL", "ADDRESS", "AGE", "STATE", "REASON"];
    if style.namespaces || style.wide {
        header.insert(0, "NAMESPACE");
    }
    if style.wide {
        header.extend(["CLUSTER", "MACHINE", "MESSAGE"]);
    }
    let mut grid = Grid::new(&header);
    for claim in claims {
        let kind = if style.wide { claim.pool.kind.clone() } else { short_kind(&claim.pool.kind) };
        let state = format!("{:?}", claim.state);
        let color = if claim.address.is_some() { Color::Green } else { Color::Yellow };
        let mut cells = vec![
            claim.name.clone(),
            format!("{kind}/{}", claim.pool.name),
            claim.address.clone().unwrap_or_else(|| "-".to_owned()),
            age(claim.created, style.now),
            style.paint(&state, color),
            claim.reason.clone().unwrap_or_default(),
        ];
        if style.namespaces || style.wide {
            cells.insert(0, claim.namespace.clone());
        }
        if style.wide {
            cells.extend([&claim.cluster, &claim.machine, &claim.message].map(|cell| cell.clone().unwrap_or_default()));
        }
        grid.row(cells);
    }
    grid
}

fn holder_grid(holders: &[Holder], style: Style) -> Grid {
    let mut header = vec!["ADDRESS", "STATE", "CLAIM", "MACHINE", "CLUSTER", "AGE"];
    if style.wide {
        header.extend(["POOL", "NETWORK", "IPADDRESS", "RESERVATION", "UNTIL"]);
    }
    let mut grid = Grid::new(&header);
    for holder in holders {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            holder.address.clone(),
            format!("{:?}", holder.state),
            text(&holder.claim),
            text(&holder.machine),
            text(&holder.cluster),
            age(holder.since, style.now),
        ];
        if style.wide {
            cells.push(full(&holder.pool));
            cells.extend([&holder.network, &holder.ip_address, &holder.reservation].map(text));
            cells.push(holder.until.map_or_else(|| "-".to_owned(), |until| until.to_string()));
        }
        grid.row(cells);
    }
    grid
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
