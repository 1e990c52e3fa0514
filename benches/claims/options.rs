//! What is to be measured.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measures how fast claims are bound and released, beside the bare writes of as many claims on the same API server.
#[derive(Parser)]
#[command(name = "claims", rename_all = "kebab-case")]
#[allow(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Options {
    /// The manager of another provider for the same kinds. It runs as an administrator. Without it, ours.
    #[arg(long)]
    pub(crate) manager: Option<PathBuf>,
    /// Flags for the manager beside --kubeconfig and --health-probe-bind-address, with spaces between.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) manager_flags: String,
    /// The series to run; without it those that take 20 to 30 minutes together.
    #[arg(long, value_delimiter = ',')]
    series: Vec<Series>,
    /// Run all series; two to three hours.
    #[arg(long, conflicts_with = "series")]
    all: bool,
    /// Run a few series, a tenth as long.
    #[arg(long, conflicts_with_all = ["series", "all"])]
    quick: bool,
    /// How many claims are made or deleted at the same time, and served by a floor.
    #[arg(long, default_value_t = 32, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) at_once: usize,
    /// How many claims each series makes, in place of its own number.
    #[arg(long)]
    count: Option<usize>,
    /// How many pools the claims are for, in the series into empty pools.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=200))]
    pub(crate) pools: usize,
    /// Multiplies all numbers of claims, and how long the claims come and go.
    #[arg(long)]
    scale: Option<f64>,
    /// Where all figures go.
    #[arg(long, default_value = "target/bench/claims.json")]
    pub(crate) json: PathBuf,
    /// Where the picture goes.
    #[arg(long, default_value = "target/bench/claims.svg")]
    pub(crate) svg: PathBuf,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Series {
    /// 500 claims into an empty pool, and their release.
    #[value(name = "empty-500")]
    Empty500,
    /// 3,000 claims.
    #[value(name = "empty-3000")]
    Empty3000,
    /// 10,000 claims.
    #[value(name = "empty-10000")]
    Empty10000,
    /// 200 more claims where 10,000 are bound, and their release.
    #[value(name = "more-10000")]
    More10000,
    /// 200 more claims where 100,000 are bound.
    #[value(name = "more-100000")]
    More100000,
    /// The manager is killed and started where 10,000 claims are bound.
    #[value(name = "restart-10000")]
    Restart10000,
    /// The same where 100,000 are.
    #[value(name = "restart-100000")]
    Restart100000,
    /// One claim at a time.
    #[value(name = "idle")]
    Idle,
    /// 3,000 claims for 50 pools.
    #[value(name = "pools-50")]
    Pools50,
    /// 5,000 claims wait for an exhausted pool, from which one address after the other is released.
    #[value(name = "exhausted")]
    Exhausted,
    /// 10,000 claims come and go for five minutes.
    #[value(name = "churn")]
    Churn,
    /// 1,000 overlapping pools of 4,096 entries and as many exclusions, one of which is edited each second.
    #[value(name = "large-pools")]
    LargePools,
    /// 5,000 claims with 256 KiB of annotations wait for an exhausted pool.
    #[value(name = "large-claims")]
    LargeClaims,
    /// 20 pools are deleted together where 100,000 claims are bound.
    #[value(name = "deleted-pools-100000")]
    DeletedPools100000,
}

impl Series {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// How many claims there are before the series begins.
    pub(crate) fn present(self) -> usize {
        match self {
            Self::More10000 | Self::Restart10000 => 10_000,
            Self::More100000 | Self::Restart100000 | Self::DeletedPools100000 => 100_000,
            _ => 0,
        }
    }

    /// How many claims the series makes.
    fn count(self) -> usize {
        match self {
            Self::Empty500 => 500,
            Self::Empty3000 | Self::Pools50 => 3_000,
            Self::Empty10000 | Self::Churn => 10_000,
            Self::More10000 | Self::More100000 | Self::Idle => 200,
            Self::Restart10000 | Self::Restart100000 | Self::DeletedPools100000 => 1,
            Self::LargePools => 1_000,
            Self::Exhausted | Self::LargeClaims => 5_000,
        }
    }
}

impl Options {
    /// The series to run.
    pub(crate) fn series(&self) -> Vec<Series> {
        use Series::{Empty500, Exhausted, Idle, More10000, Restart10000};
        if self.all {
            return Series::value_variants().to_vec();
        }
        if self.series.is_empty() {
            return vec![Empty500, More10000, Restart10000, Idle, Exhausted];
        }
        self.series.clone()
    }

    /// What numbers are multiplied with.
    pub(crate) fn scale(&self) -> f64 {
        self.scale.unwrap_or(if self.quick { 0.1 } else { 1.0 })
    }

    /// How many claims a series makes.
    pub(crate) fn count(&self, series: Series) -> usize {
        self.count.unwrap_or_else(|| self.scaled(series.count()))
    }

    /// How many claims there are before a series begins.
    pub(crate) fn present(&self, series: Series) -> usize {
        if series.present() == 0 { 0 } else { self.scaled(series.present()) }
    }

    /// A number of claims, multiplied.
    pub(crate) fn scaled(&self, count: usize) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let scaled = (count as f64 * self.scale()).round() as usize;
        scaled.max(1)
    }
}
