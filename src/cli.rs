//! The program `manager`: flags, wiring, and the files that are generated from code.

mod api_reference;
mod generate;
mod installed;
pub mod rbac;
mod webhook_configuration;
mod webhooks;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::api::names;
use crate::in_cluster::{self, InClusterOptions, PublishedLedger};
use crate::runtime::manager::{Settings, explain, start};
use crate::runtime::options::Options;
use crate::runtime::webhooks::options::WebhookOptions;
use webhooks::CertificateOptions;

/// IPAM provider for Cluster API: gives IPAddressClaims addresses from pools kept in the management cluster.
#[derive(Parser)]
#[command(name = "manager", version, args_conflicts_with_subcommands = true, args_override_self = true)]
struct Flags {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    in_cluster: InClusterOptions,
    #[command(flatten)]
    webhooks: WebhookOptions,
    #[command(flatten)]
    certificate: CertificateOptions,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Print a file that is made from code.
    Generate {
        /// Which one.
        what: Generated,
    },
}

/// What can be generated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Generated {
    /// The CustomResourceDefinitions.
    Crds,
    /// The cluster role, and the role for leader election.
    Rbac,
    /// The cluster role and the role that --webhook-certs=self-managed needs beside these.
    RbacSelfManagedCerts,
    /// The ValidatingWebhookConfiguration.
    Webhooks,
    /// A table of all flags, in Markdown.
    Flags,
    /// Tables of all fields of all kinds, in Markdown.
    Api,
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => return explain(&error),
    };
    let Flags { options, in_cluster: in_cluster_options, webhooks: webhook_options, certificate, command } = flags;
    if let Some(Command::Generate { what }) = command {
        return generate::print(what);
    }
    let settings = Settings { name: "capi-ipam-in-cluster", lease: names::IN_CLUSTER_LEASE };
    let published = PublishedLedger::default();
    start(
        settings,
        options,
        async |manager| webhooks::register(manager, &webhook_options, &certificate, &published).await,
        async |manager| in_cluster::register(manager, in_cluster_options, published.clone()).await,
    )
}
