//! The page, with objects that do not come from an API server.

mod blocks;
#[path = "../../tests/browser/mod.rs"]
mod browser;
mod large_pool;
mod pictures;
mod queries;
mod sample;

use std::sync::Arc;

use tokio::net::TcpListener;

use super::guard::Guard;
use super::server::Page;
use super::state::State;

/// Serves the page, and returns its address.
async fn serve(state: &Arc<State>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let guard = Guard::new(listener.local_addr().unwrap().port());
    let address = guard.address();
    tokio::spawn(Page::new(guard, Arc::clone(state)).serve(listener));
    address
}
