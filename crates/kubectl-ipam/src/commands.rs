//! The commands: read objects, compute the report, print it.

use std::time::Duration;

use capi_ipam_api::{AllocationOrder, PoolKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, parse_address};

use crate::cli::{Cli, Command, DryRun, Format, ListFlags};
use crate::cluster::Cluster;
use crate::diagnose::diagnose;
use crate::error::{Code, Error};
use crate::load::{Claims, Loader, Readable, Selected, matches, short};
use crate::model::{Diagnosis, Report, claims, network_lines, pools};
use crate::objects::{ClaimRow, PoolRow};
use crate::render::Style;
use crate::reserve::{reserve, unreserve};
use crate::search::{details, print_details, print_who, who};
use crate::sort::sort_by;
use crate::transfer::{export, import};
use crate::{generate, output, render, web};

/// Time between two reads of `pools --watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Runs a command, and returns the exit code.
pub(crate) async fn run(cli: &Cli) -> Result<Code, Error> {
    match &cli.command {
        Command::Completion { shell } => {
            output::print(&String::from_utf8_lossy(&generate::completion(*shell)))?;
            return Ok(Code::Ok);
        }
        Command::Generate { folder } => return generate::write(folder).map(|()| Code::Ok),
        Command::Who { address } => drop(parse_block(address)?),
        _ => {}
    }
    let cluster = Cluster::connect(&cli.global).await?;
    let namespace = (!cli.global.all_namespaces).then(|| cluster.namespace.clone());
    if let Command::Pools { watch: true, list } = &cli.command {
        return watch(cli, &cluster, namespace.as_deref(), list).await;
    }
    if let Command::Doctor = &cli.command {
        return doctor(cli, &cluster).await;
    }
    if let Command::Web { port, no_open } = &cli.command {
        return web::serve(&cluster, *port, !no_open)
            .await
            .map(|()| Code::Ok);
    }
    let mut loader = Loader::new(&cluster);
    if let Command::Export { pools } = &cli.command {
        return print_export(&mut loader, namespace.as_deref(), pools, cli.global.output).await;
    }
    let style = style(cli);
    if matches!(cli.global.output, Format::Table | Format::Wide) {
        let style = Style {
            wide: cli.global.output == Format::Wide,
            ..style
        };
        match &cli.command {
            Command::Who { address } => {
                return print_who(&mut loader, parse_block(address)?, style).await;
            }
            Command::Show { pool } => return print_details(&mut loader, pool, style).await,
            _ => {}
        }
    }
    let report = report(cli, &mut loader, namespace.as_deref()).await?;
    // Before the output: a table should not be read without its warnings.
    warn(&loader);
    output::print_report(&report, &loader.sentences(), cli.global.output, style)?;
    match (code(&loader), &report) {
        (_, Report::ImportSummary(summary)) if !summary.problems.is_empty() => {
            if cli.global.output == Format::Name {
                summary
                    .problems
                    .iter()
                    .for_each(|problem| output::warn(&problem.problem));
            }
            Ok(Code::Findings)
        }
        (code, _) => Ok(code),
    }
}

/// Prints what can be exported. What is left out has its own exit code.
async fn print_export(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    pools: &[String],
    format: Format,
) -> Result<Code, Error> {
    let exported = export(loader, namespace, pools, format).await?;
    output::print(&exported.text)?;
    exported.left_out.iter().for_each(|text| output::warn(text));
    // A warning names an object that cannot be decoded.
    let is_complete = exported.left_out.is_empty() && loader.warnings.is_empty();
    warn(loader);
    match code(loader) {
        Code::Ok if !is_complete => Ok(Code::Incomplete),
        code => Ok(code),
    }
}

fn style(cli: &Cli) -> Style {
    let style = output::style(&cli.global, cli.global.all_namespaces);
    Style {
        headers: list_flags(&cli.command).is_none_or(|list| !list.no_headers),
        ..style
    }
}

/// The flags of a command that lists objects.
fn list_flags(command: &Command) -> Option<&ListFlags> {
    match command {
        Command::Pools { list, .. } | Command::Networks { list } | Command::Claims { list, .. } => {
            Some(list)
        }
        _ => None,
    }
}

async fn doctor(cli: &Cli, cluster: &Cluster) -> Result<Code, Error> {
    let (
        Diagnosis {
            findings,
            unchecked,
        },
        loader,
    ) = diagnose(cluster).await?;
    // A finding is more important than a check that was not possible.
    let code = if findings.is_empty() {
        code(&loader)
    } else {
        Code::Findings
    };
    let report = Report::FindingList {
        findings,
        unchecked,
    };
    // The text has the missing permissions.
    let is_text = matches!(cli.global.output, Format::Table | Format::Wide);
    if !is_text {
        warn(&loader);
    }
    let style = output::style(&cli.global, true);
    output::print_report(&report, &loader.sentences(), cli.global.output, style)?;
    Ok(code)
}

