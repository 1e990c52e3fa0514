//! Prints the outcomes as text.

use crate::outcome::{Figure, Outcome, Target};

/// The table of rates, then all other figures.
pub(crate) fn print(outcomes: &[Outcome]) {
    let rated: Vec<_> = outcomes
        .iter()
        .flat_map(|outcome| outcome.lines.iter().map(move |line| (outcome, line)))
        .collect();
    if !rated.is_empty() {
        println!(
            "\n{:<15} {:<8} {:>7} {:>7} {:>7} {:>8} {:>9} {:>11} {:>7} {:>7} {:>7} {:>6} {:>6} {:>7} {:>15}",
            "",
            "",
            "present",
            "claims",
            "per s",
            "baseline",
            "with res.",
            "ratios",
            "p50 ms",
            "p99 ms",
            "longest",
            "writes",
            "reads",
            "CPU ms",
            "of API server"
        );
    }
    for (outcome, line) in rated {
        let phase = &line.phase;
        println!(
            "{:<15} {:<8} {:>7} {:>7} {:>7.0} {:>8.0} {:>9.0} {:>6.2}/{:<4.2} {:>7.0} {:>7.0} {:>7.0} {:>6.2} {:>6.2} {:>7.2} {:>4.1}/{:<4.1}/{:<5.1}",
            outcome.series,
            line.what,
            outcome.present,
            phase.claims,
            phase.per_second,
            line.baseline_per_second,
            line.reserving_baseline_per_second,
            line.of_baseline,
            line.of_reserving_baseline,
            phase.p50_ms,
            phase.p99_ms,
            phase.longest_ms,
            phase.writes(),
            phase.reads(),
            phase.processor_ms(),
            line.server_ms,
            line.baseline_server_ms,
            line.reserving_baseline_server_ms,
        );
    }
    println!();
    for outcome in outcomes {
        outcome
            .figures
            .iter()
            .for_each(|figure| print_figure(&outcome.series, figure));
    }
}

/// Prints one figure, and whether it meets its target.
pub(crate) fn print_figure(series: &str, figure: &Figure) {
    let wanted = match figure.target {
        None => String::new(),
        Some(Target::AtLeast(limit)) => format!("at least {limit}"),
        Some(Target::AtMost(limit)) => format!("at most {limit}"),
    };
    let verdict = match figure.is_reached() {
        None => "",
        Some(true) => "ok",
        Some(false) => "MISSED",
    };
    let Figure {
        name, value, unit, ..
    } = figure;
    let line = format!("{series:<15} {name:<42} {value:>10.2} {unit:<12} {wanted:<14} {verdict}");
    println!("{}", line.trim_end());
}
