//! The program `manager`: flags and wiring.

mod cluster_webhook;
mod webhooks;

use std::process::ExitCode;

use capi_ipam_api::names;
use capi_ipam_controller::manager::{Identity, print_usage, run_with_options};
use capi_ipam_controller::options::Options;
use capi_ipam_webhook::options::WebhookOptions;
use clap::{CommandFactory, Parser};

use crate::in_cluster::{self, InClusterOptions, LedgerHandle};
use webhooks::CertificateOptions;

/// The names of the program. The build of the image sets the variable to the commit.
const IDENTITY: Identity = Identity::new("capi-ipam-in-cluster", env!("CARGO_PKG_VERSION"))
    .with_revision(option_env!("CAPI_IPAM_REVISION"))
    .with_lease(names::IN_CLUSTER_LEASE);

/// IPAM provider for Cluster API: allocates addresses of IPAddressClaims from pools in the
/// management cluster.
#[derive(Parser)]
#[command(
    name = "manager",
    version = IDENTITY.full_version(),
    args_override_self = true
)]
struct Flags {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    in_cluster: InClusterOptions,
    #[command(flatten)]
    webhooks: WebhookOptions,
    #[command(flatten)]
    certificate: CertificateOptions,
}

/// The command line of the program, for the table of its flags.
pub fn command() -> clap::Command {
    Flags::command()
}

/// Runs the program with the command line of the process.
pub fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => return print_usage(&error),
    };
    let Flags {
        options,
        in_cluster: in_cluster_options,
        webhooks: webhook_options,
        certificate,
    } = flags;
    let ledger = LedgerHandle::default();
    let cluster_addressing = in_cluster_options.cluster_addressing;
    run_with_options(
        IDENTITY,
        options,
        async |manager| {
            let (webhooks, ledger) = (&webhook_options, &ledger);
            webhooks::register(manager, webhooks, &certificate, ledger, cluster_addressing).await
        },
        async |manager| in_cluster::register(manager, in_cluster_options, ledger.clone()).await,
    )
}
