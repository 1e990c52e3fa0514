//! IP address management (IPAM) for Kubernetes Cluster API.

pub mod addr;
pub mod api;
pub mod cli;
pub mod in_cluster;
pub mod provider;
pub mod runtime;
