//! The generated files of the plugin of kubectl: completions, manual pages, the JSON schema of
//! `-o json`, and the types of its page.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use kubectl_ipam::cli::Cli;
use kubectl_ipam::model::{Document, page_schemas};
use schemars::generate::SchemaSettings;

use super::typescript::declarations;

/// The shells with a committed completion script.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// The contents of the files, by their paths.
type Files = BTreeMap<String, Vec<u8>>;

fn files() -> Result<Files, Box<dyn Error>> {
    let mut files = Files::new();
    for shell in SHELLS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "kubectl-ipam", &mut script);
        files.insert(format!("completions/kubectl-ipam.{shell}"), script);
    }
    let mut root = Cli::command();
    root.build();
    for (name, command) in pages("kubectl-ipam", &root) {
        let mut page = Vec::new();
        let manual = clap_mangen::Man::new(command).title(name.clone()).date("");
        manual.render(&mut page)?;
        files.insert(format!("man/{name}.1"), page);
    }
    // What is always written is required.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<Document<'_>>();
    let schema = serde_json::to_string_pretty(&schema)? + "\n";
    files.insert("schema.json".to_owned(), schema.into_bytes());
    let types = declarations(&page_schemas());
    files.insert("page.d.ts".to_owned(), types.into_bytes());
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

/// Writes the files below a folder.
pub fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    for (name, content) in files()? {
        let path = folder.join(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(&path, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_current() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/kubectl-ipam/generated");
        for (name, content) in files().unwrap() {
            let committed = std::fs::read(folder.join(&name)).unwrap_or_default();
            assert!(committed == content, "{name}: make generate");
        }
    }

    #[test]
    fn schema_requires_only_what_is_always_written() {
        let files = files().unwrap();
        let schema: serde_json::Value = serde_json::from_slice(&files["schema.json"]).unwrap();
        assert_eq!(schema["required"], serde_json::json!(["apiVersion"]));
    }
}
