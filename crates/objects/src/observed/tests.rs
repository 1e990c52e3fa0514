//! All interleavings of a server, its watch, late responses and a restore of etcd, for one name.
//!
//! The test explores every state that the steps below can reach. The server has a history of at
//! most five versions, whose end a restore removes once. The watch delivers a list and the events
//! after it, in order, and can begin again at any time. Responses are captured when the server
//! answers, and are delivered at any later time, or never.
//!
//! Properties, which `check_step` and `end_list` state:
//! 1. after the watch has delivered everything, what is known is the truth;
//! 2. what is known never becomes an older state of the same object than one that was seen in the
//!    same epoch;
//! 3. an object that was deleted does not come back in the same epoch;
//! 4. the end of a list removes exactly what the list did not contain and nothing has shown since
//!    it began;
//! 5. a response with a later state of the known object is believed, and after the report of a
//!    restore any.
//!
//! What no cache can know is left out: a response that shows a deleted object for the first time,
//! one that shows a new state of an object which was deleted before the list in progress, and one
//! from before a restore once the watch has listed again. A cache believes them until the next
//! list.

mod map;

use std::collections::HashSet;
use std::sync::LazyLock;

use super::*;

/// The highest version of the server.
const MAX_VERSION: usize = 5;
/// The number of uids: a server creates at most three objects in five versions, and again after a
/// restore.
const MAX_UIDS: usize = 7;

/// A write at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    Put { uid: u8, is_valid: bool },
    Delete { uid: u8 },
}

/// The writes of the server, whose versions are 1, 2, 3, ….
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct History {
    writes: [Option<Write>; MAX_VERSION],
}

/// A state of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    uid: u8,
    version: u8,
    is_valid: bool,
}

impl History {
    fn version(&self) -> u8 {
        small(self.writes.iter().flatten().count())
    }

    fn write(&self, version: u8) -> Option<Write> {
        self.writes
            .get(usize::from(version).checked_sub(1)?)
            .copied()
            .flatten()
    }

    /// The object at a version.
    fn state(&self, version: u8) -> Option<State> {
        match self.write(version)? {
            Write::Put { uid, is_valid } => Some(State {
                uid,
                version,
                is_valid,
            }),
            Write::Delete { .. } => None,
        }
    }

    fn current(&self) -> Option<State> {
        self.state(self.version())
    }

    fn push(&mut self, write: Write) {
        let version = usize::from(self.version());
        self.writes[version] = Some(write);
    }

    fn truncate(&mut self, version: u8) {
        self.writes[usize::from(version)..].fill(None);
    }
}

/// A response that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Response {
    Found(State),
    Deleted { uid: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Off,
    /// The list has begun, and its request is on the way.
    Requested,
    /// The server has answered with its state at `at`. Until the end of the list, later events can
    /// follow the object.
    Listing {
        is_pending: bool,
    },
    Watching,
}

/// The watch: a list, and the events after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    phase: Phase,
    /// The version that it has delivered.
    at: u8,
    /// What it delivers, of a server that is restored since.
    old: Option<History>,
    /// The uid of the object that the list in progress has shown, and that is not deleted since.
    shown: Option<u8>,
}

/// What limits the exploration.
#[derive(Clone, Copy)]
struct Limits {
    /// The number of writes, also of those that a restore undoes.
    writes: u8,
    lists: u8,
    responses: u8,
    restores: u8,
    /// How many states cannot be decoded.
    undecodable: u8,
}

/// The truth, and what was delivered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Truth {
    server: History,
    uids: u8,
    watch: Watch,
    lists: u8,
    /// The responses on their way, and whether they are from before a restore.
    responses: [Option<(Response, bool)>; 2],
    captured: u8,
    restores: u8,
    undecodable: u8,
    writes: u8,
    is_reported: bool,
    /// Whether nothing was seen since the report of a restore.
    is_report_new: bool,
    /// Whether the watch has listed since the restore and since its report.
    is_listed_again: bool,
    /// The uids that were known, or known to be deleted, since the report of a restore.
    seen: [bool; MAX_UIDS],
    /// The uids whose deletion was seen in this epoch.
    deleted: [bool; MAX_UIDS],
    /// The uids of which a response has shown a new state since the list began.
    responded: [bool; MAX_UIDS],
    /// The highest version of each object that was seen in this epoch.
    newest: [u8; MAX_UIDS],
    /// The same, of the states that can be decoded and were accepted.
    newest_valid: [u8; MAX_UIDS],
}

