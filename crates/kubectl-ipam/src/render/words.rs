//! Single values as text.

use jiff::Timestamp;

use crate::model::Fact;

/// What stands for a value that may not be read.
pub(super) const UNKNOWN: &str = "?";

/// The largest count of addresses that an object can have: it stands for all larger ones too.
const MAX_COUNT: u64 = i64::MAX.unsigned_abs();

/// Whether a count stands for a larger one: a /64 has 2⁶⁴ addresses.
pub(super) fn is_capped(count: u64) -> bool {
    count >= MAX_COUNT
}

/// A count of addresses.
pub(super) fn number(count: u64) -> String {
    if is_capped(count) {
        "more than 9.2e18".to_owned()
    } else {
        count.to_string()
    }
}

/// A number that can be unknown.
pub(super) fn number_or_unknown(count: Option<u64>) -> String {
    match count {
        Some(count) => number(count),
        None => UNKNOWN.to_owned(),
    }
}

/// A cell of a table.
pub(super) fn fact(value: &Fact<impl ToString>) -> String {
    let text = match value {
        Fact::Known(value) => value.to_string(),
        Fact::Absent => String::new(),
        Fact::Unknown => UNKNOWN.to_owned(),
    };
    if text.is_empty() {
        return "-".to_owned();
    }
    text
}

/// An age as kubectl shows it: `45s`, `12m`, `5h`, `3d`.
pub(crate) fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else {
        return "-".to_owned();
    };
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Parts separated by commas, in lines of at most 80 columns where the parts allow it. All lines but
/// the first begin with `indent` spaces, and the first one is preceded by as many characters.
pub(super) fn wrapped(parts: &[String], indent: usize) -> String {
    let last = parts.len().saturating_sub(1);
    let mut words = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let comma = if number < last { "," } else { "" };
        words.push(format!("{part}{comma}"));
    }
    let lines = wrap(&words, WIDTH.saturating_sub(indent));
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// The words of a text in lines of at most `width` columns. A longer word has a separate line.
pub(super) fn wrapped_words(text: &str, width: usize) -> Vec<String> {
    wrap(text.split_whitespace(), width)
}

fn wrap(words: impl IntoIterator<Item: AsRef<str>>, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        let length = line.chars().count().saturating_add(word.chars().count());
        if !line.is_empty() && length.saturating_add(1) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// What kubectl adds to a change that was not made.
pub(super) fn dry_run_text(is_dry_run: bool, is_unchecked: bool) -> &'static str {
    match (is_dry_run, is_unchecked) {
        (false, _) => "",
        (true, true) => " (dry run)",
        (true, false) => " (server dry run)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_between_their_words() {
        let long = "x".repeat(12);
        let text = format!("one two three {long} four");
        assert_eq!(
            wrapped_words(&text, 9),
            ["one two", "three", long.as_str(), "four"]
        );
        assert_eq!(wrapped_words("", 9), Vec::<String>::new());
    }

    #[test]
    fn long_lists_are_wrapped_between_their_parts() {
        let part = |length: usize| "x".repeat(length);
        assert_eq!(wrapped(&[part(3), part(4)], 2), "xxx, xxxx");
        let wrapped = wrapped(&[part(40), part(36), part(3)], 2);
        let lines: Vec<usize> = wrapped.lines().map(str::len).collect();
        assert_eq!(lines, [41, 43], "{wrapped}");
    }
}
