//! Blocks of a network that several management clusters share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dns::is_dns_label;
use super::field_problem::FieldProblem;
use super::slice_policy::MAX_SIZE;

/// How long an empty block is kept by default, in seconds.
const DEFAULT_KEEP_SECONDS: i64 = 7 * 24 * 3600;
/// How long after the return of a block no other management cluster takes it by default, in
/// seconds.
pub(crate) const DEFAULT_QUARANTINE_SECONDS: i64 = 7 * 24 * 3600;
/// The number of free blocks that are held ahead by default.
const DEFAULT_SPARE: i64 = 1;

/// How a network shares its ranges with other management clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedBlocks {
    /// Name of the IPRegistry. Immutable while spec.blocks is set.
    #[schemars(length(min = 1, max = 63))]
    pub registry: String,
    /// Number of addresses, or prefixes, of a block: a power of two, the same in all management
    /// clusters. Immutable while the network has blocks.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub size: i64,
    /// Maximum number of blocks of this management cluster. By default there is no limit, but claims
    /// that request an address take no further block if it uses a quarter of the blocks of the pool.
    /// Blocks with addresses in use are taken also beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub most: Option<i64>,
    /// Number of free blocks that are taken ahead, so that a claim seldom waits for the registry.
    /// The default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub spare: Option<i64>,
    /// Seconds for which a block without an address in use is kept before it is returned. The
    /// default is 604800, a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_seconds: Option<i64>,
    /// Seconds after the return of a block during which no other management cluster takes it:
    /// longer than the age of the oldest backup that is restored. The longest one of all management
    /// clusters counts. The default is 604800, a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quarantine_seconds: Option<i64>,
}

/// The counts of the blocks of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockStatus {
    /// Blocks of this management cluster.
    pub held: i64,
    /// Those without an address in use.
    pub spare: i64,
    /// Blocks of other management clusters.
    pub others: i64,
    /// Blocks that another management cluster uses as well.
    pub conflicts: i64,
}

/// What the shared blocks of a network mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// The name of the IPRegistry.
    pub registry: String,
    /// The number of addresses or prefixes of a block is two to the power of this.
    pub shift: u32,
    /// The maximum number of blocks of this management cluster.
    pub most: Option<usize>,
    /// The number of free blocks that are taken ahead.
    pub spare: usize,
    /// How long a block without an address in use is kept, in seconds.
    pub keep_seconds: i64,
    /// How long after the return of a block no other management cluster takes it, in seconds.
    pub quarantine_seconds: i64,
}

impl SharedBlocks {
    /// Parses the settings; fails with all problems.
    pub fn rules(&self) -> Result<BlockRules, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        let mut problem = |field: &'static str, value: Value, text: String| {
            problems.push(FieldProblem::new(field, value, text));
        };
        if !is_dns_label(&self.registry) {
            let text = "must be the name of an IPRegistry, a DNS label".to_owned();
            problem("spec.blocks.registry", self.registry.as_str().into(), text);
        }
        let size = u32::try_from(self.size).unwrap_or_default();
        if !size.is_power_of_two() || self.size > MAX_SIZE {
            let text = format!("must be a power of two between 1 and {MAX_SIZE}");
            problem("spec.blocks.size", self.size.into(), text);
        }
        for (field, value, min) in [
            ("spec.blocks.most", self.most, 1),
            ("spec.blocks.spare", self.spare, 0),
            ("spec.blocks.keepSeconds", self.keep_seconds, 0),
            ("spec.blocks.quarantineSeconds", self.quarantine_seconds, 0),
        ] {
            if let Some(value) = value.filter(|value| *value < min) {
                problem(field, value.into(), format!("must be at least {min}"));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let count = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(BlockRules {
            registry: self.registry.clone(),
            shift: size.checked_ilog2().unwrap_or_default(),
            most: self.most.map(count),
            spare: count(self.spare.unwrap_or(DEFAULT_SPARE)),
            keep_seconds: self.keep_seconds.unwrap_or(DEFAULT_KEEP_SECONDS),
            quarantine_seconds: self
                .quarantine_seconds
                .unwrap_or(DEFAULT_QUARANTINE_SECONDS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_names_its_field() {
        let valid = SharedBlocks {
            registry: "site".to_owned(),
            size: 64,
            ..SharedBlocks::default()
        };
        let rules = valid.rules().unwrap();
        assert_eq!((rules.shift, rules.spare), (6, 1));
        let week = 604_800;
        assert_eq!((rules.keep_seconds, rules.quarantine_seconds), (week, week));
        let wrong = SharedBlocks {
            registry: "Site".to_owned(),
            size: 65,
            most: Some(0),
            spare: Some(-1),
            keep_seconds: Some(-1),
            quarantine_seconds: Some(-1),
        };
        let problems = wrong.rules().unwrap_err();
        let fields: Vec<_> = problems.iter().map(|problem| &*problem.field).collect();
        let names = [
            "registry",
            "size",
            "most",
            "spare",
            "keepSeconds",
            "quarantineSeconds",
        ];
        assert_eq!(fields, names.map(|name| format!("spec.blocks.{name}")));
    }
}
