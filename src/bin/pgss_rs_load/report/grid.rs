//! Text no wider than a terminal: Markdown tables that are cut into several where they are wider, and prose in lines.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::chart::number;

/// Characters of a line. Terminals are seldom narrower, and what is pasted elsewhere is not broken there.
pub const WIDTH: usize = 100;

/// Between the cells of a line, and at its ends.
const BETWEEN: usize = 3;
const ENDS: usize = 4;

/// A table whose first columns say what a row is about; the others hold numbers.
#[derive(Debug)]
pub struct Grid {
    header: Vec<String>,
    /// Columns that name the row.
    names: usize,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn new(names: usize, header: &[&str]) -> Self {
        Grid { header: header.iter().map(|name| (*name).to_owned()).collect(), names, rows: Vec::new() }
    }

    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// As one table or, if that were too wide, several below each other, each with the columns that name its rows.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self.parts().iter().map(|columns| self.table(columns)).collect();
        parts.join("\n\n")
    }

    /// The columns of each table.
    fn parts(&self) -> Vec<Vec<usize>> {
        let names: Vec<usize> = (0..self.names).collect();
        let start = self.width_of(&names) + ENDS - BETWEEN;
        let (mut parts, mut part, mut width) = (Vec::new(), names.clone(), start);
        for column in self.names..self.header.len() {
            let more = self.width_of(&[column]);
            if width + more > WIDTH && part.len() > self.names {
                parts.push(std::mem::replace(&mut part, names.clone()));
                width = start;
            }
            part.push(column);
            width += more;
        }
        parts.push(part);
        parts
    }

    fn width_of(&self, columns: &[usize]) -> usize {
        let width = |column: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(*column)).chain([&self.header[*column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + BETWEEN
        };
        columns.iter().map(width).sum()
    }

    fn table(&self, columns: &[usize]) -> String {
        let cells = |row: &Vec<String>| {
            columns.iter().map(|column| row.get(*column).cloned().unwrap_or_default()).collect::<Vec<_>>()
        };
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(cells(&self.header));
        for row in &self.rows {
            table.add_row(cells(row));
        }
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }
}

/// How many of what, such as "1 call" and "2,000 calls".
pub fn counted(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", number(count as f64, 0))
}

/// With its lines broken at spaces where they are too long. Tables and what is indented (commands) stay as they are;
/// items of a list go on below their text.
pub fn wrapped(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(wrapped_line).collect();
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

fn wrapped_line(line: &str) -> String {
    if line.starts_with(['|', ' ']) || line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let (mut text, mut width) = (String::new(), 0);
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_table_that_is_too_wide_is_cut_into_several_that_name_their_rows() {
        let headers: Vec<String> = (0..9).map(|n| format!("a long header, number {n}")).collect();
        let headers: Vec<&str> = ["arm"].into_iter().chain(headers.iter().map(String::as_str)).collect();
        let mut grid = Grid::new(1, &headers);
        grid.push(["off"].into_iter().chain(["1"; 9]).map(str::to_owned).collect());
        let text = grid.text();
        assert!(widest(&text) <= WIDTH, "{text}");
        assert_eq!(text.matches("| off").count(), 3, "{text}");
        for header in headers {
            assert!(text.contains(header), "{text}");
        }
        let mut narrow = Grid::new(1, &["arm", "TPS"]);
        narrow.push(vec!["off".to_owned(), "1".to_owned()]);
        assert_eq!(narrow.text(), "| arm | TPS |\n|-----|-----|\n| off |   1 |");
    }

    #[test]
    fn one_is_said_in_the_singular() {
        assert_eq!(["call", "CPU"].map(|what| counted(1, what)), ["1 call", "1 CPU"]);
        assert_eq!([0, 2000].map(|count| counted(count, "call")), ["0 calls", "2,000 calls"]);
    }

    #[test]
    fn prose_is_broken_at_spaces_and_commands_are_not() {
        let words = ["word"; 60].join(" ");
        let text = wrapped(&format!("{words}\n- {words}\n    {words}\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[..lines.len() - 1].iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines.iter().filter(|line| line.starts_with("  word")).count() >= 2, "{text}");
        assert_eq!(*lines.last().unwrap(), format!("    {words}"));
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 180);
    }
}
