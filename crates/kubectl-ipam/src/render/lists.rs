//! The tables of lists.

use std::fmt::Write;

use capi_ipam_api::{AllocationEvent, counted};

use super::grid::{Grid, clean};
use super::style::{Color, Style};
use super::words::{UNKNOWN, age, fact, is_capped};
use crate::model::{
    ClaimLine, ClaimState, ClusterAddresses, Fact, Holder, NetworkLine, PlanLine, PlanPool,
    PoolLine, PoolName, SliceLine,
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

/// The lines of an allocation log.
pub(super) fn history(events: &[AllocationEvent], style: Style) -> Grid {
    let mut header = vec!["TIME", "EVENT", "CLAIM", "CLUSTER", "POOL"];
    if style.wide {
        header.extend([
            "ADDRESS",
            "CAUSE",
            "MACHINE",
            "UID",
            "NETWORK",
            "PREVIOUS",
            "MANAGEMENT",
        ]);
    }
    let mut grid = Grid::new(&header);
    for event in events {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (pool, time) = (&event.pool, event.time.0);
        let claim = event.claim.clone().unwrap_or_default();
        let name = event
            .claim
            .iter()
            .map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let namespace = pool.namespace.iter().map(|name| format!("{name}/"));
        let mut cells = vec![
            format!("{time:.0}"),
            format!("{:?}", event.event),
            name.collect(),
            text(&claim.cluster),
            namespace.chain([pool.name.clone()]).collect(),
        ];
        if style.wide {
            cells.push(event.address.clone());
            cells.push(format!("{:?}", event.cause));
            let rest = [
                &event.machine,
                &claim.uid,
                &event.network,
                &event.previous_network,
                &event.management_cluster,
            ];
            cells.extend(rest.map(text));
        }
        grid.row(cells);
    }
    grid
}

pub(super) fn pools(pools: &[PoolLine], style: Style) -> Grid {
    let mut header = vec![
        "KIND",
        "NAME",
        "TOTAL",
        "USED",
        "FREE",
        "COOLING",
        "WAITING",
        "OCCUPANCY",
        "READY",
    ];
    if style.namespaces || style.wide {
        header.insert(1, "NAMESPACE");
    }
    if style.wide {
        header.extend(["RESERVED", "QUARANTINED", "OUTOFRANGE", "NETWORK", "REASON"]);
    }
    let mut grid = Grid::new(&header);
    for line in pools {
        let count = |count: Option<u64>| match count {
            None => "-".to_owned(),
            Some(count) => number(count, style),
        };
        let counts = line.counts.as_ref();
        let kind = if style.wide {
            line.pool.kind.clone()
        } else {
            short_kind(&line.pool.kind)
        };
        let mut cells = vec![
            kind,
            line.pool.name.clone(),
            count(counts.map(|counts| counts.total)),
            count(counts.map(|counts| counts.used)),
            count(counts.map(|counts| counts.free)),
            count(counts.map(|counts| counts.cooling_down)),
            line.waiting
                .map_or_else(|| UNKNOWN.to_owned(), |waiting| count(Some(waiting))),
            counts.map_or_else(
                || "-".to_owned(),
                |counts| bar(counts.total, counts.free, counts.used, style),
            ),
            style.paint(&line.ready, ready_color(&line.ready)),
        ];
        if style.namespaces || style.wide {
            cells.insert(1, line.pool.namespace.clone().unwrap_or_default());
        }
        if style.wide {
            cells.push(count(counts.map(|counts| counts.reserved)));
            cells.push(count(counts.map(|counts| counts.quarantined)));
            cells.push(count(counts.map(|counts| counts.out_of_range)));
            cells.push(line.network.clone().unwrap_or_default());
            cells.push(line.reason.clone().unwrap_or_default());
        }
        grid.row(cells);
    }
    grid
}

/// The plan of each object that creates Machines, and the pools that are short of addresses.
pub(super) fn plan(lines: &[PlanLine], pools: &[PlanPool], style: Style) -> String {
    let mut header = vec![
        "KIND", "NAME", "MACHINES", "POOL", "EACH", "NEEDED", "HELD", "SHORT",
    ];
    if style.namespaces || style.wide {
        header.insert(0, "NAMESPACE");
    }
    if style.wide {
        header.push("REASON");
    }
    let mut grid = Grid::new(&header);
    for line in lines {
        let machines = match line.max_surge {
            0 => line.replicas.to_string(),
            surge => format!("{}+{surge}", line.replicas),
        };
        let mut cells = vec![line.kind.clone(), line.name.clone(), machines];
        match &line.addresses {
            None => cells.push("no claims observed".to_owned()),
            Some(of) => {
                let kind = short_kind(&of.pool.kind);
                cells.push(format!("{kind}/{}", of.pool.name));
                let counts = [of.per_machine, of.needed, of.held, of.short];
                cells.extend(counts.map(|count| count.to_string()));
                cells.extend(of.reason.clone().filter(|_| style.wide));
            }
        }
        if style.namespaces || style.wide {
            cells.insert(0, line.namespace.clone());
        }
        grid.row(cells);
    }
    let mut text = grid.text(style.headers);
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

pub(super) fn networks(networks: &[NetworkLine], style: Style) -> Grid {
    let mut header = vec![
        "NAME",
        "POOLS",
        "JOINING",
        "LEAVING",
        "TOTAL",
        "USED",
        "FREE",
        "OCCUPANCY",
        "READY",
    ];
    if style.wide {
        header.extend(["LENGTHS", "REASON", "MESSAGE"]);
    }
    let mut grid = Grid::new(&header);
    for line in networks {
        let count = |count: u64| number(count, style);
        let mut cells = vec![
            line.name.clone(),
            count(line.pools),
            count(line.joining),
            count(line.leaving),
            count(line.total),
            count(line.used),
            count(line.free),
            bar(line.total, line.free, line.used, style),
            style.paint(&line.ready, ready_color(&line.ready)),
        ];
        if style.wide {
            let lengths = [line.ipv4_length, line.ipv6_length].into_iter().flatten();
            cells.push(
                lengths
                    .map(|length| format!("/{length}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
            cells
                .extend([&line.reason, &line.message].map(|cell| cell.clone().unwrap_or_default()));
        }
        grid.row(cells);
    }
    grid
}

pub(super) fn clusters(clusters: &[ClusterAddresses], style: Style) -> Grid {
    let mut header = vec!["NAME", "ADDRESSES", "MACHINES", "WAITING"];
    if style.namespaces || style.wide {
        header.insert(0, "NAMESPACE");
    }
    if style.wide {
        header.push("SLICES");
    }
    let mut grid = Grid::new(&header);
    for line in clusters {
        let items = line.items.iter();
        let items: Vec<String> = items
            .map(|(item, address)| format!("{item}={}", fact(address)))
            .collect();
        let mut cells = vec![
            line.name.clone(),
            items.join(","),
            line.machines.to_string(),
            line.waiting.to_string(),
        ];
        if style.namespaces || style.wide {
            cells.insert(0, line.namespace.clone());
        }
        if style.wide {
            let slices = line.slices.as_ref().map(|slices| slices.join(","));
            cells.push(slices.unwrap_or_else(|| UNKNOWN.to_owned()));
        }
        grid.row(cells);
    }
    grid
}

pub(super) fn claims(claims: &[ClaimLine], style: Style) -> Grid {
    let mut header = vec!["NAME", "POOL", "ADDRESS", "AGE", "STATE", "REASON"];
    if style.namespaces || style.wide {
        header.insert(0, "NAMESPACE");
    }
    if style.wide {
        header.extend(["CLUSTER", "MACHINE", "MESSAGE"]);
    }
    let mut grid = Grid::new(&header);
    for claim in claims {
        // A misspelt kind is shown as it is.
        let is_whole = style.wide || claim.state == ClaimState::Unserved;
        let kind = if is_whole {
            claim.pool.kind.clone()
        } else {
            short_kind(&claim.pool.kind)
        };
        let state = format!("{:?}", claim.state);
        let color = if claim.state == ClaimState::Bound {
            Color::Green
        } else {
            Color::Yellow
        };
        let mut cells = vec![
            claim.name.clone(),
            format!("{kind}/{}", claim.pool.name),
            fact(&claim.address),
            age(claim.created, style.now),
            style.paint(&state, color),
            claim.reason.clone().unwrap_or_default(),
        ];
        if style.namespaces || style.wide {
            cells.insert(0, claim.namespace.clone());
        }
        if style.wide {
            cells.extend(
                [&claim.cluster, &claim.machine, &claim.message]
                    .map(|cell| cell.clone().unwrap_or_default()),
            );
        }
        grid.row(cells);
    }
    grid
}

pub(super) fn slices(slices: &[SliceLine], style: Style) -> Grid {
    let mut header = vec!["BLOCK", "OWNER", "USED", "FREE", "TOTAL", "KIND", "EMPTY"];
    if style.wide {
        header.push("NAME");
    }
    let mut grid = Grid::new(&header);
    for slice in slices {
        let count = |count: u64| number(count, style);
        let known = |number: Option<u64>| number.map_or_else(|| UNKNOWN.to_owned(), count);
        let mut cells = vec![
            slice.block.clone(),
            slice.owner.to_string(),
            known(slice.used),
            known(slice.free),
            count(slice.total),
            if slice.pinned { "Pinned" } else { "Assigned" }.to_owned(),
            age(slice.empty_since, style.now),
        ];
        if style.wide {
            cells.push(slice.name.clone());
        }
        grid.row(cells);
    }
    grid
}

pub(super) fn holders(holders: &[Holder], style: Style) -> Grid {
    let mut header = vec!["ADDRESS", "STATE", "CLAIM", "MACHINE", "CLUSTER", "AGE"];
    // The pools of a network show the addresses of each other.
    let has_pools = !style.wide && holders.iter().any(|it| it.network.known().is_some());
    if style.wide {
        header.extend(["POOL", "NETWORK", "IPADDRESS", "RESERVATION", "UNTIL"]);
    } else if has_pools {
        header.push("POOL");
    }
    let mut grid = Grid::new(&header);
    for holder in holders {
        let mut cells = vec![
            holder.address.clone(),
            format!("{:?}", holder.state),
            holder.claim.clone().unwrap_or_else(|| "-".to_owned()),
            fact(&holder.machine),
            fact(&holder.cluster),
            age(holder.since, style.now),
        ];
        if style.wide {
            cells.push(holder.pool.to_string());
            cells.extend([&holder.network, &holder.ip_address, &holder.reservation].map(fact));
            cells.push(match holder.until {
                Fact::Known(until) => until.to_string(),
                Fact::Absent => "-".to_owned(),
                Fact::Unknown => UNKNOWN.to_owned(),
            });
        } else if has_pools {
            cells.push(short(&holder.pool));
        }
        grid.row(cells);
    }
    grid
}

/// A pool as commands accept it: `IP/team-a/web`, `GlobalIP/shared`.
fn short(pool: &PoolName) -> String {
    let kind = short_kind(&pool.kind);
    match &pool.namespace {
        Some(namespace) => format!("{kind}/{namespace}/{}", pool.name),
        None => format!("{kind}/{}", pool.name),
    }
}
