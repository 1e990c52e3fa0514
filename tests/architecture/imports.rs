//! The import graph of each folder has no circle: its files can be read in an order in which each
//! one uses only those that were read before.
//!
//! The nodes of the graph of a folder are its files, each with the folder of its submodules. An
//! import of a re-exported name is an import of the file that defines it. What a file imports from
//! the file above it (`super::`) is not an edge of this graph.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ItemUse, Path, UseTree};

use super::sources::{Crate, ModulePath, crates};

/// The number of re-exports through which a name is followed.
const MAX_REEXPORTS: usize = 16;

#[test]
fn folders_have_no_import_circle() {
    let mut found = Vec::new();
    for of_crate in crates() {
        found.extend(circles(&of_crate));
    }
    let texts: Vec<String> = found.iter().map(Circle::text).collect();
    assert!(
        texts.is_empty(),
        "files that import each other; move what they share into another file:\n{}",
        texts.join("\n")
    );
}

/// Files of a folder that import each other.
struct Circle {
    folder: String,
    files: Vec<String>,
    arrows: Vec<String>,
}

impl Circle {
    fn text(&self) -> String {
        let (folder, files) = (&self.folder, self.files.join(", "));
        format!("{folder}: {files}\n  {}", self.arrows.join("\n  "))
    }
}

/// The arrows between the files of one folder, each with an example.
type Graph = BTreeMap<(String, String), String>;

fn circles(of_crate: &Crate) -> Vec<Circle> {
    let mut folders: BTreeMap<ModulePath, Graph> = BTreeMap::new();
    for (from, imports) in imports(of_crate) {
        for path in imports {
            let Some(to) = definer(of_crate, &from, &path) else {
                continue;
            };
            let depth = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // An import from a module that contains the other one is no arrow between two files.
            if let (Some(one), Some(other)) = (from.get(depth), to.get(depth)) {
                let graph = folders.entry(from[..depth].to_vec()).or_default();
                let example = format!("{} uses {}", from.join("::"), path.join("::"));
                graph.insert((one.clone(), other.clone()), example);
            }
        }
    }
    let mut circles = Vec::new();
    for (folder, graph) in folders {
        let mut path = of_crate.folder.clone();
        path.extend(folder);
        for files in components(&graph) {
            let is_inside =
                |(one, other): &(String, String)| files.contains(one) && files.contains(other);
            let inside = graph.iter().filter(|(arrow, _)| is_inside(arrow));
            circles.push(Circle {
                folder: path.display().to_string(),
                arrows: inside.map(|(_, example)| example.clone()).collect(),
                files: files.into_iter().collect(),
            });
        }
    }
    circles
}

/// The sets of nodes that reach each other.
fn components(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let mut components = BTreeSet::new();
    for (start, _) in graph.keys() {
        let mut component = BTreeSet::new();
        for node in reachable(graph, start) {
            if reachable(graph, &node).contains(start) {
                component.insert(node);
            }
        }
        if component.len() > 1 {
            components.insert(component);
        }
    }
    components
}

fn reachable(graph: &Graph, start: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![start.to_owned()];
    while let Some(node) = next.pop() {
        let arrows = graph.keys().filter(|(from, _)| *from == node);
        for (_, to) in arrows {
            if found.insert(to.clone()) {
                next.push(to.clone());
            }
        }
    }
    found
}

/// The paths that each module imports or names.
fn imports(of_crate: &Crate) -> BTreeMap<ModulePath, Vec<Vec<String>>> {
    let mut imports = BTreeMap::new();
    for (path, module) in &of_crate.modules {
        let mut names = Names::default();
        for item in &module.items {
            names.visit_item(item);
        }
        imports.insert(path.clone(), names.0);
    }
    imports
}

/// The paths of `use` items, and all other paths that start at the crate or at a module.
#[derive(Default)]
struct Names(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.0
            .extend(leaves(&item.tree).into_iter().map(|(_, path)| path));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if ["crate", "self", "super"].contains(&segments[0].as_str()) && segments.len() > 1 {
            self.0.push(segments);
        }
        visit::visit_path(self, path);
    }
}

/// The names that a `use` item brings into scope, each with its path.
fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            vec![(name.clone(), vec![name])]
        }
        UseTree::Rename(rename) => {
            vec![(rename.rename.to_string(), vec![rename.ident.to_string()])]
        }
        UseTree::Glob(_) => vec![("*".to_owned(), Vec::new())],
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let mut found = leaves(&path.tree);
            for (name, rest) in &mut found {
                // `a::{self}` is the name `a`.
                if rest.last().is_some_and(|last| last == "self") {
                    rest.pop();
                    name.clone_from(&first);
                }
                rest.insert(0, first.clone());
            }
            found
        }
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// The module that defines what a path names in a module; `None` if it is another crate.
fn definer(of_crate: &Crate, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
    resolve(of_crate, module, path, MAX_REEXPORTS)
}

fn resolve(
    of_crate: &Crate,
    module: &ModulePath,
    path: &[String],
    depth: usize,
) -> Option<ModulePath> {
    let depth = depth.checked_sub(1)?;
    let mut current = module.clone();
    let mut is_known = false;
    for name in path {
        match name.as_str() {
            "crate" => current.clear(),
            "super" => drop(current.pop()),
            "self" => {}
            name => {
                current.push(name.to_owned());
                if of_crate.modules.contains_key(&current) {
                    is_known = true;
                    continue;
                }
                current.pop();
                if let Some(import) = import_of(of_crate, &current, name) {
                    // An import of the name itself, such as `use serde;`, is of another crate.
                    let is_same = import.first().is_some_and(|first| first == name);
                    let target = if is_same && import.len() == 1 {
                        None
                    } else {
                        resolve(of_crate, &current, &import, depth)
                    };
                    return target;
                }
                return is_known.then_some(current);
            }
        }
        is_known = true;
    }
    is_known.then_some(current)
}

/// The path from which a module imports a name.
fn import_of(of_crate: &Crate, module: &ModulePath, name: &str) -> Option<Vec<String>> {
    for item in &of_crate.modules.get(module)?.items {
        if let syn::Item::Use(item) = item {
            let found = leaves(&item.tree)
                .into_iter()
                .find(|(leaf, _)| leaf == name);
            if let Some((_, path)) = found {
                return Some(path);
            }
        }
    }
    None
}