#[derive(Clone)]
struct World {
    truth: Truth,
    observed: Observed<u8>,
}

/// What identifies a state of the cache.
#[derive(PartialEq, Eq, Hash)]
struct Fingerprint {
    truth: Truth,
    entry: Option<(Uid, Stamp, Option<u8>, bool)>,
    numbers: (ListNumber, ListNumber, bool),
    tombstones: [Option<ListNumber>; MAX_UIDS],
}

/// The resourceVersion of a version of the server.
fn number(version: usize) -> u64 {
    if version == 0 { 0 } else { version as u64 + 10 }
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn uid_text(uid: u8) -> String {
    format!("00000000-0000-4000-8000-{uid:012}")
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("all numbers of the test are small")
}

/// The metadata of each uid and version.
static METADATA: LazyLock<Vec<Vec<ObjectMeta>>> = LazyLock::new(|| {
    let metadata = |uid: usize, version: usize| ObjectMeta {
        name: Some("a".to_owned()),
        uid: Some(uid_text(small(uid))),
        resource_version: Some(number(version).to_string()),
        ..ObjectMeta::default()
    };
    (0..MAX_UIDS)
        .map(|uid| {
            (0..=MAX_VERSION)
                .map(|version| metadata(uid, version))
                .collect()
        })
        .collect()
});

static UIDS: LazyLock<Vec<Uid>> = LazyLock::new(|| {
    (0..MAX_UIDS)
        .map(|uid| Uid::of(&uid_text(small(uid))))
        .collect()
});

impl World {
    fn new() -> Self {
        let watch = Watch {
            phase: Phase::Off,
            at: 0,
            old: None,
            shown: None,
        };
        let truth = Truth {
            server: History::default(),
            uids: 0,
            watch,
            lists: 0,
            responses: [None; 2],
            captured: 0,
            restores: 0,
            undecodable: 0,
            writes: 0,
            is_reported: true,
            is_report_new: false,
            is_listed_again: true,
            seen: [false; MAX_UIDS],
            deleted: [false; MAX_UIDS],
            responded: [false; MAX_UIDS],
            newest: [0; MAX_UIDS],
            newest_valid: [0; MAX_UIDS],
        };
        Self {
            truth,
            observed: Observed::default(),
        }
    }

    fn entry(&self) -> Option<&Entry<u8>> {
        self.observed.objects.get("", "a")
    }

    fn known_uid(&self) -> Option<u8> {
        let entry = self.entry()?;
        UIDS.iter().position(|uid| *uid == entry.uid).map(small)
    }

    fn fingerprint(&self) -> Fingerprint {
        let versions = &self.observed.versions;
        let tombstone = |uid: usize| versions.tombstones.get(&UIDS[uid], *START).copied();
        Fingerprint {
            truth: self.truth,
            entry: self
                .entry()
                .map(|entry| (entry.uid, entry.stamp, entry.value, entry.is_stale)),
            numbers: (
                versions.lists.current(),
                versions.authority,
                versions.is_listing(),
            ),
            tombstones: std::array::from_fn(tombstone),
        }
    }

    /// All states that one step can reach.
    fn next(&self, limits: Limits) -> Vec<Self> {
        let mut next = Vec::new();
        self.write(limits, &mut next);
        self.respond(limits, &mut next);
        self.restore(limits, &mut next);
        self.watch(limits, &mut next);
        next
    }

    /// The server writes, for others or for this process.
    fn write(&self, limits: Limits, next: &mut Vec<Self>) {
        if self.truth.writes == limits.writes {
            return;
        }
        let current = self.truth.server.current();
        for is_valid in [true, false] {
            let mut world = self.clone();
            world.truth.undecodable += u8::from(!is_valid);
            if world.truth.undecodable > limits.undecodable {
                continue;
            }
            let uid = current.map_or(world.truth.uids, |state| state.uid);
            world.truth.uids += u8::from(current.is_none());
            world.push(Write::Put { uid, is_valid });
            next.push(world);
        }
        if let Some(State { uid, .. }) = current {
            let mut world = self.clone();
            world.push(Write::Delete { uid });
            next.extend(world.captured(Response::Deleted { uid }, limits));
            next.push(world);
        }
    }

    fn push(&mut self, write: Write) {
        self.truth.server.push(write);
        self.truth.writes += 1;
    }

    /// The server answers a request with its current state, or an answer arrives.
    fn respond(&self, limits: Limits, next: &mut Vec<Self>) {
        if let Some(state) = self.truth.server.current() {
            next.extend(self.captured(Response::Found(state), limits));
        }
        for index in 0..self.truth.responses.len() {
            let Some((response, is_old)) = self.truth.responses[index] else {
                continue;
            };
            let mut world = self.clone();
            world.truth.responses[index] = None;
            world.truth.responses.sort_unstable();
            match response {
                Response::Found(state) => {
                    let is_alive = self
                        .truth
                        .server
                        .current()
                        .is_some_and(|current| current.uid == state.uid);
                    if !is_alive && !self.truth.seen[usize::from(state.uid)] {
                        // A cache cannot know better.
                        continue;
                    }
                    let is_believed = self.has_to_believe(state) && !is_old;
                    let is_accepted = world.see(Origin::Response, state, is_old);
                    // (5) What is new in a response is not refused.
                    assert!(
                        is_accepted || !is_believed,
                        "{state:?} is refused: {self:?}"
                    );
                }
                Response::Deleted { uid } => world.delete(uid, is_old),
            }
            world.check_step(self);
            next.push(world);
        }
    }

    /// Whether a response with this state is later than everything that is known.
    fn has_to_believe(&self, state: State) -> bool {
        if self.truth.is_report_new {
            return true;
        }
        let is_current = |entry: &Entry<u8>| {
            entry.stamp.list == self.observed.versions.lists.current() && self.truth.is_listed_again
        };
        let Some(entry) = self.entry().filter(|entry| is_current(entry)) else {
            return false;
        };
        let version = entry.stamp.version().map_or(0, ResourceVersion::get);
        entry.uid == UIDS[usize::from(state.uid)] && number(state.version.into()) > version
    }

    fn captured(&self, response: Response, limits: Limits) -> Option<Self> {
        let free = self.truth.responses.iter().position(Option::is_none)?;
        if self.truth.captured == limits.responses {
            return None;
        }
        let mut world = self.clone();
        world.truth.captured += 1;
        world.truth.responses[free] = Some((response, false));
        world.truth.responses.sort_unstable();
        Some(world)
    }

    /// etcd is restored, or this is reported.
    fn restore(&self, limits: Limits, next: &mut Vec<Self>) {
        let is_restored = self.truth.restores > 0;
        if is_restored && !self.truth.is_reported {
            let mut world = self.clone();
            world.observed.restored();
            world.truth.is_reported = true;
            world.truth.is_listed_again = false;
            world.truth.is_report_new = true;
            world.truth.begin_epoch();
            world.truth.seen = [false; MAX_UIDS];
            if let Some(uid) = self.known_uid() {
                world.truth.seen[usize::from(uid)] = true;
            }
            next.push(world);
        }
        if self.truth.restores == limits.restores {
            return;
        }
        for version in 0..self.truth.server.version() {
            let mut world = self.clone();
            world.truth.restores += 1;
            world.truth.watch.old = Some(self.truth.server);
            world.truth.server.truncate(version);
            (world.truth.is_reported, world.truth.is_listed_again) = (false, false);
            world
                .truth
                .responses
                .iter_mut()
                .flatten()
                .for_each(|(_, is_old)| *is_old = true);
            world.truth.responses.sort_unstable();
            world.truth.begin_epoch();
            next.push(world);
        }
    }

    /// The watch begins again, or delivers something.
    fn watch(&self, limits: Limits, next: &mut Vec<Self>) {
        if self.truth.lists < limits.lists {
            let mut world = self.clone();
            world.observed.begin_list();
            world.truth.lists += 1;
            world.truth.is_listed_again = true;
            world.truth.responded = [false; MAX_UIDS];
            world.truth.watch = Watch {
                phase: Phase::Requested,
                at: 0,
                old: None,
                shown: None,
            };
            for response in &mut world.truth.responses {
                response.take_if(|(_, is_old)| *is_old);
            }
            world.truth.responses.sort_unstable();
            next.push(world);
        }
        let watch = self.truth.watch;
        let history = watch.old.unwrap_or(self.truth.server);
        let mut world = self.clone();
        match watch.phase {
            Phase::Off => return,
            Phase::Requested => {
                let is_pending = history.current().is_some();
                world.truth.watch.phase = Phase::Listing { is_pending };
                world.truth.watch.at = history.version();
            }
            Phase::Listing { is_pending: true } => {
                world.truth.watch.phase = Phase::Listing { is_pending: false };
                world.show(history.state(watch.at).unwrap());
            }
            Phase::Listing { is_pending: false } => {
                let mut complete = self.clone();
                if complete.end_list(history) {
                    complete.check_step(self);
                    next.push(complete);
                }
                if !world.deliver(history) {
                    return;
                }
            }
            Phase::Watching => {
                if !world.deliver(history) {
                    return;
                }
            }
        }
        world.check_step(self);
        next.push(world);
    }

    /// The watch delivers the next event, if there is one.
    fn deliver(&mut self, history: History) -> bool {
        let at = self.truth.watch.at + 1;
        let Some(write) = history.write(at) else {
            return false;
        };
        self.truth.watch.at = at;
        match write {
            Write::Put { uid, is_valid } => self.show(State {
                uid,
                version: at,
                is_valid,
            }),
            Write::Delete { uid } => {
                self.truth.watch.shown = None;
                self.delete(uid, self.truth.watch.old.is_some());
            }
        }
        true
    }

    fn show(&mut self, state: State) {
        self.truth.watch.shown = Some(state.uid);
        self.see(Origin::Watch, state, self.truth.watch.old.is_some());
    }

    /// Returns whether the cache has accepted the state.
    fn see(&mut self, origin: Origin, state: State, is_old: bool) -> bool {
        self.truth.is_report_new = false;
        let before = self.known_uid();
        let metadata = &METADATA[usize::from(state.uid)][usize::from(state.version)];
        let is_accepted = if state.is_valid {
            self.observed
                .see(origin, metadata, state.version, *START)
                .is_some()
        } else {
            self.observed.see_undecodable(origin, metadata, *START)
        };
        let uid = usize::from(state.uid);
        let is_new = !self.truth.seen[uid] || state.version > self.truth.newest[uid];
        self.truth.responded[uid] |= origin == Origin::Response && is_new;
        self.truth.seen[uid] |= is_accepted;
        // What was seen before a restore makes a cache refuse responses until the next list.
        if !is_old && (is_accepted || self.truth.restores == 0) {
            self.truth.newest[uid] = self.truth.newest[uid].max(state.version);
            if state.is_valid && is_accepted {
                self.truth.newest_valid[uid] = self.truth.newest_valid[uid].max(state.version);
            }
        }
        if let Some(before) = before.filter(|before| self.known_uid() != Some(*before)) {
            self.truth.deleted[usize::from(before)] |= !is_old && self.truth.is_listed_again;
        }
        is_accepted
    }

    fn delete(&mut self, uid: u8, is_old: bool) {
        self.truth.is_report_new = false;
        self.observed.delete("", "a", Some(&uid_text(uid)), *START);
        self.truth.seen[usize::from(uid)] = true;
        self.truth.deleted[usize::from(uid)] |= !is_old;
    }

    /// The list is complete. Returns false if a cache cannot know that an object is deleted.
    fn end_list(&mut self, history: History) -> bool {
        let before = self.known_uid();
        self.truth.is_report_new = false;
        self.observed.end_list(*START);
        self.truth.watch.phase = Phase::Watching;
        let current = self.truth.server.current();
        let after = self.known_uid();
        let is_old = self.truth.watch.old.is_some();
        if let (Some(uid), None) = (before, after) {
            // (4) What the list has shown stays, and what exists although the list was requested
            // before it.
            assert_ne!(self.truth.watch.shown, Some(uid), "the list has shown it");
            if !is_old && self.truth.is_listed_again {
                assert_ne!(current.map(|current| current.uid), Some(uid), "it exists");
                self.truth.deleted[usize::from(uid)] = true;
            }
        }
        if let Some(uid) = after.filter(|_| !is_old) {
            // (4) What was deleted before the list is removed.
            let is_deleted = (1..=self.truth.watch.at)
                .any(|at| history.write(at) == Some(Write::Delete { uid }));
            if is_deleted && self.truth.responded[usize::from(uid)] {
                return false;
            }
            assert!(!is_deleted, "the list did not contain it: {self:?}");
        }
        true
    }

    fn check_step(&self, before: &Self) {
        let context = || format!("{before:?}\nthen\n{self:?}");
        if let (Some(entry), Some(uid)) = (self.entry(), self.known_uid()) {
            // (2) No state that is older than one of the same object that was seen in this epoch.
            let uid = usize::from(uid);
            let version = entry.stamp.version().map_or(0, ResourceVersion::get);
            assert!(
                version >= number(self.truth.newest[uid].into()),
                "older: {}",
                context()
            );
            assert!(
                entry
                    .value
                    .is_none_or(|value| value >= self.truth.newest_valid[uid]),
                "older value: {}",
                context()
            );
            // (3) No object that was deleted in this epoch.
            assert!(!self.truth.deleted[uid], "deleted: {}", context());
        }
        // (1) After the watch has delivered everything, the truth.
        let Truth {
            watch,
            server,
            is_listed_again,
            ..
        } = self.truth;
        let is_complete = watch.phase == Phase::Watching && watch.at == server.version();
        if !is_complete || watch.old.is_some() || !is_listed_again {
            return;
        }
        let current = server.current();
        assert_eq!(
            self.known_uid(),
            current.map(|state| state.uid),
            "another object: {}",
            context()
        );
        if let Some(state) = current.filter(|state| state.is_valid) {
            assert_eq!(
                self.observed.get("", "a"),
                Some(&state.version),
                "another state: {}",
                context()
            );
            let version = self
                .observed
                .preconditions("", "a")
                .map(|(_, version)| version.get());
            assert_eq!(
                version,
                Some(number(state.version.into())),
                "another precondition: {}",
                context()
            );
        } else {
            assert_eq!(
                self.observed.preconditions("", "a"),
                None,
                "not the version of the value: {}",
                context()
            );
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:?}\n{:?} {:?}",
            self.truth,
            self.entry(),
            self.observed.versions
        )
    }
}

