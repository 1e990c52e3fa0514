//! Tab completion after `kubectl ipam`.
//!
//! kubectl runs the program `kubectl_complete-ipam` with the words that follow `ipam`, the last of
//! which is being typed. The script of that name runs `kubectl-ipam __complete WORD...`. The answer
//! has the format of Cobra: a line for each candidate, with a description after a tab, and a last
//! line with the directive.

mod question;
mod values;

use std::time::Duration;

use self::question::{Question, Wanted, question};
use self::values::values;

/// The first argument with which the program completes words.
pub(crate) const ARGUMENT: &str = "__complete";

/// How long the cluster is asked: somebody waits at the prompt.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Directive: the shell does not add names of files.
const NO_FILES: &str = ":4";
/// Directive: the shell adds names of files.
const FILES: &str = ":0";

/// A candidate for the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    value: String,
    /// Empty for none.
    description: String,
}

impl Candidate {
    fn new(value: &str, description: &str) -> Self {
        Self {
            value: value.to_owned(),
            description: description.to_owned(),
        }
    }
}

/// The answer for the words after `ipam`. What cannot be read has no candidates: an error at the
/// prompt would be in the way.
pub(crate) async fn answer(words: &[String]) -> String {
    let question = question(words);
    let candidates = match &question.wanted {
        Wanted::Files => return format!("{FILES}\n"),
        Wanted::Words(candidates) => candidates.clone(),
        Wanted::Values(kind) => {
            let found = values(*kind, words);
            let found = tokio::time::timeout(TIMEOUT, found).await;
            found.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default()
        }
    };
    text(&question, &candidates)
}

/// The candidates that continue the last word.
fn text(question: &Question, candidates: &[Candidate]) -> String {
    let mut text = String::new();
    for candidate in candidates {
        if !candidate.value.starts_with(&question.begin) {
            continue;
        }
        text.push_str(&question.prefix);
        text.push_str(&candidate.value);
        // The first sentence of the help.
        let line = candidate.description.lines().next().unwrap_or_default();
        if !line.is_empty() {
            text.push('\t');
            text.push_str(line);
        }
        text.push('\n');
    }
    text.push_str(NO_FILES);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let answer = runtime.block_on(answer(&words));
        let name = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        answer.lines().map(name).collect()
    }

    #[test]
    fn commands_flags_and_their_values_are_completed() {
        let commands = complete(&[""]);
        assert!(commands.contains(&"pools".to_owned()), "{commands:?}");
        assert_eq!(complete(&["cla"]), ["claims", ":4"]);
        assert_eq!(complete(&["-n", "lab", "doc"]), ["doctor", ":4"]);
        assert_eq!(complete(&["claims", "--wai"]), ["--waiting", ":4"]);
        assert_eq!(complete(&["doctor", "-o", "j"]), ["json", ":4"]);
        assert_eq!(
            complete(&["doctor", "-oy", "--output=ya"]),
            ["--output=yaml", ":4"]
        );
        assert_eq!(
            complete(&["reserve", "web", "--dry-run", "s"]),
            ["server", ":4"]
        );
        assert_eq!(complete(&["registry", "rel"]), ["release", ":4"]);
        assert_eq!(complete(&["convert", ""]), [":0"], "files");
        assert_eq!(complete(&["pools", "--kubeconfig", "/e"]), [":0"], "files");
    }
}
