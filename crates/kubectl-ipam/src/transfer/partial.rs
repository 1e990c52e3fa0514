//! What is wrong with a pool that cannot be read completely. Its texts are checked nevertheless, so
//! that a user has to correct a file only once.

use capi_ipam_api::{Pool, PoolSpec};
use capi_ipam_ip::{PoolProblem, PoolProblemKind};
use serde_json::{Value, json};

/// The problems of the addresses, prefixes and gateways in a part of a specification: those that no
/// other field can cause.
pub(super) fn text_problems(kind: &str, spec: &Value) -> Vec<PoolProblem> {
    let pool = json!({ "kind": kind, "metadata": { "name": "" }, "spec": spec });
    let Ok(pool) = serde_json::from_value::<Pool>(pool) else {
        return Vec::new();
    };
    let mut problems = match PoolSpec::usable(&pool.spec) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    };
    problems.retain(|problem| is_of_text(&problem.kind));
    problems
}

/// Whether a problem is one of a single text.
fn is_of_text(problem: &PoolProblemKind) -> bool {
    matches!(
        problem,
        PoolProblemKind::Parse(_)
            | PoolProblemKind::NotAPrefix { .. }
            | PoolProblemKind::NotAligned { .. }
    )
}
