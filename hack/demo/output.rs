//! What the demo prints. A closed pipe is an error of the kind `BrokenPipe`.

use std::io::{self, IsTerminal, Write};

/// Prints a line.
///
/// # Errors
/// When nobody reads it.
pub fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Prints a heading.
///
/// # Errors
/// When nobody reads it.
pub fn say(text: &str) -> io::Result<()> {
    // A file has no bold letters.
    if io::stdout().is_terminal() {
        print(&format!("\n\u{1b}[1m{text}\u{1b}[0m"))
    } else {
        print(&format!("\n{text}"))
    }
}

/// Prints the output of a program.
///
/// # Errors
/// When nobody reads it.
pub fn print_indented(text: &str) -> io::Result<()> {
    for line in text.lines() {
        print(&format!("  {line}"))?;
    }
    Ok(())
}

/// Prints a command as a user types it.
///
/// # Errors
/// When nobody reads it.
pub fn print_command(program: &str, arguments: &[&str]) -> io::Result<()> {
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    print(&format!("$ {program} {}", words.join(" ")))
}

/// A word of a command, quoted for a POSIX shell if it has to be.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("--for=condition=Ready", "--for=condition=Ready"),
            (r#"{"spec": 1}"#, r#"'{"spec": 1}'"#),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("a*", "'a*'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
