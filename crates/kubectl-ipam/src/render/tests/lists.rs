//! The tables of lists.

use super::*;

#[test]
fn pools_of_all_kinds_are_in_one_table() {
    let report = Report::PoolList {
        pools: pools(
            &all_pools().iter().collect::<Vec<_>>(),
            &Objects::default(),
            &claim_rows(),
        ),
    };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("pools.txt", &table);
    golden(
        "pools-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
    for (format, file) in [
        (Format::Json, "pools.json"),
        (Format::Yaml, "pools.yaml"),
        (Format::Name, "pools-name.txt"),
    ] {
        golden(
            file,
            &output::format(&report, &[], format, style()).unwrap(),
        );
    }
    golden(
        "pools-color.txt",
        &text(
            &report,
            Style {
                color: true,
                ..style()
            },
        ),
    );
}

#[test]
fn networks_show_counts_and_moving_pools() {
    let report = Report::NetworkList {
        networks: network_rows().iter().map(network_line).collect(),
    };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("networks.txt", &table);
    golden(
        "networks-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
    for (format, file) in [
        (Format::Json, "networks.json"),
        (Format::Yaml, "networks.yaml"),
        (Format::Name, "networks-name.txt"),
    ] {
        golden(
            file,
            &output::format(&report, &[], format, style()).unwrap(),
        );
    }
}

#[test]
fn claims_show_address_state_and_reason() {
    let objects = Objects::of([], addresses(), [], claim_rows());
    let report = Report::ClaimList {
        claims: claims(objects.served(), &objects),
    };
    golden("claims.txt", &text(&report, style()));
    golden(
        "claims-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
}

#[test]
fn numbers_have_at_most_five_characters() {
    for (count, text) in [
        (9999, "9999"),
        (65_536, "65.5k"),
        (999_999, "999k"),
        (1_000_000, "1.0M"),
    ] {
        assert_eq!(abbreviate(count), text);
    }
    assert_eq!(abbreviate(i64::MAX.unsigned_abs()), ">9.2E", "or more");
}

#[test]
fn bar_is_full_only_without_a_free_address() {
    assert_eq!(bar(1000, 1, 999, style()), "#########.");
    assert_eq!(bar(1000, 0, 1000, style()), "##########");
    assert_eq!(bar(0, 0, 0, style()), "..........");
    let max = i64::MAX.unsigned_abs();
    assert_eq!(
        bar(max, max, 9, style()),
        "#.........",
        "the counts are capped"
    );
}

#[test]
fn pool_that_is_short_is_named_below_the_plan() {
    let short = |needed: u64, short: u64| {
        let pool = PlanPool {
            pool: (&PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web")).into(),
            free: needed.saturating_sub(short),
            needed,
            short,
            missing: 0,
        };
        let report = Report::RolloutPlan {
            lines: Vec::new(),
            pools: vec![pool],
        };
        let text = text(&report, style());
        text.lines().last().unwrap_or_default().to_owned()
    };
    let named = "InClusterIPPool team-a/web is short of ";
    let one = format!("{named}1 address: 1 needed in addition, 0 free");
    assert_eq!(short(1, 1), one);
    let two = format!("{named}2 addresses: 20003 needed in addition, 20001 free");
    assert_eq!(short(20_003, 2), two);
}
