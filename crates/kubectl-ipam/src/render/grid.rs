//! A table as text.

/// Rows of cells. Colors in cells do not count for the width.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The title of a column, and the text of a row in it.
pub(crate) type Cell = (&'static str, String);

impl Grid {
    /// A table with a row for each line.
    pub(crate) fn of<T>(lines: &[T], cells: impl Fn(&T) -> Vec<Cell>) -> Self {
        let mut grid = Self::default();
        for line in lines {
            grid.row(cells(line));
        }
        grid
    }

    /// Adds a row. All rows have the same columns.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        let (header, row) = cells.into_iter().unzip();
        self.header = header;
        self.rows.push(row);
    }

    /// Aligned columns with two spaces between them.
    pub(crate) fn text(&self, has_header: bool) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let titles = self
            .header
            .iter()
            .map(|title| if has_header { title.len() } else { 0 });
        let mut widths: Vec<usize> = titles.collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(visible(cell));
            }
        }
        let mut text = String::new();
        let header: Vec<String> = self
            .header
            .iter()
            .map(|title| (*title).to_owned())
            .collect();
        for row in std::iter::once(&header)
            .filter(|_| has_header)
            .chain(&self.rows)
        {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let cell = clean(cell);
                let spaces = width.saturating_sub(visible(&cell)).saturating_add(2);
                line.push_str(&cell);
                line.push_str(&" ".repeat(spaces));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Replaces control characters, except in the color codes of this program: a message must not
/// control the terminal.
pub(crate) fn clean(text: &str) -> String {
    let is_code = |rest: &str| {
        let end = rest
            .strip_prefix("\u{1b}[")
            .and_then(|rest| rest.find('m').map(|end| (rest, end)));
        end.is_some_and(|(rest, end)| {
            rest.get(..end)
                .is_some_and(|code| code.chars().all(|c| c.is_ascii_digit()))
        })
    };
    let mut clean = String::with_capacity(text.len());
    for (index, letter) in text.char_indices() {
        let keeps = !letter.is_control() || text.get(index..).is_some_and(is_code);
        clean.push(if keeps { letter } else { ' ' });
    }
    clean
}

/// The number of visible characters.
fn visible(text: &str) -> usize {
    let mut in_code = false;
    let mut count = 0_usize;
    for letter in text.chars() {
        match (in_code, letter) {
            (false, '\u{1b}') => in_code = true,
            (true, 'm') => in_code = false,
            (true, _) => {}
            (false, _) => count = count.saturating_add(1),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(clean("\u{1b}[31mx\u{1b}[0m"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(visible("\u{1b}[31mx\u{1b}[0m"), 1);
    }
}
