//! The kinds that the API server serves.

use super::examination::Examination;
use super::manifest::apply_again;
use super::snapshot::{DefinitionRow, Snapshot};
use crate::model::finding::{Check, Finding};

/// Kinds that are missing, or are served in other versions only. One finding for the kinds of
/// Cluster API and one for those of the provider: each has one repair.
pub(super) fn missing(snapshot: &Snapshot) -> Examination {
    let of_provider = format!(
        "{}, or: clusterctl init --ipam in-cluster",
        apply_again(snapshot)
    );
    let repairs = [
        (true, "install Cluster API: clusterctl init".to_owned()),
        (false, of_provider),
    ];
    let findings = repairs.into_iter().filter_map(|(is_of_contract, repair)| {
        let rows = snapshot.definitions.iter();
        let missing: Vec<&DefinitionRow> = rows
            .filter(|row| row.is_of_contract == is_of_contract && !row.is_supported)
            .collect();
        finding(&missing, repair)
    });
    Examination::complete(findings)
}

fn finding(missing: &[&DefinitionRow], repair: String) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    let objects: Vec<String> = missing
        .iter()
        .map(|row| format!("{}.{}", row.plural, row.group))
        .collect();
    let served: Vec<String> = missing
        .iter()
        .filter(|row| !row.versions.is_empty())
        .map(|row| format!("{} only in {}", row.plural, row.versions.join(", ")))
        .collect();
    let mut problem =
        "the API server does not serve this kind, without which no claim is served".to_owned();
    if !served.is_empty() {
        problem = format!("{problem} (it serves {})", served.join("; "));
    }
    Some(Check::MissingDefinition.finding(
        format!("customresourcedefinition {}", objects.join(", ")),
        problem,
        repair,
    ))
}
