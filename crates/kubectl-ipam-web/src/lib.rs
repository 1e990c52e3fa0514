//! The web page of `kubectl ipam web`: its files, and a server for the browser of this user. It knows
//! no objects: the program answers the questions of the page in JSON.
//!
//! - [`Server`]: requests of the browser; `guard`: which requests are answered; `assets`: the files
//!   of the page.
//!
//! # Invariants
//! - Listens on 127.0.0.1 only. Every request needs the secret of this process, in the address or
//!   in a cookie.
//! - The page loads nothing from outside, and writes data of the cluster as text only.
//! - The page has no build step: its scripts are served as they are. `tests/page.rs` checks their
//!   types, which are generated from the reports of the program, and tests their pure parts.

mod assets;
mod browser;
mod guard;
mod server;

pub use self::browser::open_browser;
pub use self::guard::Query;
pub use self::server::{Answer, Server};
