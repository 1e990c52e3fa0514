//! `export`: pools and reservations of users as a file.

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::output;
use crate::transfer::export;

/// What is left out has its own exit code.
pub(super) async fn run(global: &Global, pools: &[String]) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let exported = export(&mut loader, namespace, pools, global.output).await?;
    output::print(&exported.text)?;
    for text in &exported.left_out {
        output::warn(text);
    }
    output::warn_incomplete(&loader);
    // A warning names an object that cannot be decoded.
    let is_complete = exported.left_out.is_empty() && loader.warnings.is_empty();
    match output::code(&loader) {
        Code::Ok if !is_complete => Ok(Code::Incomplete),
        code => Ok(code),
    }
}
