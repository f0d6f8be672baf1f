//! The report as one HTML file: nothing is loaded from elsewhere, nothing is run in the reader's browser.

use std::fmt::Write as _;

use super::cause;
use super::chart::{self, Figure, Table, escape};
use super::document::{Document, Machine, Run};
use super::summary::{self, Tile};

const STYLE: &str = include_str!("page.css");

/// What the browser is to refuse: everything but the page's own style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub fn page(document: &Document) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Cost of statement statistics: {title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<p class=\"kicker\">pgss_rs_load {}</p>\n<h1>What statement statistics cost</h1>\n<p>{}</p>\n\
         </header>\n<main>\n",
        chart::STYLE,
        escape(&document.driver_version),
        escape(&summary::machine(document)),
        title = escape(&document.server_version),
    );
    contents(&mut html, document);
    for (index, run) in document.runs.iter().enumerate() {
        section(&mut html, document, index, run);
    }
    machine(&mut html, document);
    html += "</main>\n<footer><p>Intervals cover the truth in 95 of 100 runs. Every number is in the JSON that this page \
             was made from; the tables behind the charts have it.</p></footer>\n</body>\n</html>\n";
    html
}

/// Links to the runs, where there are several.
fn contents(html: &mut String, document: &Document) {
    if document.runs.len() < 2 {
        return;
    }
    let mut list = String::new();
    for (index, run) in document.runs.iter().enumerate() {
        let title = escape(&summary::title(&run.plan));
        let _ = writeln!(list, "<li><a href=\"#run{}\">{title}</a></li>", index + 1);
    }
    *html += &format!("<nav aria-label=\"Runs\"><ol>\n{list}</ol></nav>\n");
}

fn section(html: &mut String, document: &Document, index: usize, run: &Run) {
    let id = format!("run{}", index + 1);
    let title = escape(&summary::title(&run.plan));
    *html += &format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n"
    );
    *html += &format!("<p class=\"plan\">{}</p>\n", escape(&summary::plan(&run.plan)));
    tiles(html, &summary::tiles(run));
    *html += &format!("<p class=\"verdict\">{}</p>\n", escape(&run.verdict));
    list(html, "warnings", "Warnings", &run.warnings);
    list(html, "causes", "Where a loss comes from", &cause::of(run));
    list(html, "notes", "Notes", &run.notes);
    for figure in chart::figures(document, index) {
        of_figure(html, &figure);
    }
    seen(html, run);
    server(html, run);
    *html += "</section>\n";
}

fn tiles(html: &mut String, tiles: &[Tile]) {
    *html += "<ul class=\"tiles\">\n";
    for tile in tiles {
        let _ = writeln!(
            html,
            "<li class=\"tile\"><span class=\"arm\">{}</span> <strong>{}</strong> <span class=\"range\">{}</span></li>",
            escape(&tile.arm),
            escape(&tile.headline),
            escape(&tile.range)
        );
    }
    *html += "</ul>\n";
}

/// Nothing where there is nothing to say.
fn list(html: &mut String, class: &str, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    *html += &format!("<aside class=\"{class}\"><h3>{title}</h3>\n<ul>\n{items}</ul></aside>\n");
}

fn of_figure(html: &mut String, figure: &Figure) {
    let (id, title) = (&figure.id, escape(&figure.title));
    *html += &format!("<figure id=\"{id}\">\n<h3>{title}</h3>\n");
    *html += &figure.inline();
    *html += &format!("<figcaption>{}</figcaption>\n", escape(&figure.caption));
    *html += "<details><summary>The numbers</summary>\n";
    table(html, &figure.table, &figure.title);
    *html += "</details>\n</figure>\n";
}

fn table(html: &mut String, table: &Table, caption: &str) {
    *html += &format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<caption>{}</caption>\n<thead><tr>",
        escape(caption)
    );
    for header in &table.header {
        *html += &format!("<th scope=\"col\">{}</th>", escape(header));
    }
    *html += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        *html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let text = escape(&cell.text);
            *html += &match &cell.raw {
                Some((value, pointer)) => {
                    format!(
                        "<td><data value=\"{value}\" data-pointer=\"{}\">{text}</data></td>",
                        escape(pointer)
                    )
                }
                None if column == 0 => format!("<th scope=\"row\">{text}</th>"),
                None => format!("<td>{text}</td>"),
            };
        }
        *html += "</tr>\n";
    }
    *html += "</tbody></table></div>\n";
}

fn seen(html: &mut String, run: &Run) {
    let Some(seen) = run.seen.as_ref().filter(|seen| !seen.is_empty()) else { return };
    let mut statements = Table::new(&["query", "calls", "mean_exec_time, ms", "rows"]);
    for statement in seen {
        let cells = [&statement.query, &statement.calls, &statement.mean_exec_time, &statement.rows];
        statements.rows.push(cells.map(chart::Cell::text).to_vec());
    }
    *html += "<details class=\"more\"><summary>What pgss_rs_stats saw</summary>\n";
    table(html, &statements, "Most calls first, from the server of pgss_rs");
    *html += "</details>\n";
}

fn server(html: &mut String, run: &Run) {
    if run.server.is_empty() {
        return;
    }
    let mut settings = Table::new(&["setting", "value"]);
    for (name, value) in &run.server {
        settings.rows.push(vec![chart::Cell::text(name), chart::Cell::text(summary::plain(value))]);
    }
    *html += "<details class=\"more\"><summary>The server's settings</summary>\n";
    table(html, &settings, "Settings that matter to the result");
    *html += "</details>\n";
}

fn machine(html: &mut String, document: &Document) {
    *html += "<section id=\"box\" aria-labelledby=\"box-title\">\n<h2 id=\"box-title\">The box</h2>\n";
    let machines: Vec<&Machine> = if document.machines.is_empty() {
        vec![&document.machine]
    } else {
        document.machines.iter().collect()
    };
    for machine in machines {
        *html += "<dl>\n";
        for (name, value) in summary::facts(machine) {
            let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&value));
        }
        *html += "</dl>\n";
    }
    *html += "</section>\n";
}
