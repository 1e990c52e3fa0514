//! What the last word of a command line can be: the engine of clap_complete finds the argument.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use parking_lot::Mutex;

use super::Candidate;
use crate::cli::Cli;

/// What the last word of a command line can be.
#[derive(Debug)]
pub(super) struct Question {
    /// What stands before the value in the last word, such as `--pool=`.
    pub(super) prefix: String,
    /// The begin of the value.
    pub(super) begin: String,
    pub(super) wanted: Wanted,
}

#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// One of these.
    Words(Vec<Candidate>),
    /// Something that the kubeconfig or the cluster has.
    Values(Values),
    Files,
}

/// What the kubeconfig or the cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Contexts,
    ClustersOfKubeconfig,
    Users,
    Namespaces,
    Pools,
    Claims,
    Networks,
    Registries,
    /// Management clusters that use a registry.
    ManagementClusters,
    /// Clusters of Cluster API.
    Clusters,
}

/// An argument whose value the engine has asked for.
#[derive(Clone)]
struct Asked {
    is_positional: bool,
    wanted: Wanted,
}

/// The last argument whose value the engine has asked for.
type LastAsked = Arc<Mutex<Option<Asked>>>;

/// Reads the words; the last one is being typed.
pub(super) fn question(words: &[String]) -> Question {
    let last = words.last().map(String::as_str).unwrap_or_default();
    let mut root = Cli::command();
    root.build();
    let asked = LastAsked::default();
    let mut root = with_completers(root, &asked);
    let mut line = vec![OsString::from("kubectl-ipam")];
    line.extend(words.iter().map(OsString::from));
    if words.is_empty() {
        line.push(OsString::new());
    }
    let index = line.len().saturating_sub(1);
    let found = complete(&mut root, line, index, None).unwrap_or_default();
    let candidates = candidates(&found, last, command_of(&root, words));
    let asked = asked.lock().take();
    // What stands before the value in `--pool=web`.
    let value = last
        .strip_prefix("--")
        .and_then(|rest| rest.split_once('='));
    let (prefix, begin) = match value {
        Some((name, value)) => (format!("--{name}="), value),
        None => (String::new(), last),
    };
    // The engine also asks what an argument without a flag can be.
    let is_of_last = |asked: &Asked| match value {
        Some(_) => !asked.is_positional,
        None => !last.starts_with('-'),
    };
    match asked.filter(is_of_last) {
        Some(asked) if candidates.is_empty() => Question {
            prefix,
            begin: begin.to_owned(),
            wanted: asked.wanted,
        },
        _ => Question {
            prefix: String::new(),
            begin: last.to_owned(),
            wanted: Wanted::Words(candidates),
        },
    }
}

/// The command of the words.
fn command_of<'a>(root: &'a Command, words: &[String]) -> &'a Command {
    let mut command = root;
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    command
}

/// The words of the engine. Flags are proposed once a word begins as one, and hidden commands never.
fn candidates(found: &[CompletionCandidate], last: &str, command: &Command) -> Vec<Candidate> {
    let is_flag = last.starts_with('-');
    let mut candidates = Vec::new();
    for candidate in found {
        let value = candidate.get_value().to_string_lossy();
        let is_hidden = candidate.is_hide_set() && !is_flag;
        if value.starts_with('-') == is_flag && !is_hidden {
            let help = candidate.get_help().map(ToString::to_string);
            // The engine has one name of each command, which can be an alias.
            let name = command.find_subcommand(&*value).map(Command::get_name);
            let name = name.filter(|name| name.starts_with(last));
            let word = name.unwrap_or(&value);
            candidates.push(Candidate::new(word, &help.unwrap_or_default()));
        }
    }
    candidates
}

/// Lets the engine tell for which argument it wants a value that the command line does not know.
fn with_completers(command: Command, asked: &LastAsked) -> Command {
    let name = command.get_name().to_owned();
    let with_completer = |argument: Arg| {
        if !argument.get_action().takes_values() || !argument.get_possible_values().is_empty() {
            return argument;
        }
        let found = Asked {
            is_positional: argument.is_positional(),
            wanted: wanted(&name, argument.get_id().as_str()),
        };
        let asked = Arc::clone(asked);
        argument.add(ArgValueCompleter::new(move |_: &OsStr| {
            *asked.lock() = Some(found.clone());
            Vec::new()
        }))
    };
    let command = command.mut_args(with_completer);
    command.mut_subcommands(|command| with_completers(command, asked))
}

/// What the value of an argument of a command can be.
fn wanted(command: &str, argument: &str) -> Wanted {
    let values = match (argument, command) {
        ("context", _) => Values::Contexts,
        ("cluster", _) => Values::ClustersOfKubeconfig,
        ("user", _) => Values::Users,
        ("namespace", _) => Values::Namespaces,
        ("pool" | "pools", _) | ("names", "pools") => Values::Pools,
        ("names", "networks") | ("network", _) => Values::Networks,
        ("names", "list") | ("registry", _) => Values::Registries,
        ("cluster_id", _) => Values::ManagementClusters,
        ("names", "clusters") | ("cluster_name", _) => Values::Clusters,
        ("names" | "claim" | "target", _) => Values::Claims,
        ("file" | "kubeconfig" | "hub_kubeconfig" | "certificate_authority", _) => {
            return Wanted::Files;
        }
        _ => return Wanted::Words(Vec::new()),
    };
    Wanted::Values(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values_of(words: &[&str]) -> Option<Values> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match question(&words).wanted {
            Wanted::Values(values) => Some(values),
            _ => None,
        }
    }

    #[test]
    fn objects_of_the_cluster_are_completed_where_they_are_named() {
        for (words, values) in [
            (&["show", ""][..], Values::Pools),
            (&["show", "-n", "lab", "w"], Values::Pools),
            (&["pools", "a", "b", ""], Values::Pools),
            (&["claims", "--pool=w"], Values::Pools),
            (&["claims", "--pool", "w"], Values::Pools),
            (&["claims", "vm"], Values::Claims),
            (&["claims", "--cluster-name", ""], Values::Clusters),
            (&["clusters", "a"], Values::Clusters),
            (&["networks", ""], Values::Networks),
            (&["reserve", "web", "10.0.0.7", "--for", ""], Values::Claims),
            (&["export", "a", ""], Values::Pools),
            (&["--context", ""], Values::Contexts),
            (&["registry", "list", ""], Values::Registries),
            (
                &["registry", "check", "lab", "--registry", ""],
                Values::Registries,
            ),
            (&["registry", "check", ""], Values::Networks),
            (
                &["registry", "release", "--cluster-id", ""],
                Values::ManagementClusters,
            ),
            (&["pools", "-An", ""], Values::Namespaces),
        ] {
            assert_eq!(values_of(words), Some(values), "{words:?}");
        }
        assert_eq!(values_of(&["show", "web", ""]), None, "one pool");
        assert_eq!(values_of(&["pools", "-nlab", "--selector", ""]), None);
    }
}
