//! A pool, and a holder, in full.

use std::collections::BTreeSet;
use std::fmt::Write;

use capi_ipam_api::{AllocationOrder, ReclaimPolicy, SliceOwnerKind, SlicePolicy, VerifyMode};

use super::grid::{Grid, clean};
use super::lists;
use super::style::{Color, Style};
use super::words::{UNKNOWN, age, fact, number, number_or_unknown, wrapped};
use crate::model::{Cell, Fact, Holder, HolderState, OccupancyMap, PoolDetails};

/// Cells in one row of the map.
const ROW: u64 = crate::model::ROW;
/// Characters before the value of a field.
const INDENT: usize = 15;
/// Rows of a list that are shown without `-o wide`.
const MAX_LISTED: usize = 50;
/// Lines of a terminal, after which the counts are repeated.
const MAX_LINES: usize = 40;

/// The text of `show`.
pub(crate) fn details(pool: &PoolDetails, style: Style) -> String {
    format!("{}{}", head(pool), body(pool, style))
}

/// A line of a field; nothing for an empty value.
fn line(name: &str, value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!("  {name:<12} {}\n", clean(value))
    }
}

/// What the pool itself tells.
pub(crate) fn head(pool: &PoolDetails) -> String {
    let mut text = format!("{}\n", pool.pool);
    let mut field = |name: &str, value: &str| text.push_str(&line(name, value));
    field("Ready", &readiness(pool));
    field("Problem", pool.problem.as_deref().unwrap_or_default());
    pool.warnings
        .iter()
        .for_each(|warning| field("Warning", warning));
    field("Network", pool.network.as_deref().unwrap_or_default());
    field("Ranges", &pool.ranges.join(", "));
    field("Excluded", &pool.excluded.join(", "));
    field("Gateway", pool.gateway.as_deref().unwrap_or_default());
    if !pool.ranges.is_empty() || pool.more_ranges.is_empty() {
        field("Prefix", &format!("/{}", pool.prefix_length));
    }
    pool.more_ranges
        .iter()
        .for_each(|range| field("Range", range));
    field("Draining", &pool.draining.join(", "));
    if pool.cooldown_seconds > 0 {
        field("Cool-down", &format!("{}s", pool.cooldown_seconds));
    }
    if pool.order != format!("{:?}", AllocationOrder::default()) {
        field("Order", &pool.order);
    }
    if pool.sticky {
        field("Sticky", "claims get the former address of their name back");
    }
    if pool.requests {
        field("Requests", "claims may request an address");
    }
    field(
        "Slices",
        &pool
            .slice_policy
            .as_ref()
            .map(slice_policy)
            .unwrap_or_default(),
    );
    field("Reclaim", &reclaim(&pool.reclaim));
    field("Metadata", &pool.address_metadata.join(", "));
    field("Access", &pool.access.join("; "));
    text
}

/// Whether a pool is ready, with what is wrong with it in one word: a full pool is ready, but of no
/// use.
fn readiness(pool: &PoolDetails) -> String {
    let ready = &pool.ready;
    if let Some(reason) = &pool.reason {
        return format!("{ready} ({reason})");
    }
    let mut conditions = Vec::new();
    for warning in &pool.warnings {
        conditions.extend(warning.split(':').next());
    }
    if conditions.is_empty() {
        ready.clone()
    } else {
        format!("{ready}, but {}", conditions.join(", "))
    }
}

fn slice_policy(policy: &SlicePolicy) -> String {
    let owner = match policy.per {
        SliceOwnerKind::Label => format!(
            "value of the label {}",
            policy.label.as_deref().unwrap_or_default()
        ),
        kind => format!("{kind:?}"),
    };
    let most = policy
        .most_each
        .map(|most| format!(", at most {most} each"))
        .unwrap_or_default();
    let keep = policy.keep_seconds.map_or_else(
        || "until the owner is deleted".to_owned(),
        |seconds| format!("for {seconds}s, or until the owner is deleted"),
    );
    format!(
        "of {} for each {owner}{most}; empty slices are kept {keep}",
        policy.size
    )
}

