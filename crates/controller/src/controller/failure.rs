//! How attempts fail.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::client::error_chain;

/// How an attempt to reconcile an object failed. Its text is one line.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'a, E> {
    /// The reconciler returned an error.
    Error(&'a E),
    /// The reconciler panicked, which is a bug.
    Panicked,
    /// The reconcile took longer than this, and was cancelled.
    TimedOut(Duration),
}

impl<E: Error + 'static> fmt::Display for Failure<'_, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => formatter.write_str(&error_chain(*error)),
            Self::Panicked => formatter.write_str("the reconcile panicked; this is a bug"),
            Self::TimedOut(limit) => {
                write!(
                    formatter,
                    "the reconcile took longer than {} s",
                    limit.as_secs()
                )
            }
        }
    }
}
