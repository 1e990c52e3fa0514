//! `docs/frameworks.md` is generated from the lists in this folder. The compiler checks that every
//! item of them exists and is public, and a test finds the methods in the sources.
//!
//! `UPDATE_GOLDEN=1 cargo test --test frameworks` writes the page.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]

mod claims;
mod controllers;
mod methods;
mod page;
mod pools;

use std::fs;
use std::path::Path;

/// What somebody knows from another framework, and what it is here.
pub(crate) struct Row {
    /// The name in the other framework.
    pub(crate) there: &'static str,
    /// The path of a public item.
    pub(crate) path: &'static str,
    /// A method or field of the item.
    pub(crate) member: Option<&'static str>,
    /// What is different.
    pub(crate) difference: &'static str,
}

/// The rows of one framework.
pub(crate) struct Framework {
    /// The heading of its table.
    pub(crate) name: &'static str,
    /// What to know first.
    pub(crate) introduction: &'static str,
    pub(crate) rows: &'static [Row],
}

/// Builds rows of the form `"there" => path::Item.member: "difference";`. The compiler resolves the
/// paths.
macro_rules! rows {
    ($($there:literal => $($path:ident)::+ $(. $member:ident)? : $difference:literal;)*) => {{
        $(
            const _: () = {
                #[allow(unused_imports)]
                use $($path)::+ as _;
            };
        )*
        &[$($crate::Row {
            there: $there,
            path: concat!($("::", stringify!($path)),+),
            member: $crate::rows!(@member $($member)?),
            difference: $difference,
        }),*]
    }};
    (@member) => { None };
    (@member $member:ident) => { Some(stringify!($member)) };
}
pub(crate) use rows;

/// The frameworks in the order of the page.
fn frameworks() -> [Framework; 7] {
    [
        claims::ipamutil(),
        controllers::controller_runtime(),
        controllers::kube_rs(),
        controllers::app_sdk(),
        controllers::platform_manager(),
        controllers::nats(),
        pools::cni(),
    ]
}

#[test]
fn page_of_frameworks_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/frameworks.md");
    let page = page::render(&frameworks());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &page).expect("the page is written");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        found, page,
        "docs/frameworks.md is not current: run 'UPDATE_GOLDEN=1 cargo test --test frameworks'"
    );
}

#[test]
fn members_of_the_page_exist() {
    let members = methods::public_members();
    let mut missing = Vec::new();
    for framework in frameworks() {
        for row in framework.rows {
            let Some(member) = row.member else {
                continue;
            };
            let item = page::name_of(row.path).to_owned();
            if !members.contains(&(item.clone(), member.to_owned())) {
                missing.push(format!("{item}::{member}"));
            }
        }
    }
    assert!(missing.is_empty(), "no public item has {missing:?}");
}
