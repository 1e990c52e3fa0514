//! `web`: a page in the browser that shows the cluster as it changes.
//!
//! - `watches`: watches of all kinds; `heartbeat`: whether the API server and the manager are there;
//!   `records`: the records of registries; `demand`: which registries the page shows;
//! - `state`: all objects, and what the page asks about them;
//!   `findings`: what the checks of `doctor` find in them;
//! - `server`: requests of the browser; `guard`: which requests are answered; `assets`: the files
//!   of the page.
//!
//! # Invariants
//! - Listens on 127.0.0.1 only. Every request needs the secret of this process, in the address or
//!   in a cookie.
//! - Only reads, from the API server and for the browser. No request of the browser waits for
//!   another one, and none causes one, except for the blocks of a network: then the Secret and the
//!   records of its registry are read, at most every 10 seconds.
//! - The page loads nothing from outside, and writes data of the cluster as text only.
//! - The page has no build step: its scripts are served as they are. `tests/page.rs` checks their
//!   types, which are generated from the model (`generated/page.d.ts`), and tests their pure parts.

mod assets;
mod demand;
mod findings;
mod guard;
mod heartbeat;
mod records;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod watches;

use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use self::guard::Guard;
use self::server::Page;
use self::state::State;
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::output;

/// Serves the page until the process is interrupted.
pub(crate) async fn run(global: &Global, port: u16, opens_browser: bool) -> Result<Code, Error> {
    let cluster = Arc::new(Cluster::connect(global).await?);
    serve(&cluster, global.namespace.clone(), port, opens_browser).await?;
    Ok(Code::Ok)
}

async fn serve(
    cluster: &Arc<Cluster>,
    namespace: Option<String>,
    port: u16,
    opens_browser: bool,
) -> Result<(), Error> {
    let failed = |error: &std::io::Error| {
        Error::Argument(format!(
            "cannot listen on 127.0.0.1:{port}: {error}; choose another port with --port (--port=0 selects a free one)"
        ))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| failed(&error))?;
    let port = listener
        .local_addr()
        .map_err(|error| failed(&error))?
        .port();
    let guard = Guard::new(port);
    let state = Arc::new(State::new(
        cluster.server.clone(),
        namespace,
        cluster.kinds.clone(),
        cluster.is_go_provider(),
    ));
    let _watches = watches::start(cluster, &state)?;
    output::print(&format!(
        "{}\nThe page is served until this command ends (Ctrl-C).\n",
        guard.address()
    ))?;
    // The file lives as long as the browser may need it.
    let _redirect = if opens_browser {
        open_browser(&guard.address())
    } else {
        None
    };
    let page = Page::new(guard, state);
    tokio::select! {
        result = page.serve(listener) => result.map_err(|error| Error::Output(error.to_string())),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Opens the address in the browser. Other users can read the arguments of a program, so the
/// address is in a file that only this user can read.
fn open_browser(address: &str) -> Option<NamedTempFile> {
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix("kubectl-ipam-")
            .suffix(".html")
            .tempfile()?;
        let head = format!(
            "<meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={address}\">"
        );
        write!(
            file,
            "<!doctype html><html lang=\"en\"><head>{head}<title>kubectl ipam</title></head></html>"
        )?;
        file.flush()?;
        open::that_detached(file.path())?;
        Ok(file)
    };
    match write() {
        Ok(file) => Some(file),
        Err(error) => {
            let error: std::io::Error = error;
            output::warn(&format!(
                "cannot open the browser: {error}; open the address by hand"
            ));
            None
        }
    }
}
