//! Whether another process writes with the identity of this management cluster: plain values, no
//! I/O.
//!
//! Each process writes one record, by compare-and-swap, and notices when another one has written it
//! since. One such write proves little: it can be that of a process that has lost its lease and
//! does not know it yet. So a process that was disturbed writes more often until its writes were
//! undisturbed for longer than the other one can be silent. Two processes notice each other at least
//! twice then, whenever each of them has started.

use std::time::{Duration, Instant};

/// The time between two writes.
const INTERVAL: Duration = Duration::from_mins(1);
/// The same after another process has written.
const DISTURBED_INTERVAL: Duration = Duration::from_secs(5);
/// After writes during this time without one of another process there is none: longer than [`INTERVAL`] and
/// the deadlines of the requests.
const QUIET: Duration = Duration::from_secs(75);
/// The part of [`QUIET`] that one write can show.
const MAX_QUIET_WRITE: Duration = Duration::from_secs(10);
/// How many writes of another process show that it goes on.
const MAX_DISTURBED: u32 = 2;

/// The writes of other processes with this identity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Disturbance {
    count: u32,
    /// The last write of this process.
    last: Option<Instant>,
    /// How long no other process has written, as the writes of this one show.
    quiet: Duration,
}

impl Disturbance {
    /// Another process has written with this identity before this one has started, unless it has ended
    /// since. That does not show before this one writes.
    pub(super) fn lasting() -> Self {
        Self {
            count: MAX_DISTURBED,
            ..Self::default()
        }
    }

    /// The time until the next write of this process.
    pub(super) fn interval(self) -> Duration {
        match self.count {
            0 => INTERVAL,
            _ => DISTURBED_INTERVAL,
        }
    }

    /// Whether another process goes on to write with this identity.
    pub(super) fn is_lasting(self) -> bool {
        self.count >= MAX_DISTURBED
    }

    /// Another process has written since the last write of this one.
    pub(super) fn noticed(&mut self, now: Instant) {
        *self = Self {
            count: self.count.saturating_add(1),
            last: Some(now),
            quiet: Duration::ZERO,
        };
    }

    /// No other process has written since the last write of this one. Between writes that are far
    /// apart none of them may have reached the registry.
    pub(super) fn unnoticed(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let since = now.saturating_duration_since(last);
            self.quiet += since.min(MAX_QUIET_WRITE);
        }
        self.last = Some(now);
        if self.quiet >= QUIET {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes that write one record, second by second.
    struct Simulation {
        begin: Instant,
        second: u64,
        /// The process that has written last.
        last_writer: usize,
        processes: Vec<Process>,
    }

    struct Process {
        state: Disturbance,
        next: u64,
        end: u64,
        has_written: bool,
    }

    impl Simulation {
        /// Processes that run from one second to another.
        fn new(processes: &[(u64, u64)]) -> Self {
            let process = |(begin, end): &(u64, u64)| Process {
                state: Disturbance::default(),
                next: *begin,
                end: *end,
                has_written: false,
            };
            Self {
                begin: Instant::now(),
                second: 0,
                last_writer: usize::MAX,
                processes: processes.iter().map(process).collect(),
            }
        }

        fn run_until(&mut self, end: u64) {
            while self.second < end {
                for index in 0..self.processes.len() {
                    self.write(index);
                }
                self.second += 1;
            }
        }

        fn write(&mut self, index: usize) {
            let now = self.begin + Duration::from_secs(self.second);
            let process = &mut self.processes[index];
            if process.next != self.second || self.second >= process.end {
                return;
            }
            // The first write of a process takes over the record of an earlier one.
            if process.has_written && self.last_writer != index {
                process.state.noticed(now);
            } else {
                process.state.unnoticed(now);
            }
            process.has_written = true;
            self.last_writer = index;
            process.next = self.second + process.state.interval().as_secs();
        }

        fn are_lasting(&self) -> Vec<bool> {
            let states = self.processes.iter();
            states.map(|process| process.state.is_lasting()).collect()
        }
    }

    #[test]
    fn two_processes_notice_each_other_whenever_they_start() {
        for start in 0..=120 {
            let mut simulation = Simulation::new(&[(0, u64::MAX), (start, u64::MAX)]);
            simulation.run_until(start + 140);
            assert_eq!(simulation.are_lasting(), [true, true], "{start} s later");
            simulation.run_until(start + 3600);
            assert_eq!(simulation.are_lasting(), [true, true], "{start} s later");
        }
    }

    /// The registry cannot be reached for longer than the other process can be silent.
    #[test]
    fn time_without_a_write_shows_nothing() {
        let begin = Instant::now();
        let mut state = Disturbance::lasting();
        let mut unnoticed = |second| {
            state.unnoticed(begin + Duration::from_secs(second));
            state.is_lasting()
        };
        assert!(unnoticed(3600) && unnoticed(7200));
        for second in 1..=12 {
            assert!(unnoticed(7200 + 5 * second));
        }
        assert!(!unnoticed(7200 + 65));
    }

    #[test]
    fn process_goes_on_when_the_other_one_has_ended() {
        for start in 0..=120 {
            let mut simulation = Simulation::new(&[(0, u64::MAX), (start, start + 300)]);
            simulation.run_until(start + 300 + 90);
            assert!(!simulation.are_lasting()[0], "{start} s later");
        }
    }

    /// The earlier leader writes for some seconds after it has lost its lease.
    #[test]
    fn new_leader_goes_on_despite_late_writes_of_the_earlier_one() {
        for start in 0..=120 {
            let mut simulation = Simulation::new(&[(0, start + 6), (start, u64::MAX)]);
            for second in start..start + 300 {
                simulation.run_until(second);
                assert!(!simulation.are_lasting()[1], "{start} s later");
            }
        }
    }
}
