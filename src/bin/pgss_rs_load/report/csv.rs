//! The figures as CSV (RFC 4180), one a line, as spreadsheets and scripts want them.

use super::document::{Document, Finding, Interval, Results, Run};

const HEADER: [&str; 12] = [
    "run", "mode", "workload", "clients", "arm", "figure", "unit", "value", "low", "high", "noise", "finding",
];

/// One figure of one arm.
#[derive(Debug)]
struct Line<'a> {
    arm: &'a str,
    figure: String,
    unit: &'static str,
    value: f64,
    interval: Option<Interval>,
    noise: Option<Interval>,
    finding: Option<Finding>,
}

pub fn text(document: &Document) -> String {
    let mut text = HEADER.join(",") + "\r\n";
    for (index, run) in document.runs.iter().enumerate() {
        for line in lines(run) {
            let optional = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
            let finding = match line.finding {
                Some(Finding::Difference) => "difference",
                Some(Finding::NoDifference { .. }) => "none seen",
                None => "",
            };
            let fields = [
                (index + 1).to_string(),
                run.plan.mode.clone(),
                run.plan.workload_name(),
                run.plan.clients.to_string(),
                line.arm.to_owned(),
                line.figure,
                line.unit.to_owned(),
                line.value.to_string(),
                optional(line.interval.and_then(|i| i.low)),
                optional(line.interval.and_then(|i| i.high)),
                optional(line.noise.and_then(Interval::reach)),
                finding.to_owned(),
            ];
            text += &(fields.map(|field| quoted(&field)).join(",") + "\r\n");
        }
    }
    text
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn lines(run: &Run) -> Vec<Line<'_>> {
    match &run.results {
        Results::Calibration(_) | Results::Efficiency(_) => Vec::new(),
        Results::Cost(cost) => cost
            .comparisons
            .iter()
            .flat_map(|comparison| {
                let measures = [("cpu", comparison.cpu.as_ref()), ("wall", Some(&comparison.wall))];
                measures.into_iter().filter_map(move |(name, measure)| {
                    let measure = measure?;
                    Some([
                        plain(&comparison.arm, &format!("{name}_off"), "ns", measure.off),
                        Line {
                            arm: &comparison.arm,
                            figure: format!("{name}_change"),
                            unit: "ns",
                            value: measure.change.estimate,
                            interval: Some(measure.change),
                            noise: Some(measure.noise),
                            finding: Some(measure.finding),
                        },
                    ])
                })
            })
            .flatten()
            .collect(),
        Results::Throughput(throughput) => throughput
            .arms
            .iter()
            .flat_map(|arm| {
                let change = arm.change.map(|change| Line {
                    arm: &arm.arm,
                    figure: "tps_change".to_owned(),
                    unit: "fraction",
                    value: change.estimate,
                    interval: Some(change),
                    noise: Some(throughput.noise),
                    finding: arm.finding,
                });
                [
                    plain(&arm.arm, "tps", "1/s", arm.tps),
                    plain(&arm.arm, "transactions", "", arm.transactions as f64),
                    plain(&arm.arm, "latency_mean", "ms", arm.latency_mean),
                    plain(&arm.arm, "latency_stddev", "ms", arm.latency_stddev),
                    plain(&arm.arm, "latency_p50", "ms", arm.latency_p50),
                    plain(&arm.arm, "latency_p95", "ms", arm.latency_p95),
                    plain(&arm.arm, "latency_p99", "ms", arm.latency_p99),
                ]
                .into_iter()
                .chain(change)
            })
            .collect(),
        Results::Latency(latency) => latency
            .arms
            .iter()
            .flat_map(|arm| {
                let percentiles = arm.percentiles.iter().flat_map(|of| {
                    let change = of.change.map(|change| Line {
                        arm: &arm.arm,
                        figure: format!("latency_p{}_change", of.percentile),
                        unit: "fraction",
                        value: change.estimate,
                        interval: Some(change),
                        noise: Some(of.noise),
                        finding: of.finding,
                    });
                    [plain(&arm.arm, &format!("latency_p{}", of.percentile), "ms", of.ms)]
                        .into_iter()
                        .chain(change)
                });
                [
                    plain(&arm.arm, "achieved", "1/s", arm.achieved),
                    plain(&arm.arm, "unserved", "", arm.unserved as f64),
                    plain(&arm.arm, "backlog", "", arm.backlog as f64),
                ]
                .into_iter()
                .chain(percentiles)
            })
            .collect(),
    }
}

fn plain<'a>(arm: &'a str, figure: &str, unit: &'static str, value: f64) -> Line<'a> {
    Line { arm, figure: figure.to_owned(), unit, value, interval: None, noise: None, finding: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_split_a_field_is_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
    }
}
