//! The warnings with which the API server accepts changes.

use std::collections::{BTreeMap, BTreeSet};

use super::record::at_lines;

/// The warnings, each with the lines of the changes that it is about. A deletion has no line.
#[derive(Debug, Default)]
pub(super) struct ServerWarnings {
    lines: BTreeMap<String, BTreeSet<Option<u64>>>,
}

impl ServerWarnings {
    /// Adds the warnings of one change. It has the same ones when it is checked and when it is
    /// made.
    pub(super) fn add(&mut self, line: Option<u64>, warnings: Vec<String>) {
        for warning in warnings {
            self.lines.entry(warning).or_default().insert(line);
        }
    }

    /// Each warning once, in the order of the lines.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.lines.iter().collect();
        warnings.sort_by_key(|(_, lines)| *lines);
        let mut sentences = Vec::new();
        for (warning, lines) in warnings {
            let sentence = match lines.iter().flatten().next() {
                Some(line) => format!("{}: {warning}", at_lines(*line, lines.len())),
                None => warning.clone(),
            };
            sentences.push(sentence);
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_said_once_with_its_first_line() {
        let mut warnings = ServerWarnings::default();
        let overlap = || "the pools overlap".to_owned();
        for line in [9, 3, 5] {
            warnings.add(Some(line), vec![overlap()]);
        }
        warnings.add(Some(2), vec!["no gateway".to_owned()]);
        warnings.add(Some(3), vec![overlap(), "a large range".to_owned()]);
        warnings.add(None, vec!["in use".to_owned()]);
        assert_eq!(
            warnings.sentences(),
            [
                "in use",
                "line 2: no gateway",
                "line 3: a large range",
                "line 3 and 2 more objects: the pools overlap"
            ]
        );
    }
}
