//! A reconciler with another policy for its failures.

use std::sync::Arc;

use super::{Action, Attempt, Failure, Reconciler};
use crate::retry::Retry;

type RetryFn<E> = dyn Fn(&E, u32) -> Retry + Send + Sync;
type OnErrorFn<K, E> = dyn Fn(&K, &Attempt<()>, &Failure<'_, E>) + Send + Sync;

/// A reconciler with closures for what happens after a failure. Created by
/// [`Reconciler::with_retry`] and [`Reconciler::with_on_error`].
pub struct Policy<R: Reconciler> {
    inner: R,
    retry: Option<Box<RetryFn<R::Error>>>,
    on_error: Option<Box<OnErrorFn<R::Object, R::Error>>>,
}

impl<R: Reconciler> Policy<R> {
    pub(super) fn retry(
        inner: R,
        retry: impl Fn(&R::Error, u32) -> Retry + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            retry: Some(Box::new(retry)),
            on_error: None,
        }
    }

    pub(super) fn on_error(
        inner: R,
        on_error: impl Fn(&R::Object, &Attempt<()>, &Failure<'_, R::Error>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            retry: None,
            on_error: Some(Box::new(on_error)),
        }
    }
}

impl<R: Reconciler> Reconciler for Policy<R> {
    type Object = R::Object;
    type State = R::State;
    type Error = R::Error;

    async fn reconcile(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        self.inner.reconcile(object, attempt).await
    }

    fn wants_deleted(&self, object: &R::Object) -> bool {
        self.inner.wants_deleted(object)
    }

    fn retry(&self, error: &R::Error, failures: u32) -> Retry {
        match &self.retry {
            Some(retry) => retry(error, failures),
            None => self.inner.retry(error, failures),
        }
    }

    fn on_error(&self, object: &R::Object, attempt: &Attempt<()>, failure: &Failure<'_, R::Error>) {
        match &self.on_error {
            Some(on_error) => on_error(object, attempt, failure),
            None => self.inner.on_error(object, attempt, failure),
        }
    }
}
