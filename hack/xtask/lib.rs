//! The generated files of the repository: manifests, roles, reference pages, and
//! those of the plugin of kubectl.

mod api_reference;
pub mod generate;
pub mod plugin;
pub mod rbac;
mod registry;
mod typescript;
mod webhook_configuration;
