//! `version`: the version of this program. That of the manager is in `status`.

use crate::cli::Format;
use crate::error::{Code, Error};
use crate::output;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn run(format: Format) -> Result<Code, Error> {
    output::print(&text(format))?;
    Ok(Code::Ok)
}

/// As `kubectl version --client` prints it.
fn text(format: Format) -> String {
    match format {
        Format::Json => format!("{{\n  \"clientVersion\": \"v{VERSION}\"\n}}\n"),
        Format::Yaml => format!("clientVersion: v{VERSION}\n"),
        _ => format!("Client Version: v{VERSION}\n"),
    }
}