fn reclaim(policy: &ReclaimPolicy) -> String {
    let released = policy.terminating.map(|it| {
        format!(
            "claims release their address {}s after the deletion",
            it.after_seconds
        )
    });
    let verified = policy.verify.filter(|mode| *mode == VerifyMode::Report);
    let verified = verified.map(|_| "addresses are compared with those of Machines".to_owned());
    released
        .into_iter()
        .chain(verified)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The counts, which add up to the total.
fn counts(pool: &PoolDetails) -> String {
    let counts = &pool.counts;
    let others = counts.in_other_pools.unwrap_or_default();
    // The status has both in one number.
    let reserved = counts
        .reserved
        .map(|reserved| reserved.saturating_sub(others));
    let mut parts = vec![format!("{} total", number(counts.total))];
    let mut part = |count: Option<u64>, meaning: &str| {
        parts.push(format!("{} {meaning}", number_or_unknown(count)));
    };
    part(counts.used, "used");
    if others > 0 {
        part(Some(others), "used by other pools of the network");
    }
    part(counts.free, "free");
    part(reserved, "reserved");
    part(counts.cooling_down, "cooling down");
    if counts.quarantined != Some(0) {
        part(counts.quarantined, "quarantined");
    }
    if counts.drained != Some(0) {
        part(counts.drained, "drained");
    }
    part(counts.out_of_range, "out of range");
    if counts.in_other_blocks != Some(0) {
        part(
            counts.in_other_blocks,
            "not in blocks of this management cluster",
        );
    }
    let noun = if pool.pool.kind.contains("Prefix") {
        "Prefixes"
    } else {
        "Addresses"
    };
    format!("  {noun:<12} {}\n", wrapped(&parts, INDENT))
}

/// Adds a list with its title; nothing for an empty one. Without `-o wide` a long list is cut.
fn table<T>(
    text: &mut String,
    title: &str,
    rows: Option<&[T]>,
    style: Style,
    grid: fn(&[T], Style) -> Grid,
) {
    let Some(rows) = rows else {
        let _ = writeln!(text, "\n{title}: unknown");
        return;
    };
    if rows.is_empty() {
        return;
    }
    let most = if style.wide { rows.len() } else { MAX_LISTED };
    let shown = rows.get(..most).unwrap_or(rows);
    let _ = write!(text, "\n{title}\n{}", grid(shown, style).text(true));
    let more = rows.len().saturating_sub(shown.len());
    if more > 0 {
        let _ = writeln!(text, "{more} more of {} are shown with -o wide", rows.len());
    }
}

/// What addresses, reservations and claims tell.
pub(crate) fn body(pool: &PoolDetails, style: Style) -> String {
    let counts = counts(pool);
    let mut text = counts.clone();
    let next = match &pool.next {
        Fact::Absent => String::new(),
        Fact::Unknown => UNKNOWN.to_owned(),
        Fact::Known(addresses) => addresses.join(", "),
    };
    text.push_str(&line("Next", &next));
    table(
        &mut text,
        "Slices",
        pool.slices.as_deref(),
        style,
        lists::slices,
    );
    match &pool.map {
        Fact::Absent => {}
        Fact::Unknown => text.push_str("\nMap: unknown\n"),
        Fact::Known(map) => {
            text.push('\n');
            text.push_str(&draw(map, style));
        }
    }
    table(
        &mut text,
        "Holders",
        pool.holders.as_deref(),
        style,
        lists::holders,
    );
    table(
        &mut text,
        "Out of range",
        pool.out_of_range.as_deref(),
        style,
        lists::holders,
    );
    let of_claims = Style {
        namespaces: true,
        ..style
    };
    table(
        &mut text,
        "Waiting claims",
        pool.waiting.as_deref(),
        of_claims,
        lists::claims,
    );
    // Long lists have scrolled the counts away.
    if text.lines().count() > MAX_LINES {
        let _ = write!(text, "\n{}\n{counts}", pool.pool);
    }
    text
}

/// One character per cell, 32 cells per row, each row with its first address. Rows without an
/// address of the pool are left out.
fn draw(map: &OccupancyMap, style: Style) -> String {
    let part = if map.is_part {
        " of the part in use"
    } else {
        ""
    };
    let mut rows = String::new();
    let mut drawn = BTreeSet::new();
    let width = map.rows.iter().map(String::len).max().unwrap_or_default();
    let mut cells = map.used.iter().peekable();
    for (row, start) in (0_u64..).zip(&map.rows) {
        let first = row.saturating_mul(ROW);
        let end = first.saturating_add(ROW).min(map.cells);
        let mut line = String::new();
        let mut letters = BTreeSet::new();
        let mut is_of_pool = false;
        for index in first..end {
            let cell = cells.next_if(|cell| cell.index == index);
            is_of_pool |= cell.is_none_or(is_of_the_pool);
            // The border of a slice, except at the begin of a row, which is one anyway.
            if index > first && map.slices.binary_search(&index).is_ok() {
                line.push_str(BORDER);
                letters.insert(BORDER);
            }
            let (letter, color) = cell.map_or(FREE, symbol);
            line.push_str(&style.paint(letter, color));
            letters.insert(letter);
        }
        if is_of_pool {
            let _ = writeln!(rows, "  {start:<width$}  {line}");
            drawn.append(&mut letters);
        }
    }
    let legend = wrapped(&legend(&drawn), 2);
    format!("Map{part}, {} per cell\n  {legend}\n{rows}", unit(map))
}

/// What a cell of a map contains: `1 address`, `256 prefixes`.
fn unit(map: &OccupancyMap) -> String {
    let is_of_prefixes = map.rows.iter().any(|row| row.contains('/'));
    match (map.cell_size.as_str(), is_of_prefixes) {
        ("1", false) => "1 address".to_owned(),
        ("1", true) => "1 prefix".to_owned(),
        (size, false) => format!("{size} addresses"),
        (size, true) => format!("{size} prefixes"),
    }
}

/// Whether a cell contains an address of the pool, or its gateway.
fn is_of_the_pool(cell: &Cell) -> bool {
    cell.outside == 0 || cell.gateway || !cell.unusable
}

/// What the letter of a cell means, and its color.
type Symbol = (&'static str, Color);

const FREE: Symbol = (".", Color::Green);
const PARTLY: Symbol = ("+", Color::Yellow);
const ALLOCATED: Symbol = ("#", Color::Blue);
const RESERVED: Symbol = ("r", Color::Yellow);
const COOLING_DOWN: Symbol = ("c", Color::Cyan);
const DRAINING: Symbol = ("d", Color::Magenta);
const OTHER_BLOCK: Symbol = ("b", Color::Magenta);
const EXCLUDED: Symbol = ("x", Color::Gray);
const GATEWAY: Symbol = ("g", Color::Gray);
const OUTSIDE: Symbol = ("-", Color::Gray);
/// Between two slices.
const BORDER: &str = "|";

fn symbol(cell: &Cell) -> Symbol {
    if cell.unusable {
        return match (cell.gateway, cell.other_blocks, cell.excluded) {
            (true, _, _) => GATEWAY,
            (false, 0, 0) => OUTSIDE,
            (false, 0, _) => EXCLUDED,
            (false, _, _) => OTHER_BLOCK,
        };
    }
    let counts = (
        cell.allocated,
        cell.reserved,
        cell.cooling_down,
        cell.draining,
    );
    match counts {
        (0, 0, 0, 0) => FREE,
        _ if !cell.full => PARTLY,
        (0, 0, 0, _) => DRAINING,
        (0, 0, _, _) => COOLING_DOWN,
        (0, _, _, _) => RESERVED,
        _ => ALLOCATED,
    }
}

/// The letters that were drawn, and what they mean.
fn legend(drawn: &BTreeSet<&str>) -> Vec<String> {
    let all = [
        (ALLOCATED.0, "allocated"),
        (PARTLY.0, "partly"),
        (RESERVED.0, "reserved"),
        (COOLING_DOWN.0, "cooling down"),
        (FREE.0, "free"),
        (DRAINING.0, "draining"),
        (OTHER_BLOCK.0, "in another block"),
        (EXCLUDED.0, "excluded"),
        (GATEWAY.0, "gateway"),
        (OUTSIDE.0, "outside"),
        (BORDER, "slice"),
    ];
    let mut entries = Vec::new();
    for (letter, meaning) in all {
        if drawn.contains(letter) {
            entries.push(format!("{letter} {meaning}"));
        }
    }
    entries
}

/// The text of one holder of `who`.
pub(super) fn holder(holder: &Holder, style: Style) -> String {
    let mut text = String::new();
    let state = match holder.state {
        HolderState::Allocated => "allocated",
        HolderState::Releasing => "allocated, the claim is being deleted",
        HolderState::Allocating => "being allocated",
        HolderState::Held => "held for a claim",
        HolderState::Promised => "reserved for a claim",
        HolderState::Excluded => "excluded by a reservation",
        HolderState::CoolingDown => "cooling down",
        HolderState::Quarantined => "quarantined",
    };
    let _ = writeln!(text, "\n{} of {}: {state}", holder.address, holder.pool);
    let claim = if holder.state == HolderState::CoolingDown {
        "Last claim"
    } else {
        "Claim"
    };
    let fields = [
        ("Network", &holder.network),
        (
            claim,
            &holder.claim.clone().map_or(Fact::Absent, Fact::Known),
        ),
        ("Machine", &holder.machine),
        ("Cluster", &holder.cluster),
        ("IPAddress", &holder.ip_address),
        ("Reservation", &holder.reservation),
    ];
    for (name, value) in fields {
        if !value.is_absent() {
            text.push_str(&line(name, &fact(value)));
        }
    }
    text.push_str(&line(
        "Conflict",
        holder.conflict.as_deref().unwrap_or_default(),
    ));
    if let Some(since) = holder.since {
        let age = age(holder.since, style.now);
        text.push_str(&line("Since", &format!("{since} ({age})")));
    }
    if !holder.until.is_absent() {
        text.push_str(&line("Until", &fact(&holder.until)));
    }
    text
}
