//! The methods and fields of public items, from the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The folders with public items of the SDK.
const SOURCES: [&str; 6] = [
    "crates/objects/src",
    "crates/controller/src",
    "crates/provider/src",
    "crates/nats/src",
    "crates/testing/src",
    "crates/webhook/src",
];

/// The names of items with each of their public methods and fields.
pub(crate) fn public_members() -> BTreeSet<(String, String)> {
    let mut found = Members::default();
    for folder in SOURCES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for file in rust_files(&folder) {
            let source = fs::read_to_string(&file).expect("a source file is readable");
            let parsed = syn::parse_file(&source).expect("a source file is valid");
            found.visit_file(&parsed);
        }
    }
    found.0
}

/// The source files below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources is readable") {
        let path = entry.expect("an entry is readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[derive(Default)]
struct Members(BTreeSet<(String, String)>);

impl Members {
    fn insert(&mut self, item: &impl ToString, member: &impl ToString) {
        self.0.insert((item.to_string(), member.to_string()));
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// The name of the type of an `impl` block.
fn type_name(of: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = of else {
        return None;
    };
    let last = path.path.segments.last()?;
    Some(last.ident.to_string())
}

impl<'ast> Visit<'ast> for Members {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let name = type_name(&block.self_ty);
        if let (Some(name), None) = (name, &block.trait_) {
            for item in &block.items {
                if let syn::ImplItem::Fn(method) = item
                    && is_public(&method.vis)
                {
                    self.insert(&name, &method.sig.ident);
                }
            }
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for method in &item.items {
            if let syn::TraitItem::Fn(method) = method {
                self.insert(&item.ident, &method.sig.ident);
            }
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        for field in &item.fields {
            if let Some(name) = &field.ident
                && is_public(&field.vis)
            {
                self.insert(&item.ident, name);
            }
        }
    }
}
