//! An estimate of the memory of parsed JSON. A few megabytes of JSON can become a tree of values a
//! hundred times as large, so the size is estimated before parsing.

/// Bytes of a value in a list, with the spare capacity of a growing list.
const VALUE_SIZE: usize = 128;

/// Bytes of the first node of a map, which has room for eleven entries.
const MAP_SIZE: usize = 704;

/// Bytes of a string in addition to its text.
const STRING_OVERHEAD: usize = 48;

/// Limit for the memory of a parsed review or converted object. The largest pool that the
/// CustomResourceDefinitions allow takes 4 MiB, and a review contains two.
pub(super) const MAX_MEMORY: usize = 32 * 1024 * 1024;

/// Whether the [`serde_json::Value`] of this text may take more than [`MAX_MEMORY`]. Allocates
/// nothing, and reads no more of the text than needed. Of an invalid text the valid beginning
/// counts, or more.
pub(super) fn is_too_large(json: &[u8]) -> bool {
    memory_of(json) > MAX_MEMORY
}

/// An upper bound of the bytes of the [`serde_json::Value`] of this text; a number above
/// [`MAX_MEMORY`] if they are more than that.
pub(super) fn memory_of(json: &[u8]) -> usize {
    parsed_size(json, MAX_MEMORY)
}

/// An upper bound of the bytes of the parsed value. Stops at a number above `limit`.
fn parsed_size(json: &[u8], limit: usize) -> usize {
    let mut size = VALUE_SIZE;
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let added = match byte {
            b',' => VALUE_SIZE,
            b'{' | b'[' => {
                while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
                match (byte, bytes.peek()) {
                    (_, Some(b'}' | b']')) => 0,
                    (b'{', _) => MAP_SIZE,
                    _ => VALUE_SIZE,
                }
            }
            b'"' => STRING_OVERHEAD.saturating_add(skip_string(&mut bytes)),
            _ => 0,
        };
        size = size.saturating_add(added);
        if size > limit {
            break;
        }
    }
    size
}

/// Skips the rest of a string. Returns its length in bytes.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) -> usize {
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
    use serde_json::{Value, json};

    use super::*;

    /// A lower bound of the bytes of a value: its parts without spare capacity.
    fn min_size(value: &Value) -> usize {
        size_of::<Value>()
            + match value {
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(min_size).sum(),
                Value::Object(fields) => fields
                    .iter()
                    .map(|(name, value)| size_of::<String>() + name.len() + min_size(value))
                    .sum(),
                _ => 0,
            }
    }

    #[test]
    fn estimate_is_an_upper_bound() {
        let entry = |number: usize| json!({"name": format!("n{number}"), "list": [1, [], {}, null, "a\"]},{\\"]});
        let many: Vec<_> = (0..500).map(entry).collect();
        let deep = (0..100).fold(json!(1), |inner, _| json!([{ "": inner }]));
        for value in [
            json!(null),
            json!([]),
            json!("x".repeat(1000)),
            json!(vec![0; 1000]),
            json!(many),
            deep,
        ] {
            for text in [
                value.to_string(),
                serde_json::to_string_pretty(&value).unwrap(),
            ] {
                let size = parsed_size(text.as_bytes(), usize::MAX);
                assert!(
                    size >= min_size(&value),
                    "{size} is less than {} of {text}",
                    min_size(&value)
                );
            }
        }
    }

    #[test]
    fn json_syntax_in_strings_counts_as_text() {
        let text = json!("[0,0,{\"a\":0}],\\\"".repeat(100)).to_string();
        assert!(
            parsed_size(text.as_bytes(), usize::MAX)
                < 2 * text.len() + VALUE_SIZE + STRING_OVERHEAD
        );
    }

    #[test]
    fn nested_lists_and_maps_exceed_the_size_of_the_text() {
        for (part, factor) in [("0,", 32), ("{\"\":0},", 90), ("[0],", 32), ("\"\",", 24)] {
            let text = format!("[{}0]", part.repeat(10_000));
            assert!(
                parsed_size(text.as_bytes(), usize::MAX) > text.len() * factor,
                "{part}"
            );
        }
    }

    #[test]
    fn pools_are_small() {
        let pool = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"addresses": ["10.0.0.0/24"]}});
        assert!(parsed_size(pool.to_string().as_bytes(), usize::MAX) < 8 * 1024);
        // The largest pool that the CustomResourceDefinition allows.
        let addresses: Vec<_> = (0..4096)
            .map(|number| format!("fd00:1:2:3:4:5:6:{number:x}"))
            .collect();
        let longest = json!({"spec": {"addresses": addresses, "excludedAddresses": addresses}});
        assert!(parsed_size(longest.to_string().as_bytes(), usize::MAX) < 2 * 1024 * 1024);
    }

    #[test]
    fn estimate_stops_at_the_limit() {
        assert_eq!(
            parsed_size("[0,0,0,0,0,0,0".as_bytes(), 2 * VALUE_SIZE),
            3 * VALUE_SIZE
        );
        let numbers = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert!(is_too_large(numbers(MAX_MEMORY / VALUE_SIZE).as_bytes()));
        assert!(!is_too_large(
            numbers(MAX_MEMORY / VALUE_SIZE - 2).as_bytes()
        ));
    }

    #[test]
    fn invalid_json_is_counted() {
        for text in [&b""[..], b"\"", b"\"\\", b"[", b"{ ", b"\xff\xfe{", b"]]}}"] {
            assert!(parsed_size(text, usize::MAX) >= VALUE_SIZE);
        }
    }
}
