//! Generates plans from the recordings of reference runs.

use std::collections::HashSet;
use support::prelude::*;

use crate::fault::{Fault, Plan, WatchFault, WriteFault};
use crate::request::Write;
use crate::workload::Workload;

/// The recording of a run without faults.
#[derive(Clone, Debug)]
pub struct Recording {
    pub workload: Workload,
    /// The number of writes of each kind.
    pub writes: BTreeMap<Write, usize>,
    /// The number of events of each kind, by plural.
    pub watched: BTreeSet<String>,
    /// The number of reads of single objects, by plural.
    pub reads: BTreeMap<String, usize>,
}

/// One plan for each kind of write (its first, a middle and its last occurrence) and each fault,
/// one for each kind of watch and each fault, and the worst of these with a second manager. Two
/// faults in a row are injected at the first occurrence of a write, and at several creations.
pub fn all(recordings: &[Recording]) -> Vec<Plan> {
    recordings.iter().flat_map(of_workload).collect()
}

fn of_workload(recording: &Recording) -> Vec<Plan> {
    let least = recording.workload.managers();
    let may_be_two = least == 1 && recording.workload.max_managers() == 2;
    let plan = |managers: usize, fault| {
        let managers = managers.max(least);
        Plan {
            workload: recording.workload,
            managers,
            aged: false,
            fault: Some(fault),
        }
    };
    let mut plans = Vec::new();
    for (&write, &count) in recording
        .writes
        .iter()
        .filter(|(write, _)| **write != Write::Other)
    {
        for how in faults_at(write) {
            let most = if how.refused_retry().is_some() && !is_creation(write) {
                1
            } else {
                count
            };
            plans.extend(
                ordinals(write, most)
                    .into_iter()
                    .map(|nth| plan(1, Fault::Write { write, nth, how })),
            );
            if may_be_two && is_for_two(how) && write != Write::Event {
                plans.push(plan(2, Fault::Write { write, nth: 1, how }));
            }
            if is_for_aged(recording.workload, write, how) {
                plans.push(Plan {
                    aged: true,
                    ..plan(1, Fault::Write { write, nth: 1, how })
                });
            }
        }
    }
    for resource in &recording.watched {
        for how in [
            WatchFault::HeldBack,
            WatchFault::Broken,
            WatchFault::Expired,
        ] {
            let at = |nth| Fault::Watch {
                resource: resource.clone(),
                nth,
                how,
            };
            plans.extend([1, 2].map(|nth| plan(1, at(nth))));
            if may_be_two && how == WatchFault::HeldBack {
                plans.push(plan(2, at(1)));
            }
        }
        // It lasts until it is detected, so not every workload waits for it.
        if recording.workload == Workload::Allocate {
            let fault = Fault::Watch {
                resource: resource.clone(),
                nth: 1,
                how: WatchFault::BlackHole,
            };
            plans.push(plan(1, fault));
        }
    }
    for (resource, &count) in &recording.reads {
        let at = |nth| Fault::Read {
            resource: resource.clone(),
            nth,
        };
        plans.extend(
            spread_over(count.min(2))
                .into_iter()
                .map(|nth| plan(1, at(nth))),
        );
    }
    if may_be_two {
        // Two managers that try to reserve the same address read its holder.
        plans.push(plan(
            2,
            Fault::Read {
                resource: "ipreservations".to_owned(),
                nth: 1,
            },
        ));
    }
    plans
}

/// The occurrences of a write at which a fault is injected.
fn ordinals(write: Write, count: usize) -> BTreeSet<usize> {
    match write {
        // Their number varies.
        Write::PoolStatus | Write::Event => spread_over(count.min(2)),
        _ => spread_over(count),
    }
}

/// The first, a middle and the last of `count`.
fn spread_over(count: usize) -> BTreeSet<usize> {
    BTreeSet::from([1, count.div_ceil(2), count])
        .into_iter()
        .filter(|nth| (1..=count).contains(nth))
        .collect()
}

fn faults_at(write: Write) -> Vec<WriteFault> {
    let mut faults = vec![
        WriteFault::CrashBefore,
        WriteFault::CrashAfter,
        WriteFault::Conflict,
        WriteFault::ReplyLost,
        WriteFault::AppliedAndTimedOut,
        WriteFault::Late,
        WriteFault::Refused(429),
        WriteFault::Refused(500),
        WriteFault::Refused(503),
        WriteFault::Refused(504),
        WriteFault::RefusedForLong,
    ];
    faults.extend(undone_by(write).iter().copied().map(WriteFault::LateAfter));
    // Nothing depends on an event, and the next status of a pool is another one.
    if !matches!(write, Write::Event | Write::PoolStatus) {
        faults.extend(RETRIES);
    }
    faults
}

/// Two faults in a row at one object.
const RETRIES: [WriteFault; 3] = [
    WriteFault::LostThenRefused(403),
    WriteFault::LostThenRefused(500),
    WriteFault::LateThenRefused(403),
];