/// Prints the warnings.
pub(crate) fn warn(loader: &Loader<'_>) {
    loader.warnings.iter().for_each(|text| output::warn(text));
    loader
        .missing
        .iter()
        .for_each(|right| output::warn(&format!("the output is incomplete: {right}")));
}

/// The exit code of a command whose output was printed: output that lacks objects because of a
/// missing permission has its own.
pub(crate) fn code(loader: &Loader<'_>) -> Code {
    if loader.missing.is_empty() {
        Code::Ok
    } else {
        Code::Forbidden
    }
}

async fn report(
    cli: &Cli,
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
) -> Result<Report, Error> {
    match &cli.command {
        Command::Who { address } => who(loader, parse_block(address)?).await,
        Command::Claims {
            waiting,
            pool,
            list,
        } => claim_list(loader, namespace, *waiting, pool.as_deref(), list).await,
        Command::Reserve {
            pool,
            address,
            claim,
            dry_run,
        } => {
            let is_dry_run = *dry_run == DryRun::Server;
            reserve(
                loader,
                pool,
                address.as_deref(),
                claim.as_deref(),
                is_dry_run,
            )
            .await
        }
        Command::Unreserve {
            pool,
            address,
            flags,
        } => unreserve(loader, pool, address, flags).await,
        Command::Import {
            file,
            name,
            prune,
            dry_run,
        } => {
            let is_dry_run = *dry_run == DryRun::Server;
            import(loader, file, name, *prune, is_dry_run)
                .await
                .map(Report::ImportSummary)
        }
        Command::Networks { list } => network_list(loader, list).await,
        Command::Free { pool, count } => free(loader, pool, *count).await,
        Command::Show { pool } => {
            let pool = loader.find_pool(pool).await?;
            details(loader, &pool)
                .await
                .map(|details| Report::PoolDetails(Box::new(details)))
        }
        Command::Pools { list, .. } => pool_list(loader, namespace, list).await,
        Command::Doctor
        | Command::Web { .. }
        | Command::Export { .. }
        | Command::Completion { .. }
        | Command::Generate { .. } => pool_list(loader, namespace, &ListFlags::default()).await,
    }
}

/// A list that can be printed. A list of which nothing may be read is unknown.
fn readable<T>(list: Readable<Vec<T>>, what: &str) -> Result<Vec<T>, Error> {
    if list.seen().is_empty() {
        return list.require(|| format!("the list of {what}"));
    }
    Ok(list.into_seen())
}

async fn pool_list(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    list: &ListFlags,
) -> Result<Report, Error> {
    loader.selected = list
        .selector
        .clone()
        .map(Selected::Pools)
        .unwrap_or_default();
    let rows = readable(loader.pools(namespace).await?, "pools")?;
    // Claims of all namespaces wait for global pools.
    let waiting = loader.claims(None, ClaimRow::is_waiting).await?;
    let pools = sort_by(pools(&rows, &waiting.as_ref()), list.sort_by.as_deref())?;
    Ok(Report::PoolList { pools })
}

async fn network_list(loader: &mut Loader<'_>, list: &ListFlags) -> Result<Report, Error> {
    loader.selected = list
        .selector
        .clone()
        .map(Selected::Networks)
        .unwrap_or_default();
    let networks = readable(loader.networks().await?, "networks")?;
    let networks = sort_by(network_lines(&networks), list.sort_by.as_deref())?;
    Ok(Report::NetworkList { networks })
}

async fn claim_list(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    only_waiting: bool,
    pool: Option<&str>,
    list: &ListFlags,
) -> Result<Report, Error> {
    loader.selected = list
        .selector
        .clone()
        .map(Selected::Claims)
        .unwrap_or_default();
    let wanted = |claim: &ClaimRow| {
        (!only_waiting || claim.is_waiting()) && pool.is_none_or(|pool| matches(&claim.pool, pool))
    };
    let found = loader.all_claims(namespace, wanted).await?;
    if found.seen().served.is_empty() && found.seen().unserved.is_empty() {
        let claims = found.require(|| "the list of claims".to_owned())?;
        drop(claims);
        return Ok(Report::ClaimList { claims: Vec::new() });
    }
    let Claims {
        served,
        mut unserved,
    } = found.into_seen();
    unserved.retain(|claim| {
        pool.is_none_or(|pool| claim.has_pool(pool)) && (!only_waiting || !claim.deleting)
    });
    let needs_addresses = !only_waiting && !served.is_empty();
    let none = Readable::complete(Vec::new());
    let addresses = if needs_addresses {
        loader.addresses_in(namespace, |_| true).await?
    } else {
        none
    };
    let lines = claims(served, &unserved, &addresses.as_ref());
    Ok(Report::ClaimList {
        claims: sort_by(lines, list.sort_by.as_deref())?,
    })
}

