use std::time::Duration;

use futures::FutureExt;

use super::*;

/// Numbers that seem abandoned. Odd ones turn out to be in use.
#[derive(Default)]
struct Numbers {
    found: Vec<u32>,
    released: Vec<u32>,
    reported: parking_lot::Mutex<Vec<u32>>,
    is_failing: bool,
    awaits: Option<Duration>,
    finished: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer;

impl AbandonedObjects for Numbers {
    const NAME: &'static str = "numbers";
    type Object = u32;
    /// Numbers up to 99, and the others.
    type Group = bool;
    type Error = NoAnswer;

    async fn finish(&mut self) {
        self.finished += 1;
    }

    fn find(&self) -> Found<u32> {
        Found {
            abandoned: self.found.clone(),
            kept: Vec::new(),
        }
    }

    fn group(&self, number: &u32) -> bool {
        *number < 100
    }

    fn group_size(&self, is_small: &bool) -> usize {
        if *is_small { 50 } else { 200 }
    }

    async fn release(&mut self, number: &u32) -> Result<Release, NoAnswer> {
        if self.is_failing {
            return Err(NoAnswer);
        }
        if let Some(delay) = self.awaits {
            return Ok(Release::Awaits(delay));
        }
        let is_abandoned = number.is_multiple_of(2);
        if is_abandoned {
            self.released.push(*number);
            self.found.retain(|found| found != number);
        }
        Ok(if is_abandoned {
            Release::Done
        } else {
            Release::Kept
        })
    }

    async fn report(&self, number: &u32) -> Result<(), NoAnswer> {
        self.reported.lock().push(*number);
        Ok(())
    }
}

/// The repair of these numbers, without a grace period.
fn repair(found: Vec<u32>, report_only: bool) -> ReleaseAbandoned<Numbers> {
    let options = SweepOptions {
        grace: Duration::ZERO,
        report_only,
        ..SweepOptions::default()
    };
    let numbers = Numbers {
        found,
        ..Numbers::default()
    };
    ReleaseAbandoned::new(numbers, options, Counter::default())
}

/// Runs a pass, and returns how many numbers it has released. The clock has advanced since the last
/// one.
fn pass(repair: &mut ReleaseAbandoned<Numbers>) -> usize {
    let start = Instant::now();
    while Instant::now() == start {
        std::hint::spin_loop();
    }
    let repaired = repair.pass().now_or_never();
    repaired.expect("nothing waits").count
}

#[test]
fn abandoned_objects_are_released_by_the_second_pass() {
    let mut repair = repair(vec![2, 3, 4], false);
    assert_eq!(pass(&mut repair), 0);
    assert_eq!(pass(&mut repair), 2);
    repair.objects.released.sort_unstable();
    assert_eq!(repair.objects.released, [2, 4]);
    assert_eq!(repair.released.get(), 2);
    assert_eq!(repair.objects.finished, 2);
    assert!(repair.objects.reported.lock().is_empty());
}

#[test]
fn pass_releases_a_small_part_of_each_group() {
    let even = |range: std::ops::Range<u32>| range.filter(|number| number % 2 == 0);
    let found = even(0..40).chain(even(100..140)).collect();
    let mut repair = repair(found, false);
    let released: Vec<_> = (0..4).map(|_| pass(&mut repair)).collect();
    assert_eq!(
        released,
        [0, 15, 15, 5],
        "5 of one group and 10 of the other, without another grace period"
    );
}

#[test]
fn failed_release_waits_for_another_grace_period() {
    let mut repair = repair(vec![2], false);
    repair.objects.is_failing = true;
    assert_eq!([pass(&mut repair), pass(&mut repair)], [0, 0]);
    repair.objects.is_failing = false;
    assert_eq!([pass(&mut repair), pass(&mut repair)], [0, 1]);
}

#[test]
fn report_only_releases_nothing() {
    let mut repair = repair(vec![2], true);
    let released: usize = (0..5).map(|_| pass(&mut repair)).sum();
    assert_eq!(released, 0);
    assert_eq!(*repair.objects.reported.lock(), [2]);
}

#[test]
fn object_whose_counterpart_may_be_restored_is_kept() {
    let mut repair = repair(vec![2], false);
    repair.objects.awaits = Some(Duration::from_hours(1));
    assert_eq!([pass(&mut repair), pass(&mut repair)], [0, 0]);
    repair.objects.awaits = None;
    assert_eq!(pass(&mut repair), 0, "it is not read again before");
    repair.findings.postpone(2, Instant::now(), Duration::ZERO);
    assert_eq!(pass(&mut repair), 1);
    assert_eq!(repair.released.get(), 1);
}
