//! The text of a file.

use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// Reads a file, or the standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::File {
        path: path.display().to_string(),
        reason: error.to_string(),
    };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    } else {
        bytes = std::fs::read(path).map_err(failed)?;
    }
    let text = decode(bytes).map_err(|reason| Error::File {
        path: path.display().to_string(),
        reason,
    })?;
    // Spreadsheet programs begin a text in UTF-8 with this mark.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// What a spreadsheet has to be saved as.
const SAVE_AS: &str = "save it as CSV UTF-8";

/// The text of a file, or what it is instead.
fn decode(bytes: Vec<u8>) -> Result<String, String> {
    // An .xlsx and an .ods are ZIP archives, an .xls is an OLE document.
    let is_spreadsheet = [&b"PK\x03\x04"[..], b"\xD0\xCF\x11\xE0"]
        .iter()
        .any(|start| bytes.starts_with(start));
    if is_spreadsheet {
        return Err(format!(
            "it is a spreadsheet (.xlsx, .xls or .ods) and not a text; {SAVE_AS}"
        ));
    }
    let has_utf16_mark = bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF");
    // Every second byte of UTF-16 is zero for the letters of English.
    let zero = bytes.iter().position(|byte| *byte == 0);
    if has_utf16_mark || zero.is_some_and(|position| position < 2) {
        return Err(format!("it is a text in UTF-16; {SAVE_AS}"));
    }
    if let Some(position) = zero {
        let line = line_of(&bytes, position);
        return Err(format!("line {line} contains a zero byte; {SAVE_AS}"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = line_of(error.as_bytes(), error.utf8_error().valid_up_to());
        format!("line {line} is not a text in UTF-8; {SAVE_AS}")
    })
}

/// The line of a byte.
fn line_of(bytes: &[u8], position: usize) -> usize {
    let before = bytes.iter().take(position);
    let ends = before.filter(|byte| **byte == b'\n').count();
    ends.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_to_be_saved_as_utf8() {
        let utf16 = |text: &str, mark: &[u8]| {
            let letters = text.encode_utf16().flat_map(u16::to_le_bytes);
            mark.iter().copied().chain(letters).collect::<Vec<u8>>()
        };
        for (bytes, text) in [
            (b"PK\x03\x04rest".to_vec(), "it is a spreadsheet"),
            (b"\xD0\xCF\x11\xE0rest".to_vec(), "it is a spreadsheet"),
            (utf16("kind,name", b"\xFF\xFE"), "it is a text in UTF-16"),
            (utf16("kind,name", b""), "it is a text in UTF-16"),
            (b"kind\nIP\0\n".to_vec(), "line 2 contains a zero byte"),
            (
                b"kind\nIP\nM\xFCnchen\n".to_vec(),
                "line 3 is not a text in UTF-8",
            ),
        ] {
            let reason = decode(bytes).unwrap_err();
            assert_eq!(
                reason,
                format!(
                    "{}; save it as CSV UTF-8",
                    reason.split(';').next().unwrap()
                )
            );
            assert!(reason.starts_with(text), "{reason}");
        }
        assert_eq!(decode("M\u{fc}nchen".into()).unwrap(), "M\u{fc}nchen");
    }
}
