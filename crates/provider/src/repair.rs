//! Repairs: what a program corrects periodically, because an interruption, a user or another
//! program has left it behind.
//!
//! A [`Repair`] searches and corrects one kind of problem. A background task runs its repairs one
//! after the other with [`run_repair`]. [`ReleaseAbandoned`] is the repair of everything that
//! releases addresses: it contains the rules that keep a wrong cache from releasing what is in use.

mod abandoned;
mod budget;
mod findings;

use std::future::Future;

use capi_ipam_controller::trace_span;
use tracing::Instrument;

pub use self::abandoned::{AbandonedObjects, Release, ReleaseAbandoned};
pub use self::findings::Found;

/// The repair of one kind of problem.
pub trait Repair: Send {
    /// What is repaired: the attribute `what` of the span of each pass.
    const NAME: &'static str;

    /// Searches the problem everywhere, and repairs what it finds. Errors are logged by the repair:
    /// the next pass finds the rest.
    fn pass(&mut self) -> impl Future<Output = Repaired> + Send;
}

/// What a pass has repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The number of objects that were changed, created or deleted. What is only reported does not
    /// count.
    pub count: usize,
}

/// Runs one pass of a repair in a separate span.
pub async fn run_repair<R: Repair>(repair: &mut R) -> Repaired {
    let span = trace_span!("sweep", what = R::NAME);
    repair.pass().instrument(span).await
}
