//! The sources of the product as syntax trees: the modules of each crate, without those for tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, Meta};

/// The path of a module from the root of its crate.
pub(crate) type ModulePath = Vec<String>;

/// A module of a crate: a file, or a part of one.
pub(crate) struct Module {
    /// The file, from the root of the repository.
    pub(crate) file: PathBuf,
    /// The items of the module, without submodules and without items for tests.
    pub(crate) items: Vec<Item>,
}

/// The modules of a crate.
pub(crate) struct Crate {
    /// The folder of the sources, from the root of the repository.
    pub(crate) folder: PathBuf,
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

/// All crates of the product.
pub(crate) fn crates() -> Vec<Crate> {
    let mut folders = vec![PathBuf::from("src")];
    for entry in fs::read_dir(root().join("crates")).expect("the folder can be read") {
        let name = entry.expect("the folder can be read").file_name();
        folders.push(Path::new("crates").join(name).join("src"));
    }
    folders.sort();
    folders.into_iter().map(Crate::read).collect()
}

impl Crate {
    fn read(folder: PathBuf) -> Self {
        let mut found = Self {
            modules: BTreeMap::new(),
            folder,
        };
        let file = found.folder.join("lib.rs");
        found.add_file(Vec::new(), file);
        found
    }

    fn add_file(&mut self, path: ModulePath, file: PathBuf) {
        let text = fs::read_to_string(root().join(&file)).expect("the source can be read");
        let parsed = syn::parse_file(&text);
        let items = parsed.expect("the source can be parsed").items;
        self.add(path, file, items);
    }

    /// Adds a module and its submodules.
    fn add(&mut self, path: ModulePath, file: PathBuf, items: Vec<Item>) {
        let mut own = Vec::new();
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            let Item::Mod(module) = item else {
                own.push(item);
                continue;
            };
            let mut path = path.clone();
            path.push(module.ident.to_string());
            match module.content {
                Some((_, items)) => self.add(path, file.clone(), items),
                None => {
                    let file = self.file_of(&path);
                    self.add_file(path, file);
                }
            }
        }
        self.modules.insert(path, Module { file, items: own });
    }

    fn file_of(&self, path: &ModulePath) -> PathBuf {
        let mut file = self.folder.clone();
        file.extend(path);
        file.with_extension("rs")
    }
}

/// Whether an item exists in tests only.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().trim() == "test",
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(_) => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
