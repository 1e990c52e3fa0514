//! The output of `import`: one line for each change, as `kubectl apply` writes them, with the
//! fields that change; then the problems, and the counts.

use std::fmt::Write;

use serde_json::Value;

use super::grid::clean;
use super::style::{Color, Style};
use super::words::dry_run_text;
use crate::model::{
    ChangeAction, ChangeResult, FieldChange, ImportChange, ImportProblem, ImportSummary, counted,
};

/// How many lines of the file with the same problem are named.
const MAX_NAMED: usize = 5;

pub(super) fn text(summary: &ImportSummary, style: Style) -> String {
    let dry_run = dry_run_text(summary.dry_run, summary.unchecked);
    let mut text = String::new();
    for change in summary.changes.iter().filter(|change| is_done(change)) {
        let line = change_line(change, dry_run);
        let _ = writeln!(text, "{}", clean(&line));
    }
    for line in problem_lines(&summary.problems, style) {
        let _ = writeln!(text, "{line}");
    }
    let ImportSummary {
        created,
        updated,
        deleted,
        unchanged,
        not_made,
        ..
    } = summary;
    let problems = counted(summary.problems.len(), "problem");
    let _ = writeln!(
        text,
        "{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged, {problems}{dry_run}"
    );
    if *not_made > 0 && !summary.dry_run {
        let made = summary.changes.iter().filter(|change| is_done(change));
        let (made, total) = (made.count(), summary.changes.len());
        let _ = writeln!(
            text,
            "{made} of {total} changes were made. After the problems are corrected, run the same import again to make \
             the others"
        );
    } else if summary.changes.is_empty() && !summary.problems.is_empty() {
        text.push_str("Nothing was changed: correct the file, and import it again\n");
    }
    text
}

/// Whether a change was made, or in a dry run would be made.
pub(super) fn is_done(change: &ImportChange) -> bool {
    matches!(change.result, ChangeResult::Made | ChangeResult::Checked)
}

/// `InClusterIPPool team-a/web updated: spec.prefix: 24 -> 25`.
fn change_line(change: &ImportChange, dry_run: &str) -> String {
    let ImportChange {
        action,
        kind,
        namespace,
        name,
        fields,
        ..
    } = change;
    let namespace = match namespace {
        Some(namespace) => format!("{namespace}/"),
        None => String::new(),
    };
    let action_text = format!("{action:?}").to_lowercase();
    let mut line = format!("{kind} {namespace}{name} {action_text}{dry_run}");
    for (index, field) in fields.iter().enumerate() {
        let separator = if index == 0 { ": " } else { "; " };
        let _ = write!(line, "{separator}{}", field_text(*action, field));
    }
    line
}

fn field_text(action: ChangeAction, change: &FieldChange) -> String {
    let FieldChange { field, old, new } = change;
    let text = |value: &Option<Value>| match value {
        Some(value) => value_text(value),
        None => "none".to_owned(),
    };
    match (action, old, new) {
        (ChangeAction::Created, ..) => format!("{field}: {}", text(new)),
        (ChangeAction::Deleted, ..) => format!("{field}: {}", text(old)),
        (ChangeAction::Updated, Some(Value::Array(old)), Some(Value::Array(new))) => {
            format!("{field}: {}", list_text(old, new))
        }
        (ChangeAction::Updated, ..) => format!("{field}: {} -> {}", text(old), text(new)),
    }
}

/// The entries that a list loses and gets. It can be long, and few of them change.
fn list_text(old: &[Value], new: &[Value]) -> String {
    let without = |all: &[Value], others: &[Value]| {
        let missing = all.iter().filter(|entry| !others.contains(entry));
        missing.map(value_text).collect::<Vec<_>>().join(" ")
    };
    let (removed, added) = (without(old, new), without(new, old));
    match (removed.is_empty(), added.is_empty()) {
        (true, true) => "another order".to_owned(),
        (true, false) => format!("added {added}"),
        (false, true) => format!("removed {removed}"),
        (false, false) => format!("removed {removed}, added {added}"),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(entries) => {
            let texts: Vec<String> = entries.iter().map(value_text).collect();
            texts.join(" ")
        }
        Value::Object(fields) => match fields.get("name") {
            Some(Value::String(name)) => reference_text(value, name),
            _ => value.to_string(),
        },
        other => other.to_string(),
    }
}

/// A reference to an object: `InClusterIPPool team-a/web`, or `team-a/vm-1`.
fn reference_text(reference: &Value, name: &str) -> String {
    let part = |field: &str, end: &str| match reference.get(field).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text}{end}"),
        _ => String::new(),
    };
    format!("{}{}{name}", part("kind", " "), part("namespace", "/"))
}

