//! `history`: who had an address, and when, according to an allocation log.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use capi_ipam_api::counted;

use crate::cli::Global;
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::model::{History, Report};
use crate::output;

/// The maximum number of lines that a warning names.
const MAX_NAMED: usize = 10;

/// No cluster is read.
pub(super) fn run(global: &Global, address: &str, file: &Path) -> Result<Code, Error> {
    let mut history = History::of(parse_block(address, false)?);
    read(file, &mut history).map_err(|error| Error::File {
        path: file.display().to_string(),
        reason: error.to_string(),
    })?;
    if !history.bad_lines.is_empty() {
        output::warn(&bad_lines(&history.bad_lines));
    }
    let report = Report::AllocationHistory {
        address: address.to_owned(),
        events: history.into_events(),
    };
    output::print_report(&report, &[], global.output, output::style(global))?;
    Ok(Code::Ok)
}

/// Reads a file, or the standard input for `-`.
fn read(file: &Path, history: &mut History) -> io::Result<()> {
    let input: Box<dyn BufRead> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file)?))
    };
    for line in input.split(b'\n') {
        history.add(&line?);
    }
    Ok(())
}

fn bad_lines(numbers: &[usize]) -> String {
    let named: Vec<String> = numbers
        .iter()
        .take(MAX_NAMED)
        .map(usize::to_string)
        .collect();
    let more = if numbers.len() > MAX_NAMED {
        ", ..."
    } else {
        ""
    };
    let count = counted(numbers.len(), "line", "lines");
    format!(
        "{count} not of an allocation log: {}{more}",
        named.join(", ")
    )
}