/// Whether a lost response leaves an object that the manager may not know.
fn is_creation(write: Write) -> bool {
    matches!(
        write,
        Write::ReservationCreated
            | Write::ReservationTakenOver
            | Write::AddressCreated
            | Write::SliceAssigned
    )
}

/// The writes after which a late write does the most harm: they undo it or invalidate it. Many of
/// them affect a later object of the same name.
fn undone_by(write: Write) -> &'static [Write] {
    match write {
        Write::ReservationCreated | Write::ReservationMarked => &[Write::ReservationDeleted],
        Write::ReservationReleased => &[Write::ReservationTakenOver, Write::ReservationCreated],
        Write::ReservationTakenOver => &[Write::ReservationReleased, Write::ReservationDeleted],
        Write::ReservationDeleted => &[Write::ReservationCreated],
        Write::AddressCreated => &[Write::AddressDeleted, Write::ClaimFinalizerAdded],
        Write::AddressFinalizerRemoved | Write::AddressDeleted => &[Write::AddressCreated],
        Write::ClaimBound => &[Write::ClaimFinalizerAdded],
        Write::ClaimFinalizerRemoved | Write::ClaimReported => &[Write::ClaimBound],
        Write::PoolFinalizerRemoved => &[Write::PoolFinalizerAdded],
        Write::ClaimCreated => &[Write::ClaimDeleted],
        Write::ClaimDeleted => &[Write::ClaimCreated],
        Write::SliceAssigned => &[Write::SliceReturned],
        Write::SliceMarked => &[Write::SliceResumed],
        Write::SliceResumed => &[Write::SliceMarked],
        Write::SliceReturned => &[Write::SliceResumed, Write::SliceAssigned],
        _ => &[],
    }
}

fn is_for_two(how: WriteFault) -> bool {
    how.is_late()
        || matches!(
            how,
            WriteFault::CrashAfter | WriteFault::ReplyLost | WriteFault::Conflict
        )
}

/// A new manager reads where an older one relies on memory. Such plans take longer.
fn is_for_aged(workload: Workload, write: Write, how: WriteFault) -> bool {
    matches!(workload, Workload::Delete | Workload::Recreate)
        && write == Write::AddressCreated
        && how.is_late()
}

/// An aspect that a selection of plans must cover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Aspect {
    Workload(Workload),
    Managers(usize),
    Aged(bool),
    Write(Write),
    How(WriteFault),
    Watch(String),
    WatchHow(WatchFault),
    Read(String),
    /// A fault at a write, for a new or an older manager.
    Pair(Write, WriteFault, bool),
    /// A write of a workload.
    Part(Workload, Write),
    /// A fault in a workload, with a number of managers.
    Case(Workload, WriteFault, usize),
    /// A fault at a watch in a workload.
    Seen(Workload, String, WatchFault),
    /// A read in a workload, with a number of managers.
    Late(Workload, String, usize),
}

/// A few plans that cover every kind of write, every watch and every fault.
pub fn few(plans: &[Plan]) -> Vec<Plan> {
    covering(plans, |plan| {
        let mut aspects = vec![
            Aspect::Workload(plan.workload),
            Aspect::Managers(plan.managers),
            Aspect::Aged(plan.aged),
        ];
        match &plan.fault {
            Some(Fault::Write { write, nth, how }) => {
                aspects.extend([Aspect::Write(*write), Aspect::How(*how)]);
                if how.refused_retry().is_some() && is_creation(*write) {
                    aspects.push(Aspect::Pair(*write, *how, plan.aged));
                }
                // The API server waits for the webhook meanwhile.
                if plan.workload == Workload::Requested && is_unanswered(*write, *how) {
                    aspects.push(Aspect::Pair(*write, *how, plan.aged));
                }
                // The claims of an owner wait for the one that assigns a slice.
                if *write == Write::SliceAssigned && *how == WriteFault::RefusedForLong {
                    aspects.push(Aspect::Pair(*write, *how, plan.aged));
                }
                // Addresses are released during the retries, so that the next proposal is another
                // address.
                if is_forgotten_reservation(plan.workload, *write, *nth, *how)
                    || is_restart_without_network(plan.workload, *write, *nth, *how)
                {
                    aspects.push(Aspect::Part(plan.workload, *write));
                }
            }
            Some(Fault::Watch { resource, how, .. }) => {
                aspects.extend([Aspect::Watch(resource.clone()), Aspect::WatchHow(*how)]);
                // Responses are ahead of the watch: a slice can have another owner meanwhile.
                if resource == "ipslices" && *how == WatchFault::HeldBack {
                    aspects.push(Aspect::Seen(plan.workload, resource.clone(), *how));
                }
                // Two managers observe that the network is not usable at different times.
                if resource == "ipnetworks"
                    && plan.workload == Workload::Unavailable
                    && plan.managers == 2
                {
                    aspects.push(Aspect::Seen(plan.workload, resource.clone(), *how));
                }
            }
            Some(Fault::Read { resource, .. }) => aspects.push(Aspect::Read(resource.clone())),
            None => {}
        }
        aspects
    })
}

