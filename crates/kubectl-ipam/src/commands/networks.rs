//! `networks`: the networks, with their pools that join or leave.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Report, network_line};
use crate::objects::Kind;
use crate::output;

pub(super) async fn run(
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let report = report(&mut loader, names, list).await?;
    let style = output::list_style(global, list);
    output::finish(&loader, &report, global.output, style)
}

async fn report(
    loader: &mut Loader<'_>,
    names: &[String],
    list: &ListFlags,
) -> Result<Report, Error> {
    loader.select(&[Kind::Network], list);
    loader.read(&[Kind::Network], None).await?;
    let mut rows = loader.objects.networks.sorted();
    loader.require_some(&[Kind::Network], rows.is_empty(), "networks")?;
    if !names.is_empty() {
        rows.clear();
    }
    for name in names {
        let found = loader.objects.network(name);
        rows.push(found.ok_or_else(|| Error::NoNetwork { name: name.clone() })?);
    }
    Ok(Report::NetworkList {
        networks: rows.into_iter().map(network_line).collect(),
    })
}
