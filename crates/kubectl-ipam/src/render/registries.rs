//! Registries of blocks, and what their records say.

use std::fmt::Write;

use capi_ipam_api::counted;

use super::grid::{Cell, Grid, clean};
use super::lists::ready_color;
use super::style::{Color, Style};
use super::words::{UNKNOWN, age};
use crate::model::{
    BlockLine, BlockState, ClusterLine, ClusterState, NetworkBlocksLine, RecordAction,
    RecordChange, RegistryCheck, RegistryLine, RegistryRelease,
};

/// The tables of `registry list`: registries, management clusters, networks, and what is no record.
pub(super) fn registries(registries: &[RegistryLine], style: Style) -> String {
    let mut all = Grid::default();
    let mut clusters = Grid::default();
    let mut networks = Grid::default();
    let mut problems = Grid::default();
    for line in registries {
        all.row(registry(line, style));
        for cluster in &line.clusters {
            clusters.row(self::cluster(&line.name, cluster, style));
        }
        for network in &line.networks {
            networks.row(self::network(&line.name, network, style));
        }
        for it in &line.problems {
            problems.row(vec![
                ("REGISTRY", line.name.clone()),
                ("RECORD", it.record.clone()),
                ("PROBLEM", it.problem.clone()),
            ]);
        }
    }
    let tables = [all, clusters, networks, problems];
    let mut text = String::new();
    for table in tables {
        let table = table.text(style.headers);
        if !text.is_empty() && !table.is_empty() {
            text.push('\n');
        }
        text.push_str(&table);
    }
    text
}

fn registry(line: &RegistryLine, style: Style) -> Vec<Cell> {
    let id = line.cluster_id.as_deref().unwrap_or(UNKNOWN);
    let mut cells = vec![
        ("NAME", line.name.clone()),
        ("CLUSTERID", id.to_owned()),
        (
            "READY",
            style.paint(&line.state.ready, ready_color(&line.state.ready)),
        ),
        ("REASON", line.state.reason.clone().unwrap_or_default()),
    ];
    if style.wide {
        let source = match &line.unread {
            Some(_) => "Status",
            None => "Records",
        };
        cells.push(("SOURCE", source.to_owned()));
        cells.push(("MESSAGE", line.state.message.clone().unwrap_or_default()));
    }
    cells
}

fn cluster(registry: &str, line: &ClusterLine, style: Style) -> Vec<Cell> {
    let color = match line.state {
        ClusterState::Alive => Color::Green,
        ClusterState::Stale | ClusterState::Unknown => Color::Yellow,
    };
    let this = if line.this { " (this)" } else { "" };
    vec![
        ("REGISTRY", registry.to_owned()),
        ("CLUSTER", format!("{}{this}", line.cluster)),
        ("BLOCKS", line.blocks.to_string()),
        ("SEEN", age(line.last_seen, style.now)),
        ("STATE", style.paint(&format!("{:?}", line.state), color)),
    ]
}

fn network(registry: &str, line: &NetworkBlocksLine, style: Style) -> Vec<Cell> {
    let number = |number: Option<u64>| match number {
        Some(number) => number.to_string(),
        None => UNKNOWN.to_owned(),
    };
    let conflicts = number(line.conflicts);
    let conflicts = if line.conflicts.is_some_and(|count| count > 0) {
        style.paint(&conflicts, Color::Red)
    } else {
        conflicts
    };
    vec![
        ("REGISTRY", registry.to_owned()),
        ("NETWORK", line.network.clone()),
        ("SIZE", number(line.size)),
        ("HELD", number(line.held)),
        ("SPARE", number(line.spare)),
        ("OTHERS", number(line.others)),
        ("CONFLICTS", conflicts),
    ]
}