impl Truth {
    fn begin_epoch(&mut self) {
        self.deleted = [false; MAX_UIDS];
        self.newest = [0; MAX_UIDS];
        self.newest_valid = [0; MAX_UIDS];
    }
}

/// Explores all states.
fn explore(limits: Limits) {
    let mut known = HashSet::new();
    let mut open = vec![World::new()];
    while let Some(world) = open.pop() {
        if known.insert(world.fingerprint()) {
            open.extend(world.next(limits));
        }
    }
    println!("{} states", known.len());
}

#[test]
fn watch_shows_the_truth_whatever_responses_show() {
    explore(Limits {
        writes: 5,
        lists: 2,
        responses: 2,
        restores: 0,
        undecodable: 0,
    });
}

#[test]
fn watch_shows_the_truth_of_undecodable_objects() {
    explore(Limits {
        writes: 4,
        lists: 2,
        responses: 1,
        restores: 0,
        undecodable: 1,
    });
    explore(Limits {
        writes: 3,
        lists: 2,
        responses: 1,
        restores: 1,
        undecodable: 1,
    });
}

#[test]
fn watch_shows_the_truth_after_a_restore_of_etcd() {
    explore(Limits {
        writes: 4,
        lists: 2,
        responses: 1,
        restores: 1,
        undecodable: 0,
    });
}

/// Run by `make model`.
#[test]
#[ignore = "takes minutes"]
fn watch_shows_the_truth_in_larger_scopes() {
    explore(Limits {
        writes: 5,
        lists: 2,
        responses: 2,
        restores: 0,
        undecodable: 2,
    });
    explore(Limits {
        writes: 5,
        lists: 3,
        responses: 2,
        restores: 0,
        undecodable: 0,
    });
    explore(Limits {
        writes: 4,
        lists: 3,
        responses: 1,
        restores: 1,
        undecodable: 0,
    });
    explore(Limits {
        writes: 5,
        lists: 2,
        responses: 1,
        restores: 1,
        undecodable: 0,
    });
}
