//! Several reconcilers of one kind, in order.

use std::sync::Arc;

use super::{Action, Attempt, Cause, Failure, Reconciler};
use crate::client::CallError;
use crate::retry::Retry;

/// Two reconcilers of one kind, one after the other. Created by [`Reconciler::then`].
pub struct Then<A, B> {
    pub(super) first: A,
    pub(super) second: B,
}

/// The error of one of two reconcilers.
#[derive(Debug, thiserror::Error)]
pub enum ThenError<A, B> {
    /// That of the first one.
    #[error(transparent)]
    First(A),
    /// That of the second one.
    #[error(transparent)]
    Second(B),
}

/// An error of what is done for both reconcilers, such as [`Finalized`](super::Finalized) does, is
/// handled as one of the first.
impl<A: From<CallError>, B> From<CallError> for ThenError<A, B> {
    fn from(error: CallError) -> Self {
        Self::First(error.into())
    }
}

/// Runs one of the reconcilers with its part of the state.
async fn run<R: Reconciler>(
    reconciler: &R,
    object: &Arc<R::Object>,
    attempt: &mut Attempt<()>,
    state: &mut R::State,
) -> Result<Action, R::Error> {
    if attempt.cause == Cause::Deleted && !reconciler.wants_deleted(object) {
        return Ok(Action::AwaitChange);
    }
    let mut of_part = attempt.with_state(std::mem::take(state));
    let result = reconciler.reconcile(Arc::clone(object), &mut of_part).await;
    *state = attempt.join(of_part);
    result
}

impl<A, B> Reconciler for Then<A, B>
where
    A: Reconciler,
    B: Reconciler<Object = A::Object>,
{
    type Object = A::Object;
    type State = (A::State, B::State);
    type Error = ThenError<A::Error, B::Error>;

    async fn reconcile(
        &self,
        object: Arc<Self::Object>,
        attempt: &mut Attempt<Self::State>,
    ) -> Result<Action, Self::Error> {
        let mut of_both = attempt.with_state(());
        let (of_first, of_second) = &mut attempt.state;
        let first = run(&self.first, &object, &mut of_both, of_first).await;
        let first = first.map_err(ThenError::First)?;
        let second = run(&self.second, &object, &mut of_both, of_second).await;
        attempt.join(of_both);
        Ok(first.earlier(second.map_err(ThenError::Second)?))
    }

    fn wants_deleted(&self, object: &Self::Object) -> bool {
        self.first.wants_deleted(object) || self.second.wants_deleted(object)
    }

    fn retry(&self, error: &Self::Error, failures: u32) -> Retry {
        match error {
            ThenError::First(error) => self.first.retry(error, failures),
            ThenError::Second(error) => self.second.retry(error, failures),
        }
    }

    /// The part that panicked or timed out is unknown, so both are notified.
    fn on_error(
        &self,
        object: &Self::Object,
        attempt: &Attempt<()>,
        failure: &Failure<'_, Self::Error>,
    ) {
        match *failure {
            Failure::Error(ThenError::First(error)) => {
                self.first.on_error(object, attempt, &Failure::Error(error));
            }
            Failure::Error(ThenError::Second(error)) => {
                self.second
                    .on_error(object, attempt, &Failure::Error(error));
            }
            Failure::Panicked => {
                self.first.on_error(object, attempt, &Failure::Panicked);
                self.second.on_error(object, attempt, &Failure::Panicked);
            }
            Failure::TimedOut(limit) => {
                self.first
                    .on_error(object, attempt, &Failure::TimedOut(limit));
                self.second
                    .on_error(object, attempt, &Failure::TimedOut(limit));
            }
        }
    }
}

#[cfg(test)]
mod tests;
