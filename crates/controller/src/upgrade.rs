//! Upgrade steps: changes of stored objects that a new version of a program needs once in each
//! cluster.
//!
//! Steps run in the setup function of a manager
//! ([`Manager::upgrade`](crate::manager::Manager::upgrade)): under the lease, one after the other,
//! and before any controller. The API objects themselves record whether a step is done:
//! [`Step::is_needed`] reads it from what the step changes. So no other object can contradict them,
//! for example after a rollback to an older version or after a restore, and a step that was
//! interrupted continues at the next start.
//!
//! A step must not change a `spec`, which belongs to users. Defaults in the
//! CustomResourceDefinition add new fields.

mod stored_versions;

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::info;

pub use self::stored_versions::StoredVersions;
use crate::error::BoxError;

/// Interval at which the progress of a step is logged.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// One step of an upgrade. Every write has the version of the object that was read as a
/// precondition, and the step can be repeated: the process can end at any moment.
///
/// ```no_run
/// use capi_ipam_controller::client::ResourceClient;
/// use capi_ipam_controller::manager::{self, BoxError, Identity};
/// use capi_ipam_controller::patch;
/// use capi_ipam_controller::upgrade::{Progress, Step};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::ResourceExt;
///
/// /// Removes an annotation that older versions of the program set.
/// struct DropAnnotation {
///     objects: ResourceClient<ConfigMap>,
/// }
///
/// const OBSOLETE: &str = "example.com/checksum";
///
/// impl DropAnnotation {
///     async fn outdated(&self) -> Result<Vec<ConfigMap>, BoxError> {
///         let mut all = self.objects.list().await?;
///         all.retain(|object| object.annotations().contains_key(OBSOLETE));
///         Ok(all)
///     }
/// }
///
/// impl Step for DropAnnotation {
///     fn id(&self) -> String {
///         "drop-checksum-annotation".to_owned()
///     }
///
///     async fn is_needed(&self) -> Result<bool, BoxError> {
///         Ok(!self.outdated().await?.is_empty())
///     }
///
///     async fn run(&self, progress: &Progress) -> Result<(), BoxError> {
///         for before in self.outdated().await? {
///             let mut after = before.clone();
///             after.annotations_mut().remove(OBSOLETE);
///             patch::write(&self.objects, &before, &after).await?;
///             progress.add(1);
///         }
///         Ok(())
///     }
/// }
///
/// fn main() -> std::process::ExitCode {
///     manager::main(Identity::new("my-provider", env!("CARGO_PKG_VERSION")), async |manager| {
///         let objects = ResourceClient::new(kube::Api::default_namespaced(manager.client.clone()), &());
///         manager.upgrade(&DropAnnotation { objects }).await?;
///         // Controllers are added after all steps.
///         Ok(())
///     })
/// }
/// ```
pub trait Step: Send + Sync {
    /// The name of the step in logs and errors.
    fn id(&self) -> String;

    /// Whether the cluster needs the step. Sends reads only. It is called at every start, so it
    /// should be cheap.
    fn is_needed(&self) -> impl Future<Output = Result<bool, BoxError>> + Send;

    /// Runs the step, or the rest of it after an interruption. [`Step::is_needed`] must return
    /// `false` after a success.
    fn run(&self, progress: &Progress) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// Why an upgrade failed.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// A controller could already act on objects that the step has not changed yet.
    #[error("upgrade step {step} must run before {task} is added to the manager")]
    Late {
        /// The step.
        step: String,
        /// The task that was added first.
        task: String,
    },
    /// The step failed. The next start runs the rest of it.
    #[error("upgrade step {step} failed after {count} objects")]
    Failed {
        /// The step.
        step: String,
        /// The number of objects that the step reported as done.
        count: u64,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The step succeeded, but its check still reports that it is needed: it would run at every
    /// start.
    #[error("upgrade step {0} has run and is still needed; its check does not match what it does")]
    StillNeeded(String),
}

/// Counts the objects that a step has processed, and logs the number every few seconds.
#[derive(Debug)]
pub struct Progress {
    step: String,
    state: Mutex<(u64, Instant)>,
}

impl Progress {
    fn new(step: String) -> Self {
        Self {
            step,
            state: Mutex::new((0, Instant::now())),
        }
    }

    /// Adds processed objects.
    pub fn add(&self, count: u64) {
        let mut state = self.state.lock();
        state.0 = state.0.saturating_add(count);
        if state.1.elapsed() >= PROGRESS_INTERVAL {
            state.1 = Instant::now();
            info!(
                step = self.step,
                objects = state.0,
                "the upgrade step is in progress"
            );
        }
    }

    /// The number of objects so far.
    pub fn count(&self) -> u64 {
        self.state.lock().0
    }
}

/// Runs a step if the cluster needs it, without a manager.
///
/// # Errors
/// If the step fails.
pub async fn run<S: Step>(step: &S) -> Result<(), UpgradeError> {
    let progress = Progress::new(step.id());
    let failed = |source| UpgradeError::Failed {
        step: step.id(),
        count: progress.count(),
        source,
    };
    if !step.is_needed().await.map_err(failed)? {
        return Ok(());
    }
    info!(step = step.id(), "the upgrade step starts");
    let started = Instant::now();
    step.run(&progress).await.map_err(failed)?;
    if step.is_needed().await.map_err(failed)? {
        return Err(UpgradeError::StillNeeded(step.id()));
    }
    info!(step = step.id(), objects = progress.count(), took = ?started.elapsed(), "the upgrade step is done");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Needs `left` runs.
    struct Repeated {
        left: AtomicU32,
        runs: AtomicU32,
        fails: bool,
    }

    impl Step for Repeated {
        fn id(&self) -> String {
            "test".to_owned()
        }

        async fn is_needed(&self) -> Result<bool, BoxError> {
            Ok(self.left.load(Ordering::Relaxed) > 0)
        }

        async fn run(&self, progress: &Progress) -> Result<(), BoxError> {
            self.runs.fetch_add(1, Ordering::Relaxed);
            progress.add(3);
            if self.fails {
                return Err("no disk".into());
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn step(left: u32, fails: bool) -> Repeated {
        Repeated {
            left: left.into(),
            runs: 0.into(),
            fails,
        }
    }

    #[tokio::test]
    async fn done_step_is_not_run_again() {
        let step = step(1, false);
        for _ in 0..2 {
            run(&step).await.unwrap();
            assert_eq!(step.runs.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn failed_step_names_its_progress_and_is_run_again() {
        let step = step(1, true);
        for runs in 1..3 {
            let error = run(&step).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "upgrade step test failed after 3 objects"
            );
            assert_eq!(step.runs.load(Ordering::Relaxed), runs);
        }
    }

    #[tokio::test]
    async fn step_with_a_wrong_check_is_an_error() {
        let error = run(&step(2, false)).await.unwrap_err();
        assert!(
            matches!(&error, UpgradeError::StillNeeded(id) if id == "test"),
            "{error}"
        );
    }
}
