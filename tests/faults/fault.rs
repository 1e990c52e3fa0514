//! A plan: a workload and a fault. It is one line of JSON.

use serde::{Deserialize, Serialize};

use crate::request::Write;
use crate::workload::Workload;

/// One run from start to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The number of active managers, without leader election. The fault affects the first.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub managers: usize,
    /// The manager has run for so long that no late write of a previous one can be applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aged: bool,
    /// The fault. None in a reference run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

fn one() -> usize {
    1
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_one(number: &usize) -> bool {
    *number == 1
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// At a write.
    Write {
        /// The kind of the write.
        write: Write,
        /// The occurrence of this kind, from 1.
        nth: usize,
        /// The fault.
        how: WriteFault,
    },
    /// At a watch.
    Watch {
        /// The plural of the objects.
        resource: String,
        /// The number of the event, from 1.
        nth: usize,
        /// The fault.
        how: WatchFault,
    },
    /// At a read of one object: its response arrives 2 s late, with the state at the time of the
    /// request.
    Read {
        /// The plural of the object.
        resource: String,
        /// The number of the read of such objects, from 1.
        nth: usize,
    },
}

/// A fault at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteFault {
    /// The manager is killed, and the write never reaches the API server.
    CrashBefore,
    /// The manager is killed after the write is applied, before it receives the response.
    CrashAfter,
    /// The write is rejected with a conflict.
    Conflict,
    /// The write is applied, and the connection breaks before the response.
    ReplyLost,
    /// The write is applied, and the response is 504.
    AppliedAndTimedOut,
    /// The response is 504, and the write is applied a second later.
    Late,
    /// The response is 504, and the write reaches the API server right after the next write of this
    /// kind to an object of the same name, before the response to that write.
    LateAfter(Write),
    /// The write is rejected with this code.
    Refused(u16),
    /// All writes of the kind are rejected with 503 for 2 s.
    RefusedForLong,
    /// Two faults: the write is applied, and the connection breaks before the response. Then the
    /// retry, the next write of this kind to this object, is rejected with this code. Until then
    /// the manager learns nothing about the object: reads of it fail, and the watch is delayed.
    LostThenRefused(u16),
    /// Two faults: the response is 504, and the write is applied a second later. Then the retry,
    /// the next write of this kind to this object, is rejected with this code.
    LateThenRefused(u16),
}

impl WriteFault {
    /// Whether the write may reach the API server after its timeout.
    pub fn is_late(self) -> bool {
        matches!(
            self,
            Self::Late | Self::LateAfter(_) | Self::LateThenRefused(_)
        )
    }

    /// The code with which the retry is rejected.
    pub fn refused_retry(self) -> Option<u16> {
        if let Self::LostThenRefused(code) | Self::LateThenRefused(code) = self {
            Some(code)
        } else {
            None
        }
    }
}

/// A fault at a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchFault {
    /// This event and all later ones arrive 2 s late.
    HeldBack,
    /// The connection breaks.
    Broken,
    /// The API server reports that the resource version is expired (410).
    Expired,
    /// The connection stays open, and neither this event nor any later one arrives.
    BlackHole,
}

impl Plan {
    /// A plan without a fault.
    pub fn reference(workload: Workload) -> Self {
        Self {
            workload,
            managers: workload.managers(),
            aged: false,
            fault: None,
        }
    }

    /// Whether a claim may be allocated an address twice, with the first one unbound and released:
    /// two managers may each reserve one for it, and so may a manager whose write is late.
    pub fn may_repeat(&self) -> bool {
        let late = matches!(self.fault, Some(Fault::Write { how, .. }) if how.is_late());
        late || self.managers > 1
    }

    /// Whether an address may be in the slice of another owner: a late reservation, or one by a
    /// manager that has not observed that the slice is marked as empty.
    pub fn may_be_in_another_slice(&self) -> bool {
        let late = |write, how: WriteFault| write == Write::ReservationCreated && how.is_late();
        let is_late =
            matches!(self.fault, Some(Fault::Write { write, how, .. }) if late(write, how));
        is_late || self.managers > 1
    }

    /// Whether a write may happen between a live read and the decision on it: a write of another
    /// manager, or a late one. Then a claim may be released while its second, unbound IPAddress is
    /// created.
    pub fn may_be_overtaken(&self) -> bool {
        let is_timed = |how| matches!(how, WriteFault::Late | WriteFault::LateThenRefused(_));
        let by_chance = matches!(self.fault, Some(Fault::Write { how, .. }) if is_timed(how));
        by_chance || self.managers > 1
    }

    /// The plan as a line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a plan is JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_round_trips_through_json() {
        let late = WriteFault::LateAfter(Write::AddressDeleted);
        let faults = [
            None,
            Some(Fault::Write {
                write: Write::AddressCreated,
                nth: 2,
                how: late,
            }),
            Some(Fault::Write {
                write: Write::Event,
                nth: 1,
                how: WriteFault::Refused(429),
            }),
            Some(Fault::Write {
                write: Write::AddressCreated,
                nth: 1,
                how: WriteFault::LostThenRefused(403),
            }),
            Some(Fault::Watch {
                resource: "ipaddresses".into(),
                nth: 1,
                how: WatchFault::Expired,
            }),
            Some(Fault::Watch {
                resource: "ipaddresses".into(),
                nth: 1,
                how: WatchFault::BlackHole,
            }),
            Some(Fault::Read {
                resource: "ipreservations".into(),
                nth: 1,
            }),
        ];
        for (fault, managers) in faults.into_iter().zip([2, 1, 2, 1, 2, 1, 2]) {
            let plan = Plan {
                workload: Workload::Scale,
                managers,
                aged: managers == 1,
                fault,
            };
            assert_eq!(
                serde_json::from_str::<Plan>(&plan.line()).expect("it is one"),
                plan
            );
        }
        assert_eq!(
            Plan::reference(Workload::Allocate).line(),
            r#"{"workload":"allocate"}"#
        );
    }
}
