//! The findings of `doctor`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use capi_ipam_api::counted;

use super::grid::clean;
use super::style::{Color, Style};
use super::words::{age, wrapped_words};
use crate::error::{MissingRight, sentences};
use crate::first_names::first_names;
use crate::model::{
    Cause, Check, Finding, FindingList, Part, PartLine, PartState, Severity, Unchecked, word,
};

/// Maximum number of findings of one kind, and of what a finding causes, that the text names.
const MAX_NAMED: usize = 5;

/// What prints all findings.
const ALL: &str = "kubectl ipam doctor --output json";

/// Characters of a line of a part.
const DETAIL_WIDTH: usize = 60;

/// Whether the provider works, the parts, and below each part one paragraph for each problem: its lines
/// are too long for a table. Findings of one check with the same repair are one paragraph, and what a
/// finding causes is a part of its paragraph.
pub(super) fn text(list: &FindingList, style: Style) -> String {
    let mut text = verdict(list);
    text.push('\n');
    let mut effects: HashMap<&Cause, Vec<&Finding>> = HashMap::new();
    let mut causes: BTreeMap<Part, Vec<&Finding>> = BTreeMap::new();
    for finding in &list.findings {
        let group = match &finding.cause {
            Some(cause) => effects.entry(cause).or_default(),
            None => causes.entry(Part::of(finding.check)).or_default(),
        };
        group.push(finding);
    }
    if has_checked(list) {
        for line in &list.parts {
            text.push_str(&part(line, style));
            let findings = causes.remove(&line.part).unwrap_or_default();
            for line in paragraphs(&findings, &effects, style).lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    // Those of parts that are not shown.
    for findings in causes.values() {
        text.push_str(&paragraphs(findings, &effects, style));
    }
    text.push_str(&unknown(&list.unchecked, style));
    text.push_str(&summary(list));
    text
}

/// The first line: whether the provider works.
fn verdict(list: &FindingList) -> String {
    let named = |state: PartState| {
        let mut lines: Vec<&PartLine> = list.parts.iter().collect();
        lines.retain(|line| line.state == state && !line.part.is_of_objects());
        let names: Vec<String> = lines
            .iter()
            .map(|line| format!("{:?}", line.part))
            .collect();
        names.join(", ")
    };
    match list.healthy {
        _ if !has_checked(list) => {
            "It is unknown whether the provider works: nothing could be checked.".to_owned()
        }
        Some(true) => "The provider works.".to_owned(),
        Some(false) => format!(
            "The provider does not work, see {}.",
            named(PartState::Error)
        ),
        None => format!(
            "It is unknown whether the provider works, see {}.",
            named(PartState::Unknown)
        ),
    }
}

/// The line of a part.
fn part(line: &PartLine, style: Style) -> String {
    let color = match line.state {
        PartState::Ok => Color::Green,
        PartState::Unknown | PartState::Warning => Color::Yellow,
        PartState::Error => Color::Red,
    };
    let name = format!("{:?}", line.part);
    // Colors do not count for the width.
    let state = format!("{:8}", word(line.state));
    let mut text = format!("{name:12} {}", style.paint(&state, color));
    for (number, detail) in wrapped_words(&line.detail, DETAIL_WIDTH).iter().enumerate() {
        if number == 0 {
            let _ = write!(text, " {detail}");
        } else {
            let _ = write!(text, "\n{:22}{detail}", "");
        }
    }
    format!("{}\n", text.trim_end())
}

/// The paragraphs of the findings of a part.
fn paragraphs(
    findings: &[&Finding],
    effects: &HashMap<&Cause, Vec<&Finding>>,
    style: Style,
) -> String {
    let mut text = String::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let is_same = |other: &&&Finding| {
            let same_kind = (other.check, other.severity) == (first.check, first.severity);
            same_kind && pattern(other) == pattern(first)
        };
        let count = rest.iter().take_while(is_same).count();
        let (group, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        text.push_str(&paragraph(first, group, style));
        text.push_str(&caused(group, effects));
        rest = others;
    }
    text
}

/// What the findings of a group cause, one line each.
fn caused(group: &[&Finding], effects: &HashMap<&Cause, Vec<&Finding>>) -> String {
    let mut all: Vec<&Finding> = Vec::new();
    for finding in group {
        let cause = Cause {
            check: finding.check,
            object: finding.object.clone(),
        };
        all.extend(effects.get(&cause).into_iter().flatten());
    }
    let mut lines: Vec<String> = Vec::new();
    for finding in all.iter().take(MAX_NAMED) {
        lines.push(format!("{:?}: {}", finding.check, described(finding)));
    }
    let more = all.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        lines.push(format!("and {more} more: {ALL}"));
    }
    labelled("Causes:", &lines)
}

/// An object, and what is wrong with it.
fn described(finding: &Finding) -> String {
    clean(&format!("{}: {}", finding.object, finding.problem))
}

/// Lines after a label.
fn labelled(label: &str, lines: &[String]) -> String {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let label = if number == 0 { label } else { "" };
        let _ = writeln!(text, "  {label:7} {line}");
    }
    text
}

