//! The clock of the API server, read on request. See [`clock`](crate::clock) for the time that
//! follows from all responses.

use http::{HeaderMap, Request, header};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;

use crate::client::{CallError, with_timeout};
use crate::clock::parse_date;

/// Returns the time of the API server in whole seconds, from the `Date` header of a response. The
/// API server sets timestamps such as `deletionTimestamp` by this clock, and the clock of this
/// machine may be wrong.
pub async fn server_now(client: &Client) -> Result<Timestamp, CallError> {
    let request = async {
        let request = Request::get("/version")
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        // A response that rejects the request has the header too.
        let response = client.send(request).await?;
        date(response.headers())
            .ok_or_else(|| kube::Error::Service("the response has no valid Date header".into()))
    };
    with_timeout(|| "read the time of the API server".to_owned(), request).await
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    parse_date(headers.get(header::DATE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_without_a_date_has_no_time() {
        assert_eq!(date(&HeaderMap::new()), None);
    }
}
