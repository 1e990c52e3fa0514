//! Colors, columns and headers.

use jiff::Timestamp;

/// How text is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) color: bool,
    pub(crate) wide: bool,
    /// Whether objects of several namespaces are shown.
    pub(crate) namespaces: bool,
    /// Whether tables have a header.
    pub(crate) headers: bool,
    pub(crate) now: Timestamp,
}

/// A color of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Color {
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    Gray,
}

impl Style {
    pub(crate) fn paint(self, text: &str, color: Color) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Blue => 34,
            Color::Magenta => 35,
            Color::Cyan => 36,
            Color::Gray => 90,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
