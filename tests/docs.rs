//! The documentation: links and anchors resolve, prose fits the width, and every condition has a
//! description.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The longest line of prose, in characters.
const MAX_WIDTH: usize = 120;
/// The longest front page and the longest contributor page, in lines.
const MAX_LINES: usize = 150;

/// A page, as its lines outside of code blocks.
struct Page {
    path: PathBuf,
    lines: Vec<(usize, String)>,
    length: usize,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut fence: Option<String> = None;
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let ticks: String = start.chars().take_while(|letter| *letter == '`').collect();
            match &fence {
                Some(open) if start.trim_end() == *open => fence = None,
                Some(_) => {}
                None if ticks.len() >= 3 => fence = Some(ticks),
                None => lines.push((index + 1, line.to_owned())),
            }
        }
        assert!(
            fence.is_none(),
            "{}: a code block does not end",
            path.display()
        );
        Self {
            path,
            lines,
            length: text.lines().count(),
        }
    }

    /// The targets of all links and images, with their line numbers.
    fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in &self.lines {
            let line = without_code(line);
            let targets = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            links.extend(targets.map(|target| (*number, target.to_owned())));
        }
        links
    }

    /// The anchors of all headings.
    fn anchors(&self) -> HashSet<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut anchors = HashSet::new();
        for (_, line) in &self.lines {
            let hashes = line.chars().take_while(|letter| *letter == '#').count();
            let Some(heading) = line
                .get(hashes..)
                .and_then(|rest| rest.strip_prefix(' '))
                .filter(|_| hashes > 0)
            else {
                continue;
            };
            let anchor = slug(heading);
            let count = seen.entry(anchor.clone()).or_default();
            anchors.insert(if *count == 0 {
                anchor
            } else {
                format!("{anchor}-{count}")
            });
            *count += 1;
        }
        anchors
    }
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let text = without_targets(heading).to_lowercase();
    let kept = text
        .trim()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The line with the targets of its links removed.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(']');
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text
}

