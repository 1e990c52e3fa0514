//! Room for requests: so many are worked on at the same time, so many more may wait, and the others are sent away at
//! once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// There is no room, not even to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Room for requests.
#[derive(Debug)]
pub(super) struct Capacity {
    permits: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Capacity {
    /// Room of that many permits, and for that many requests that wait for them.
    pub(super) fn new(permits: usize, max_waiting: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), waiting: Semaphore::new(max_waiting) }
    }

    /// Takes permits, which are given back when what is returned is dropped. Waits in order of arrival if there are too
    /// few, as long as there is room to wait.
    pub(super) async fn take(&self, permits: u32) -> Result<OwnedSemaphorePermit, Full> {
        if let Ok(taken) = self.permits.clone().try_acquire_many_owned(permits) {
            return Ok(taken);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Full)?;
        self.permits.clone().acquire_many_owned(permits).await.map_err(|_| Full)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join;

    use super::*;

    #[tokio::test]
    async fn beyond_those_that_wait_nobody_is_let_in() {
        let capacity = Capacity::new(3, 1);
        let first = capacity.take(2).await.unwrap();
        let second = capacity.take(1).await.unwrap();
        let mut third = Box::pin(capacity.take(2));
        assert!(third.as_mut().now_or_never().is_none(), "it waits");
        assert_eq!(capacity.take(1).await.unwrap_err(), Full);
        drop(second);
        assert!(third.as_mut().now_or_never().is_none(), "one permit is too few");
        drop(first);
        let third = third.await.unwrap();
        // Who waited has left room to wait.
        let ((), fourth) = join(async { drop(third) }, capacity.take(3)).await;
        assert!(fourth.is_ok());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_its_place() {
        let capacity = Capacity::new(1, 1);
        let taken = capacity.take(1).await.unwrap();
        for _ in 0..3 {
            let mut waits = Box::pin(capacity.take(1));
            assert!(waits.as_mut().now_or_never().is_none());
        }
        drop(taken);
        assert!(capacity.take(1).await.is_ok());
    }
}
