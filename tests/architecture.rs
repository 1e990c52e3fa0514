//! Which module may use which, held true by reading the sources: paths that begin with `crate::`, and names that a
//! module must not know. The examples of doc comments do not count, they are programs of their own.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "test code: a failure ends the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// No file of `src` is longer.
const MOST_LINES: usize = 600;

/// What a module of the crate may use. Its own parts are always among that.
struct Row {
    module: &'static str,
    modules: &'static [&'static str],
    /// What its tests may use beyond that.
    modules_in_tests: &'static [&'static str],
    /// The crates it may use, where that is limited; `std` counts.
    crates: Option<&'static [&'static str]>,
    /// The crates that its tests may use beyond that.
    crates_in_tests: &'static [&'static str],
    /// Pieces of names and texts that it must not have outside of tests, in lower case.
    unspeakable: &'static [&'static str],
}

const NOTHING_SPECIAL: Row =
    Row { module: "", modules: &[], modules_in_tests: &[], crates: None, crates_in_tests: &[], unspeakable: &[] };

/// The kinds of pools.
const POOL_KINDS: &[&str] = &["inclusterippool", "inclusterprefixpool"];

const TABLE: &[Row] = &[
    // Pure arithmetic: no kube, no tokio, no serde_json.
    Row {
        module: "addr",
        crates: Some(&["std", "ipnet", "thiserror"]),
        crates_in_tests: &["proptest"],
        unspeakable: POOL_KINDS,
        ..NOTHING_SPECIAL
    },
    Row { module: "api", modules: &["addr"], ..NOTHING_SPECIAL },
    // Knows nothing of IPAM; its tests need some kind of object to work with.
    Row {
        module: "runtime",
        modules_in_tests: &["api"],
        unspeakable: &["ipam.", "ipaddress", "ippool", "prefixpool", "ipreservation", "poolref"],
        ..NOTHING_SPECIAL
    },
    // The framework serves any kind of pool, so it names none.
    Row { module: "provider", modules: &["api", "runtime"], unspeakable: POOL_KINDS, ..NOTHING_SPECIAL },
    Row { module: "in_cluster", modules: &["addr", "api", "runtime", "provider"], ..NOTHING_SPECIAL },
    Row { module: "webhooks", modules: &["addr", "api", "runtime"], ..NOTHING_SPECIAL },
    Row { module: "cli", modules: EVERYTHING, ..NOTHING_SPECIAL },
    // The programs, which only call the library; and lib.rs, which only lists the modules.
    Row { module: "bin", modules: EVERYTHING, ..NOTHING_SPECIAL },
    Row { module: "lib", ..NOTHING_SPECIAL },
];

const EVERYTHING: &[&str] = &["addr", "api", "runtime", "provider", "in_cluster", "webhooks", "cli"];

