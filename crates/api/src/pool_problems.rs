//! The problems of the specification of a pool that do not depend on other objects.

use capi_ipam_ip::UsableBlocks;
use serde_json::Value;

use super::address_metadata::AddressMetadata;
use super::dns::is_dns_label;
use super::field_problem::FieldProblem;
use super::pool_spec::PoolSpec;
use super::reclaim::MIN_TERMINATING_SECONDS;

impl PoolSpec {
    /// Returns the problems of all fields but those of the addresses, which
    /// [`usable`](Self::usable) returns. The slices are checked only with the blocks of the pool.
    pub fn field_problems(&self, usable: Option<&UsableBlocks>) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        problems.extend(self.negative_grace_period());
        for problem in self
            .address_metadata()
            .map(AddressMetadata::problems)
            .unwrap_or_default()
        {
            problems.push(FieldProblem::new(
                problem.field,
                problem.value,
                problem.kind.to_string(),
            ));
        }
        problems.extend(self.dns_problems());
        problems.extend(self.invalid_network_name());
        problems.extend(self.short_terminating_limit());
        for problem in self.access().rules().err().unwrap_or_default() {
            problems.push(FieldProblem::new(
                problem.field,
                Value::Null,
                problem.source.to_string(),
            ));
        }
        if let Some(Err(of_slices)) = usable.map(|usable| self.slice_rules(usable)) {
            problems.extend(of_slices);
        }
        problems
    }

    fn negative_grace_period(&self) -> Option<FieldProblem> {
        let Self::Addresses(spec) = self else {
            return None;
        };
        let seconds = spec
            .address_reuse_grace_period_seconds
            .filter(|seconds| *seconds < 0)?;
        let text = "must be greater than or equal to 0";
        Some(FieldProblem::new(
            "spec.addressReuseGracePeriodSeconds",
            seconds,
            text,
        ))
    }

    /// The name of a network must be a DNS label (RFC 1123), because object names contain it.
    fn invalid_network_name(&self) -> Option<FieldProblem> {
        let network = self.network().filter(|network| !is_dns_label(network))?;
        let text = "must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end";
        Some(FieldProblem::new("spec.network", network, text))
    }

    fn short_terminating_limit(&self) -> Option<FieldProblem> {
        let seconds = self.reclaim().terminating?.after_seconds;
        if seconds >= MIN_TERMINATING_SECONDS {
            return None;
        }
        let text = format!("must be greater than or equal to {MIN_TERMINATING_SECONDS}");
        Some(FieldProblem::new(
            "spec.reclaim.terminating.afterSeconds",
            seconds,
            text,
        ))
    }
}
