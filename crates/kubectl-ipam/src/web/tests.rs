//! The page, with objects that do not come from an API server.

mod blocks;
#[path = "../../tests/browser/mod.rs"]
mod browser;
mod large_pool;
mod pictures;
mod queries;
mod sample;

use std::sync::Arc;

use kubectl_ipam_web::Server;

use super::state::State;

/// Serves the page, and returns its address.
async fn serve(state: &Arc<State>) -> String {
    let server = Server::bind(0).await.unwrap();
    let address = server.address();
    tokio::spawn(super::serve(server, Arc::clone(state)));
    address
}
