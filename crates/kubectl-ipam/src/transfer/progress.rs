//! The progress of an import on the standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::output;

/// Time between two updates of the line on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two lines in a file or a pipe.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How many changes are done. On a terminal it is one line, which is updated and removed at the
/// end. Elsewhere it is a line every few seconds.
pub(super) struct Progress {
    state: State,
    is_terminal: bool,
}

impl Progress {
    /// `what` is what happens to the changes, such as `checked`.
    pub(super) fn new(what: &'static str, total: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal() && !output::is_dumb_terminal();
        let interval = if is_terminal {
            TERMINAL_INTERVAL
        } else {
            LINE_INTERVAL
        };
        Self {
            state: State {
                what,
                total,
                done: 0,
                interval,
                shown: Instant::now(),
            },
            is_terminal,
        }
    }

    /// Counts a change.
    pub(super) fn advance(&mut self) {
        let Some(line) = self.state.advance(Instant::now()) else {
            return;
        };
        let mut error = std::io::stderr();
        let _ = if self.is_terminal {
            write!(error, "\r{line}\u{1b}[K").and_then(|()| error.flush())
        } else {
            writeln!(error, "{line}")
        };
    }

    /// How many changes are done.
    pub(super) fn done(&self) -> usize {
        self.state.done
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

struct State {
    what: &'static str,
    total: usize,
    done: usize,
    interval: Duration,
    shown: Instant,
}

impl State {
    /// Counts a change. Returns the line if it is time to show it.
    fn advance(&mut self, now: Instant) -> Option<String> {
        self.done = self.done.saturating_add(1);
        if now.saturating_duration_since(self.shown) < self.interval {
            return None;
        }
        self.shown = now;
        let percent = self.done.saturating_mul(100).checked_div(self.total);
        Some(format!(
            "{} of {} changes {} ({} %)",
            self.done,
            self.total,
            self.what,
            percent.unwrap_or(100)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_after_each_interval() {
        let start = Instant::now();
        let mut state = State {
            what: "made",
            total: 8,
            done: 0,
            interval: LINE_INTERVAL,
            shown: start,
        };
        let mut advance = |seconds| state.advance(start + Duration::from_secs(seconds));
        assert_eq!([advance(0), advance(4)], [None, None]);
        assert_eq!(advance(5).unwrap(), "3 of 8 changes made (37 %)");
        assert_eq!(advance(9), None);
        assert_eq!(advance(10).unwrap(), "5 of 8 changes made (62 %)");
    }
}
