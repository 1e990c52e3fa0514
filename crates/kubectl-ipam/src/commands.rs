//! The commands, one file each: read objects, compute the report, print it. `web` has its own
//! module.

mod alerts;
mod block_holders;
mod claims;
mod completion;
mod confirm;
mod diagnose;
mod doctor;
mod export;
mod free;
mod import;
mod networks;
mod pools;
mod registry;
mod reservations;
mod reserve;
mod show;
mod snapshot;
mod status;
mod unreserve;
mod version;
mod watch;
mod who;

use crate::cli::{self, Cli, Command};
use crate::error::{Code, Error};
use crate::{generate, output, web};

/// Runs a command, and returns the exit code.
pub(crate) async fn run(cli: &Cli) -> Result<Code, Error> {
    let global = &cli.global;
    match &cli.command {
        Command::Pools { names, watch, list } => pools::run(global, names, *watch, list).await,
        Command::Networks { names, watch, list } => {
            networks::run(global, names, *watch, list).await
        }
        Command::Who { target } => who::run(global, target).await,
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
        Command::Free { pool, count } => free::run(global, pool, *count).await,
        Command::Show { pool, watch } => show::run(global, pool, *watch).await,
        Command::Doctor {
            pool,
            errors,
            watch,
        } => doctor::run(global, pool.as_deref(), *errors, *watch).await,
        Command::Status { watch, wait } => status::run(global, *watch, wait).await,
        Command::Web { port, no_open } => web::run(global, *port, !no_open).await,
        Command::Reserve {
            pool,
            address,
            claim,
            dry_run,
        } => reserve::run(global, pool, address.as_deref(), claim.as_deref(), *dry_run).await,
        Command::Unreserve {
            pool,
            address,
            flags,
        } => unreserve::run(global, pool, address, flags).await,
        Command::Registry { command } => registry::run(global, command.as_ref()).await,
        Command::Export { pools } => export::run(global, pools).await,
        Command::Import {
            file,
            name,
            prune,
            dry_run,
        } => import::run(global, file, name, *prune, *dry_run).await,
        Command::Options => output::print(&cli::options()).map(|()| Code::Ok),
        Command::Version => version::run(global.output),
        Command::Completion { shell } => completion::run(*shell),
        Command::Generate { folder } => generate::run(folder),
    }
}