#[test]
fn modules_use_what_they_may() {
    let dependencies = dependencies();
    let mut found = Vec::new();
    for file in sources() {
        let text = fs::read_to_string(&file).expect("sources can be read");
        found.extend(violations(&relative(&file), &text, &dependencies));
    }
    assert!(found.is_empty(), "see the table in tests/architecture.rs:\n{}", found.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let too_long = |file: &PathBuf| {
        let lines = fs::read_to_string(file).expect("sources can be read").lines().count();
        (lines > MOST_LINES).then(|| format!("{} has {lines} lines", relative(file)))
    };
    let found: Vec<_> = sources().iter().filter_map(too_long).collect();
    assert!(found.is_empty(), "a file has at most {MOST_LINES} lines:\n{}", found.join("\n"));
}

// === the checker ===

/// What is wrong with a file. `path` is relative to `src`.
fn violations(path: &str, text: &str, dependencies: &[String]) -> Vec<String> {
    let mut parts: Vec<_> = path.trim_end_matches(".rs").split('/').collect();
    let module = parts.first().copied().unwrap_or_default();
    let Some(row) = TABLE.iter().find(|row| row.module == module) else {
        return vec![format!("{path}: the module {module} has no row in the table")];
    };
    if matches!(parts.last(), Some(&("lib" | "mod"))) {
        parts.pop();
    }
    let in_test_file = parts.contains(&"tests");
    let tokens = with_context(tokens(text), parts.len(), in_test_file);

    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let mut complain = |what: String| found.push(format!("{path}:{}: {what}", token.line));
        let text_at = |offset: usize| tokens.get(index + offset).map_or("", |token| token.text.as_str());
        let before = index.checked_sub(1).and_then(|index| tokens.get(index)).map_or("", |token| token.text.as_str());
        if !token.in_test {
            let spoken = token.text.to_lowercase().replace('_', "");
            for word in row.unspeakable.iter().filter(|word| spoken.contains(**word)) {
                complain(format!("{module} must not know {word:?}, here in {:?}", token.text));
            }
        }
        if token.kind != Kind::Word {
            continue;
        }
        match token.text.as_str() {
            "crate" | "capi_ipam" if text_at(1) == "::" => {
                for used in first_segments(&tokens[index + 2..]) {
                    let may = used == module
                        || row.modules.contains(&used)
                        || (token.in_test && row.modules_in_tests.contains(&used));
                    if !may {
                        complain(format!("{module} must not use {used}"));
                    }
                }
            }
            "crate" if before == "use" => complain("name what is used of the crate".to_owned()),
            "super" if text_at(1) == "::" && text_at(2) == "super" => {
                complain("super::super: write the path from crate::".to_owned());
            }
            "super" if token.depth < 2 => complain("super is the whole crate: write the path from crate::".to_owned()),
            "mod" if text_at(1) == "tests" && !token.in_test => {
                complain("a module named tests is compiled for tests only".to_owned());
            }
            name if before != "::" && before != "." => {
                let is_crate = matches!(name, "std" | "core" | "alloc") || dependencies.iter().any(|all| all == name);
                let is_used = text_at(1) == "::" || before == "use" || (before == "crate" && name != "crate");
                let allowed = row.crates.is_none_or(|crates| {
                    crates.contains(&name) || (token.in_test && row.crates_in_tests.contains(&name))
                });
                if is_crate && is_used && !allowed {
                    complain(format!("{module} must not use the crate {name}"));
                }
            }
            _ => {}
        }
    }
    found
}

/// The first names of a path, or of all paths of a group: `addr`, or `{addr::Span, api}`.
fn first_segments(after: &[Token]) -> Vec<&str> {
    if after.first().is_none_or(|token| token.text != "{") {
        return after.iter().take(1).map(|token| token.text.as_str()).collect();
    }
    let (mut depth, mut expected, mut names) = (0, true, Vec::new());
    for token in after {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            "," if depth == 1 => expected = true,
            name if depth == 1 && expected => {
                names.push(name);
                expected = false;
            }
            _ => {}
        }
    }
    names
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Sign,
    /// A string literal, with what is in it.
    Text,
}

#[derive(Debug)]
struct Token {
    kind: Kind,
    text: String,
    line: usize,
    /// How many modules it is in; 0 for the crate itself.
    depth: usize,
    in_test: bool,
}

/// Reads Rust well enough for the above. Comments are left out, and literals other than texts.
fn tokens(text: &str) -> Vec<Token> {
    let letters: Vec<char> = text.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or_default();
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut found, mut index, mut line) = (Vec::new(), 0, 1);
    while index < letters.len() {
        let start = index;
        let mut kind = Some(Kind::Sign);
        let mut inner = 0;
        match at(index) {
            '/' if at(index + 1) == '/' => {
                index = (index..letters.len()).find(|i| at(*i) == '\n').unwrap_or(letters.len());
                kind = None;
            }
            '/' if at(index + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(index), at(index + 1)) {
                        ('/', '*') => (depth, index) = (depth + 1, index + 2),
                        ('*', '/') => (depth, index) = (depth - 1, index + 2),
                        _ => index += 1,
                    }
                    if depth == 0 || index >= letters.len() {
                        break;
                    }
                }
                kind = None;
            }
            'r' if at(index + 1) == '"' || (at(index + 1) == '#' && matches!(at(index + 2), '"' | '#')) => {
                let hashes = (index + 1..letters.len()).take_while(|i| at(*i) == '#').count();
                index += hashes + 2;
                while index < letters.len() && !(at(index) == '"' && (1..=hashes).all(|i| at(index + i) == '#')) {
                    index += 1;
                }
                index += hashes + 1;
                (kind, inner) = (Some(Kind::Text), hashes + 1);
            }
            '"' => {
                index += 1;
                while index < letters.len() && at(index) != '"' {
                    index += if at(index) == '\\' { 2 } else { 1 };
                }
                index += 1;
                (kind, inner) = (Some(Kind::Text), 1);
            }
            // A letter such as 'a' or '\u{e4}'; a lifetime such as 'a has no end.
            '\'' if at(index + 1) == '\\' || at(index + 2) == '\'' => {
                index += if at(index + 1) == '\\' { 3 } else { 2 };
                while index < letters.len() && at(index) != '\'' {
                    index += 1;
                }
                index += 1;
                kind = None;
            }
            '\'' => {
                index += 1;
                while is_name(at(index)) {
                    index += 1;
                }
                kind = None;
            }
            letter if is_name(letter) => {
                while is_name(at(index)) {
                    index += 1;
                }
                kind = Some(Kind::Word);
            }
            letter if letter.is_whitespace() => {
                index += 1;
                kind = None;
            }
            ':' if at(index + 1) == ':' => index += 2,
            _ => index += 1,
        }
        let end = index.min(letters.len());
        let piece: String = letters[start..end].iter().collect();
        let lines = piece.matches('\n').count();
        if let Some(kind) = kind {
            let text = piece.chars().skip(inner).take(piece.chars().count().saturating_sub(2 * inner)).collect();
            found.push(Token { kind, text, line, depth: 0, in_test: false });
        }
        line += lines;
    }
    found
}

