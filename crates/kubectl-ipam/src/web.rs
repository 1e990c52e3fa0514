//! `web`: a page in the browser that shows the cluster as it changes. Its files and its server are in
//! the crate `kubectl-ipam-web`.
//!
//! - `watches`: watches of all kinds; `heartbeat`: whether the API server and the manager are there;
//!   `records`: the records of registries; `demand`: which registries the page shows;
//! - `state`: all objects, and what the page asks about them; `answers`: its questions;
//!   `findings`: what the checks of `doctor` find in them.
//!
//! # Invariants
//! - Only reads, from the API server and for the browser. No request of the browser waits for
//!   another one, and none causes one, except for the blocks of a network: then the Secret and the
//!   records of its registry are read, at most every 10 seconds.

mod answers;
mod demand;
mod findings;
mod heartbeat;
mod records;
mod state;
#[cfg(test)]
mod tests;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use kubectl_ipam_web::{Server, open_browser};
use tokio::sync::watch;

use self::answers::answer;
use self::state::State;
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::output;

/// Longest time between two versions that the browser gets.
const UPDATE_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two examinations of the objects.
const EXAMINATION_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the page until the process is interrupted.
pub(crate) async fn run(global: &Global, port: u16, opens_browser: bool) -> Result<Code, Error> {
    let cluster = Arc::new(Cluster::connect(global).await?);
    let server = Server::bind(port).await.map_err(|error| {
        Error::Argument(format!(
            "cannot listen on 127.0.0.1:{port}: {error}; choose another port with --port (--port=0 selects a free one)"
        ))
    })?;
    let state = Arc::new(State::new(
        cluster.server.clone(),
        global.namespace.clone(),
        cluster.kinds.clone(),
        cluster.is_go_provider(),
    ));
    let _watches = watches::start(&cluster, &state)?;
    let address = server.address();
    output::print(&format!(
        "{address}\nThe page is served until this command ends (Ctrl-C).\n"
    ))?;
    let opened = opens_browser.then(|| open_browser(&address));
    if let Some(Err(error)) = &opened {
        output::warn(&format!(
            "cannot open the browser: {error}; open the address by hand"
        ));
    }
    tokio::select! {
        result = serve(server, state) => result.map_err(|error| Error::Output(error.to_string()))?,
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(Code::Ok)
}

/// Answers requests until it fails.
async fn serve(server: Server, state: Arc<State>) -> std::io::Result<()> {
    let (updates, overview) = watch::channel(Arc::from(""));
    let of_answers = Arc::clone(&state);
    let answers = move |question: &str, query: &_| answer(&of_answers, question, query);
    tokio::select! {
        result = server.serve(overview, answers) => result,
        () = publish(&state, updates) => Ok(()),
        () = examine(&state) => Ok(()),
    }
}

/// Sends the overview after changes, and never more often than the interval.
async fn publish(state: &State, updates: watch::Sender<Arc<str>>) {
    loop {
        state.changed().await;
        if let Ok(text) = serde_json::to_string(&state.overview()) {
            updates.send_replace(text.into());
        }
        tokio::time::sleep(UPDATE_INTERVAL).await;
    }
}

/// Makes the checks of `doctor` again and again. With many objects they take a while.
async fn examine(state: &Arc<State>) {
    loop {
        tokio::time::sleep(EXAMINATION_INTERVAL).await;
        let state = Arc::clone(state);
        let examined = tokio::task::spawn_blocking(move || state.examine());
        drop(examined.await);
    }
}
