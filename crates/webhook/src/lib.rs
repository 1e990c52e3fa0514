//! Webhooks: the API server asks whether an object may be written, or to have objects of one version in another.
//!
//! What is answered is a pure function of what is asked ([`review::answer`], [`conversion::answer`]), so it is the same
//! in every replica, whether it leads or not. [`endpoints`] gives these functions paths, and [`server`] serves them over
//! TLS, with a certificate from files or one that the program makes itself ([`self_managed`]):
//!
//! ```
//! use capi_ipam_controller::health::Health;
//! use capi_ipam_controller::metrics::Metrics;
//! use capi_ipam_webhook::endpoints::Endpoints;
//! use capi_ipam_webhook::options::WebhookOptions;
//! use capi_ipam_webhook::denial::Denial;
//! use capi_ipam_webhook::review::{AdmissionRequest, Decision};
//! use capi_ipam_webhook::server::{WebhookError, listen};
//! use tokio_util::sync::CancellationToken;
//!
//! fn small(request: &AdmissionRequest) -> Decision {
//!     let size = request.object.as_ref().and_then(|object| object.pointer("/spec/size")?.as_u64());
//!     match size {
//!         Some(0..10) => Decision::allowed(),
//!         _ => Denial::bad_request("spec.size must be a number less than 10").into(),
//!     }
//! }
//!
//! async fn run(options: WebhookOptions, stop: CancellationToken) -> Result<(), WebhookError> {
//!     let (health, metrics) = (Health::default(), Metrics::default());
//!     let endpoints = Endpoints::new(&metrics).review("/validate-things", small);
//!     if let Some(server) = listen(&options, &health, &metrics).await? {
//!         server.serve(endpoints.router(), stop).await;
//!     }
//!     Ok(())
//! }
//! ```

pub mod answer;
pub mod conversion;
pub mod diagnostics;
pub mod endpoints;
pub mod https;
pub mod options;
pub mod denial;
pub mod review;
pub mod self_managed;
pub mod server;

mod capacity;
mod log_limit;
mod memory;

#[cfg(test)]
pub(crate) mod tests;
