//! Admission and conversion webhooks over TLS, with mounted or self-managed certificates; metrics
//! over TLS.
//!
//! - [`review`] and [`conversion`]: respond to an `AdmissionReview` or a `ConversionReview`, as
//!   pure functions; [`denial`] and [`reply`] are their results;
//! - [`endpoints`]: gives these functions paths, and limits the memory and the CPU time of
//!   requests;
//! - [`server`]: serves the endpoints over [`https`], with the flags of [`options`];
//! - [`self_managed`]: creates and renews the certificate, and writes the CA bundle into the
//!   webhook configuration and the CustomResourceDefinitions (`--webhook-certs=self-managed`);
//! - [`diagnostics`]: serves `/metrics` over TLS to authorized callers, also in programs without
//!   webhooks.
//!
//! # Dependencies
//! `capi-ipam-controller` (readiness, metrics, requests to the API server), axum, hyper, rustls,
//! rcgen and x509-cert. The crate has no types of Cluster API or of a provider.
//!
//! # Invariants
//! - A response depends on the request and on the given validator only, so all replicas serve
//!   webhooks, standbys too.
//! - No request, whatever its content, makes the process panic or use unbounded memory. A panic of
//!   a validator or a converter becomes a response that denies the request.
//! - A slow or silent client cannot block the requests of others. A greedy one can fill the memory
//!   of large bodies for the time of a request: others with a body of more than 16 KiB get 429, and
//!   the API server retries.
//! - API servers trust the served certificate at any moment, also while a self-managed CA is
//!   rotated and replicas serve different certificates.
//! - Of several replicas only one creates or renews the self-managed certificate: writes have
//!   preconditions.
//!
//! # Example
//! ```
//! use capi_ipam_controller::health::Health;
//! use capi_ipam_controller::metrics::Metrics;
//! use capi_ipam_webhook::denial::bad_request;
//! use capi_ipam_webhook::endpoints::Endpoints;
//! use capi_ipam_webhook::options::WebhookOptions;
//! use capi_ipam_webhook::review::{AdmissionRequest, Decision};
//! use capi_ipam_webhook::server::{WebhookError, listen};
//! use tokio_util::sync::CancellationToken;
//!
//! fn validate_size(request: &AdmissionRequest) -> Decision {
//!     let size = request.object.as_ref().and_then(|object| object.pointer("/spec/size")?.as_u64());
//!     match size {
//!         Some(0..10) => Ok(Vec::new()),
//!         _ => Err(bad_request("spec.size must be a number less than 10")),
//!     }
//! }
//!
//! async fn run(options: WebhookOptions, stop: CancellationToken) -> Result<(), WebhookError> {
//!     let (health, metrics) = (Health::default(), Metrics::default());
//!     let endpoints = Endpoints::new(&metrics).review("/validate-things", validate_size);
//!     if let Some(server) = listen(&options, &health, &metrics).await? {
//!         server.serve(endpoints.router(), stop).await;
//!     }
//!     Ok(())
//! }
//! ```

pub mod conversion;
pub mod denial;
pub mod diagnostics;
pub mod endpoints;
pub mod https;
pub mod options;
pub mod reply;
pub mod review;
pub mod self_managed;
pub mod server;

mod memory;

#[cfg(test)]
pub(crate) mod tests;