/// Tells each token in how many modules it is, and whether it is compiled for tests only.
fn with_context(mut tokens: Vec<Token>, file_depth: usize, in_test_file: bool) -> Vec<Token> {
    /// An open brace: of a module? of something that is only there for tests?
    struct Brace {
        module: bool,
        test: bool,
    }
    let text = |tokens: &[Token], index: usize| tokens.get(index).map_or(String::new(), |token| token.text.clone());
    let mut open: Vec<Brace> = Vec::new();
    // The item that follows `#[cfg(test)]`, until its end, with the number of braces open at its begin.
    let mut pending: Option<usize> = None;
    for index in 0..tokens.len() {
        let rest: String = (index..index + 7).map(|index| text(&tokens, index)).collect();
        if rest == "#[cfg(test)]" && pending.is_none() {
            pending = Some(open.len());
        }
        let module = text(&tokens, index) == "{" && index >= 2 && text(&tokens, index - 2) == "mod";
        let in_test = in_test_file || pending.is_some() || open.iter().any(|brace| brace.test);
        if let Some(token) = tokens.get_mut(index) {
            token.in_test = in_test;
            token.depth = file_depth + open.iter().filter(|brace| brace.module).count();
            match (token.kind, token.text.as_str()) {
                (Kind::Sign, "{") => open.push(Brace { module, test: pending.is_some() }),
                (Kind::Sign, "}") => {
                    open.pop();
                    let next = text(&tokens, index + 1);
                    // The `}` of `use a::{b};` is not the end of it.
                    if pending == Some(open.len()) && next != ";" {
                        pending = None;
                    }
                }
                (Kind::Sign, ";") if pending == Some(open.len()) => pending = None,
                _ => {}
            }
        }
    }
    tokens
}

// === the files ===

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn relative(file: &Path) -> String {
    let path = file.strip_prefix(root()).expect("all sources are in src");
    path.to_str().expect("the names of sources are UTF-8").to_owned()
}

/// All Rust files in `src`.
fn sources() -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src can be read") {
            let path = entry.expect("src can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() > 20, "these are not all sources: {files:?}");
    files
}

/// The crates that Cargo.toml names, as they are written in Rust.
fn dependencies() -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("Cargo.toml can be read");
    let (mut inside, mut names) = (false, Vec::new());
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if let Some((name, _)) = line.split_once(" = ").filter(|(name, _)| inside && !name.starts_with(' ')) {
            names.push(name.trim_matches('"').replace('-', "_"));
        }
    }
    for known in ["kube", "tokio", "ipnet", "proptest", "k8s_openapi"] {
        assert!(names.iter().any(|name| name == known), "{known} is not among the dependencies {names:?}");
    }
    names
}

// === the checker, checked ===

