//! The error type of the functions that a program passes to this crate.

/// The error type of setup functions and upgrade steps.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
