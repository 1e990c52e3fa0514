use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::controller::tests::{Item, item};

/// A part of a pair, which records its calls.
#[derive(Default)]
struct Part {
    result: Option<Action>,
    wants_deleted: bool,
    calls: Mutex<Vec<(Cause, u32)>>,
    failures: Mutex<Vec<String>>,
}

impl Part {
    fn returning(action: Action) -> Self {
        Self {
            result: Some(action),
            ..Self::default()
        }
    }
}

impl Reconciler for Part {
    type Object = Item;
    type State = u32;
    type Error = std::fmt::Error;

    async fn reconcile(
        &self,
        _: Arc<Item>,
        attempt: &mut Attempt<u32>,
    ) -> Result<Action, std::fmt::Error> {
        attempt.state += 1;
        self.calls.lock().push((attempt.cause, attempt.state));
        self.result.ok_or(std::fmt::Error)
    }

    fn wants_deleted(&self, _: &Item) -> bool {
        self.wants_deleted
    }

    fn on_error(&self, _: &Item, _: &Attempt<()>, failure: &Failure<'_, std::fmt::Error>) {
        self.failures.lock().push(failure.to_string());
    }
}

const SOON: Action = Action::Requeue(Duration::from_secs(1));
const LATER: Action = Action::Requeue(Duration::from_secs(9));

async fn run_pair(pair: &Then<Part, Part>, cause: Cause) -> Option<Action> {
    let mut attempt = Attempt {
        cause,
        ..Attempt::<()>::default().with_state((10, 20))
    };
    let result = pair.reconcile(Arc::new(item("a", 1)), &mut attempt).await;
    assert_eq!(
        attempt.state,
        (
            10 + u32::try_from(pair.first.calls.lock().len()).unwrap(),
            20 + u32::try_from(pair.second.calls.lock().len()).unwrap()
        )
    );
    result.ok()
}

#[tokio::test]
async fn second_reconciler_runs_unless_the_first_fails() {
    for (first, second, expected) in [
        (Some(Action::AwaitChange), Some(LATER), Some(LATER)),
        (Some(SOON), Some(LATER), Some(SOON)),
        (Some(LATER), Some(Action::AwaitChange), Some(LATER)),
        (Some(SOON), None, None),
        (None, Some(SOON), None),
    ] {
        let part = |result| Part {
            result,
            ..Part::default()
        };
        let pair = part(first).then(part(second));
        let action = run_pair(&pair, Cause::Changed).await;
        assert_eq!(action, expected, "{first:?} {second:?}");
        assert_eq!(*pair.first.calls.lock(), [(Cause::Changed, 11)]);
        assert_eq!(pair.second.calls.lock().is_empty(), first.is_none());
    }
}

#[tokio::test]
async fn deleted_object_reaches_the_part_that_wants_it() {
    let second = Part {
        wants_deleted: true,
        ..Part::returning(Action::AwaitChange)
    };
    let pair = Part::default().then(second);
    assert!(pair.wants_deleted(&item("a", 1)));
    let action = run_pair(&pair, Cause::Deleted).await;
    assert_eq!(action, Some(Action::AwaitChange));
    assert!(pair.first.calls.lock().is_empty());
    assert_eq!(*pair.second.calls.lock(), [(Cause::Deleted, 21)]);
}

#[test]
fn error_is_reported_to_its_reconciler_only() {
    let pair = Part::default().then(Part::default());
    let (object, attempt) = (item("a", 1), Attempt::default());
    let error = ThenError::Second(std::fmt::Error);
    pair.on_error(&object, &attempt, &Failure::Error(&error));
    assert!(pair.first.failures.lock().is_empty());
    pair.on_error(&object, &attempt, &Failure::Panicked);
    let panicked = Failure::<std::fmt::Error>::Panicked.to_string();
    let of_first = std::slice::from_ref(&panicked);
    assert_eq!(pair.first.failures.lock().as_slice(), of_first);
    let of_second = [std::fmt::Error.to_string(), panicked];
    assert_eq!(*pair.second.failures.lock(), of_second);
}