/// The text of `registry check`.
pub(super) fn check(check: &RegistryCheck, style: Style) -> String {
    let grid = Grid::of(&check.blocks, |block| {
        let color = match block.state {
            BlockState::Free | BlockState::Held => Color::Green,
            _ => Color::Red,
        };
        let mut others = block.clusters.iter();
        let other = others.find(|id| **id != check.cluster_id);
        let used = block.used.unwrap_or_default();
        vec![
            ("BLOCK", block.block.clone()),
            ("USED", used.to_string()),
            ("STATE", style.paint(&format!("{:?}", block.state), color)),
            ("CLUSTER", other.cloned().unwrap_or_else(|| "-".to_owned())),
        ]
    });
    let mut text = grid.text(style.headers);
    for problem in &check.problems {
        let _ = writeln!(
            text,
            "{}: {}",
            style.paint("error", Color::Red),
            clean(problem)
        );
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "Network {}, IPRegistry {}, management cluster {}: {} of {} with addresses in use: {} held, {} free, {} in conflict{}",
        check.network,
        check.registry,
        check.cluster_id,
        counted(check.blocks.len(), "block", "blocks"),
        check.size,
        check.count(BlockState::Held),
        check.count(BlockState::Free),
        check.count(BlockState::Conflict),
        unreadable(check),
    );
    text
}

fn unreadable(check: &RegistryCheck) -> String {
    match check.count(BlockState::Unreadable) {
        0 => String::new(),
        count => format!(", {count} with a record that cannot be decoded"),
    }
}

/// The text of `registry release`.
pub(super) fn release(release: &RegistryRelease) -> String {
    record_change_lines(&release.changes, release.dry_run)
}

/// A line for each record that is changed.
pub(crate) fn record_change_lines(changes: &[RecordChange], is_dry_run: bool) -> String {
    let suffix = if is_dry_run { " (dry run)" } else { "" };
    let mut text = String::new();
    for change in changes {
        let network = change.network.as_deref().unwrap_or_default();
        let block = change.block.as_deref().unwrap_or_default();
        let holder = change.holder.as_deref().unwrap_or_default();
        let used = match change.used {
            Some(used) => format!(", with {} in use", counted(used, "address", "addresses")),
            None => String::new(),
        };
        let line = match change.action {
            RecordAction::Freed => format!("block {block} of network {network} freed{used}"),
            RecordAction::HandedOver => {
                format!(
                    "block {block} of network {network} handed over to {holder}, which uses it{used}"
                )
            }
            RecordAction::Withdrawn => {
                format!("block {block} of network {network}: {holder} is its only user now")
            }
            RecordAction::ClusterDeleted => format!("record {} deleted", change.record),
            RecordAction::Adopted => format!("record {} names this cluster", change.record),
            RecordAction::NetworkCreated => format!("record {} created", change.record),
            RecordAction::Unchanged => format!("record {} unchanged", change.record),
            RecordAction::Returning => format!(
                "block {block} of network {network} marked: the manager returns it unless it needs an address of it"
            ),
        };
        let _ = writeln!(text, "{}{suffix}", clean(&line));
    }
    text
}

/// Who has the blocks of an address.
pub(crate) fn block_holders(blocks: &[BlockLine]) -> String {
    let mut text = String::new();
    for block in blocks {
        let cluster = block.clusters.first();
        let cluster = cluster.map(String::as_str).unwrap_or_default();
        let note = block.note.as_deref().unwrap_or_default();
        let mut holder = match block.state {
            BlockState::Free => "no management cluster has it".to_owned(),
            BlockState::Unreadable | BlockState::Unknown => {
                format!("it is unknown which management cluster has it: {note}")
            }
            _ if block.is_own => format!("this management cluster ({cluster})"),
            _ => format!("management cluster {cluster}"),
        };
        if let Some((_, others)) = block.clusters.split_first()
            && !others.is_empty()
        {
            let _ = write!(holder, "; also used by {}", others.join(", "));
        }
        let line = format!(
            "Block {} of network {}: {holder}",
            block.block, block.network
        );
        let _ = writeln!(text, "{}", clean(&line));
    }
    text
}