/// Whether any check was made that needs a permission. Everybody may see which kinds are served.
fn has_checked(list: &FindingList) -> bool {
    list.checks
        .iter()
        .any(|check| *check != Check::MissingDefinition)
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

fn paragraph(first: &Finding, group: &[&Finding], style: Style) -> String {
    let color = match first.severity {
        Severity::Error => Color::Red,
        Severity::Warning => Color::Yellow,
        Severity::Note => Color::Blue,
    };
    let check = format!("{} {:?}", word(first.severity), first.check);
    let check = style.paint(&check, color);
    let more = group.len().saturating_sub(MAX_NAMED);
    let named = group.iter().take(MAX_NAMED);
    let mut lines: Vec<String> = Vec::new();
    let head = if group.iter().all(|it| it.object == first.object) {
        lines.extend(named.map(|finding| clean(&finding.problem)));
        if more > 0 {
            lines.push(format!("and {more} more problems of this object: {ALL}"));
        }
        clean(&first.object)
    } else if group.iter().all(|it| it.problem == first.problem) {
        lines.push(clean(&first.problem));
        first_names(group.iter().map(|it| clean(&it.object)), MAX_NAMED)
    } else {
        lines.extend(named.map(|finding| described(finding)));
        if more > 0 {
            lines.push(format!("and {more} more: {ALL}"));
        }
        counted(group.len(), "object", "objects")
    };
    let mut text = format!("{check}: {head}\n");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    let since = group.iter().filter_map(|finding| finding.since).min();
    if since.is_some() {
        let _ = writeln!(text, "  Age:    {}", age(since, style.now));
    }
    text.push_str(&repairs(group));
    text
}

/// The repairs of a group: what several objects have in common once, and the commands of each.
fn repairs(group: &[&Finding]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut left = 0;
    for (number, finding) in group.iter().enumerate() {
        let mut of_finding: Vec<String> = Vec::new();
        let repair = clean(&finding.repair);
        let has_commands = !finding.commands.is_empty();
        let colon = if has_commands { ":" } else { "" };
        of_finding.push(format!("{repair}{colon}"));
        of_finding.extend(finding.commands.iter().map(|command| clean(command)));
        of_finding.retain(|line| !lines.contains(line));
        if of_finding.is_empty() {
            continue;
        }
        if number < MAX_NAMED {
            lines.append(&mut of_finding);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        lines.push(format!("and {left} more: {ALL}"));
    }
    labelled("Repair:", &lines)
}

/// The checks that were not possible, by their reason. Those that lack permissions have one, in
/// which each permission is named once; `-o json` has them by check.
fn unknown(unchecked: &[Unchecked], style: Style) -> String {
    let mut text = String::new();
    let mut rest: Vec<&Unchecked> = unchecked.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_same = |other: &&Unchecked| {
            let lack_permissions = !first.missing.is_empty() && !other.missing.is_empty();
            let is_same_reason = lack_permissions || first.reason == other.reason;
            is_same_reason && first.partly == other.partly
        };
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_same);
        let names: Vec<String> = same.iter().map(|it| format!("{:?}", it.check)).collect();
        let missing: Vec<MissingRight> = same.iter().flat_map(|it| it.missing.clone()).collect();
        let reason = if missing.is_empty() {
            first.reason.clone()
        } else {
            sentences(&missing).join("; ")
        };
        let names = style.paint(&format!("unknown {}", names.join(", ")), Color::Yellow);
        let problem = if first.partly {
            "checked only for the objects that you may list"
        } else {
            "not checked"
        };
        let _ = writeln!(text, "{names}\n  {problem}: {}", clean(&reason));
        rest = others;
    }
    text
}

/// The last line: what was checked, what was found, and how many claims wait.
pub(super) fn summary(list: &FindingList) -> String {
    let mut found: Vec<String> = Vec::new();
    for severity in [Severity::Error, Severity::Warning, Severity::Note] {
        let of_severity = list.findings.iter().filter(|it| it.severity == severity);
        let number = of_severity.count();
        if number > 0 {
            let one = word(severity);
            found.push(counted(number, &one, &format!("{one}s")));
        }
    }
    let checks = counted(list.checks.len(), "check", "checks");
    let mut text = if list.has_problems() {
        format!("{checks}: {}.", found.join(", "))
    } else if !has_checked(list) {
        format!("{checks}.")
    } else if found.is_empty() {
        format!("{checks}, no problem.")
    } else {
        format!("{checks}, no problem; {}.", found.join(", "))
    };
    let partly = list.unchecked.iter().filter(|it| it.partly).count();
    let skipped = list.unchecked.len().saturating_sub(partly);
    if skipped > 0 {
        let _ = write!(
            text,
            " Not possible: {}.",
            counted(skipped, "check", "checks")
        );
    }
    if partly > 0 {
        let partly = counted(partly, "check", "checks");
        let _ = write!(text, " Only for the objects that you may list: {partly}.");
    }
    match list.waiting {
        Some(0) => {}
        Some(number) => {
            let waiting = counted(number, "claim waits", "claims wait");
            let _ = write!(text, " {waiting}: kubectl ipam claims --waiting -A");
        }
        None => text.push_str(" How many claims wait is unknown."),
    }
    text.push('\n');
    text
}
