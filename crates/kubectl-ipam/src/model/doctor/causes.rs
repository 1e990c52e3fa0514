//! Which findings cause others, and the order of all findings: each cause is followed by what it
//! causes.

use super::names::grouped;
use crate::model::finding::{Cause, Check, Finding, Severity};

/// The checks that can cause a finding, the nearest cause first. No check causes itself.
fn causes_of(check: Check) -> &'static [Check] {
    match check {
        Check::ReplicasNotReady => &[
            Check::CertificateInvalid,
            Check::MissingDefinition,
            Check::OutdatedDefinition,
            Check::MissingPermission,
        ],
        Check::NoLeader => &[
            Check::ReplicasNotReady,
            Check::CertificateInvalid,
            Check::MissingDefinition,
            Check::MissingPermission,
        ],
        Check::WebhookUnavailable => &[Check::ReplicasNotReady, Check::CertificateInvalid],
        Check::WebhookFailing | Check::ConversionFailing => &[
            Check::CertificateInvalid,
            Check::WebhookUntrusted,
            Check::WebhookUnavailable,
            Check::ReplicasNotReady,
            Check::NoLeader,
        ],
        Check::NotReconciled => &[
            Check::NoLeader,
            Check::MissingDefinition,
            Check::OutdatedDefinition,
            Check::MissingPermission,
            Check::ReplicasNotReady,
        ],
        Check::NetworkNotReady | Check::BlockSizeDiffers => &[Check::RegistryNotReady],
        Check::PoolNotReady => &[Check::NetworkNotReady],
        Check::ClaimsWait => &[
            Check::PoolNotReady,
            Check::BlockSizeDiffers,
            Check::NetworkNotReady,
            Check::RegistryNotReady,
        ],
        Check::DuplicateAddress => &[Check::MoveStalled],
        _ => &[],
    }
}

/// Whether a finding causes another one. Only an error does: a certificate that expires soon, for
/// example, stops no replica. A finding about an object causes those about the same object.
fn is_cause(cause: &Finding, effect: &Finding) -> bool {
    let is_near = cause.places.is_empty()
        || cause
            .places
            .iter()
            .any(|place| effect.places.contains(place));
    cause.severity == Severity::Error && is_near
}

/// Sorts findings, and sets their causes: by severity, and then in the order of the checks, in
/// which those of the provider are first. A cause has the place of the most urgent finding that it
/// causes, and is followed by all of them.
pub(super) fn arrange(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings
        .sort_by(|a, b| (a.severity, a.check, &a.object).cmp(&(b.severity, b.check, &b.object)));
    let of_check = grouped(0..findings.len(), |number| {
        findings.get(*number).map(|finding| finding.check)
    });
    let mut nearest = Vec::new();
    for finding in &findings {
        let candidates = causes_of(finding.check).iter();
        let mut candidates = candidates
            .filter_map(|check| of_check.get(&Some(*check)))
            .flatten();
        let is_cause = |number: &&usize| {
            let cause = findings.get(**number);
            cause.is_some_and(|cause| is_cause(cause, finding))
        };
        nearest.push(candidates.find(is_cause).copied());
    }
    let causes: Vec<usize> = (0..findings.len())
        .map(|number| first_cause(number, &nearest))
        .collect();
    let mut effects = grouped(causes.iter().copied().enumerate(), |(_, cause)| *cause);
    let mut arranged = Vec::new();
    for cause in causes {
        let (Some(first), Some(group)) = (findings.get(cause), effects.remove(&cause)) else {
            continue;
        };
        let name = Cause {
            check: first.check,
            object: first.object.clone(),
        };
        arranged.push(Finding {
            cause: None,
            ..first.clone()
        });
        for (number, _) in group {
            let effect = findings.get(number).filter(|_| number != cause);
            arranged.extend(effect.map(|effect| Finding {
                cause: Some(name.clone()),
                ..effect.clone()
            }));
        }
    }
    arranged
}

/// The cause of the cause, and so on; the finding itself without one. Causes do not form a circle;
/// the number of steps is limited nevertheless.
fn first_cause(number: usize, nearest: &[Option<usize>]) -> usize {
    let mut first = number;
    for _ in nearest {
        match nearest.get(first).copied().flatten() {
            Some(cause) => first = cause,
            None => break,
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::finding::{Place, Subject};

    /// The checks of the arranged findings, each with that of its cause.
    fn arranged(findings: Vec<Finding>) -> Vec<(Check, Option<Check>)> {
        let arranged = arrange(findings).into_iter();
        arranged
            .map(|finding| (finding.check, finding.cause.map(|cause| cause.check)))
            .collect()
    }

    fn finding(check: Check) -> Finding {
        check.finding("object".to_owned(), String::new(), String::new())
    }

    fn of_network(check: Check, network: &str) -> Finding {
        let subject = Subject::from("object".to_owned());
        let place = Place::Network(network.to_owned());
        check.finding(subject.at(place), String::new(), String::new())
    }

    #[test]
    fn cause_is_first_and_has_all_its_effects() {
        let cause = Check::CertificateInvalid;
        let findings = [
            Check::NoLeader,
            Check::ReplicasNotReady,
            Check::WebhookUnavailable,
            cause,
            Check::NotReconciled,
            Check::UnreadableObject,
        ];
        let findings = findings.map(finding).to_vec();
        assert_eq!(
            arranged(findings),
            [
                (cause, None),
                (Check::NoLeader, Some(cause)),
                (Check::ReplicasNotReady, Some(cause)),
                (Check::WebhookUnavailable, Some(cause)),
                (Check::NotReconciled, Some(cause)),
                (Check::UnreadableObject, None),
            ]
        );
    }

    #[test]
    fn warning_causes_nothing() {
        let expiring = finding(Check::CertificateInvalid).at(Severity::Warning);
        assert_eq!(
            arranged(vec![expiring, finding(Check::NoLeader)]),
            [(Check::NoLeader, None), (Check::CertificateInvalid, None)]
        );
    }

    #[test]
    fn object_causes_what_is_about_it() {
        let findings = vec![
            of_network(Check::PoolNotReady, "one"),
            of_network(Check::PoolNotReady, "two"),
            of_network(Check::NetworkNotReady, "two"),
        ];
        assert_eq!(
            arranged(findings),
            [
                (Check::PoolNotReady, None),
                (Check::NetworkNotReady, None),
                (Check::PoolNotReady, Some(Check::NetworkNotReady)),
            ]
        );
    }
}