/// Prints the table, and then each line that changes.
async fn watch(
    cli: &Cli,
    cluster: &Cluster,
    namespace: Option<&str>,
    list: &ListFlags,
) -> Result<Code, Error> {
    let mut printed: Vec<String> = Vec::new();
    loop {
        let mut loader = Loader::new(cluster);
        let report = pool_list(&mut loader, namespace, list).await?;
        let text = output::format(&report, &loader.sentences(), cli.global.output, style(cli))?;
        if matches!(cli.global.output, Format::Json | Format::Yaml) {
            if printed.first() != Some(&text) {
                output::print(&text)?;
                printed = vec![text];
            }
        } else {
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let new: Vec<&String> = lines
                .iter()
                .filter(|line| !printed.contains(line))
                .collect();
            output::print(&render::lines(&new))?;
            printed = lines;
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => {
                warn(&loader);
                return Ok(code(&loader));
            }
        }
    }
}

/// Parses an address or a prefix.
pub(crate) fn parse_block(text: &str) -> Result<Block, Error> {
    let invalid = |reason: String| Error::Argument(format!("invalid address {text}: {reason}"));
    let (address, length) = text
        .split_once('/')
        .map_or((text, None), |(address, length)| (address, Some(length)));
    let address = parse_address(address).map_err(|error| invalid(error.to_string()))?;
    let Some(length) = length else {
        return Ok(Block::address(address));
    };
    let wrong =
        || invalid("the prefix length must be a number up to 32 (IPv4) or 128 (IPv6)".to_owned());
    let length = length.parse().map_err(|_| wrong())?;
    let block = Block::new(address, length);
    if block.length() == length {
        Ok(block)
    } else {
        Err(wrong())
    }
}

/// Asks the ledger of the manager for the next addresses.
async fn free(loader: &mut Loader<'_>, name: &str, count: u16) -> Result<Report, Error> {
    use capi_ipam_ledger::Proposal;

    let pool = loader.find_pool(name).await?;
    if pool.spec.slices().is_some() {
        let key = &pool.key;
        let note = format!(
            "{key} has slices: the next address depends on the owner of the claim. List the slices with: {}",
            show_command(key)
        );
        return Ok(Report::FreeList {
            pool: (&pool.key).into(),
            addresses: Vec::new(),
            note: Some(note),
        });
    }
    let ledger = loader
        .ledger(&pool)
        .await?
        .require(|| format!("the next address of {}", pool.key))?;
    let mut addresses = Vec::new();
    for number in 0..count {
        // Each proposal holds its address for a claim that does not exist, in a namespace without
        // another address.
        match ledger.propose(
            &pool.key,
            &NamespacedName::new(&format!("-{number}"), ""),
            i64::from(number),
        ) {
            Proposal::Slot(slot) => addresses.push(slot.block.to_string()),
            _ => break,
        }
    }
    let is_random = pool.spec.order() == AllocationOrder::Random;
    let note = if addresses.len() < usize::from(count) {
        Some(shortage(&pool, addresses.len()))
    } else {
        is_random.then(|| {
            format!(
                "{} allocates in random order: these addresses are examples.",
                pool.key
            )
        })
    };
    Ok(Report::FreeList {
        pool: (&pool.key).into(),
        addresses,
        note,
    })
}

/// The command that shows a pool.
pub(crate) fn show_command(pool: &PoolKey) -> String {
    let namespace = pool
        .namespace
        .as_deref()
        .map(|name| format!(" --namespace {name}"))
        .unwrap_or_default();
    format!(
        "kubectl ipam show {}/{}{namespace}",
        short(pool.kind),
        pool.name
    )
}

/// Why a pool has fewer free addresses than requested.
fn shortage(pool: &PoolRow, found: usize) -> String {
    match &pool.usable {
        Err(problem) => format!("The specification of {} is invalid: {problem}", pool.key),
        Ok(_) if pool.deleting => {
            format!("{} is being deleted and allocates no addresses.", pool.key)
        }
        Ok(_) if pool.paused => format!("{} is paused and allocates no addresses.", pool.key),
        Ok(_) if !pool.initialized => format!(
            "{} is not initialized yet: its finalizer is missing.",
            pool.key
        ),
        Ok(_) if pool.has_headroom() => {
            format!(
                "{} has no other free address for claims that its spec.headroom does not select.",
                pool.key
            )
        }
        Ok(_) if found == 0 => format!("{} has no free address.", pool.key),
        Ok(_) => format!("{} has no other free address.", pool.key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_prefix_are_parsed() {
        assert_eq!(parse_block("10.0.0.7").unwrap().to_string(), "10.0.0.7");
        assert_eq!(parse_block("fd00::1/64").unwrap().to_string(), "fd00::/64");
        for wrong in ["10.0.0", "10.0.0.0/33", "10.0.0.0/x", ""] {
            assert_eq!(
                parse_block(wrong).unwrap_err().code(),
                Code::Usage,
                "{wrong}"
            );
        }
    }
}
