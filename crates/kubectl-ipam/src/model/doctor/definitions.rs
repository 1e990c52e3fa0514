//! The kinds that the API server serves.

use capi_ipam_api::names;

use super::examination::Examination;
use super::snapshot::{DefinitionRow, Snapshot};
use crate::model::finding::{Check, Finding};

/// Kinds that are missing, or are served in other versions only. One finding for the kinds of
/// Cluster API and one for those of the provider: each has one repair.
pub(super) fn missing(snapshot: &Snapshot) -> Examination {
    let repairs = [
        (true, "install Cluster API: clusterctl init"),
        (
            false,
            "apply the manifest of the provider again (kubectl apply --server-side --filename manifests/install.yaml), \
             or: clusterctl init --ipam in-cluster",
        ),
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

fn finding(missing: &[&DefinitionRow], repair: &str) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    let objects: Vec<String> = missing
        .iter()
        .map(|row| format!("{}.{}", row.plural, names::GROUP))
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
        repair.to_owned(),
    ))
}
