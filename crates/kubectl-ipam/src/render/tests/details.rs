//! `show` and `who`.

use capi_ipam_api::{IPNetwork, IPSlice};
use capi_ipam_ledger::Observe;

use super::*;
use crate::objects::samples::ledger_of;

fn who(query: &str) -> Report {
    let block = Block::address(query.parse().unwrap());
    let objects = Objects::of([web()], addresses(), reservations(), claim_rows());
    let addresses = objects.addresses.iter().filter(|row| row.block == block);
    let reservations = objects.reservations.iter();
    let reservations = reservations.filter(|row| row.slot.block == block);
    Report::HolderList {
        address: query.to_owned(),
        pools: Some(matches_of(&objects, block)),
        holders: Some(holders(&objects, addresses, reservations)),
        blocks: Vec::new(),
    }
}

#[test]
fn who_names_pool_membership_and_holder() {
    for (query, file) in [
        ("10.0.0.4", "who-allocated.txt"),
        ("10.0.0.5", "who-cooling.txt"),
        ("10.0.0.6", "who-promised.txt"),
        ("10.0.0.7", "who-excluded-by-reservation.txt"),
        ("10.0.0.8", "who-free.txt"),
        ("10.0.0.2", "who-gateway.txt"),
        ("10.0.0.3", "who-excluded.txt"),
        ("10.0.0.99", "who-out-of-range.txt"),
    ] {
        golden(file, &text(&who(query), style()));
    }
}

fn shown(
    pool: &PoolRow,
    addresses: Vec<AddressRow>,
    reservations: Vec<ReservationRow>,
    claims: Vec<ClaimRow>,
) -> PoolDetails {
    details(
        pool,
        &Objects::of([pool.clone()], addresses, reservations, claims),
    )
}

fn details(pool: &PoolRow, objects: &Objects) -> PoolDetails {
    show(pool, objects, &ledger_of(objects))
}

#[test]
fn show_draws_map_holders_and_waiting_claims() {
    let pool = shown(&web(), addresses(), reservations(), claim_rows());
    assert_eq!(
        (pool.counts.total, pool.counts.used, pool.counts.free),
        (38, Some(1), Some(34))
    );
    assert_eq!(
        (
            pool.counts.reserved,
            pool.counts.cooling_down,
            pool.counts.out_of_range
        ),
        (Some(2), Some(1), Some(1))
    );
    let report = Report::PoolDetails(Box::new(pool));
    golden("show.txt", &text(&report, style()));
    golden(
        "show-color.txt",
        &text(
            &report,
            Style {
                color: true,
                ..style()
            },
        ),
    );
    golden(
        "show.json",
        &output::format(&report, &[], Format::Json, style()).unwrap(),
    );
}

#[test]
fn show_lists_ranges_and_draining_parts() {
    let spec = json!({
        "ranges": [
            { "addresses": ["10.0.1.0/29"], "prefix": 29, "gateway": "10.0.1.1" },
            { "addresses": ["10.0.0.3-10.0.0.6"], "prefix": 24 },
        ],
        "draining": ["10.0.1.0/29", "10.0.0.4"],
    });
    let ranges = pool("InClusterIPPool", "web", &spec, &Value::Null);
    let pool = shown(&ranges, addresses(), Vec::new(), Vec::new());
    let text = text(&Report::PoolDetails(Box::new(pool)), style());
    for line in [
        "  Range        10.0.1.0/29, prefix /29, gateway 10.0.1.1\n",
        "  Range        10.0.0.3-10.0.0.6, prefix /24\n",
        "  Draining     10.0.1.0/29, 10.0.0.4\n",
        "9 total, 1 used, 3 free, 0 reserved, 0 cooling down, 5 drained,\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        !text.contains("Ranges") && !text.contains("  Prefix"),
        "{text}"
    );
}

#[test]
fn map_of_the_largest_pool_has_blocks() {
    let spec = json!({ "addresses": ["::/0"], "prefix": 0, "allocateReservedIPAddresses": true });
    let all = pool("InClusterIPPool", "all", &spec, &Value::Null);
    let pool = shown(&all, Vec::new(), Vec::new(), Vec::new());
    let map = pool.map.known().unwrap();
    assert!(map.cells <= 512, "{}", map.cells);
    assert_eq!(map.rows.first().map(String::as_str), Some("::"));
    assert_eq!(
        (map.cell_size.as_str(), map.is_part),
        ("1", true),
        "the part in use"
    );
}

