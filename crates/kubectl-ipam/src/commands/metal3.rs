//! `convert --from metal3`: what the IP address manager of Metal3 has in the cluster, as manifests.

use kube::api::{ApiResource, ListParams};
use serde::de::DeserializeOwned;

use super::convert::label;
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::convert::metal3::{GROUP, Objects, convert};
use crate::convert::set_source;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::counted;
use crate::objects::Kind;
use crate::render::clean;
use crate::{manifests, output};

pub(super) async fn run(global: &Global, source: Option<&str>) -> Result<Code, Error> {
    let source = label(source.unwrap_or("metal3"))?;
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let kinds = cluster.kinds_of(GROUP).await?;
    let objects = Objects {
        pools: list(&cluster, &kinds, "ippools", namespace).await?,
        addresses: list(&cluster, &kinds, "ipaddresses", namespace).await?,
        claims: list(&cluster, &kinds, "ipclaims", namespace).await?,
        contract: loader.read_objects(Kind::Address, namespace).await?,
    };
    loader.require_known(&[Kind::Address], || "which addresses are in use".to_owned())?;
    match convert(&objects) {
        Ok(mut converted) => {
            for object in &mut converted.objects {
                set_source(object, &source);
            }
            let (objects, warnings) = (&converted.objects, &converted.warnings);
            manifests::print(&loader, objects, warnings, global.output)
        }
        Err(problems) => {
            for problem in &problems {
                output::note(&clean(problem));
            }
            output::note(&counted(problems.len(), "problem"));
            Ok(Code::Findings)
        }
    }
}

/// Lists the objects of a kind of Metal3.
async fn list<T: DeserializeOwned>(
    cluster: &Cluster,
    kinds: &[ApiResource],
    plural: &str,
    namespace: Option<&str>,
) -> Result<Vec<T>, Error> {
    let Some(kind) = kinds.iter().find(|kind| kind.plural == plural) else {
        return Err(Error::Request {
            operation: format!("list {plural}.{GROUP}"),
            reason: "the API server does not serve this kind".to_owned(),
        });
    };
    let parameters = ListParams::default();
    cluster.list_kind(kind, namespace, &parameters).await
}
