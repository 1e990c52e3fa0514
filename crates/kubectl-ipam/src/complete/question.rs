//! What the last word of a command line can be.

use clap::{Arg, Command, CommandFactory};

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

#[derive(Debug)]
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

/// The command line before the last word.
struct Line {
    command: Command,
    /// Number of arguments of the command that are no flags.
    positionals: usize,
    /// The flag whose value comes next.
    flag: Option<Arg>,
}

/// Reads the words; the last one is being typed.
pub(super) fn question(words: &[String]) -> Question {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let line = read(before);
    let whole = |wanted| Question {
        prefix: String::new(),
        begin: last.to_owned(),
        wanted,
    };
    if let Some(flag) = &line.flag {
        return whole(wanted(&line.command, flag));
    }
    if let Some((name, value)) = last
        .strip_prefix("--")
        .and_then(|rest| rest.split_once('='))
    {
        let flag = long(&line.command, name);
        return Question {
            prefix: format!("--{name}="),
            begin: value.to_owned(),
            wanted: flag.map_or(Wanted::Words(Vec::new()), |flag| {
                wanted(&line.command, flag)
            }),
        };
    }
    if last.starts_with('-') {
        return whole(Wanted::Words(flags(&line.command)));
    }
    if line.command.has_subcommands() {
        return whole(Wanted::Words(commands(&line.command)));
    }
    let mut positionals = line.command.get_positionals();
    let next = positionals.nth(line.positionals);
    let next = next.or_else(|| {
        line.command
            .get_positionals()
            .last()
            .filter(|it| is_list(it))
    });
    whole(match next {
        Some(argument) => wanted(&line.command, argument),
        None => Wanted::Words(Vec::new()),
    })
}

/// Reads the words before the last one.
fn read(words: &[String]) -> Line {
    let mut root = Cli::command();
    root.build();
    let mut line = Line {
        command: root,
        positionals: 0,
        flag: None,
    };
    for word in words {
        if line.flag.take().is_some() {
            continue;
        }
        if let Some(name) = word.strip_prefix("--") {
            // A flag with `=` has its value.
            let flag = long(&line.command, name).filter(|flag| takes_value(flag));
            line.flag = flag.cloned();
        } else if let Some(letters) = word.strip_prefix('-') {
            line.flag = open_flag(&line.command, letters).cloned();
        } else if line.command.has_subcommands() {
            let Some(command) = line.command.find_subcommand(word).cloned() else {
                continue;
            };
            line.command = command;
        } else {
            line.positionals = line.positionals.saturating_add(1);
        }
    }
    line
}

fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|flag| flag.get_long() == Some(name))
}

/// The flag of `-An` whose value is the next word; none if the value follows its letter, as in
/// `-nlab`.
fn open_flag<'a>(command: &'a Command, letters: &str) -> Option<&'a Arg> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let flag = command
            .get_arguments()
            .find(|flag| flag.get_short() == Some(letter))?;
        if takes_value(flag) {
            return rest.next().is_none().then_some(flag);
        }
    }
    None
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

fn is_list(argument: &Arg) -> bool {
    matches!(argument.get_action(), clap::ArgAction::Append)
}

fn commands(root: &Command) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for command in root.get_subcommands() {
        if !command.is_hide_set() {
            let about = command.get_about().map(ToString::to_string);
            candidates.push(Candidate::new(
                command.get_name(),
                &about.unwrap_or_default(),
            ));
        }
    }
    candidates
}

fn flags(command: &Command) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for flag in command.get_arguments() {
        if let Some(name) = flag.get_long() {
            let help = flag.get_help().map(ToString::to_string);
            candidates.push(Candidate::new(
                &format!("--{name}"),
                &help.unwrap_or_default(),
            ));
        }
    }
    candidates
}

/// What the value of a flag or an argument can be.
fn wanted(command: &Command, argument: &Arg) -> Wanted {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let mut candidates = Vec::new();
        for value in possible {
            let help = value.get_help().map(ToString::to_string);
            candidates.push(Candidate::new(value.get_name(), &help.unwrap_or_default()));
        }
        return Wanted::Words(candidates);
    }
    let values = match (argument.get_id().as_str(), command.get_name()) {
        ("context", _) => Values::Contexts,
        ("cluster", _) => Values::ClustersOfKubeconfig,
        ("user", _) => Values::Users,
        ("namespace", _) => Values::Namespaces,
        ("pool" | "pools", _) | ("names", "pools") => Values::Pools,
        ("names", "networks") | ("network", _) => Values::Networks,
        ("names", "list") | ("registry", _) => Values::Registries,
        ("cluster_id", _) => Values::ManagementClusters,
        ("names" | "claim" | "target", _) => Values::Claims,
        ("cluster_name", _) => Values::Clusters,
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
