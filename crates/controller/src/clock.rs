//! The wall clock, read in one place.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

/// The current time in whole seconds, as Kubernetes stores it.
pub fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The current time in microseconds.
pub fn now_micro() -> MicroTime {
    MicroTime(Timestamp::now())
}
