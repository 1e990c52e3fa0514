//! IP address management (IPAM) for Kubernetes Cluster API.
//!
//! Three things in one crate: the in-cluster provider that operators install (the program `manager`), the framework
//! with which others write a provider of their own ([`provider`], [`runtime`]), and the types and arithmetic that both
//! stand on ([`api`], [`addr`]).
//!
//! # Architecture
//!
//! ```text
//! cli ─┬─ in_cluster ── provider ── runtime
//!      │       │            │         │
//!      │       ├──── api ───┘         │
//!      │       │      │               │
//!      │       └──── addr             │
//!      └─ webhooks ── addr, api ──────┘
//! ```
//!
//! - [`addr`] is pure: no Kubernetes, no async, no input or output.
//! - [`api`] has types only; nothing in it talks to a server.
//! - [`runtime`] is what any controller needs and knows nothing of addresses.
//! - [`provider`] is the life of a claim, the same for every provider; it names no kind of pool.
//! - [`in_cluster`] is the first provider written with it.
//! - [`webhooks`] says what may be written: pure functions, and their paths.
//! - [`cli`] wires them together.
//!
//! A test holds these rules true. What must never happen, one address given to two claims, is guarded by the API server
//! alone: see [`in_cluster`].

pub mod admission;
pub mod api;
pub mod app;
pub mod in_cluster;
