//! The size of the example: what the author of a provider has to write.

/// The maximum number of lines with content, including comments.
const MAX_LINES: usize = 115;

#[test]
fn example_is_short() {
    let lines = include_str!("../src/main.rs")
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count();
    assert!(
        lines <= MAX_LINES,
        "the example has {lines} lines, and at most {MAX_LINES} are allowed"
    );
}
