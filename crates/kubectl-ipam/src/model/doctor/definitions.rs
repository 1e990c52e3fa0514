//! The kinds that the API server serves.

use super::examination::Examination;
use super::manifest::apply_again;
use super::names::first_names;
use super::snapshot::{ConversionRow, DefinitionRow, ServedDefinition, Snapshot};
use super::webhooks::inject;
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
        let mut missing: Vec<&DefinitionRow> = snapshot.definitions.iter().collect();
        missing.retain(|row| row.is_of_contract == is_of_contract && !row.is_supported);
        finding(&missing, repair)
    });
    Examination::complete(findings)
}

/// Definitions of an older version: the API server removes the fields that they lack from all
/// objects, so no manager sees them.
pub(super) fn outdated(snapshot: &Snapshot) -> Examination {
    let repair = "an older manifest was applied; with the manifest of this version, fields that were removed meanwhile \
                  have to be set again";
    Examination::inspect_list(&snapshot.served, |definition| {
        if definition.missing_fields.is_empty() {
            return None;
        }
        let problem = format!(
            "the API server has an older definition without {}, and removes these fields from all objects",
            first_names(&definition.missing_fields)
        );
        let repair = format!("{}; {repair}", apply_again(snapshot));
        Some(Check::OutdatedDefinition.finding(object(definition), problem, repair))
    })
}

/// Conversion webhooks that the API server cannot call, or will not be able to call.
pub(super) fn unconverted(snapshot: &Snapshot) -> Examination {
    Examination::of_each(&snapshot.served, |definition| {
        let Some(conversion) = &definition.conversion else {
            return Examination::default();
        };
        let finding = unconverted_problem(conversion).map(|problem| {
            let problem = format!("pools cannot be converted between their versions: {problem}");
            Check::ConversionFailing.finding(object(definition), problem, inject())
        });
        let missing = conversion.answer.missing_with(&conversion.is_trusted);
        Examination::complete(finding).with_unknown(missing, true)
    })
}

fn unconverted_problem(conversion: &ConversionRow) -> Option<String> {
    if !conversion.has_authority {
        return Some("spec.conversion has no caBundle".to_owned());
    }
    if let Some(Err(failure)) = conversion.answer.known() {
        return Some(failure.clone());
    }
    let is_trusted = conversion.is_trusted.known().copied().flatten();
    (is_trusted == Some(false)).then(|| {
        "the caBundle of spec.conversion does not verify the certificate of the webhooks".to_owned()
    })
}

fn object(definition: &ServedDefinition) -> String {
    format!("customresourcedefinition {}", definition.name)
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
