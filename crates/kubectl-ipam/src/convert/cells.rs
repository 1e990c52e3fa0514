//! The cells of a table, as values of a specification.

use capi_ipam_ip::parse_address;
use serde_json::Value;

/// Parses a cell of a pool.
pub(super) fn value(column: &str, cell: &str) -> Result<Value, String> {
    match column {
        "addresses" | "excludedAddresses" => entries(cell).map(Value::from),
        "prefix" => {
            let number = cell.strip_prefix('/').unwrap_or(cell);
            let value = number
                .parse::<i64>()
                .map_err(|_| format!("{cell} is not a number"))?;
            if value.to_string() == number {
                return Ok(value.into());
            }
            Err(format!("{cell} is not a prefix length; write {value}"))
        }
        "addressReuseGracePeriodSeconds" => cell
            .parse::<i32>()
            .map(Value::from)
            .map_err(|_| format!("{cell} is not a number of seconds")),
        "allocateReservedIPAddresses" => cell
            .to_lowercase()
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| format!("{cell} is neither true nor false")),
        _ => Ok(Value::from(cell)),
    }
}

/// The addresses, networks and ranges of a cell. Blanks, commas, semicolons and line breaks separate
/// them. A range can have blanks around its hyphen, and the dash of a word processor instead of it.
fn entries(cell: &str) -> Result<Vec<String>, String> {
    let cell = cell.replace('\u{2013}', "-");
    let mut entries = Vec::new();
    for part in cell.split([',', ';', '\n', '\r']) {
        entries.extend(entries_of(part)?);
    }
    Ok(entries)
}

/// The entries of a text in which blanks separate them.
fn entries_of(text: &str) -> Result<Vec<String>, String> {
    let mut entries: Vec<String> = Vec::new();
    let (mut joins_next, mut has_blanks) = (false, false);
    for word in text.split_whitespace() {
        let joins = joins_next || word.starts_with('-');
        joins_next = word.ends_with('-');
        has_blanks = has_blanks || joins || joins_next;
        let before = if joins { entries.pop() } else { None };
        entries.push(before.unwrap_or_default() + word);
    }
    // With blanks, it has to be clear what the hyphens join: `10.0.0.1-10.0.0.5 - 10.0.0.9` is not.
    if has_blanks && !entries.iter().all(|entry| is_entry(entry)) {
        return Err(format!(
            "{} is not a range; write it without blanks, for example 10.150.1.10-10.150.1.20",
            text.trim()
        ));
    }
    Ok(entries)
}

/// Whether an entry with a hyphen is a range of two addresses.
fn is_entry(entry: &str) -> bool {
    match entry.split_once('-') {
        Some((first, last)) => parse_address(first).is_ok() && parse_address(last).is_ok(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_can_have_blanks_around_its_hyphen() {
        for cell in [
            "10.150.1.10-10.150.1.20 10.150.1.30",
            "10.150.1.10 - 10.150.1.20 10.150.1.30",
            "10.150.1.10- 10.150.1.20, 10.150.1.30",
            "10.150.1.10 -10.150.1.20;10.150.1.30",
            "10.150.1.10 \u{2013} 10.150.1.20\n10.150.1.30",
        ] {
            assert_eq!(
                entries(cell).unwrap(),
                ["10.150.1.10-10.150.1.20", "10.150.1.30"],
                "{cell}"
            );
        }
        assert_eq!(
            entries("fd00::1 - fd00::9\tfd01::/64").unwrap(),
            ["fd00::1-fd00::9", "fd01::/64"]
        );
    }

    #[test]
    fn ambiguous_range_with_blanks_is_a_problem() {
        for cell in [
            "10.0.0.1 -",
            "- 10.0.0.1",
            "-",
            "10.0.0.1 -, 10.0.0.9",
            "10.0.0.1, - 10.0.0.9",
            "10.0.0.1-10.0.0.5 - 10.0.0.9",
            "10.0.0.1 - 9",
            "10.0.0.1 - - 10.0.0.9",
            "10.0.0.0/24 - 10.0.0.9",
        ] {
            let problem = entries(cell).unwrap_err();
            assert!(
                problem.contains("write it without blanks"),
                "{cell}: {problem}"
            );
        }
        // Without blanks, the specification has the problem, with the place of the entry.
        assert!(entries("10.0.0.1-9").is_ok());
    }
}
