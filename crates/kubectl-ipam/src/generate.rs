//! The generated files: completions, manual pages, the JSON schema of `-o json`, and the types of
//! the page of `web`.

mod typescript;

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{Code, Error};
use crate::model::Document;

/// The shells with a committed completion script.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// The completion script of a shell.
pub(crate) fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kubectl-ipam", &mut script);
    script
}

/// The paths and the contents of all generated files.
pub(crate) fn files() -> Result<Vec<(String, Vec<u8>)>, Error> {
    let failed = |error: &dyn std::error::Error| Error::Output(error.to_string());
    let mut files = Vec::new();
    for shell in SHELLS {
        files.push((
            format!("completions/kubectl-ipam.{shell}"),
            completion(shell),
        ));
    }
    let mut root = Cli::command();
    root.build();
    for (name, command) in pages("kubectl-ipam", &root) {
        let mut page = Vec::new();
        let manual = clap_mangen::Man::new(command).title(name.clone()).date("");
        manual.render(&mut page).map_err(|error| failed(&error))?;
        files.push((format!("man/{name}.1"), page));
    }
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Document<'_>))
        .map_err(|error| failed(&error))?;
    files.push(("schema.json".to_owned(), (schema + "\n").into_bytes()));
    let declarations = typescript::declarations();
    files.push(("page.d.ts".to_owned(), declarations.into_bytes()));
    Ok(files)
}

/// A command and its subcommands, each with the name of its manual page.
fn pages(name: &str, command: &Command) -> Vec<(String, Command)> {
    let mut found = vec![(name.to_owned(), command.clone())];
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            let name = format!("{name}-{}", subcommand.get_name());
            found.extend(pages(&name, subcommand));
        }
    }
    found
}

/// Writes all generated files below a folder.
pub(crate) fn run(folder: &Path) -> Result<Code, Error> {
    for (name, content) in files()? {
        let path = folder.join(name);
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = parent.and_then(|()| std::fs::write(&path, content));
        written.map_err(|error| Error::Output(format!("{}: {error}", path.display())))?;
    }
    Ok(Code::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_current() {
        for (name, content) in files().unwrap() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("generated")
                .join(&name);
            let committed = std::fs::read(&path).unwrap_or_default();
            assert!(
                committed == content,
                "{name} is outdated: run cargo run -p kubectl-ipam -- generate crates/kubectl-ipam/generated"
            );
        }
    }
}
