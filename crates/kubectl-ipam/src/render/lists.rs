//! The tables of lists.

use std::fmt::Write;

use capi_ipam_api::{AllocationEvent, counted};

use super::grid::{Cell, Grid, clean};
use super::style::{Color, Style};
use super::words::{UNKNOWN, age, fact, is_capped};
use crate::model::{
    ClaimLine, ClaimState, ClusterAddresses, Counts, Holder, NetworkLine, PlanAddresses, PlanLine,
    PlanPool, PoolLine, PoolName, SliceLine,
};

fn short_kind(kind: &str) -> String {
    kind.replace("InCluster", "").replace("Pool", "")
}

/// The color of the status of the condition Ready.
pub(super) fn ready_color(status: &str) -> Color {
    if status == "False" {
        Color::Red
    } else {
        Color::Green
    }
}

/// A kind as a table has it.
fn kind_of(pool: &PoolName, style: Style) -> String {
    if style.wide {
        pool.kind.clone()
    } else {
        short_kind(&pool.kind)
    }
}

/// Adds the namespace at the place of a column, if the style has it.
fn add_namespace(cells: &mut Vec<Cell>, place: usize, namespace: &str, style: Style) {
    if style.namespaces || style.wide {
        cells.insert(place, ("NAMESPACE", namespace.to_owned()));
    }
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

/// The lines of an allocation log.
pub(super) fn history(events: &[AllocationEvent], style: Style) -> Grid {
    Grid::of(events, |event| {
        let (pool, time) = (&event.pool, event.time.0);
        let claim = event.claim.clone().unwrap_or_default();
        let names = event.claim.iter();
        let name = names.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let namespace = pool.namespace.iter().map(|name| format!("{name}/"));
        let mut cells = vec![
            ("TIME", format!("{time:.0}")),
            ("EVENT", format!("{:?}", event.event)),
            ("CLAIM", name.collect()),
            ("CLUSTER", text(claim.cluster.as_ref())),
            ("POOL", namespace.chain([pool.name.clone()]).collect()),
        ];
        if style.wide {
            cells.extend([
                ("ADDRESS", event.address.clone()),
                ("CAUSE", format!("{:?}", event.cause)),
                ("MACHINE", text(event.machine.as_ref())),
                ("UID", text(claim.uid.as_ref())),
                ("NETWORK", text(event.network.as_ref())),
                ("PREVIOUS", text(event.previous_network.as_ref())),
                ("MANAGEMENT", text(event.management_cluster.as_ref())),
            ]);
        }
        cells
    })
}

pub(super) fn pools(pools: &[PoolLine], style: Style) -> Grid {
    Grid::of(pools, |line| {
        let counts = line.counts.as_ref();
        let count = |of: fn(&Counts) -> u64| {
            counts.map_or_else(|| "-".to_owned(), |counts| number(of(counts), style))
        };
        let bar = counts.map(|counts| bar(counts.total, counts.free, counts.used, style));
        let mut cells = vec![
            ("KIND", kind_of(&line.pool, style)),
            ("NAME", line.pool.name.clone()),
            ("TOTAL", count(|counts| counts.total)),
            ("USED", count(|counts| counts.used)),
            ("FREE", count(|counts| counts.free)),
            ("COOLING", count(|counts| counts.cooling_down)),
            ("WAITING", known(line.waiting, style)),
            ("OCCUPANCY", bar.unwrap_or_else(|| "-".to_owned())),
            ("READY", style.paint(&line.ready, ready_color(&line.ready))),
        ];
        let namespace = line.pool.namespace.as_deref();
        add_namespace(&mut cells, 1, namespace.unwrap_or_default(), style);
        if style.wide {
            cells.extend([
                ("RESERVED", count(|counts| counts.reserved)),
                ("QUARANTINED", count(|counts| counts.quarantined)),
                ("OUTOFRANGE", count(|counts| counts.out_of_range)),
                ("NETWORK", text(line.network.as_ref())),
                ("REASON", text(line.reason.as_ref())),
            ]);
        }
        cells
    })
}

fn plan_cells(line: &PlanLine, style: Style) -> Vec<Cell> {
    let of = line.addresses.as_ref();
    let machines = match line.max_surge {
        0 => line.replicas.to_string(),
        surge => format!("{}+{surge}", line.replicas),
    };
    let pool = of.map(|of| format!("{}/{}", short_kind(&of.pool.kind), of.pool.name));
    let count = |count: fn(&PlanAddresses) -> u64| {
        let count = of.map(|of| count(of).to_string());
        count.unwrap_or_default()
    };
    let mut cells = vec![
        ("KIND", line.kind.clone()),
        ("NAME", line.name.clone()),
        ("MACHINES", machines),
        (
            "POOL",
            pool.unwrap_or_else(|| "no claims observed".to_owned()),
        ),
        ("EACH", count(|of| of.per_machine)),
        ("NEEDED", count(|of| of.needed)),
        ("HELD", count(|of| of.held)),
        ("SHORT", count(|of| of.short)),
    ];
    add_namespace(&mut cells, 0, &line.namespace, style);
    if style.wide {
        let reason = of.and_then(|of| of.reason.clone());
        cells.push(("REASON", reason.unwrap_or_default()));
    }
    cells
}

/// The plan of each object that creates Machines, and the pools that are short of addresses.
pub(super) fn plan(lines: &[PlanLine], pools: &[PlanPool], style: Style) -> String {
    let mut text = Grid::of(lines, |line| plan_cells(line, style)).text(style.headers);
    for line in lines {
        let assumption = line
            .addresses
            .as_ref()
            .and_then(|of| of.assumption.as_ref());
        if let Some(assumption) = assumption {
            let _ = writeln!(text, "\nFor {} {}, {assumption}", line.kind, line.name);
        }
    }
    for pool in pools.iter().filter(|pool| pool.short > 0) {
        let _ = writeln!(
            text,
            "\n{} is short of {}: {} needed in addition, {} free",
            clean(&pool.pool.to_string()),
            counted(pool.short, "address", "addresses"),
            pool.needed,
            pool.free,
        );
    }
    text
}

/// A bar of ten cells: the part of the addresses that is not free. A bar is full only if no address
/// is free, and empty only if none is used: the counts of a very large pool are capped, so total and
/// free can be equal although some are.
pub(super) fn bar(total: u64, free: u64, used: u64, style: Style) -> String {
    let taken = total.saturating_sub(free).max(used.min(total));
    let taken = u128::from(taken).saturating_mul(10);
    let full = if total == 0 {
        0
    } else {
        taken.div_ceil(u128::from(total))
    };
    let full = usize::try_from(if free > 0 { full.min(9) } else { full }).unwrap_or_default();
    let color = match full {
        0..=6 => Color::Green,
        7..=8 => Color::Yellow,
        _ => Color::Red,
    };
    style.paint(
        &format!(
            "{}{}",
            "#".repeat(full),
            ".".repeat(10_usize.saturating_sub(full))
        ),
        color,
    )
}

/// A count: the wide output has all digits.
fn number(count: u64, style: Style) -> String {
    if style.wide {
        count.to_string()
    } else {
        abbreviate(count)
    }
}

/// At most five characters, rounded down: `999`, `65.5k`, `1.0M`.
pub(super) fn abbreviate(count: u64) -> String {
    if count < 10_000 {
        return count.to_string();
    }
    if is_capped(count) {
        return ">9.2E".to_owned();
    }
    let units = [
        (1_000_000_000_000_000_000, "E"),
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
    ];
    let units = units
        .into_iter()
        .chain([(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")]);
    let (unit, suffix) = units
        .into_iter()
        .find(|(unit, _)| count >= *unit)
        .unwrap_or((1, ""));
    let (whole, tenths) = (count / unit, count % unit / (unit / 10).max(1));
    if whole < 100 {
        format!("{whole}.{tenths}{suffix}")
    } else {
        format!("{whole}{suffix}")
    }
}

/// As [`number`], for one that can be unknown.
fn known(count: Option<u64>, style: Style) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |count| number(count, style))
}

pub(super) fn networks(networks: &[NetworkLine], style: Style) -> Grid {
    Grid::of(networks, |line| {
        let count = |count: u64| number(count, style);
        let ready = &line.state.ready;
        let mut cells = vec![
            ("NAME", line.name.clone()),
            ("POOLS", count(line.pools)),
            ("JOINING", count(line.joining)),
            ("LEAVING", count(line.leaving)),
            ("TOTAL", count(line.total)),
            ("USED", count(line.used)),
            ("FREE", count(line.free)),
            ("OCCUPANCY", bar(line.total, line.free, line.used, style)),
            ("READY", style.paint(ready, ready_color(ready))),
        ];
        if style.wide {
            let lengths = [line.ipv4_length, line.ipv6_length].into_iter().flatten();
            let lengths: Vec<String> = lengths.map(|length| format!("/{length}")).collect();
            cells.extend([
                ("LENGTHS", lengths.join(" ")),
                ("REASON", text(line.state.reason.as_ref())),
                ("MESSAGE", text(line.state.message.as_ref())),
            ]);
        }
        cells
    })
}

pub(super) fn clusters(clusters: &[ClusterAddresses], style: Style) -> Grid {
    Grid::of(clusters, |line| {
        let items = line.items.iter();
        let items: Vec<String> = items
            .map(|(item, address)| format!("{item}={}", fact(address)))
            .collect();
        let mut cells = vec![
            ("NAME", line.name.clone()),
            ("ADDRESSES", items.join(",")),
            ("MACHINES", line.machines.to_string()),
            ("WAITING", line.waiting.to_string()),
        ];
        add_namespace(&mut cells, 0, &line.namespace, style);
        if style.wide {
            let slices = line.slices.as_ref().map(|slices| slices.join(","));
            cells.push(("SLICES", slices.unwrap_or_else(|| UNKNOWN.to_owned())));
        }
        cells
    })
}

pub(super) fn claims(claims: &[ClaimLine], style: Style) -> Grid {
    Grid::of(claims, |claim| {
        // A misspelt kind is shown as it is.
        let of_kind = Style {
            wide: style.wide || claim.state == ClaimState::Unserved,
            ..style
        };
        let kind = kind_of(&claim.pool, of_kind);
        let color = match claim.state {
            ClaimState::Bound => Color::Green,
            _ => Color::Yellow,
        };
        let state = style.paint(&format!("{:?}", claim.state), color);
        let mut cells = vec![
            ("NAME", claim.name.clone()),
            ("POOL", format!("{kind}/{}", claim.pool.name)),
            ("ADDRESS", fact(&claim.address)),
            ("AGE", age(claim.created, style.now)),
            ("STATE", state),
            ("REASON", text(claim.reason.as_ref())),
        ];
        add_namespace(&mut cells, 0, &claim.namespace, style);
        if style.wide {
            cells.extend([
                ("CLUSTER", text(claim.cluster.as_ref())),
                ("MACHINE", text(claim.machine.as_ref())),
                ("MESSAGE", text(claim.message.as_ref())),
            ]);
        }
        cells
    })
}

pub(super) fn slices(slices: &[SliceLine], style: Style) -> Grid {
    Grid::of(slices, |slice| {
        let kind = if slice.pinned { "Pinned" } else { "Assigned" };
        let mut cells = vec![
            ("BLOCK", slice.block.clone()),
            ("OWNER", slice.owner.to_string()),
            ("USED", known(slice.used, style)),
            ("FREE", known(slice.free, style)),
            ("TOTAL", number(slice.total, style)),
            ("KIND", kind.to_owned()),
            ("EMPTY", age(slice.empty_since, style.now)),
        ];
        if style.wide {
            cells.push(("NAME", slice.name.clone()));
        }
        cells
    })
}

pub(super) fn holders(holders: &[Holder], style: Style) -> Grid {
    // The pools of a network show the addresses of each other.
    let has_pools = !style.wide && holders.iter().any(|it| it.network.known().is_some());
    Grid::of(holders, |holder| {
        let claim = holder.claim.clone();
        let mut cells = vec![
            ("ADDRESS", holder.address.clone()),
            ("STATE", format!("{:?}", holder.state)),
            ("CLAIM", claim.unwrap_or_else(|| "-".to_owned())),
            ("MACHINE", fact(&holder.machine)),
            ("CLUSTER", fact(&holder.cluster)),
            ("AGE", age(holder.since, style.now)),
        ];
        if style.wide {
            cells.extend([
                ("POOL", holder.pool.to_string()),
                ("NETWORK", fact(&holder.network)),
                ("IPADDRESS", fact(&holder.ip_address)),
                ("RESERVATION", fact(&holder.reservation)),
                ("UNTIL", fact(&holder.until)),
            ]);
        } else if has_pools {
            cells.push(("POOL", short(&holder.pool)));
        }
        cells
    })
}

/// A pool as commands accept it: `IP/team-a/web`, `GlobalIP/shared`.
fn short(pool: &PoolName) -> String {
    let kind = short_kind(&pool.kind);
    match &pool.namespace {
        Some(namespace) => format!("{kind}/{namespace}/{}", pool.name),
        None => format!("{kind}/{}", pool.name),
    }
}