#[test]
fn map_shows_gaps_excluded_addresses_and_slices() {
    let spec = json!({
        "addresses": ["10.0.0.10-10.0.0.40", "10.0.0.72/29"], "prefix": 24, "gateway": "10.0.0.1",
        "excludedAddresses": ["10.0.0.20-10.0.0.22"], "slices": { "size": 8, "per": "Namespace" },
    });
    let web = pool("InClusterIPPool", "web", &spec, &Value::Null);
    let shown = shown(&web, Vec::new(), Vec::new(), Vec::new());
    let text = text(&Report::PoolDetails(Box::new(shown)), style());
    let map = "\
Map, 1 address per cell
  . free, x excluded, g gateway, - outside, | slice
  10.0.0.0   -g------|--......|....xxx.|........
  10.0.0.32  ........|.-------|--------|--------
  10.0.0.64  --------|........|--------|--------
";
    assert!(text.contains(map), "{text}");
}

#[test]
fn counts_and_map_without_a_permission_are_unknown() {
    let without = |kinds: &[Kind]| {
        let mut objects = Objects::of([web()], addresses(), reservations(), claim_rows());
        for kind in kinds {
            objects.deny(*kind);
        }
        details(&web(), &objects)
    };
    let blind = text_of(without(&[Kind::Address, Kind::Reservation, Kind::Claim]));
    for line in [
        "38 total, ? used, ? free, ? reserved, ? cooling down,\n",
        "Map: unknown",
        "Holders: unknown",
        "Waiting claims: unknown",
    ] {
        assert!(blind.contains(line), "{blind}");
    }
    let without_addresses = without(&[Kind::Address]);
    let held = without_addresses.holders.as_ref().unwrap().first().unwrap();
    assert_eq!(
        (held.state, &held.ip_address),
        (HolderState::Held, &Fact::Unknown),
        "whether it has an IPAddress"
    );
    let without_reservations = without(&[Kind::Reservation]);
    let counts = &without_reservations.counts;
    assert_eq!((counts.used, counts.free), (Some(1), None));
    let holders = without_reservations.holders.unwrap();
    assert_eq!(holders[0].reservation, Fact::Unknown);
    let text = text_of(without(&[Kind::Claim]));
    assert!(
        text.contains("team-a/vm-1           ?") && text.contains("Waiting claims: unknown"),
        "{text}"
    );
}

fn text_of(pool: PoolDetails) -> String {
    text(&Report::PoolDetails(Box::new(pool)), style())
}

#[test]
fn counts_in_a_network_fit_the_map_and_the_holders() {
    let pool_of = |name: &str| {
        let spec = json!({ "addresses": ["10.0.0.0/27"], "prefix": 24, "network": "lab",
                           "allocateReservedIPAddresses": true });
        let status =
            json!({ "observedGeneration": 1, "network": { "name": "lab", "phase": "Member" } });
        pool("InClusterIPPool", name, &spec, &status)
    };
    let (web, other) = (pool_of("web"), pool_of("other"));
    let mut addresses = vec![address("vm-1", "10.0.0.1")];
    for number in 2..7 {
        let mut row = address(&format!("db-{number}"), &format!("10.0.0.{number}"));
        row.pool = other.key.clone();
        addresses.push(row);
    }
    let objects = Objects::of([web.clone(), other], addresses, [], claim_rows());
    let shown = details(&web, &objects);
    let text = text_of(shown);
    let counts =
        "  Addresses    32 total, 1 used, 5 used by other pools of the network, 26 free,\n";
    assert!(
        text.contains(counts) && text.contains(" 0 reserved, "),
        "{text}"
    );
    assert!(
        text.contains("  # allocated, . free\n"),
        "only what is drawn: {text}"
    );
    assert!(text.contains("  10.0.0.0  .######"), "{text}");
    let header = text
        .lines()
        .find(|line| line.starts_with("ADDRESS"))
        .unwrap();
    assert!(header.ends_with("POOL"), "{text}");
    assert_eq!(text.matches("IP/team-a/other\n").count(), 5, "{text}");
}

