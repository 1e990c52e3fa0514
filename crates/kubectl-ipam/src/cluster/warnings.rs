//! The headers of the responses of the API server: its time, and the warnings of admission and of
//! deprecated versions.

use std::cell::RefCell;

use capi_ipam_controller::clock;
use http::header::WARNING;
use http::{HeaderMap, Response};

tokio::task_local! {
    /// The warnings of the responses to the requests that run now.
    static WARNINGS: RefCell<Vec<String>>;
}

/// Runs requests, and returns the warnings of their responses.
pub(crate) async fn with_warnings<T>(requests: impl Future<Output = T>) -> (T, Vec<String>) {
    let collected = async {
        let result = requests.await;
        (result, WARNINGS.with(RefCell::take))
    };
    WARNINGS.scope(RefCell::default(), collected).await
}

/// Reads the time of the API server, by which all ages are judged, and collects the warnings of a
/// response for [`with_warnings`]. The client calls it where the request
/// is awaited, not in a separate task.
pub(super) fn collect<B>(response: Response<B>) -> Response<B> {
    clock::observe(response.headers());
    // Most requests are not run by `with_warnings`.
    let _ = WARNINGS.try_with(|warnings| warnings.borrow_mut().extend(texts(response.headers())));
    response
}

/// The texts of all headers with a warning.
fn texts(headers: &HeaderMap) -> Vec<String> {
    let mut texts = Vec::new();
    for header in headers.get_all(WARNING) {
        texts.extend(text(&String::from_utf8_lossy(header.as_bytes())));
    }
    texts
}

/// The text of a warning, which has the form `299 - "text"` (RFC 7234 section 5.5).
fn text(header: &str) -> Option<String> {
    let (_code, rest) = header.split_once(' ')?;
    let (_agent, rest) = rest.split_once(' ')?;
    let mut letters = rest.strip_prefix('"')?.chars();
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Some(text),
            '\\' => text.extend(letters.next()),
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_warning_is_unquoted() {
        assert_eq!(
            text(r#"299 - "spec \"a\\b\" overlaps""#).as_deref(),
            Some(r#"spec "a\b" overlaps"#)
        );
        let with_date = r#"299 kube-apiserver "old" "Thu, 26 Nov 2026 21:00:00 GMT""#;
        assert_eq!(text(with_date).as_deref(), Some("old"));
        for invalid in ["", "299", "299 - old", "299 - \"old"] {
            assert_eq!(text(invalid), None, "{invalid}");
        }
    }

    #[tokio::test]
    async fn warnings_belong_to_the_requests_that_are_run() {
        let response = |warning: &'static str| {
            Response::builder()
                .header(WARNING, warning)
                .body(())
                .unwrap()
        };
        collect(response("299 - \"of nobody\""));
        let one = with_warnings(async {
            tokio::task::yield_now().await;
            collect(response("299 - \"one\""));
            1
        });
        let two = with_warnings(async {
            collect(response("299 - \"two\""));
            collect(response("299 - \"more\""));
            2
        });
        let (one, two) = tokio::join!(one, two);
        assert_eq!(one, (1, vec!["one".to_owned()]));
        assert_eq!(two, (2, vec!["two".to_owned(), "more".to_owned()]));
    }
}
