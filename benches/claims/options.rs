//! Command line options.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

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
    /// The parts of --compare. Default: all.
    #[arg(long, value_delimiter = ',', requires = "compare")]
    pub(crate) compare_parts: Vec<Part>,
    /// The series to run. Default: a selection that takes 20 to 30 minutes.
    #[arg(long, value_delimiter = ',')]
    series: Vec<Series>,
    /// Run all series, which takes two to three hours.
    #[arg(long, conflicts_with = "series")]
    all: bool,
    /// Run the default series with a tenth of the claims and one round, which takes less than two
    /// minutes.
    #[arg(long, conflicts_with_all = ["series", "all"])]
    pub(crate) quick: bool,
    /// The number of concurrent requests of the consumer and of the baseline.
    #[arg(long, default_value_t = 32, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) at_once: usize,
    /// The number of claims of each series, instead of its default.
    #[arg(long)]
    count: Option<usize>,
    /// A factor for all numbers of claims.
    #[arg(long)]
    scale: Option<f64>,
    /// Let the baseline with reservation also watch the kinds of the contract, and write the
    /// conditions of bound claims.
    #[arg(long)]
    pub(crate) complete_baseline: bool,
    /// Write CPU profiles of the API server to this folder, of the first seconds of binding and
    /// releasing. They cost about a tenth of its speed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) profiles: Option<PathBuf>,
    /// The output file for all figures.
    #[arg(long, default_value = "target/bench/claims.json")]
    pub(crate) json: PathBuf,
    /// The flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The background work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Background {
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

/// A part of a comparison of two managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// 500 claims in an empty pool, and their release.
    #[value(name = "500")]
    Claims500,
    /// 3,000 claims.
    #[value(name = "3000")]
    Claims3000,
    /// One claim at a time.
    #[value(name = "idle")]
    Idle,
    /// 200 claims beside 10,000 bound ones, and a restart.
    #[value(name = "10000")]
    Beside10000,
}

/// A series of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Series {
    /// 500 claims for an empty pool, and their release.
    #[value(name = "empty-500")]
    Empty500,
    /// 3,000 claims.
    #[value(name = "empty-3000")]
    Empty3000,
    /// 10,000 claims.
    #[value(name = "empty-10000")]
    Empty10000,
    /// 200 more claims beside 10,000 bound ones, and their release.
    #[value(name = "more-10000")]
    More10000,
    /// 200 more claims beside 100,000 bound ones.
    #[value(name = "more-100000")]
    More100000,
    /// A restart of the manager with 10,000 bound claims.
    #[value(name = "restart-10000")]
    Restart10000,
    /// A restart of the manager with 100,000 bound claims.
    #[value(name = "restart-100000")]
    Restart100000,
    /// 300 claims with each allocation policy of the pool, beside the default.
    #[value(name = "policies")]
    Policies,
    /// The same for a pool with 100,000 bound claims.
    #[value(name = "policies-100000")]
    Policies100000,
    /// 500 claims with the component finalizer-at-creation, beside those without it.
    #[value(name = "finalizer-at-creation")]
    FinalizerAtCreation,
    /// 500 claims with a second active manager, beside those with one.
    #[value(name = "two-managers")]
    TwoManagers,
    /// 1,000 owners with 10,000 slices: a restart, and 1,000 claims.
    #[value(name = "slices-10000")]
    Slices10000,
    /// 500 claims in a network that shares blocks through NATS, beside a network that does not; new
    /// blocks; 100,000 records of 1,000 management clusters.
    #[value(name = "blocks-nats")]
    BlocksNats,
    /// The same through another API server.
    #[value(name = "blocks-kubernetes")]
    BlocksKubernetes,
    /// One claim at a time, while the IPAddresses of 10,000 bound claims are repaired after a
    /// restore.
    #[value(name = "repair-10000")]
    Repair10000,
    /// One claim at a time, while 10,000 addresses of the Go provider are taken over.
    #[value(name = "takeover-10000")]
    TakeOver10000,
    /// One claim at a time, while 10,000 others wait for an exhausted pool.
    #[value(name = "waiting-10000")]
    Waiting10000,
    /// One claim at a time, while 20 pools are deleted beside 10,000 bound claims.
    #[value(name = "deleted-pools-10000")]
    DeletedPools10000,
    /// One claim at a time, while 100 pools change.
    #[value(name = "changed-pools")]
    ChangedPools,
    /// One claim at a time.
    #[value(name = "idle")]
    Idle,
    /// 3,000 claims for 50 pools.
    #[value(name = "pools-50")]
    Pools50,
}

impl Series {
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// The number of bound claims before the series.
    pub(crate) fn present(self) -> usize {
        match self {
            Self::More10000 | Self::Restart10000 => 10_000,
            Self::More100000 | Self::Restart100000 | Self::Policies100000 => 100_000,
            _ => 0,
        }
    }

    /// The background work of the series, beside which claims are created one at a time.
    pub(crate) fn background(self) -> Option<Background> {
        match self {
            Self::Repair10000 => Some(Background::Repair),
            Self::TakeOver10000 => Some(Background::TakeOver),
            Self::Waiting10000 => Some(Background::Waiting),
            Self::DeletedPools10000 => Some(Background::DeletedPools),
            Self::ChangedPools => Some(Background::ChangedPools),
            _ => None,
        }
    }

    /// The number of claims of the series.
    fn count(self) -> usize {
        match self {
            Self::Empty500
            | Self::FinalizerAtCreation
            | Self::TwoManagers
            | Self::BlocksNats
            | Self::BlocksKubernetes => 500,
            Self::Empty3000 | Self::Pools50 => 3_000,
            Self::Empty10000
            | Self::Repair10000
            | Self::TakeOver10000
            | Self::Waiting10000
            | Self::DeletedPools10000 => 10_000,
            Self::More10000 | Self::More100000 | Self::Idle => 200,
            Self::Restart10000 | Self::Restart100000 => 1,
            Self::Policies | Self::Policies100000 => 300,
            Self::Slices10000 => 1_000,
            Self::ChangedPools => 50,
        }
    }
}

impl Options {
    /// The series to run.
    pub(crate) fn series(&self) -> Vec<Series> {
        use Series::{Empty500, Idle, More10000, Restart10000};
        if self.all {
            return Series::value_variants().to_vec();
        }
        if self.series.is_empty() {
            return vec![Empty500, More10000, Restart10000, Idle];
        }
        self.series.clone()
    }

    /// Whether a part of a comparison runs.
    pub(crate) fn compares(&self, part: Part) -> bool {
        self.compare_parts.is_empty() || self.compare_parts.contains(&part)
    }

    /// The number of rounds of a measurement.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.quick { 1 } else { usual }
    }

    /// The factor for all numbers.
    pub(crate) fn scale(&self) -> f64 {
        self.scale.unwrap_or(if self.quick { 0.1 } else { 1.0 })
    }

    /// The number of claims of a series.
    pub(crate) fn count(&self, series: Series) -> usize {
        self.count.unwrap_or_else(|| self.scaled(series.count()))
    }

    /// The number of bound claims before a series.
    pub(crate) fn present(&self, series: Series) -> usize {
        if series.present() == 0 {
            0
        } else {
            self.scaled(series.present())
        }
    }

    /// A scaled number of claims.
    pub(crate) fn scaled(&self, count: usize) -> usize {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small number"
        )]
        let scaled = (count as f64 * self.scale()).round() as usize;
        scaled.max(1)
    }
}