#[test]
fn blocks_of_other_management_clusters_are_not_free() {
    let spec = json!({ "addresses": ["10.0.0.0/26"], "prefix": 24, "network": "lab",
                       "allocateReservedIPAddresses": true, "draining": ["10.0.0.12-10.0.0.15"] });
    let status =
        json!({ "observedGeneration": 1, "network": { "name": "lab", "phase": "Member" } });
    let web = pool("InClusterIPPool", "web", &spec, &status);
    let mut addresses = Vec::new();
    for number in 0..12 {
        addresses.push(address(
            &format!("vm-{number}"),
            &format!("10.0.0.{number}"),
        ));
    }
    let network: IPNetwork = serde_json::from_value(json!({
        "metadata": { "name": "lab" },
        "spec": { "namespaces": { "from": "All" }, "blocks": { "registry": "site", "size": 16 } },
    }))
    .unwrap();
    let objects = Objects::of([web.clone()], addresses, [], []);
    let mut ledger = ledger_of(&objects);
    ledger.apply_network(&network);
    ledger.set_management_cluster("site", "west-1");
    for (block, cluster) in [("10.0.0.0/28", "west-1"), ("10.0.0.32/28", "west-2")] {
        let slice: IPSlice = serde_json::from_value(json!({
            "metadata": { "name": format!("n.lab.{}", block.replace('/', "-")) },
            "spec": { "scope": "n.lab", "block": block, "assignedAt": CREATED, "confirmedAt": CREATED,
                      "owner": { "kind": "ManagementCluster", "name": cluster } },
        }))
        .unwrap();
        ledger.apply(&slice);
    }
    let shown = show(&web, &objects, &ledger);
    let text = text_of(shown);
    for line in [
        "16 total, 12 used, 0 free, 0 reserved, 0 cooling down, 4 drained,\n",
        "48 not in blocks of this management cluster\n",
        "  # allocated, d draining, b in another block\n",
        "  10.0.0.0   ############ddddbbbbbbbbbbbbbbbb\n",
        "  10.0.0.32  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn counts_are_repeated_after_long_lists() {
    let mut addresses = Vec::new();
    for number in 4..36 {
        addresses.push(address(
            &format!("vm-{number}"),
            &format!("10.0.0.{number}"),
        ));
    }
    let text = text_of(shown(&web(), addresses, Vec::new(), Vec::new()));
    let counts = "  Addresses    38 total, 32 used";
    assert_eq!(text.matches(counts).count(), 2, "{text}");
    let short = text_of(shown(&web(), Vec::new(), Vec::new(), Vec::new()));
    assert_eq!(short.matches("  Addresses ").count(), 1, "{short}");
}

#[test]
fn long_lists_are_cut_unless_wide() {
    let spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 });
    let large = pool("InClusterIPPool", "web", &spec, &Value::Null);
    let mut addresses = Vec::new();
    for number in 1..201 {
        addresses.push(address(
            &format!("vm-{number}"),
            &format!("10.0.0.{number}"),
        ));
    }
    let details = shown(&large, addresses, Vec::new(), Vec::new());
    let report = Report::PoolDetails(Box::new(details));
    let cut = text(&report, style());
    assert!(
        cut.contains("\n150 more of 200 are shown with -o wide\n"),
        "{cut}"
    );
    assert_eq!(cut.matches(" Allocated ").count(), 50);
    let wide = Style {
        wide: true,
        ..style()
    };
    let all = text(&report, wide);
    assert_eq!(all.matches(" Allocated ").count(), 200);
    assert!(!all.contains("more of"), "{all}");
}

#[test]
fn full_pool_is_ready_but_exhausted() {
    let conditions = json!([
        { "type": "Ready", "status": "True", "reason": "PoolReady" },
        { "type": "Exhausted", "status": "True", "reason": "NoFreeAddress", "message": "no free address" },
    ]);
    let spec = json!({ "addresses": ["10.0.0.2"], "prefix": 24 });
    let full = pool(
        "InClusterIPPool",
        "web",
        &spec,
        &json!({ "conditions": conditions }),
    );
    let text = text_of(shown(&full, Vec::new(), Vec::new(), Vec::new()));
    let expected =
        "  Ready        True, but Exhausted\n  Warning      Exhausted: no free address\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn pool_with_an_unusable_gateway_is_ready_but_says_so() {
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "PoolReady" }]);
    let spec = json!({ "addresses": ["10.0.0.2"], "prefix": 24, "gateway": "10.99.0.1" });
    let web = pool(
        "InClusterIPPool",
        "web",
        &spec,
        &json!({ "conditions": ready }),
    );
    let text = text_of(shown(&web, Vec::new(), Vec::new(), Vec::new()));
    let expected = "  Ready        True, but UnusableGateway\n  Warning      UnusableGateway: ";
    assert!(
        text.contains(expected) && text.contains("10.99.0.1"),
        "{text}"
    );
}

#[test]
fn holder_whose_claim_is_being_deleted_is_marked() {
    let mut claims = claim_rows();
    for claim in &mut claims {
        claim.deletion = Some(Box::new(Deletion {
            since: style().now,
            uid: String::new(),
            blockers: Vec::new(),
        }));
    }
    let shown = shown(&web(), addresses(), reservations(), claims);
    let holder = shown.holders.as_ref().unwrap().first().unwrap().clone();
    assert_eq!(holder.state, HolderState::Releasing);
    let who = Report::HolderList {
        address: "10.0.0.4".to_owned(),
        pools: Some(Vec::new()),
        holders: Some(vec![holder]),
        blocks: Vec::new(),
    };
    let text = text(&who, style());
    let expected = "10.0.0.4 of InClusterIPPool team-a/web: allocated, the claim is being deleted";
    assert!(text.contains(expected), "{text}");
}
