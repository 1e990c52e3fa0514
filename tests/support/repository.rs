//! The files of the repository.

use std::path::PathBuf;

/// A file or folder, by its path in the repository.
pub fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}
