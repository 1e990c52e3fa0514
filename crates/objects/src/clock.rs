//! The time by which objects are judged: that of the API server.
//!
//! The API server sets `creationTimestamp` and `deletionTimestamp`, and several processes write
//! times that others compare. If each used the clock of its machine, they would disagree by the
//! difference of their clocks. So the time is taken from the `Date` header of the responses, and
//! continued by the monotonic clock until the next one. The clock of this machine counts only
//! before the first response.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use parking_lot::Mutex;

/// The difference after which a response with an earlier time counts: the clock of the API server
/// was set back, or another API server answers. The header has whole seconds, and responses take
/// some time.
const MAX_DIFFERENCE: Duration = Duration::from_secs(2);

static ESTIMATE: Mutex<Estimate> = Mutex::new(Estimate { newest: None });

/// The current time in whole seconds, as Kubernetes stores it.
pub fn now() -> Time {
    let now = timestamp();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The current time in microseconds.
pub fn now_micro() -> MicroTime {
    MicroTime(timestamp())
}

/// The current time.
pub fn timestamp() -> Timestamp {
    let estimated = ESTIMATE.lock().at(Instant::now());
    estimated.unwrap_or_else(Timestamp::now)
}

/// Takes the time from the headers of a response of the API server.
pub fn observe(headers: &HeaderMap) {
    if let Some(value) = headers.get(header::DATE) {
        ESTIMATE.lock().observe(value, Instant::now());
    }
}

/// The time in a `Date` header.
pub fn parse_date(value: &HeaderValue) -> Option<Timestamp> {
    DateTimeParser::new()
        .parse_timestamp(value.to_str().ok()?)
        .ok()
}

/// The time of the API server, estimated from its responses. The estimate is never later than the
/// time of the server: the header is truncated to a second, and the response arrives later.
struct Estimate {
    newest: Option<Sample>,
}

struct Sample {
    header: HeaderValue,
    time: Timestamp,
    received: Instant,
}

impl Estimate {
    fn at(&self, now: Instant) -> Option<Timestamp> {
        let sample = self.newest.as_ref()?;
        sample
            .time
            .checked_add(now.saturating_duration_since(sample.received))
            .ok()
    }

    fn observe(&mut self, header: &HeaderValue, now: Instant) {
        // The first response of a second is the closest one.
        if self
            .newest
            .as_ref()
            .is_some_and(|sample| sample.header == *header)
        {
            return;
        }
        let Some(time) = parse_date(header) else {
            return;
        };
        let is_closer = self.at(now).is_none_or(|known| {
            let was_set_back = known.duration_since(time).unsigned_abs() > MAX_DIFFERENCE;
            time > known || was_set_back
        });
        if is_closer {
            self.newest = Some(Sample {
                header: header.clone(),
                time,
                received: now,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_header_is_parsed() {
        let parse = |text: &'static str| {
            parse_date(&HeaderValue::from_static(text)).map(|time| time.to_string())
        };
        assert_eq!(
            parse("Tue, 24 Nov 2026 19:45:37 GMT").as_deref(),
            Some("2026-11-24T19:45:37Z")
        );
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn time_follows_the_responses_of_the_api_server() {
        let (mut estimate, start) = (Estimate { newest: None }, Instant::now());
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut observe = |text: &'static str, milliseconds| {
            estimate.observe(&HeaderValue::from_static(text), after(milliseconds));
            let time = estimate.at(after(milliseconds)).unwrap();
            time.strftime("%M:%S.%3f").to_string()
        };
        assert_eq!(observe("Tue, 24 Nov 2026 19:45:37 GMT", 0), "45:37.000");
        assert_eq!(
            observe("Tue, 24 Nov 2026 19:45:37 GMT", 900),
            "45:37.900",
            "the first one of a second counts"
        );
        assert_eq!(
            observe("Tue, 24 Nov 2026 19:45:38 GMT", 950),
            "45:38.000",
            "it was truncated before"
        );
        assert_eq!(
            observe("Tue, 24 Nov 2026 19:45:39 GMT", 2_500),
            "45:39.550",
            "a slow response changes nothing"
        );
        assert_eq!(
            observe("Tue, 24 Nov 2026 19:40:00 GMT", 3_000),
            "40:00.000",
            "the clock was set back"
        );
        assert_eq!(
            observe("Tue, 24 Nov 2026 20:40:00 GMT", 3_100),
            "40:00.000",
            "the clock was set forward"
        );
        assert_eq!(observe("nonsense", 3_200), "40:00.100");
    }
}