/// The problems, each once, with the lines that have it.
pub(crate) fn problem_lines(problems: &[ImportProblem], style: Style) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&ImportProblem>)> = Vec::new();
    for problem in problems {
        let pattern = problem.pattern();
        match groups.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, group)) => group.push(problem),
            None => groups.push((pattern, vec![problem])),
        }
    }
    let texts = groups.iter().filter_map(|(_, group)| {
        let first = group.first()?;
        Some(group_line(first, group, style))
    });
    texts.collect()
}

fn group_line(first: &ImportProblem, group: &[&ImportProblem], style: Style) -> String {
    let problem = clean(&first.problem);
    let mut lines: Vec<u64> = group.iter().filter_map(|problem| problem.line).collect();
    lines.dedup();
    let place = match lines.as_slice() {
        [] => None,
        [line] => Some(format!("line {line}")),
        lines => {
            let named: Vec<String> = lines.iter().take(MAX_NAMED).map(u64::to_string).collect();
            let more = lines.len().saturating_sub(named.len());
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Some(format!("lines {}{more}", named.join(", ")))
        }
    };
    let object = match (&first.object, group) {
        (Some(object), [_]) => format!("{}: ", clean(object)),
        _ => String::new(),
    };
    let times = match group.len() {
        1 => String::new(),
        times => format!(" ({times} times)"),
    };
    let place = match place {
        Some(place) => format!("{}: ", style.paint(&place, Color::Red)),
        None => String::new(),
    };
    format!("{place}{object}{problem}{times}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn style() -> Style {
        Style {
            color: false,
            wide: false,
            namespaces: false,
            headers: true,
            now: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn change(action: ChangeAction, fields: &[(&str, Value, Value)]) -> ImportChange {
        let given = |value: &Value| Some(value.clone()).filter(|value| !value.is_null());
        let field = |(field, old, new): &(&str, Value, Value)| FieldChange {
            field: (*field).to_owned(),
            old: given(old),
            new: given(new),
        };
        ImportChange {
            line: Some(2),
            action,
            result: ChangeResult::Made,
            kind: "InClusterIPPool".to_owned(),
            namespace: Some("a".to_owned()),
            name: "web".to_owned(),
            fields: fields.iter().map(field).collect(),
        }
    }

    #[test]
    fn each_change_is_a_line_with_its_fields() {
        let claim = json!({ "namespace": "a", "name": "vm" });
        let cases = [
            (
                change(
                    ChangeAction::Created,
                    &[
                        ("spec.addresses", Value::Null, json!(["x", "y"])),
                        ("spec.prefix", Value::Null, json!(24)),
                    ],
                ),
                "created: spec.addresses: x y; spec.prefix: 24",
            ),
            (
                change(
                    ChangeAction::Updated,
                    &[
                        ("spec.addresses", json!(["x", "y"]), json!(["x", "z"])),
                        ("spec.gateway", Value::Null, json!("g")),
                        ("spec.network", json!("n"), Value::Null),
                        ("spec.prefix", json!(24), json!(25)),
                    ],
                ),
                "updated: spec.addresses: removed y, added z; spec.gateway: none -> g; spec.network: n -> none; \
                 spec.prefix: 24 -> 25",
            ),
            (
                change(
                    ChangeAction::Deleted,
                    &[("spec.claimRef", claim, Value::Null)],
                ),
                "deleted: spec.claimRef: a/vm",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(
                change_line(&change, ""),
                format!("InClusterIPPool a/web {expected}")
            );
        }
    }

    #[test]
    fn equal_problems_are_one_line_with_their_count() {
        let problem = |line: u64, name: &str, problem: &str| ImportProblem {
            line: Some(line),
            problem: problem.to_owned(),
            object: Some(format!("IPReservation {name}")),
        };
        let mut problems = vec![problem(2, "b", "no \"b\"")];
        for line in 3..10 {
            let name = format!("p.{line}");
            problems.push(problem(line, &name, &format!("\"{name}\" is refused")));
        }
        problems.push(ImportProblem::general("the check ended".to_owned()));
        assert_eq!(
            problem_lines(&problems, style()),
            [
                "line 2: IPReservation b: no \"b\"",
                "lines 3, 4, 5, 6, 7 and 2 more: \"p.3\" is refused (7 times)",
                "the check ended",
            ]
        );
    }

    #[test]
    fn text_says_how_many_changes_were_made() {
        let mut failed = change(ChangeAction::Created, &[]);
        failed.result = ChangeResult::Failed;
        let summary = ImportSummary {
            created: 1,
            not_made: 1,
            changes: vec![change(ChangeAction::Created, &[]), failed],
            problems: vec![ImportProblem::of_line(3, "refused".to_owned())],
            ..ImportSummary::default()
        };
        assert_eq!(
            text(&summary, style()),
            "InClusterIPPool a/web created\nline 3: refused\n\
             1 created, 0 updated, 0 deleted, 0 unchanged, 1 problem\n\
             1 of 2 changes were made. After the problems are corrected, run the same import again to make the others\n"
        );
    }
}
