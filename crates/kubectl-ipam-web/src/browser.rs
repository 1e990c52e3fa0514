//! Opens the page.

use std::io::Write;

use tempfile::NamedTempFile;

/// Opens an address in the browser. Other users can read the arguments of a program, so the address
/// is in a file that only this user can read. The browser needs the file until it has opened it.
pub fn open_browser(address: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("kubectl-ipam-")
        .suffix(".html")
        .tempfile()?;
    let head = format!(
        "<meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={address}\">"
    );
    write!(
        file,
        "<!doctype html><html lang=\"en\"><head>{head}<title>kubectl ipam</title></head></html>"
    )?;
    file.flush()?;
    open::that_detached(file.path())?;
    Ok(file)
}
