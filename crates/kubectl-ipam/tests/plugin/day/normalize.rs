//! Replaces what differs between two runs.

use jiff::Timestamp;

/// Headers of columns with ages. The width of such a column depends on the age.
const AGE_COLUMNS: [&str; 5] = ["AGE", "SEEN", "EMPTY", "RELEASED", "RETURNED"];

/// What the second and later lines of a wrapped cell of `status` begin with. Where they are wrapped
/// depends on ages and on the name of the machine.
const CONTINUATION: &str = "\n                      ";

/// The text with placeholders for times, ages, uids, ports and the name of the machine.
pub(super) fn normalized(text: &str) -> String {
    let host =
        std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    let host = format!("{}_", host.unwrap_or_default().trim());
    let text = text.replace(CONTINUATION, " ").replace(&host, "HOST_");
    let lines = text.lines().map(normalized_line);
    lines.map(|line| line + "\n").collect()
}

fn normalized_line(line: &str) -> String {
    let mut result = String::new();
    let mut is_after_age = false;
    let mut previous = "";
    for word in line.split_inclusive(' ').flat_map(words) {
        if is_after_age && word == " " && result.ends_with("  ") {
            continue;
        }
        // The column in the JSON of an object, which contains numbers of the run.
        let is_column = previous == "column" && word.parse::<u32>().is_ok();
        let replaced = if is_column {
            "N"
        } else {
            placeholder(word).unwrap_or(word)
        };
        if word != " " {
            previous = word;
            is_after_age = AGE_COLUMNS.contains(&replaced);
        }
        result.push_str(replaced);
    }
    result
}

/// Parts of a text that can be an address, a time or a name, and what is between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, _) = rest.split_at(end);
        let word = word.trim_end_matches(['.', ':', '-']);
        let end = if word.is_empty() {
            end.min(first.len_utf8())
        } else {
            word.len()
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

fn placeholder(word: &str) -> Option<&'static str> {
    if word.parse::<Timestamp>().is_ok() {
        Some("TIME")
    } else if is_uid(word) || is_random(word) {
        Some("UID")
    } else if is_age(word) {
        Some("AGE")
    } else if word.starts_with("127.0.0.1:") {
        Some("127.0.0.1:PORT")
    } else {
        None
    }
}

fn is_uid(word: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let is_hexadecimal = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit());
    word.split('-').map(str::len).eq(lengths) && word.split('-').all(is_hexadecimal)
}

/// Identities that a manager chooses: its own, of a write, and of a registry.
fn is_random(word: &str) -> bool {
    [16, 32].contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit())
}

/// `45s`, `12m`, `3d` or, of kubectl, `2m30s`.
fn is_age(word: &str) -> bool {
    let is_unit = |c: char| "smhdy".contains(c);
    let mut parts = word.split_inclusive(is_unit);
    !word.is_empty()
        && parts.all(|part| {
            part.strip_suffix(is_unit)
                .is_some_and(|number| number.parse::<u32>().is_ok())
        })
}

#[test]
fn only_what_differs_between_runs_is_replaced() {
    let text = "10.0.0.7  3d   Bound since 2026-01-05T03:04:45Z (2m20s), fd00::7 of 127.0.0.1:6443.\n\
                AGE   STATE\n  6a0f9a4e-5d3c-4a8e-9f3e-1f0d2b6c7a11  p.team-a.web.10.0.0.7: ...\n";
    let expected = "10.0.0.7  AGE  Bound since TIME (AGE), fd00::7 of 127.0.0.1:PORT.\n\
                    AGE  STATE\n  UID  p.team-a.web.10.0.0.7: ...\n";
    assert_eq!(normalized(text), expected);
}
