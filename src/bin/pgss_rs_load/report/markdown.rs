//! The report as Markdown, to be pasted where it is discussed.

use super::cause;
use super::chart::{self, Table};
use super::document::{Document, Run};
use super::summary;

pub fn text(document: &Document) -> String {
    let mut text = format!("# What statement statistics cost\n\n{}.\n\n", line(&summary::machine(document)));
    for (index, run) in document.runs.iter().enumerate() {
        text +=
            &format!("## {}\n\n{}.\n\n", line(&summary::title(&run.plan)), line(&summary::plan(&run.plan)));
        text += &format!("**{}**\n\n", line(&run.verdict));
        for (title, items) in
            [("Warnings", &run.warnings), ("Where a loss comes from", &cause::of(run)), ("Notes", &run.notes)]
        {
            if !items.is_empty() {
                text += &format!("{title}:\n\n");
                text += &items.iter().map(|item| format!("- {}\n", line(item))).collect::<String>();
                text.push('\n');
            }
        }
        for figure in chart::figures(document, index).iter().filter(|figure| !figure.detail) {
            text += &format!("### {}\n\n{}\n", line(&figure.title), table(&figure.table));
        }
        text += &seen(run);
    }
    text += "## The box\n\n| | |\n|---|---|\n";
    for (name, value) in summary::facts(&document.machine) {
        text += &format!("| {} | {} |\n", line(&name), line(&value));
    }
    text
}

fn table(table: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(table.header.iter().map(|header| line(header)).collect());
    let rules: Vec<&str> =
        table.header.iter().enumerate().map(|(n, _)| if n == 0 { "---" } else { "---:" }).collect();
    text += &format!("|{}|\n", rules.join("|"));
    for cells in &table.rows {
        text += &row(cells.iter().map(|cell| line(&cell.text)).collect());
    }
    text
}

fn seen(run: &Run) -> String {
    let Some(seen) = run.seen.as_ref().filter(|seen| !seen.is_empty()) else { return String::new() };
    let mut statements = Table::new(&["query", "calls", "mean_exec_time, ms", "rows"]);
    for statement in seen {
        let cells = [&statement.query, &statement.calls, &statement.mean_exec_time, &statement.rows];
        statements.rows.push(cells.map(chart::Cell::text).to_vec());
    }
    format!("### What pgss_rs_stats saw\n\n{}\n", table(&statements))
}

/// On one line, and nothing in it that would end a cell or begin an element.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
        .replace('`', "\\`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_a_cell() {
        assert_eq!(line("a | b\n<script> *x* `y`"), "a \\| b &lt;script> \\*x\\* \\`y\\`");
    }
}
