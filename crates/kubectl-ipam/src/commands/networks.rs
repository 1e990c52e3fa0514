//! `networks`: the networks, with their pools that join or leave.

use crate::cli::ListFlags;
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Report, network_line};
use crate::objects::Kind;

pub(super) async fn report(
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
