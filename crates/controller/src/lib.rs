//! What any controller needs; nothing here knows of addresses.
//!
//! - [`manager`]: the program around controllers: flags, logging, leader election, probes, shutdown;
//! - [`controller`]: the loop that reconciles objects of one kind, with retries, yielding and state between attempts;
//! - [`watch`]: watches that survive errors and objects that cannot be read;
//! - [`client`]: calls to the API server, each with a deadline and an answer to "was it applied?";
//! - [`patch`] and [`finalizer`]: writes that only go through when the object is as it was read;
//! - [`webhooks`]: admission and conversion webhooks, served by [`https`];
//! - [`metrics`]: what is counted and measured, and [`diagnostics`], which serves it;
//! - [`discovery`], [`echo`], [`events`], [`health`], [`leader`], [`logging`], [`retry`], [`clock`].

pub mod client;
pub mod clock;
pub mod controller;
pub mod diagnostics;
pub mod discovery;
pub mod expectations;
pub mod events;
pub mod finalizer;
pub mod health;
pub mod leader;
pub mod listener;
pub mod logging;
pub mod manager;
pub mod metrics;
pub mod options;
pub mod patch;
pub mod retry;
pub mod watch;
