//! `clusters`: the addresses of each Cluster and of its machines.

use super::claims::{all, place};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Report, clusters};
use crate::objects::Kind;

/// Only Clusters with these names are listed, if there are any.
pub(super) async fn report(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    names: &[String],
) -> Result<Report, Error> {
    loader
        .read(&[Kind::Claim, Kind::Address], namespace)
        .await?;
    loader.read(&[Kind::Slice], None).await?;
    let claims = all(&loader.objects);
    let found = clusters(&claims, &loader.objects, names);
    let missing = names
        .iter()
        .find(|name| !found.iter().any(|line| line.name == **name));
    if missing.is_some() || found.is_empty() {
        loader.require_known(&[Kind::Claim], || "the addresses of Clusters".to_owned())?;
        loader.require_namespace(namespace).await?;
    }
    if let Some(name) = missing {
        return Err(Error::NoClaim {
            name: name.clone(),
            place: place(namespace),
        });
    }
    Ok(Report::ClusterList { clusters: found })
}