/// The line with its inline code removed.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a directory of the repository, by their paths from its root.
fn files(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(root().join(&directory)) else {
            continue;
        };
        for entry in entries {
            let path = directory.join(entry.expect("the directory can be read").file_name());
            if root().join(&path).is_dir() {
                directories.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

fn pages() -> Vec<Page> {
    let own = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from);
    let docs = files("docs")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages: Vec<Page> = own.into_iter().chain(docs).map(Page::read).collect();
    assert!(pages.len() > 10, "there are pages in docs");
    pages
}

/// The path of a link's target from the root of the repository.
fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[test]
fn links_and_anchors_resolve() {
    let pages = pages();
    let anchors: HashMap<&Path, HashSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_path(), page.anchors()))
        .collect();
    let mut broken = Vec::new();
    for page in &pages {
        for (line, target) in page.links() {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target
                .split_once('#')
                .map_or((target.as_str(), None), |(file, at)| (file, Some(at)));
            let path = if file.is_empty() {
                page.path.clone()
            } else {
                resolve(&page.path, file)
            };
            let is_there = root().join(&path).exists();
            let has_anchor = |anchor: &str| {
                anchors
                    .get(path.as_path())
                    .is_some_and(|all| all.contains(anchor))
            };
            if !is_there || anchor.is_some_and(|anchor| !has_anchor(anchor)) {
                broken.push(format!("{}:{line}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn prose_fits_the_width() {
    let mut long = Vec::new();
    for page in pages() {
        for (number, line) in &page.lines {
            let is_table = line.trim_start().starts_with('|');
            if !is_table && without_targets(line).chars().count() > MAX_WIDTH {
                long.push(format!("{}:{number}: {line}", page.path.display()));
            }
        }
    }
    assert!(
        long.is_empty(),
        "lines of more than {MAX_WIDTH} characters:\n{}",
        long.join("\n")
    );
}

#[test]
fn front_pages_are_short() {
    for path in ["README.md", "CONTRIBUTING.md"] {
        let length = Page::read(path.into()).length;
        assert!(
            length <= MAX_LINES,
            "{path} has {length} lines, more than {MAX_LINES}"
        );
    }
}

#[test]
fn index_lists_every_page() {
    let index = Page::read("docs/README.md".into());
    let linked: HashSet<PathBuf> = index
        .links()
        .iter()
        .map(|(_, target)| resolve(&index.path, target.split('#').next().unwrap_or_default()))
        .collect();
    for page in pages()
        .into_iter()
        .filter(|page| page.path.starts_with("docs") && page.path != index.path)
    {
        assert!(
            linked.contains(&page.path),
            "docs/README.md does not link {}",
            page.path.display()
        );
    }
}

#[test]
fn every_condition_type_and_reason_is_described() {
    let page = fs::read_to_string(root().join("docs/conditions-and-events.md"))
        .expect("the page can be read");
    let sources = ["src", "crates"]
        .into_iter()
        .flat_map(files)
        .filter(|path| path.ends_with("conditions.rs"));
    let mut names = HashSet::new();
    for path in sources {
        let text = fs::read_to_string(root().join(path)).expect("a source can be read");
        let constants = text
            .lines()
            .filter(|line| line.starts_with("pub const ") && line.contains(": &str = \""));
        names.extend(constants.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())));
    }
    assert!(
        names.len() > 20,
        "the constants of conditions are found: {names:?}"
    );
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not described in docs/conditions-and-events.md"
        );
    }
}

/// The words of a page in lower case, without the marks of Markdown.
fn words(path: &str) -> String {
    let text = fs::read_to_string(root().join(path)).expect("the page can be read");
    let plain: String = text
        .lines()
        .map(without_targets)
        .collect::<Vec<_>>()
        .join(" ")
        .replace(['`', '[', ']', '*'], "");
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// One cause has one advice: in conditions, events, `kubectl ipam doctor` and the pages.
#[test]
fn pages_give_the_advice_of_the_code() {
    use capi_ipam_api::advice;

    let (conditions, runbook, troubleshooting) = (
        "docs/conditions-and-events.md",
        "docs/runbook.md",
        "docs/troubleshooting.md",
    );
    let [kept, deleting] = [
        "delete the machines of these claims",
        "since a deletion cannot be undone",
    ];
    let pool = capi_ipam_api::PoolKey::new(capi_ipam_api::InClusterKind::IPPool, Some("n"), "p");
    assert!(advice::pool_deleting(&pool).starts_with(&format!("{kept}, {deleting}")));
    let network = "create an IPNetwork that allows the namespaces, and name the same IPNetwork in spec.network of all \
                   of them";
    let overlap = advice::overlap(&capi_ipam_api::Scope::Pool(pool), true);
    assert!(overlap.contains(network), "{overlap}");
    for (page, advice) in [
        (conditions, advice::MISSING_POOL),
        (conditions, advice::MISSING_CLUSTER),
        (conditions, advice::ANOTHER_POOL),
        (conditions, advice::LIMIT),
        (conditions, advice::NO_FREE_SLICE),
        (conditions, advice::DUPLICATE),
        (runbook, advice::DUPLICATE),
        (troubleshooting, advice::DUPLICATE),
        ("docs/networks.md", advice::DUPLICATE),
        ("docs/networks.md", network),
        (runbook, network),
        (conditions, advice::PAUSED),
        (troubleshooting, advice::PAUSED),
        (conditions, kept),
        (conditions, deleting),
        (troubleshooting, kept),
        (troubleshooting, deleting),
    ] {
        assert!(
            words(page).contains(&advice.to_lowercase()),
            "{page} does not say: {advice}"
        );
    }
}

/// What the code advises about a full pool stands in the runbook, each choice in its own words.
#[test]
fn runbook_has_each_choice_for_a_full_pool() {
    let counts = capi_ipam_api::AddressCounts {
        used: 1,
        reserved: 1,
        cooling_down: 1,
        quarantined: 1,
        ..capi_ipam_api::AddressCounts::default()
    };
    let runbook = words("docs/runbook.md");
    let advice = capi_ipam_api::advice::exhausted(&counts, true);
    for choice in advice.split(", ").flat_map(|part| part.split(" or ")) {
        assert!(runbook.contains(choice), "{choice} of: {advice}");
    }
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(slug("Why it is safe"), "why-it-is-safe");
    assert_eq!(
        slug("`v1alpha1` of A and B (deprecated)"),
        "v1alpha1-of-a-and-b-deprecated"
    );
    assert_eq!(
        slug("See [Pools](pools.md), and more"),
        "see-pools-and-more"
    );
    assert_eq!(without_code("a `[b](c)` d"), "a  d");
    assert_eq!(
        resolve(Path::new("docs/design/a.md"), "../../README.md"),
        Path::new("README.md")
    );
}
