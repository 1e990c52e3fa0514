//! `import` and `export`: pools and reservations of users as a file.
//!
//! 1. A file ([`file`]) becomes records ([`record`]): [`table`], [`header`] and [`cells`] read CSV,
//!    [`document`], [`schema`] and [`manifest`] JSON and YAML. What a kind does not have is a
//!    problem. The rest of such an object is checked as well ([`partial`]).
//! 2. [`plan`] compares them with the objects of the cluster ([`existing`]), and returns the
//!    changes, and what is wrong.
//! 3. [`apply`] lets the API server check all changes, and then makes them. Nothing is written if
//!    anything is wrong.

mod apply;
mod cells;
mod difference;
mod document;
mod existing;
mod export;
mod file;
mod header;
pub mod laws;
mod manifest;
mod partial;
mod plan;
mod problems;
mod progress;
mod record;
mod schema;
mod server_warnings;
mod table;

pub(crate) use self::apply::import;
pub(crate) use self::export::export;

#[cfg(test)]
mod tests;
