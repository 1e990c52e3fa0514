//! Code blocks of the documentation.

use std::fs;
use std::path::Path;

/// The code blocks of a language in a page, in their order. With a heading only those of its
/// section, including its subsections. The indentation of a block is removed.
///
/// # Panics
/// When the page cannot be read, or has no such heading.
pub(crate) fn blocks(page: &str, heading: Option<&str>, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    in_section(&text, heading, language)
        .unwrap_or_else(|| panic!("{page} has no heading {heading:?}"))
}

/// `None` when there is no such heading.
fn in_section(text: &str, heading: Option<&str>, language: &str) -> Option<Vec<String>> {
    let mut blocks = Vec::new();
    // The level of the section's heading while its lines are read.
    let mut section = heading.is_none().then_some(0);
    let mut is_found = heading.is_none();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        let ticks = start.chars().take_while(|letter| *letter == '`').count();
        if ticks >= 3 {
            let (indentation, end) = (line.len() - start.len(), "`".repeat(ticks));
            let is_wanted =
                start.trim_start_matches('`').split_whitespace().next() == Some(language);
            let body = lines.by_ref().take_while(|line| line.trim() != end);
            let body: Vec<&str> = body
                .map(|line| line.get(indentation..).unwrap_or_default())
                .collect();
            if is_wanted && section.is_some() {
                blocks.push(body.join("\n") + "\n");
            }
            continue;
        }
        let level = line.chars().take_while(|letter| *letter == '#').count();
        let Some(title) = line
            .get(level..)
            .and_then(|rest| rest.strip_prefix(' '))
            .filter(|_| level > 0)
        else {
            continue;
        };
        if Some(title.trim()) == heading {
            (section, is_found) = (Some(level), true);
        } else if heading.is_some() && section.is_some_and(|open| level <= open) {
            section = None;
        }
    }
    is_found.then_some(blocks)
}

#[test]
fn blocks_of_a_section_include_its_subsections() {
    let text = "# A\n```sh\na\n```\n## B\n```sh\n# b\n```\n### C\n- d\n\n  ```sh\n  c\n    d\n  ```\n## D\n````sh\nd\n````\n";
    let found = |heading| in_section(text, heading, "sh").map(|blocks| blocks.join(""));
    assert_eq!(found(None).as_deref(), Some("a\n# b\nc\n  d\nd\n"));
    assert_eq!(found(Some("A")), found(None));
    assert_eq!(found(Some("B")).as_deref(), Some("# b\nc\n  d\n"));
    assert_eq!(found(Some("D")).as_deref(), Some("d\n"));
    assert_eq!(found(Some("E")), None);
    assert_eq!(
        in_section(text, None, "yaml").map(|blocks| blocks.len()),
        Some(0)
    );
}
