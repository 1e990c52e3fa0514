//! The generated files of the repository: manifests, roles and reference pages.

mod api_reference;
pub mod generate;
pub mod rbac;
mod registry;
mod webhook_configuration;
