//! `networks`: the networks, with their pools that join or leave.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{Report, network_lines};
use crate::output;
use crate::sort::sort_by;

pub(super) async fn run(global: &Global, list: &ListFlags) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Networks(labels.clone());
    }
    let rows = loader.networks().await?.listed("networks")?;
    let networks = sort_by(network_lines(&rows), list.sort_by.as_deref())?;
    let report = Report::NetworkList { networks };
    output::finish(
        &loader,
        &report,
        global.output,
        output::list_style(global, list),
    )
}
