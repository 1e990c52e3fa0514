//! Asks the API server again and again for the lease of the manager: whether it answers, and
//! whether there is a manager. A watch that is silent tells neither.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use super::state::State;
use crate::cluster::{lease_selector, root_cause};
use crate::model::{Answer, LeaseRow, OutageCause};

/// Time between two requests.
const INTERVAL: Duration = Duration::from_secs(4);
/// Time after a request before the failure of a watch causes the next one.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks until the task is ended.
pub(super) async fn run(client: Client, state: Arc<State>) {
    let leases: Api<Lease> = Api::all(client);
    let selector = lease_selector();
    loop {
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, leases.list(&selector)).await {
            Ok(Ok(list)) => Answer::Leases(list.items.into_iter().map(LeaseRow::from).collect()),
            Ok(Err(error)) => failure(&error),
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                Answer::None(OutageCause::Silent, format!("no answer within {seconds} s"))
            }
        };
        state.heard(answer);
        tokio::time::sleep(MIN_INTERVAL).await;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = state.suspected() => {}
        }
    }
}

/// What an error says about the API server.
fn failure(error: &kube::Error) -> Answer {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            Answer::None(OutageCause::Credentials, status.message.clone())
        }
        kube::Error::Api(status) if status.code >= 500 => {
            Answer::None(OutageCause::Failed, status.message.clone())
        }
        kube::Error::Api(_) => Answer::Refused,
        other => transport_failure(other),
    }
}

/// A failure below HTTP: the last error of the chain is the cause.
fn transport_failure(error: &kube::Error) -> Answer {
    let (cause, kind) = root_cause(error);
    let reason = cause.to_string();
    let outage = match kind {
        Some(ErrorKind::ConnectionRefused) => OutageCause::Refused,
        Some(ErrorKind::TimedOut) => OutageCause::Silent,
        _ => OutageCause::Failed,
    };
    Answer::None(outage, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refused_connection_is_recognized() {
        // Nobody listens on the port of a listener that is closed.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        let client = Client::try_from(kube::Config::new(url)).unwrap();
        let error = Api::<Lease>::all(client)
            .list(&lease_selector())
            .await
            .unwrap_err();
        let answer = failure(&error);
        assert!(
            matches!(answer, Answer::None(OutageCause::Refused, _)),
            "{answer:?}"
        );
    }

    #[test]
    fn answer_with_an_error_is_an_answer() {
        let api = |code: u16| {
            let status = kube::core::Status::failure("text", "reason").with_code(code);
            failure(&kube::Error::Api(Box::new(status)))
        };
        assert!(matches!(api(403), Answer::Refused));
        assert!(matches!(
            api(401),
            Answer::None(OutageCause::Credentials, _)
        ));
        assert!(matches!(api(503), Answer::None(OutageCause::Failed, _)));
    }
}
