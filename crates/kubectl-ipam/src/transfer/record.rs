//! The pools and reservations of a file, and what is wrong in it.

use std::collections::{BTreeMap, HashSet};

use capi_ipam_api::{Pool, PoolKey, Scope, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use serde_json::Value;

use crate::model::ImportProblem;

/// The kind of a reservation.
pub(super) const RESERVATION: &str = "IPReservation";

/// The label of objects that `import` creates: the name of the import.
pub(super) const IMPORT_LABEL: &str = "ipam.cluster.x-k8s.io/import";

/// Labels and annotations that tools and the provider set: `import` does not read them, and
/// `export` does not write them.
pub(super) const TEXTS_NOT_IMPORTED: [&str; 4] = [
    IMPORT_LABEL,
    LAST_APPLIED,
    names::MOVE_LABEL,
    names::MOVED_FROM_ANNOTATION,
];

/// The annotation in which `kubectl apply` stores the last version.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels or annotations.
pub(super) type Texts = BTreeMap<String, String>;

/// An object of a file.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) line: u64,
    pub(super) entry: Entry,
    /// Values outside of their bounds. They matter only if the object has to be written.
    pub(super) out_of_bounds: Vec<ImportProblem>,
}

#[derive(Clone, Debug)]
pub(super) enum Entry {
    Pool(Box<WantedPool>),
    Reservation(Box<Wanted>),
}

/// A pool of a file.
#[derive(Clone, Debug)]
pub(super) struct WantedPool {
    pub(super) pool: Pool,
    /// The specification as it was read.
    pub(super) spec: Value,
}

/// A reservation of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) pool: PoolKey,
    pub(super) block: Block,
    /// The scope if the file states it.
    pub(super) scope: Option<Scope>,
    pub(super) claim: Option<NamespacedName>,
    pub(super) labels: Texts,
    pub(super) annotations: Texts,
}

/// The objects of a file, and what is wrong in it.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) records: Vec<Record>,
    pub(super) problems: Vec<ImportProblem>,
    /// Fields that an import does not set, such as the status: the first line, and the number of
    /// objects that have it.
    pub(super) not_imported: BTreeMap<String, (u64, usize)>,
    /// Other parts of the file that are ignored, as sentences.
    pub(super) warnings: Vec<String>,
    /// The pools with a problem that is reported. Nothing is known of what refers to them.
    pub(super) unread_pools: HashSet<PoolKey>,
    /// Whether the file is a table, which cannot state all fields of a pool.
    pub(super) is_table: bool,
}

impl Parsed {
    pub(super) fn add(&mut self, line: u64, entry: Result<Entry, Vec<String>>) {
        match entry {
            Ok(entry) => self.records.push(Record {
                line,
                entry,
                out_of_bounds: Vec::new(),
            }),
            Err(problems) => problems
                .into_iter()
                .for_each(|problem| self.problem(line, problem)),
        }
    }

    pub(super) fn problem(&mut self, line: u64, problem: String) {
        self.problems.push(ImportProblem::of_line(line, problem));
    }

    /// Records that a field of an object is not imported.
    pub(super) fn skip_field(&mut self, line: u64, path: &str) {
        let (_, count) = self
            .not_imported
            .entry(path.to_owned())
            .or_insert((line, 0));
        *count = count.saturating_add(1);
    }

    /// The blocks that the file reserves.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &Wanted> {
        self.records
            .iter()
            .filter_map(|record| match &record.entry {
                Entry::Reservation(wanted) => Some(wanted.as_ref()),
                Entry::Pool(_) => None,
            })
    }

    /// The pools of the file.
    pub(super) fn pools(&self) -> impl Iterator<Item = &WantedPool> {
        self.records
            .iter()
            .filter_map(|record| match &record.entry {
                Entry::Pool(wanted) => Some(wanted.as_ref()),
                Entry::Reservation(_) => None,
            })
    }

    /// What the caller should know of parts of the file that are not imported.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        for (path, (line, count)) in &self.not_imported {
            let lines = at_lines(*line, *count);
            warnings.push(format!("{lines}: {path} is not imported"));
        }
        warnings
    }
}

/// Where a sentence holds: the first line, and the number of objects.
pub(super) fn at_lines(first: u64, objects: usize) -> String {
    match objects.saturating_sub(1) {
        0 => format!("line {first}"),
        more => format!("line {first} and {more} more objects"),
    }
}
