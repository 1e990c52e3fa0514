//! The commands, one file each: read objects, compute the report, print it. `web` has its own
//! module.

mod adopt;
mod claims;
mod cluster_api;
mod clusters;
mod confirm;
mod convert;
mod doctor;
mod export;
mod history;
mod networks;
mod plan;
mod pools;
mod quarantine;
mod registry;
mod reservations;
mod reserve;
mod show;
mod snapshot;
mod unreserve;
mod watch;
mod who;

use crate::cli::{self, Cli, Command, Format, Global};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::Report;
use crate::output;
use crate::render::Style;

/// Runs a command, and returns the exit code.
pub(crate) async fn run(cli: &Cli) -> Result<Code, Error> {
    let global = &cli.global;
    match &cli.command {
        Command::Pools { names, list } => {
            let style = output::list_style(global, list);
            let read =
                async |loader: &mut Loader<'_>| pools::report(loader, global, names, list).await;
            print(global, style, read).await
        }
        Command::Networks { names, list } => {
            let style = output::list_style(global, list);
            let read = async |loader: &mut Loader<'_>| networks::report(loader, names, list).await;
            print(global, style, read).await
        }
        Command::Who { target } => who::run(global, target).await,
        Command::History { address, from } => history::run(global, address, from),
        Command::Claims {
            names,
            waiting,
            pool,
            cluster_name,
            watch,
            list,
        } => {
            let wanted = claims::Wanted {
                names,
                only_waiting: *waiting,
                pool: pool.as_deref(),
                cluster: cluster_name.as_deref(),
            };
            claims::run(global, &wanted, *watch, list).await
        }
        Command::Clusters { names } => {
            let style = output::style(global);
            let read = async |loader: &mut Loader<'_>| {
                let namespace = global.listed_namespace(&loader.cluster.namespace);
                clusters::report(loader, namespace, names).await
            };
            print(global, style, read).await
        }
        Command::Plan {
            machine_deployment,
            replicas,
        } => {
            let read = async |loader: &mut Loader<'_>| {
                let namespace = global.listed_namespace(&loader.cluster.namespace);
                let deployment = machine_deployment.as_deref();
                plan::report(loader, namespace, deployment, *replicas).await
            };
            print(global, output::style(global), read).await
        }
        Command::Show { pool } => show::run(global, pool).await,
        Command::Doctor { pool, errors, wait } => {
            doctor::run(global, pool.as_deref(), *errors, wait).await
        }
        #[cfg(feature = "web")]
        Command::Web { port, no_open } => crate::web::run(global, *port, !no_open).await,
        Command::Reserve {
            pool,
            address,
            claim,
            dry_run,
        } => {
            // The ledger makes the future large.
            Box::pin(reserve::run(
                global,
                pool,
                address.as_deref(),
                claim.as_deref(),
                *dry_run,
            ))
            .await
        }
        Command::Unreserve {
            pool,
            address,
            flags,
        } => unreserve::run(global, pool, address, flags).await,
        Command::Quarantine {
            address,
            pool,
            duration,
            reason,
            dry_run,
        } => {
            let request = quarantine::Request {
                address,
                pool: pool.as_deref(),
                duration: *duration,
                reason,
                dry_run: *dry_run,
            };
            Box::pin(quarantine::run(global, &request)).await
        }
        Command::Registry { command } => registry::run(global, command.as_ref()).await,
        Command::Export { pools } => export::run(global, pools).await,
        Command::Adopt { claim_name } => adopt::run(global, claim_name.as_deref()).await,
        Command::Convert { file, from, source } => match (file, from) {
            (Some(file), _) => convert::run(global, file, source.as_deref()),
            (None, _) => convert::run_metal3(global, source.as_deref()).await,
        },
        Command::Options => output::print(&cli::options()).map(|()| Code::Ok),
        Command::Version => output::print(&version(global.output)).map(|()| Code::Ok),
    }
}

/// Reads a report and prints it.
async fn print(
    global: &Global,
    style: Style,
    read: impl AsyncFnOnce(&mut Loader<'_>) -> Result<Report, Error>,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let report = read(&mut loader).await?;
    output::finish(&loader, &report, global.output, style)
}

/// The version of this program, as `kubectl version --client` prints it.
fn version(format: Format) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => format!("{{\n  \"clientVersion\": \"v{version}\"\n}}\n"),
        Format::Yaml => format!("clientVersion: v{version}\n"),
        _ => format!("Client Version: v{version}\n"),
    }
}
