//! The findings of `doctor`.

use std::fmt::Write;

use super::grid::clean;
use super::style::{Color, Style};
use crate::model::{Check, Finding, Severity, Unchecked};

/// Maximum number of problems of one object, and of objects with one problem, that the text names.
const MAX_NAMED: usize = 5;

/// One paragraph for each problem: its lines are too long for a table. Findings that differ in the
/// object or in the problem only are one paragraph.
pub(super) fn text(findings: &[Finding], unchecked: &[Unchecked], style: Style) -> String {
    let mut text = String::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let same_object = count(rest, |other| {
            (other.check, &other.object) == (first.check, &first.object)
        });
        let same_problem = count(rest, |other| {
            (other.check, &other.problem) == (first.check, &first.problem)
                && pattern(other) == pattern(first)
        });
        let (group, others) = rest
            .split_at_checked(same_object.max(same_problem))
            .unwrap_or((rest, &[]));
        text.push_str(&paragraph(first, group, same_object >= same_problem, style));
        rest = others;
    }
    text + &conclusion(findings, unchecked, style)
}

/// The repair without the name of the object.
fn pattern(finding: &Finding) -> String {
    let name = finding.object.rsplit([' ', '/']).next().unwrap_or_default();
    if name.is_empty() {
        finding.repair.clone()
    } else {
        finding.repair.replace(name, "NAME")
    }
}

/// How many of the first findings belong together.
fn count(findings: &[Finding], is_same: impl Fn(&&Finding) -> bool) -> usize {
    findings.iter().take_while(is_same).count()
}

fn paragraph(first: &Finding, group: &[Finding], is_one_object: bool, style: Style) -> String {
    let color = if first.severity == Severity::Error {
        Color::Red
    } else {
        Color::Yellow
    };
    let check = style.paint(&format!("{:?}", first.check), color);
    let more = group.len().saturating_sub(MAX_NAMED);
    let named = group.iter().take(MAX_NAMED);
    let mut text = String::new();
    if is_one_object {
        let _ = writeln!(text, "{check}: {}", clean(&first.object));
        for finding in named {
            let _ = writeln!(text, "  {}", clean(&finding.problem));
        }
        if more > 0 {
            let _ = writeln!(text, "  and {more} more problems of this object");
        }
    } else {
        let objects: Vec<String> = named.map(|finding| clean(&finding.object)).collect();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "{check}: {}{more}\n  {}",
            objects.join(", "),
            clean(&first.problem)
        );
    }
    let _ = writeln!(text, "  Repair: {}", clean(&first.repair));
    text
}

/// What the findings do not say: that there are none, or that something could not be checked.
fn conclusion(findings: &[Finding], unchecked: &[Unchecked], style: Style) -> String {
    if unchecked.is_empty() {
        return if findings.is_empty() {
            "No problems found.\n".to_owned()
        } else {
            String::new()
        };
    }
    let mut text = String::new();
    if findings.is_empty() {
        let is_skipped = |check: &Check| {
            unchecked
                .iter()
                .any(|skipped| skipped.check == *check && !skipped.partly)
        };
        let summary = if Check::ALL.iter().all(is_skipped) {
            "Nothing could be checked:"
        } else {
            "What could be checked has no problem:"
        };
        let _ = writeln!(text, "{summary}");
    }
    let mut rest: Vec<&Unchecked> = unchecked.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_same =
            |other: &&Unchecked| (&other.reason, other.partly) == (&first.reason, first.partly);
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_same);
        let names: Vec<String> = same
            .iter()
            .map(|skipped| format!("{:?}", skipped.check))
            .collect();
        let unknown = style.paint(&format!("Unknown: {}", names.join(", ")), Color::Yellow);
        let _ = writeln!(
            text,
            "{unknown}\n  {}: {}",
            unchecked_problem(first),
            clean(&first.reason)
        );
        rest = others;
    }
    text
}

/// What is not known without a check.
pub(super) fn unchecked_problem(skipped: &Unchecked) -> &'static str {
    if skipped.partly {
        "checked only for the objects that you may list"
    } else {
        "not checked"
    }
}
