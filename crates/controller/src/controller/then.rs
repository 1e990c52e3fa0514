//! Several reconcilers of one kind, in order.

use std::any::Any;
use std::sync::Arc;

use kube::core::ObjectMeta;

use super::{Action, Attempt, Cause, Failure, Reconciler, SourceId};
use crate::priority::Priority;
use crate::retry::Retry;

/// Two reconcilers of one kind, one after the other. Created by [`Reconciler::then`].
pub struct Then<A, B> {
    first: A,
    second: B,
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

impl<A, B> Then<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

/// The action after both reconcilers: the earlier one of two requeues.
fn earlier(first: Action, second: Action) -> Action {
    match (first, second) {
        (Action::Requeue(first), Action::Requeue(second)) => Action::Requeue(first.min(second)),
        (Action::AwaitChange, action) | (action, Action::AwaitChange) => action,
    }
}

/// Runs one of the reconcilers with its part of the state.
async fn run<R: Reconciler>(
    reconciler: &R,
    object: &Arc<R::Object>,
    attempt: &Attempt<()>,
    state: &mut R::State,
) -> Result<Action, R::Error> {
    if attempt.cause == Cause::Deleted && !reconciler.wants_deleted(object) {
        return Ok(Action::AwaitChange);
    }
    let mut of_part = Attempt {
        cause: attempt.cause,
        failures: attempt.failures,
        state: std::mem::take(state),
    };
    let result = reconciler.reconcile(Arc::clone(object), &mut of_part).await;
    *state = of_part.state;
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
        let Attempt {
            cause, failures, ..
        } = *attempt;
        let (of_first, of_second) = &mut attempt.state;
        let begin = Attempt {
            cause,
            failures,
            state: (),
        };
        let first = run(&self.first, &object, &begin, of_first).await;
        let first = first.map_err(ThenError::First)?;
        let second = run(&self.second, &object, &begin, of_second).await;
        Ok(earlier(first, second.map_err(ThenError::Second)?))
    }

    fn starting(&self, object: &Self::Object) -> Option<Box<dyn Any + Send>> {
        let both = (self.first.starting(object), self.second.starting(object));
        match both {
            (None, None) => None,
            both => Some(Box::new(both)),
        }
    }

    fn priority(&self, object: &Self::Object, cause: Cause) -> Priority {
        let first = self.first.priority(object, cause);
        first.max(self.second.priority(object, cause))
    }

    fn wants(&self, before: &Self::Object, after: &Self::Object) -> bool {
        self.first.wants(before, after) || self.second.wants(before, after)
    }

    fn undecodable(&self, metadata: &ObjectMeta) -> Option<Self::Object> {
        let known = self.first.undecodable(metadata);
        known.or_else(|| self.second.undecodable(metadata))
    }

    fn wants_deleted(&self, object: &Self::Object) -> bool {
        self.first.wants_deleted(object) || self.second.wants_deleted(object)
    }

    fn dequeues(&self, waiting: &Self::Object, newer: &Self::Object) -> bool {
        self.first.dequeues(waiting, newer) || self.second.dequeues(waiting, newer)
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
        let of_first = failure.of_part(|error| match error {
            ThenError::First(error) => Some(error),
            ThenError::Second(_) => None,
        });
        if let Some(failure) = of_first {
            self.first.on_error(object, attempt, &failure);
        }
        let of_second = failure.of_part(|error| match error {
            ThenError::First(_) => None,
            ThenError::Second(error) => Some(error),
        });
        if let Some(failure) = of_second {
            self.second.on_error(object, attempt, &failure);
        }
    }

    fn on_source_error(&self, source: SourceId, error: &str) {
        self.first.on_source_error(source, error);
        self.second.on_source_error(source, error);
    }

    fn transform(object: &mut Self::Object) {
        A::transform(object);
        B::transform(object);
    }
}

#[cfg(test)]
mod tests;
