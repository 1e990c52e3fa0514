//! A semaphore with a bounded queue: requests beyond the queue are rejected immediately.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// There are no permits, and the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Permits for concurrent requests, and a bounded queue of waiting ones.
#[derive(Debug)]
pub(super) struct Capacity {
    permits: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Capacity {
    /// Creates a number of permits, and a queue of `max_waiting` requests.
    pub(super) fn new(permits: usize, max_waiting: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            waiting: Semaphore::new(max_waiting),
        }
    }

    /// Acquires permits, which are released when the result is dropped. Waits in the queue if there
    /// are too few; the queue is first in, first out. Fails if the queue is full.
    pub(super) async fn acquire(&self, permits: u32) -> Result<OwnedSemaphorePermit, Full> {
        if let Ok(acquired) = self.permits.clone().try_acquire_many_owned(permits) {
            return Ok(acquired);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Full)?;
        self.permits
            .clone()
            .acquire_many_owned(permits)
            .await
            .map_err(|_| Full)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join;

    use super::*;

    #[tokio::test]
    async fn request_is_rejected_when_the_queue_is_full() {
        let capacity = Capacity::new(3, 1);
        let first = capacity.acquire(2).await.unwrap();
        let second = capacity.acquire(1).await.unwrap();
        let mut third = Box::pin(capacity.acquire(2));
        assert!(third.as_mut().now_or_never().is_none(), "it waits");
        assert_eq!(capacity.acquire(1).await.unwrap_err(), Full);
        drop(second);
        assert!(
            third.as_mut().now_or_never().is_none(),
            "one permit is too few"
        );
        drop(first);
        let third = third.await.unwrap();
        // The queue has room again.
        let ((), fourth) = join(async { drop(third) }, capacity.acquire(3)).await;
        assert!(fourth.is_ok());
    }

    #[tokio::test]
    async fn cancelled_wait_leaves_the_queue() {
        let capacity = Capacity::new(1, 1);
        let acquired = capacity.acquire(1).await.unwrap();
        for _ in 0..3 {
            let mut waits = Box::pin(capacity.acquire(1));
            assert!(waits.as_mut().now_or_never().is_none());
        }
        drop(acquired);
        assert!(capacity.acquire(1).await.is_ok());
    }
}