/// Whether a claim for a Cluster is created and the webhook does not know it, or not in time.
fn is_unanswered(write: Write, how: WriteFault) -> bool {
    write == Write::ClaimCreated
        && matches!(
            how,
            WriteFault::CrashAfter | WriteFault::Late | WriteFault::RefusedForLong
        )
}

/// Whether the plan leaves two reservations for a claim if the manager forgets the first one.
fn is_forgotten_reservation(workload: Workload, write: Write, nth: usize, how: WriteFault) -> bool {
    workload == Workload::Recreate
        && write == Write::ReservationCreated
        && nth > 1
        && how == WriteFault::LostThenRefused(403)
}

/// Whether the plan restarts the manager while a network is not usable, of which claims are
/// reported then.
fn is_restart_without_network(
    workload: Workload,
    write: Write,
    nth: usize,
    how: WriteFault,
) -> bool {
    workload == Workload::Unavailable
        && write == Write::ClaimReported
        && nth > 1
        && how == WriteFault::CrashAfter
}

/// Many plans that cover every fault at every kind of write and in every workload.
pub fn many(plans: &[Plan]) -> Vec<Plan> {
    covering(plans, |plan| match &plan.fault {
        Some(Fault::Write { write, how, .. }) => vec![
            Aspect::Pair(*write, *how, plan.aged),
            Aspect::Part(plan.workload, *write),
            Aspect::Case(plan.workload, *how, plan.managers),
        ],
        Some(Fault::Watch { resource, how, .. }) => {
            vec![Aspect::Seen(plan.workload, resource.clone(), *how)]
        }
        Some(Fault::Read { resource, .. }) => {
            vec![Aspect::Late(plan.workload, resource.clone(), plan.managers)]
        }
        None => Vec::new(),
    })
}

/// Plans in a pseudorandom order, each of which covers an aspect that no earlier one covers.
fn covering(plans: &[Plan], aspects: impl Fn(&Plan) -> Vec<Aspect>) -> Vec<Plan> {
    let mut covered = HashSet::new();
    let mut order: Vec<&Plan> = plans.iter().collect();
    order.sort_by_cached_key(|plan| hash(&plan.line()));
    let mut chosen = Vec::new();
    for plan in order {
        let new = aspects(plan)
            .into_iter()
            .filter(|aspect| covered.insert(aspect.clone()))
            .count();
        if new > 0 {
            chosen.push(plan.clone());
        }
    }
    chosen
}

/// A stable hash of a text (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recordings() -> Vec<Recording> {
        let writes = BTreeMap::from([(Write::AddressCreated, 5), (Write::PoolFinalizerAdded, 1)]);
        let watched = BTreeSet::from(["ipaddresses".to_owned()]);
        let reads = BTreeMap::from([("ipaddresses".to_owned(), 5)]);
        let of = |workload| Recording {
            workload,
            writes: writes.clone(),
            watched: watched.clone(),
            reads: reads.clone(),
        };
        vec![of(Workload::Allocate), of(Workload::Delete)]
    }

    #[test]
    fn first_middle_and_last_occurrence_are_selected() {
        let at = |count| spread_over(count).into_iter().collect::<Vec<_>>();
        assert_eq!(
            (at(0), at(1), at(2), at(3), at(9)),
            (vec![], vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 5, 9])
        );
    }

    #[test]
    fn every_fault_is_planned_at_every_write_and_watch() {
        let plans = all(&recordings());
        // 16 faults at 3 occurrences of one write, 14 at the other; 3 at 2 events; with a second
        // manager 7, 5 and 1; 4 with an older manager; one watch that is a black hole; late
        // responses to 2 reads, and to one with a second manager.
        assert_eq!(
            plans.len(),
            2 * (16 * 3 + 14 + 3 * 2 + 7 + 5 + 1 + 2 + 1) + 4 + 1
        );
        assert_eq!(
            plans.iter().map(Plan::line).collect::<BTreeSet<_>>().len(),
            plans.len()
        );
    }

    #[test]
    fn selection_covers_every_aspect_at_least_once() {
        let plans = all(&recordings());
        let (few, many) = (few(&plans), many(&plans));
        assert!(
            few.len() < many.len() && many.len() < plans.len(),
            "{} {} {}",
            few.len(),
            many.len(),
            plans.len()
        );
        let hows = |plans: &[Plan]| {
            let how = |plan: &Plan| match plan.fault {
                Some(Fault::Write { how, .. }) => Some(how),
                _ => None,
            };
            plans.iter().filter_map(how).collect::<HashSet<_>>()
        };
        assert_eq!(hows(&few), hows(&plans));
        assert!(few.iter().any(|plan| plan.managers == 2) && few.iter().any(|plan| plan.aged));
    }
}
