//! The clock of the API server.

use http::{HeaderMap, Request, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;

use crate::client::{CallError, with_timeout};

/// Returns the time of the API server in whole seconds, from the `Date` header of a response. The API server sets
/// timestamps such as `deletionTimestamp` by this clock, and the clock of this machine may be wrong.
pub async fn server_now(client: &Client) -> Result<Timestamp, CallError> {
    let request = async {
        let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
        // A response that rejects the request has the header too.
        let response = client.send(request).await?;
        date(response.headers()).ok_or_else(|| kube::Error::Service("the response has no valid Date header".into()))
    };
    with_timeout(|| "read the time of the API server".to_owned(), request).await
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(headers.get(header::DATE)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_header_is_parsed() {
        let parse = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, header::HeaderValue::from_static(text));
            date(&headers).map(|time| time.to_string())
        };
        assert_eq!(parse("Tue, 24 Nov 2026 19:45:37 GMT").as_deref(), Some("2026-11-24T19:45:37Z"));
        assert_eq!(parse("yesterday"), None);
        assert_eq!(date(&HeaderMap::new()), None);
    }
}
