//! Prints the tables of docs/scaling.md, which explains them: `cargo run --no-default-features --example scaling`.
//!
//! Times are microseconds, throughput is transactions per microsecond (so millions a second), until they are printed.

/// Thousand transactions a second of `SELECT now()` on 48 processors, published with pg_stat_statements' sampling patch:
/// sample rate, throughput. Without the module it was [`PUBLISHED_OFF`].
const PUBLISHED: [(f64, f64); 5] =
    [(1.0, 1207.0), (0.8, 1404.0), (0.5, 1659.0), (0.2, 1758.0), (0.0, 1760.0)];
const PUBLISHED_OFF: f64 = 1829.0;
const PUBLISHED_ON: usize = 48;

/// Cache lines that pg_stat_statements writes under an entry's lock: its key, all its counters and the lock, some 420
/// bytes.
const THEIR_LINES: f64 = 7.0;
/// Those that we write for a statement that used no blocks: lock and key, times, rows, times of day, a class of the
/// histogram.
const OUR_LINES: f64 = 5.0;
/// An update with the lock free and all lines in the processor's own cache; `make bench-micro`, one thread, a stripe.
const OUR_UPDATE: f64 = 0.0114;
/// What a statement costs more with us, as a part of its own cost: 73 of 7,400 ns, in README.
const OUR_COST: f64 = 73.0 / 7400.0;

/// Transactions per microsecond of so many clients, each on a processor of its own, that are busy with their own work
/// for `think` each time and then hold a lock for `service`, on average `rate` times.
///
/// The machine repair model: a closed queueing network of one delay and one server, by mean value analysis (Reiser and
/// Lavenberg 1980), exact for exponential times.
fn throughput(clients: usize, think: f64, rate: f64, service: f64) -> f64 {
    let (mut queue, mut throughput) = (0.0, 0.0);
    for n in 1..=clients {
        let response = rate * service * (1.0 + queue);
        throughput = n as f64 / (think + response);
        queue = throughput * response;
    }
    throughput
}

/// What a transaction of the published experiment takes but for the lock, at that throughput.
fn think(thousands: f64) -> f64 {
    PUBLISHED_ON as f64 / (thousands / 1000.0)
}

/// The time that a lock is taken up with which so many clients reach `target` at rate 1.
fn fit(clients: usize, think: f64, target: f64) -> f64 {
    let (mut low, mut high) = (0.0, think);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        *(if throughput(clients, think, 1.0, middle) > target { &mut low } else { &mut high }) = middle;
    }
    low
}

/// The fitted time of the published lock.
fn their_service() -> f64 {
    fit(PUBLISHED_ON, think(PUBLISHED[4].1), PUBLISHED[0].1 / 1000.0)
}

/// One cache line from another processor, if that is all that the published lock's time goes into.
fn transfer() -> f64 {
    their_service() / THEIR_LINES
}

/// As `stripes::width`.
fn width(processors: usize) -> usize {
    (2 * processors).next_power_of_two().clamp(2, 256)
}

/// Probability that of so many others, each with a stripe by chance, `k` have the same as oneself.
fn others_with_the_same(others: usize, width: usize, k: usize) -> f64 {
    let p = 1.0 / width as f64;
    let choose: f64 = (0..k).map(|i| (others - i) as f64 / (i + 1) as f64).product();
    choose * p.powi(k as i32) * (1.0 - p).powi((others - k) as i32)
}

/// The time that an update of a stripe takes it up, when so many clients have it: unless the last one was the same
/// client's, its lines come from elsewhere.
fn stripe_service(clients: usize, transfer: f64) -> f64 {
    let elsewhere = (clients - 1) as f64 / clients as f64;
    OUR_UPDATE + elsewhere * OUR_LINES * transfer
}

/// Throughput with stripes at rate 1, where each client's stripe is by chance.
fn striped(clients: usize, think: f64, transfer: f64) -> f64 {
    let each = |k: usize| throughput(k, think, 1.0, stripe_service(k, transfer)) / k as f64;
    let by_chance = |k: usize| others_with_the_same(clients - 1, width(clients), k - 1) * each(k);
    clients as f64 * (1..=clients).map(by_chance).sum::<f64>()
}

/// Thousands, as they are written.
fn tps(thousands: f64) -> String {
    let thousands = thousands.round() as u64;
    format!("{},{:03},000", thousands / 1000, thousands % 1000)
}

fn check_table() -> String {
    let think = think(PUBLISHED[4].1);
    let mut table = "| sample rate | published, TPS | model, TPS | error |\n|---|---|---|---|\n".to_string();
    for (rate, published) in PUBLISHED {
        let model = 1000.0 * throughput(PUBLISHED_ON, think, rate, their_service());
        let error = match rate {
            0.0 | 1.0 => "fitted".to_string(),
            _ => format!("{:+.1} %", 100.0 * (model / published - 1.0)),
        };
        table += &format!("| {rate:.1} | {} | {} | {error} |\n", tps(published), tps(model));
    }
    table
}

