//! How much memory a JSON text takes once it is read. A text of a few megabytes can become a tree of values that takes
//! a hundred times as much, so this is worked out before anything is read.

/// A value: 32 bytes, and as much again for the room that a growing list keeps.
const VALUE: usize = 128;

/// The first node of a map, which has room for eleven entries.
const MAP: usize = 704;

/// What an allocation takes beyond the bytes of its text.
const TEXT: usize = 48;

/// Whether a [`serde_json::Value`] that is read from this text may take more than `limit` bytes. Allocates nothing, and
/// reads no further than needed. A text that is no JSON counts as its readable beginning, or as more.
pub(super) fn exceeds(json: &[u8], limit: usize) -> bool {
    parsed_size(json, limit) > limit
}

/// About how many bytes a value takes that is read from this text, rather too many than too few; some number above
/// `enough` if there are more than that.
fn parsed_size(json: &[u8], enough: usize) -> usize {
    let mut size = VALUE;
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let added = match byte {
            b',' => VALUE,
            b'{' | b'[' => {
                while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
                match (byte, bytes.peek()) {
                    (_, Some(b'}' | b']')) => 0,
                    (b'{', _) => MAP,
                    _ => VALUE,
                }
            }
            b'"' => TEXT.saturating_add(skip_text(&mut bytes)),
            _ => 0,
        };
        size = size.saturating_add(added);
        if size > enough {
            break;
        }
    }
    size
}

/// Skips the rest of a string; how many bytes it has.
fn skip_text(bytes: &mut impl Iterator<Item = u8>) -> usize {
    let mut length: usize = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
        length = length.saturating_add(1);
    }
    length
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    /// What a value takes at least: its parts, without the room that allocations and nodes waste.
    fn least(value: &Value) -> usize {
        size_of::<Value>()
            + match value {
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(least).sum(),
                Value::Object(fields) => {
                    fields.iter().map(|(name, value)| size_of::<String>() + name.len() + least(value)).sum()
                }
                _ => 0,
            }
    }

    #[test]
    fn no_value_takes_more_than_was_worked_out() {
        let entry = |number: usize| json!({"name": format!("n{number}"), "list": [1, [], {}, null, "a\"]},{\\"]});
        let many: Vec<_> = (0..500).map(entry).collect();
        let deep = (0..100).fold(json!(1), |inner, _| json!([{ "": inner }]));
        for value in [json!(null), json!([]), json!("x".repeat(1000)), json!(vec![0; 1000]), json!(many), deep] {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let size = parsed_size(text.as_bytes(), usize::MAX);
                assert!(size >= least(&value), "{size} is less than {} of {text}", least(&value));
            }
        }
    }

    #[test]
    fn what_stands_in_a_text_counts_its_bytes_only() {
        let text = json!("[0,0,{\"a\":0}],\\\"".repeat(100)).to_string();
        assert!(parsed_size(text.as_bytes(), usize::MAX) < 2 * text.len() + VALUE + TEXT);
    }

    #[test]
    fn lists_and_maps_of_junk_cost_far_more_than_their_text() {
        for (part, factor) in [("0,", 32), ("{\"\":0},", 90), ("[0],", 32), ("\"\",", 24)] {
            let text = format!("[{}0]", part.repeat(10_000));
            assert!(parsed_size(text.as_bytes(), usize::MAX) > text.len() * factor, "{part}");
        }
    }

    #[test]
    fn a_pool_costs_little() {
        let pool = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"addresses": ["10.0.0.0/24"]}});
        assert!(parsed_size(pool.to_string().as_bytes(), usize::MAX) < 8 * 1024);
        // The longest that the definitions admit.
        let addresses: Vec<_> = (0..4096).map(|number| format!("fd00:1:2:3:4:5:6:{number:x}")).collect();
        let longest = json!({"spec": {"addresses": addresses, "excludedAddresses": addresses}});
        assert!(parsed_size(longest.to_string().as_bytes(), usize::MAX) < 2 * 1024 * 1024);
    }

    #[test]
    fn no_more_is_read_than_needed() {
        assert_eq!(parsed_size("[0,0,0,0,0,0,0".as_bytes(), 2 * VALUE), 3 * VALUE);
        assert!(exceeds(b"[0,0]", 3 * VALUE - 1) && !exceeds(b"[0,0]", 3 * VALUE));
    }

    #[test]
    fn broken_texts_are_counted_too() {
        for text in [&b""[..], b"\"", b"\"\\", b"[", b"{ ", b"\xff\xfe{", b"]]}}"] {
            assert!(parsed_size(text, usize::MAX) >= VALUE);
        }
    }
}
