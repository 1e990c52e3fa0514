//! `convert`: a table, or what another provider has in the cluster, as manifests.

use std::path::Path;

use capi_ipam_api::counted;
use capi_ipam_provider::api::is_label_value;

use crate::cli::Global;
use crate::cluster::{Cluster, namespace};
use crate::convert::{convert, file, metal3};
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::objects::Kind;
use crate::render::clean;
use crate::{manifests, output};

pub(super) fn run(global: &Global, file: &Path, source: Option<&str>) -> Result<Code, Error> {
    let source = source_of(file, source)?;
    let text = file::read(file)?;
    let namespace = namespace(global);
    match convert(&text, &namespace, Some(&source)) {
        Ok(converted) => {
            for warning in &converted.warnings {
                output::warn(warning);
            }
            output::print(&manifests::text(&converted.objects, global.output)?)?;
            Ok(Code::Ok)
        }
        Err(problems) => Ok(refuse(&problems)),
    }
}

/// Prints what is wrong: nothing is written.
fn refuse(problems: &[impl ToString]) -> Code {
    for problem in problems {
        output::note(&clean(&problem.to_string()));
    }
    output::note(&counted(problems.len(), "problem", "problems"));
    Code::Findings
}

/// Converts what Metal3 has in the cluster.
pub(super) async fn run_metal3(global: &Global, source: Option<&str>) -> Result<Code, Error> {
    let source = label(source.unwrap_or("metal3"))?;
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let group = metal3::GROUP;
    let objects = metal3::Objects {
        pools: cluster.list_plural(group, "ippools", namespace).await?,
        addresses: cluster.list_plural(group, "ipaddresses", namespace).await?,
        claims: cluster.list_plural(group, "ipclaims", namespace).await?,
        contract: loader.read_objects(Kind::Address, namespace).await?,
    };
    loader.require_known(&[Kind::Address], || "which addresses are in use".to_owned())?;
    if objects.pools.is_empty() {
        loader.require_namespace(namespace).await?;
    }
    match metal3::convert(&objects, &source) {
        Ok(converted) => {
            // Every IPPool has a prefix of names, so the manifests are complete without.
            if !objects.pools.is_empty() {
                output::warn(
                    "namePrefix and clusterName are not converted: an IPAddress has the name of its claim, and a pool is \
                     of no Cluster",
                );
            }
            let (objects, warnings) = (&converted.objects, &converted.warnings);
            manifests::print(&loader, objects, warnings, global.output)
        }
        Err(problems) => Ok(refuse(&problems)),
    }
}

/// The name of the table: the flag, or the name of the file without its extension.
fn source_of(file: &Path, source: Option<&str>) -> Result<String, Error> {
    let name = match source {
        Some(name) => name,
        None if file.as_os_str() == "-" => {
            return Err(Error::Argument(
                "the standard input has no name: write --source with the value of the label of the objects".to_owned(),
            ));
        }
        None => file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default(),
    };
    label(name)
}

/// The name as the value of the label of the objects.
fn label(name: &str) -> Result<String, Error> {
    if !name.is_empty() && is_label_value(name) {
        return Ok(name.to_owned());
    }
    Err(Error::Argument(format!(
        "\"{name}\" cannot be the value of a label: write --source with at most 63 letters, digits, dashes, dots and \
         underscores"
    )))
}
