//! A plan: what is done, and what goes wrong meanwhile. It is one line of JSON.

use capi_ipam::request::Write;
use capi_ipam::workload::Workload;
use serde::{Deserialize, Serialize};

/// One run from start to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is asked of the provider.
    pub workload: Workload,
    /// How many managers work at the same time, without leader election. The fault hits the first.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub managers: usize,
    /// The manager has been at work for so long that nothing of one before it can come any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aged: bool,
    /// What goes wrong. Nothing in a reference run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

fn one() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(number: &usize) -> bool {
    *number == 1
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// At a write.
    Write {
        /// Of this kind.
        write: Write,
        /// The how-manieth of its kind, from 1.
        nth: usize,
        /// How.
        how: WriteFault,
    },
    /// At a watch.
    Watch {
        /// Of the objects with this plural.
        resource: String,
        /// At the how-manieth change that it tells of, from 1.
        nth: usize,
        /// How.
        how: WatchFault,
    },
    /// At a read of one object: its answer, with the state of the time when it was asked, arrives 2 s late.
    Read {
        /// Of an object with this plural.
        resource: String,
        /// The how-manieth read of such an object, from 1.
        nth: usize,
    },
}

/// What goes wrong at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteFault {
    /// The manager is killed, and the write never reaches the API server.
    CrashBefore,
    /// The manager is killed once the write is applied, and never hears of that.
    CrashAfter,
    /// The write is refused as if somebody had been faster.
    Conflict,
    /// The write is applied, and the connection breaks before the answer.
    ReplyLost,
    /// The write is applied, and the answer is 504.
    AppliedAndTimedOut,
    /// The answer is 504, and the write is applied a second later.
    Late,
    /// The answer is 504, and the write reaches the API server right after the next write of that kind, to an object of
    /// the same name: before this is answered.
    LateAfter(Write),
    /// The write is refused with this code.
    Refused(u16),
    /// All writes of the kind are refused with 503, for 2 s.
    RefusedForLong,
}

impl WriteFault {
    /// Whether the write may reach the API server when its author has given it up.
    pub fn is_late(self) -> bool {
        matches!(self, Self::Late | Self::LateAfter(_))
    }
}

/// What goes wrong at a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchFault {
    /// This change and all after it are told 2 s late.
    HeldBack,
    /// The connection breaks.
    Broken,
    /// The API server says that it has forgotten what happened since (410).
    Expired,
    /// The connection stays open, and neither this change nor anything after it arrives.
    BlackHole,
}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub fn reference(workload: Workload) -> Self {
        Self { workload, managers: workload.managers(), aged: false, fault: None }
    }

    /// Whether a claim may be given an address twice, the first one unbound and taken back: two managers may reserve one
    /// for it each, and so may one whose write comes late.
    pub fn may_repeat(&self) -> bool {
        let late = matches!(self.fault, Some(Fault::Write { how, .. }) if how.is_late());
        late || self.managers > 1
    }

    /// Whether a write may come between a live read and what is decided on it: that of another manager, or one that is
    /// late by chance. Then a claim may go while its second, unbound IPAddress comes.
    pub fn may_be_overtaken(&self) -> bool {
        let by_chance = matches!(self.fault, Some(Fault::Write { how: WriteFault::Late, .. }));
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
    fn a_plan_can_be_read_from_its_line() {
        let late = WriteFault::LateAfter(Write::AddressDeleted);
        let faults = [
            None,
            Some(Fault::Write { write: Write::AddressCreated, nth: 2, how: late }),
            Some(Fault::Write { write: Write::Event, nth: 1, how: WriteFault::Refused(429) }),
            Some(Fault::Watch { resource: "ipaddresses".into(), nth: 1, how: WatchFault::Expired }),
            Some(Fault::Watch { resource: "ipaddresses".into(), nth: 1, how: WatchFault::BlackHole }),
            Some(Fault::Read { resource: "ipreservations".into(), nth: 1 }),
        ];
        for (fault, managers) in faults.into_iter().zip([2, 1, 2, 1, 2, 1]) {
            let plan = Plan { workload: Workload::Scale, managers, aged: managers == 1, fault };
            assert_eq!(serde_json::from_str::<Plan>(&plan.line()).expect("it is one"), plan);
        }
        assert_eq!(Plan::reference(Workload::Allocate).line(), r#"{"workload":"allocate"}"#);
    }
}