/// The complaints about a file, without its name.
#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    let dependencies = ["kube", "tokio", "ipnet", "thiserror", "proptest", "serde_json"].map(str::to_owned);
    let found = violations(path, text, &dependencies);
    let found: Vec<_> = found.iter().map(|line| line.strip_prefix(&format!("{path}:")).unwrap_or(line)).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn a_forbidden_module_is_found_however_it_is_named() {
    check("addr/set.rs", "use crate::api::Pool;", &["1: addr must not use api"]);
    check("addr.rs", "\n\nfn f() { crate::runtime::start() }", &["3: addr must not use runtime"]);
    check("runtime/client.rs", "use crate::{runtime::x, api::{Pool, y}};", &["1: runtime must not use api"]);
    check("provider.rs", "pub use crate::in_cluster;", &["1: provider must not use in_cluster"]);
    check("provider/a/b.rs", "type T = Vec<crate::addr::Span>;", &["1: provider must not use addr"]);
    check("webhooks/pool.rs", "use crate::provider::decision;", &["1: webhooks must not use provider"]);
    check("in_cluster.rs", "macro_rules! m { () => { $crate::cli::main() } }", &["1: in_cluster must not use cli"]);
    check("api.rs", "use capi_ipam::provider;", &["1: api must not use provider"]);
    check("api.rs", "use crate as everything;", &["1: name what is used of the crate"]);
    check("api.rs", "use crate::*;", &["1: api must not use *"]);
    check("unheard_of.rs", "", &[" the module unheard_of has no row in the table"]);
}

#[test]
fn no_way_around_through_super() {
    check("api.rs", "use super::runtime;", &["1: super is the whole crate: write the path from crate::"]);
    check("api.rs", "mod inner { use super::Pool; }", &[]);
    check("api/pool.rs", "use super::names;", &[]);
    check("api/pool.rs", "use super::super::addr;", &["1: super::super: write the path from crate::"]);
}

#[test]
fn a_forbidden_crate_is_found() {
    check("addr/set.rs", "use std::fmt;\nuse ipnet::IpNet;\nuse thiserror::Error;", &[]);
    check("addr/set.rs", "use kube::Api;", &["1: addr must not use the crate kube"]);
    check("addr/set.rs", "use serde_json as json;", &["1: addr must not use the crate serde_json"]);
    check("addr/set.rs", "#[tokio::main]\nasync fn f() {}", &["1: addr must not use the crate tokio"]);
    check("addr/set.rs", "use proptest::prelude::*;", &["1: addr must not use the crate proptest"]);
    check("addr/set.rs", "#[cfg(test)]\nmod tests { use proptest::prelude::*; }", &[]);
    check("addr/set/tests.rs", "use proptest::prelude::*;", &[]);
    check("addr/set/tests.rs", "use tokio::time;", &["1: addr must not use the crate tokio"]);
    check("runtime/client.rs", "use kube::Api;", &[]);
}

#[test]
fn a_forbidden_name_is_found() {
    let kind = "provider must not know \"inclusterippool\", here in \"GlobalInClusterIPPool\"";
    check("provider/x.rs", "use crate::api::GlobalInClusterIPPool;", &[&format!("1: {kind}")]);
    check("provider/x.rs", "\nconst K: &str = \"GlobalInClusterIPPool\";", &[&format!("2: {kind}")]);
    check("provider/x.rs", "// GlobalInClusterIPPool\n/* InClusterIPPool /* */ */", &[]);
    check("provider/x.rs", "#[cfg(test)]\nmod tests { const K: &str = r#\"InClusterIPPool\"#; }", &[]);
    check(
        "runtime/x.rs",
        "const G: &str = \"ipam.example.com\";",
        &["1: runtime must not know \"ipam.\", here in \"ipam.example.com\""],
    );
}

#[test]
fn tests_are_told_from_the_rest() {
    check("runtime/x.rs", "#[cfg(test)]\nmod tests { use crate::api::Pool; fn f() { g(); } use crate::api; }", &[]);
    check("runtime/x.rs", "#[cfg(test)]\nuse crate::api::{Pool};\nuse crate::api;", &["3: runtime must not use api"]);
    check("runtime/x.rs", "#[cfg(test)]\nmod tests {}\nuse crate::api;", &["3: runtime must not use api"]);
    check("runtime/x.rs", "mod tests;", &["1: a module named tests is compiled for tests only"]);
    check("runtime/x.rs", "#[cfg(test)]\nmod tests;", &[]);
    check("runtime/x.rs", "#[cfg(test)]\nmod tests { use crate::addr; }", &["2: runtime must not use addr"]);
}

#[test]
fn texts_and_letters_hide_nothing() {
    check("addr.rs", r#"const A: &str = "\"use crate::api"; const B: char = '"'; const C: char = '\'';"#, &[]);
    check("addr.rs", r#"fn f<'a>(x: &'a str) {} const Q: char = '"'; use crate::api;"#, &["1: addr must not use api"]);
    check("addr.rs", "const B: &[u8] = b\"x\"; // use\nuse crate::api;", &["2: addr must not use api"]);
    check("addr.rs", "let a = \"two\nlines\";\nuse crate::api;", &["3: addr must not use api"]);
}