/// A row: lost throughput, against none of the modules, where a statement costs what it does here, and where it costs
/// as much as the published module without its lock.
fn row(name: &str, processors: usize, of: impl Fn(f64) -> f64) -> String {
    let off = think(PUBLISHED_OFF);
    let lost = |think: f64| 100.0 * (of(think) / (processors as f64 / off) - 1.0);
    let ours = lost(off * (1.0 + OUR_COST));
    let theirs = lost(think(PUBLISHED[4].1));
    format!("| {processors} | {name} | {ours:.1} % | {theirs:.1} % |\n")
}

fn prediction_table() -> String {
    let mut table =
        "| processors | every statement recorded under | at our cost | at the published cost |\n".to_string();
    table += "|---|---|---|---|\n";
    for processors in [48, 192] {
        for (apart, transfer) in [("", transfer()), (", lines twice as slow", 2.0 * transfer())] {
            let one_lock = OUR_UPDATE + OUR_LINES * transfer;
            let their_lock = THEIR_LINES * transfer;
            table += &row(&format!("pg_stat_statements' one lock{apart}"), processors, |think| {
                throughput(processors, think, 1.0, their_lock)
            });
            table += &row(&format!("our one lock{apart}"), processors, |think| {
                throughput(processors, think, 1.0, one_lock)
            });
            table +=
                &row(&format!("stripes{apart}"), processors, |think| striped(processors, think, transfer));
        }
        table += &row("stripes, one for each backend", processors, |think| {
            processors as f64 * throughput(1, think, 1.0, OUR_UPDATE)
        });
    }
    table
}

fn collision_table() -> String {
    let mut table =
        "| processors | stripes | alone on one | with one other | with two | with more |\n".to_string();
    table += "|---|---|---|---|---|---|\n";
    for processors in [48, 192] {
        let p = |k| others_with_the_same(processors - 1, width(processors), k);
        let shares = [p(0), p(1), p(2), 1.0 - p(0) - p(1) - p(2)].map(|p| format!("{:.0} %", 100.0 * p));
        table += &format!("| {processors} | {} | {} |\n", width(processors), shares.join(" | "));
    }
    table
}

fn main() {
    println!("Fitted: the published lock is taken up for {:.0} ns each time,", 1000.0 * their_service());
    println!("or {:.0} ns for each of {THEIR_LINES} cache lines.\n", 1000.0 * transfer());
    println!("{}\n{}\n{}", check_table(), prediction_table(), collision_table());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_client_never_waits() {
        assert_eq!(throughput(1, 9.0, 1.0, 1.0), 0.1);
        assert_eq!(throughput(1, 9.0, 0.5, 2.0), 0.1);
    }

    #[test]
    fn without_the_lock_throughput_grows_with_the_clients() {
        assert_eq!(throughput(48, 24.0, 0.0, 1.0), 2.0);
    }

    #[test]
    fn two_clients_wait_as_the_closed_queue_says() {
        // states of 0, 1, 2 at the lock weigh 1, 2 s/z, 2 (s/z)^2; with s = z that is 1, 2, 2, so it is busy for 4/5
        assert!((throughput(2, 1.0, 1.0, 1.0) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn no_throughput_is_above_what_the_lock_lets_through() {
        for clients in [1, 48, 192, 1000] {
            assert!(throughput(clients, 26.0, 1.0, 0.8) <= 1.0 / 0.8 + 1e-12);
        }
    }

    #[test]
    fn the_fit_meets_what_it_was_fitted_to() {
        let x = throughput(PUBLISHED_ON, think(PUBLISHED[4].1), 1.0, their_service());
        assert!((x - 1.207).abs() < 1e-9);
    }

    #[test]
    fn probabilities_of_sharing_a_stripe_add_up_to_one() {
        for clients in [2, 48, 192] {
            let sum: f64 = (0..clients).map(|k| others_with_the_same(clients - 1, width(clients), k)).sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
        // three others, two stripes: all with the other one is 1/8
        assert_eq!(others_with_the_same(3, 2, 0), 0.125);
        assert_eq!(others_with_the_same(3, 2, 1), 0.375);
    }

    #[test]
    fn the_document_shows_what_this_prints() {
        let document = include_str!("../../docs/scaling.md");
        for table in [check_table(), prediction_table(), collision_table()] {
            assert!(document.contains(&table), "docs/scaling.md lacks\n{table}");
        }
    }
}
