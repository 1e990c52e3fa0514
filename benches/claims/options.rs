//! Command line options, and the series.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use support::registry::Hub;

/// Measures how fast claims are bound and released, compared with the same API writes issued
/// directly.
#[derive(Parser)]
#[command(name = "claims", rename_all = "kebab-case")]
#[allow(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Options {
    /// The manager of another provider for the same kinds, which runs as an administrator. Default:
    /// this provider.
    #[arg(long)]
    pub(crate) manager: Option<PathBuf>,
    /// Additional flags for the manager, separated by spaces.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) manager_flags: String,
    /// Another manager to compare with on the same API server, alternately, instead of the series.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["manager", "series", "all"])]
    pub(crate) compare: Option<PathBuf>,
    /// Additional flags for the manager of --compare, separated by spaces.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) compare_flags: String,
    /// The parts of --compare: 500 and 3000 claims, one claim at a time, and claims beside 10000.
    #[arg(long, value_delimiter = ',', requires = "compare", default_value = "500,3000,idle,10000",
        value_parser = ["500", "3000", "idle", "10000"])]
    pub(crate) compare_parts: Vec<String>,
    /// The series to run.
    #[arg(long, value_delimiter = ',', default_value = "empty-500,more-10000,restart-10000,idle",
        value_parser = PossibleValuesParser::new(SERIES.map(|series| series.name)).map(|name| named(&name)))]
    series: Vec<&'static Series>,
    /// Run all series, which takes two to three hours.
    #[arg(long, conflicts_with = "series")]
    all: bool,
    /// Run a tenth of the claims and one round: less than two minutes for the default series.
    #[arg(long, conflicts_with = "all")]
    pub(crate) quick: bool,
    /// Let the baseline with reservation also watch the kinds of the contract, and write the
    /// conditions of bound claims.
    #[arg(long)]
    pub(crate) complete_baseline: bool,
    /// Write CPU profiles of the API server to this folder, of the first seconds of binding and
    /// releasing. They cost about a tenth of its speed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) profiles: Option<PathBuf>,
    /// The flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A series of measurements.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// The number of bound claims before the series.
    pub(crate) present: usize,
    /// The number of claims, or of objects of the background work.
    pub(crate) count: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// One claim at a time beside background work.
    Background(Work),
    /// A network that shares blocks, beside one that does not.
    Blocks(fn() -> Hub),
    /// Clusters that are created together, whose endpoints the webhook writes.
    Clusters,
    /// The component finalizer-at-creation, beside claims without it.
    Finalizer,
    /// One claim at a time.
    Idle,
    /// Each allocation policy of a pool, beside the default.
    Policies,
    /// Many claims at a time, in this number of pools.
    Rates(usize),
    /// A restart of the manager.
    Restart,
    /// Claims of many owners in a pool with many slices.
    Slices,
    /// A second active manager, beside one.
    TwoManagers,
}

/// The background work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Bound claims whose IPAddresses have no owners, as after a restore.
    Repair,
    /// Bound claims without reservations, as after a change from the Go provider.
    TakeOver,
    /// Claims that wait for an exhausted pool.
    Waiting,
    /// Pools that are deleted beside bound claims.
    DeletedPools,
    /// Pools whose specifications change.
    ChangedPools,
}

const SERIES: [Series; 23] = [
    series("empty-500", 0, 500, Kind::Rates(1)),
    series("empty-3000", 0, 3_000, Kind::Rates(1)),
    series("pools-50", 0, 3_000, Kind::Rates(50)),
    series("empty-10000", 0, 10_000, Kind::Rates(1)),
    series("idle", 0, 200, Kind::Idle),
    series("policies", 0, 300, Kind::Policies),
    series("finalizer-at-creation", 0, 500, Kind::Finalizer),
    series("clusters-16", 0, 16, Kind::Clusters),
    series("clusters-200", 0, 200, Kind::Clusters),
    series("two-managers", 0, 500, Kind::TwoManagers),
    series("slices-10000", 0, 1_000, Kind::Slices),
    series("blocks-nats", 0, 500, Kind::Blocks(Hub::nats)),
    series("blocks-kubernetes", 0, 500, Kind::Blocks(Hub::kubernetes)),
    series("repair-10000", 0, 10_000, Kind::Background(Work::Repair)),
    series(
        "takeover-10000",
        0,
        10_000,
        Kind::Background(Work::TakeOver),
    ),
    series("waiting-10000", 0, 10_000, Kind::Background(Work::Waiting)),
    series(
        "deleted-pools-10000",
        0,
        10_000,
        Kind::Background(Work::DeletedPools),
    ),
    series(
        "changed-pools",
        0,
        100,
        Kind::Background(Work::ChangedPools),
    ),
    series("more-10000", 10_000, 200, Kind::Rates(1)),
    series("restart-10000", 10_000, 1, Kind::Restart),
    series("more-100000", 100_000, 200, Kind::Rates(1)),
    series("restart-100000", 100_000, 1, Kind::Restart),
    series("policies-100000", 100_000, 300, Kind::Policies),
];
static ALL: [Series; 23] = SERIES;

const fn series(name: &'static str, present: usize, count: usize, kind: Kind) -> Series {
    Series {
        name,
        present,
        count,
        kind,
    }
}

fn named(name: &str) -> &'static Series {
    ALL.iter()
        .find(|series| series.name == name)
        .expect("the parser accepts known names only")
}

impl Options {
    pub(crate) fn series(&self) -> Vec<&'static Series> {
        if self.all {
            ALL.iter().collect()
        } else {
            self.series.clone()
        }
    }

    /// The number of rounds of a measurement.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.quick { 1 } else { usual }
    }

    pub(crate) fn scaled(&self, count: usize) -> usize {
        if self.quick {
            count.div_ceil(10)
        } else {
            count
        }
    }
}
