//! Compares what users see with the committed recordings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use capi_ipam_testing::patience::Patience;
use capi_ipam_testing::wait::pause;

use super::normalize::normalized;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plugin/day/recordings");

/// How to renew the recordings.
const RENEWAL: &str = "review the differences, and accept them with: UPDATE_RECORDINGS=1 \
                       cargo test --locked --workspace --test plugin scripted_day";

/// How long the cluster may take to reach the state of the recordings after a script. Events are
/// published one after the other, and metrics are at most 5 seconds old.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How long an update waits for this state.
const SETTLE_TIME: Duration = Duration::from_secs(20);

/// Number of views that are read at the same time. Commands often wait.
const WORKERS: usize = 4;

/// What a user can look at: the name of the recording, and how it is read.
pub(super) struct View<'a> {
    pub(super) name: String,
    pub(super) read: Box<dyn Fn() -> String + Sync + 'a>,
}

/// The recordings of a run, in a folder that has the form of the committed one.
pub(super) struct Recordings {
    folder: PathBuf,
    is_update: bool,
}

impl Recordings {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.join("recordings"),
            is_update: std::env::var_os("UPDATE_RECORDINGS").is_some(),
        }
    }

    /// Adds one recording.
    pub(super) fn add(&self, moment: &str, name: &str, text: &str) {
        let folder = self.folder.join(moment);
        fs::create_dir_all(&folder).expect("the folder is writable");
        fs::write(folder.join(name), normalized(text)).expect("the folder is writable");
    }

    /// Reads each view until it is as recorded. With nothing to compare with, it has to be the same
    /// twice.
    pub(super) async fn record(&self, moment: &str, views: &[View<'_>]) {
        if self.is_update {
            tokio::time::sleep(SETTLE_TIME).await;
        }
        let (start, patience) = (Instant::now(), Patience::new(SETTLE_TIMEOUT));
        let mut pending: Vec<&View<'_>> = views.iter().collect();
        loop {
            pending = self.differing(moment, &pending);
            if pending.is_empty() || patience.is_over() {
                break;
            }
            pause(start).await;
        }
        let names: Vec<_> = pending.iter().map(|view| &view.name).collect();
        let is_unstable = self.is_update && !names.is_empty();
        assert!(
            !is_unstable,
            "{moment}: these change with the time: {names:?}"
        );
    }

    /// The views that are not as recorded.
    fn differing<'a>(&self, moment: &str, views: &[&'a View<'a>]) -> Vec<&'a View<'a>> {
        let of_worker = |worker| {
            let mine = views.iter().skip(worker).step_by(WORKERS);
            let others = mine.filter(|view| !self.is_expected(moment, view));
            others.copied().collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let started: Vec<_> = (0..WORKERS)
                .map(|worker| scope.spawn(move || of_worker(worker)))
                .collect();
            let joined = started.into_iter().map(ScopedJoinHandle::join);
            joined
                .flat_map(|views| views.expect("a view can be read"))
                .collect()
        })
    }

    /// Reads a view, and says whether it is as recorded or, in an update, as it was read before.
    fn is_expected(&self, moment: &str, view: &View<'_>) -> bool {
        let expected = if self.is_update {
            &self.folder
        } else {
            Path::new(RECORDED)
        };
        let read = |folder: &Path| fs::read(folder.join(moment).join(&view.name)).ok();
        let before = read(expected);
        self.add(moment, &view.name, &(view.read)());
        before.is_some() && before == read(&self.folder)
    }

    /// Compares all recordings with the committed ones, or replaces these.
    ///
    /// # Panics
    /// With the differences. A recording that is missing, or that was not made, is one.
    pub(super) fn compare(&self) {
        if self.is_update {
            run("rm", &["-rf".as_ref(), RECORDED.as_ref()]);
            run("cp", &["-R".as_ref(), &self.folder, RECORDED.as_ref()]);
            return;
        }
        let difference = run(
            "diff",
            &["-ru".as_ref(), RECORDED.as_ref(), self.folder.as_ref()],
        );
        assert!(difference.is_empty(), "{difference}\n{RENEWAL}");
    }
}

fn run(program: &str, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("the program can be started");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}
