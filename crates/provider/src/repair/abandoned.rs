//! The release of abandoned objects, slowly and after live reads.

use std::error::Error;
use std::fmt::Debug;
use std::future::{Future, ready};
use std::hash::Hash;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use prometheus_client::metrics::counter::Counter;
use tracing::{debug, warn};

use super::budget::ReleaseBudget;
use super::findings::{Findings, Found};
use super::{Repair, Repaired, run_repair};
use crate::options::SweepOptions;

/// Objects that can be abandoned: how they are found, released and reported. [`ReleaseAbandoned`]
/// decides when.
pub trait AbandonedObjects: Send + Sync + 'static {
    /// The resource: the attribute `what` of spans, logs and of the metric of released objects.
    const NAME: &'static str;
    /// Identifies an object in all passes.
    type Object: Clone + Debug + Eq + Hash + Send + Sync;
    /// A pool or a scope: of each one, a pass releases only a small part.
    type Group: Clone + Debug + Eq + Hash + Send + Sync;
    /// Why an object could not be released or reported.
    type Error: Error + Send + Sync;

    /// Finishes what earlier passes have left undone. Called at the start of each pass.
    fn finish(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Finds the objects that seem abandoned now, in memory. Sends no request.
    fn find(&self) -> Found<Self::Object>;

    /// The group of an object.
    fn group(&self, object: &Self::Object) -> Self::Group;

    /// The number of objects of a group, abandoned or not.
    fn group_size(&self, group: &Self::Group) -> usize;

    /// Releases an object if live reads confirm that it is abandoned.
    fn release(
        &mut self,
        object: &Self::Object,
    ) -> impl Future<Output = Result<Release, Self::Error>> + Send;

    /// Reports an object that is not released.
    fn report(&self, object: &Self::Object)
    -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What [`AbandonedObjects::release`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The object is released.
    Done,
    /// It is not abandoned. If it still seems so, it is checked after another grace period.
    Kept,
    /// Its counterpart may be restored for this long: it is checked again afterwards.
    Awaits(Duration),
}

/// The repair that releases abandoned objects.
///
/// It is deliberately slow. An object must seem abandoned in two passes and for the grace period,
/// and then according to live reads; and one pass releases at most 5 objects of a group, or a
/// twentieth of them if that is more. With [`SweepOptions::report_only`] it reports the objects
/// instead. As a background task it runs once in each [`SweepOptions::interval`].
pub struct ReleaseAbandoned<A: AbandonedObjects> {
    objects: A,
    findings: Findings<A::Object>,
    interval: Duration,
    /// The number of released objects.
    released: Counter,
}

impl<A: AbandonedObjects> ReleaseAbandoned<A> {
    /// Creates the repair. `released` counts the released objects, see
    /// [`ProviderSetup::orphans_freed`](crate::advanced::ProviderSetup::orphans_freed).
    pub fn new(objects: A, options: SweepOptions, released: Counter) -> Self {
        Self {
            objects,
            findings: Findings::new(options.grace, options.report_only),
            interval: options.interval,
            released,
        }
    }

    /// Releases the objects that are due, and returns their number.
    async fn release_all(&mut self, due: Vec<A::Object>) -> usize {
        let mut budget = ReleaseBudget::new();
        let mut count: usize = 0;
        for object in due {
            let group = self.objects.group(&object);
            // The object stays due for the next pass.
            if !budget.admits(&group, || self.objects.group_size(&group)) {
                continue;
            }
            // One that is kept needs another grace period: something has just happened to it.
            self.findings.forget(&object);
            match self.release(&object).await {
                Release::Done => {
                    budget.record_release(&group);
                    count = count.saturating_add(1);
                }
                Release::Kept => {}
                Release::Awaits(delay) => self.findings.postpone(object, Instant::now(), delay),
            }
        }
        for (group, count) in budget.postponed() {
            let what = A::NAME;
            warn!(
                what,
                ?group,
                count,
                "too many abandoned objects for one pass; the others are released later"
            );
        }
        count
    }

    /// Releases an object, unless a request fails.
    async fn release(&mut self, object: &A::Object) -> Release {
        match self.objects.release(object).await {
            Ok(result) => {
                if result == Release::Done {
                    self.released.inc();
                }
                result
            }
            Err(error) => {
                debug!(
                    what = A::NAME,
                    ?object,
                    error = error_chain(&error),
                    "cannot verify or release an abandoned object, will retry"
                );
                Release::Kept
            }
        }
    }

    async fn report(&self, object: &A::Object) {
        if let Err(error) = self.objects.report(object).await {
            debug!(
                what = A::NAME,
                ?object,
                error = error_chain(&error),
                "cannot report an abandoned object"
            );
        }
    }
}

impl<A: AbandonedObjects> BackgroundTask for ReleaseAbandoned<A> {
    async fn run_once(&mut self) -> NextRun {
        run_repair(self).await;
        NextRun::After(self.interval)
    }
}

impl<A: AbandonedObjects> Repair for ReleaseAbandoned<A> {
    const NAME: &'static str = A::NAME;

    async fn pass(&mut self) -> Repaired {
        self.objects.finish().await;
        let found = self.objects.find();
        let due = self.findings.update(found, Instant::now());
        for object in &due.report {
            self.report(object).await;
        }
        let count = self.release_all(due.release).await;
        Repaired { count }
    }
}

#[cfg(test)]
mod tests;
