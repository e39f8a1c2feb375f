//! How much of all that is noise: every side beside plain, the second plain one among them.

use uncopy_measure::side::Side;

use super::section::Table;
use super::servers::{ServerNumbers, ServerResults};

/// A row counts as a loss below this ratio of CPU.
const LOSS: f64 = 0.98;
/// Its latency counts as longer from here on, over plain's.
const LONGER: f64 = 1.1;

/// The meaning of the columns.
pub const TEXT: &str = "How much of that is noise, over all rows (every server, size and number of \
    connections): for each side, in how many rows its ratio of CPU is below 0.98, in how many its \
    p99 is more than 10% above plain's, and the geometric average of the ratios with its standard \
    error. The second plain server is noise alone.";

/// A row for each side that was measured.
pub fn table(results: &ServerResults) -> Table {
    let sizes = results.sizes();
    let columns = sizes.iter().map(|(_, name)| format!("CPU at {name}, average"));
    let columns: Vec<String> = columns.collect();
    let mut header = vec!["", "rows", "CPU below 0.98", "p99 longer by 10%"];
    header.extend(columns.iter().map(String::as_str));
    let rows = Side::ALL.into_iter().filter(|side| *side != Side::Plain).filter_map(|side| {
        let both: Vec<(&ServerNumbers, &ServerNumbers)> = results
            .rows
            .iter()
            .filter_map(|row| row.sides.get(&Side::Plain).zip(row.sides.get(&side)))
            .collect();
        let count = |is: fn(&ServerNumbers, &ServerNumbers) -> bool| {
            both.iter().filter(|(plain, own)| is(plain, own)).count().to_string()
        };
        let average = |size| {
            let of_size = results.rows.iter().filter(|row| row.size == size);
            let logs = of_size.filter_map(|row| Some(row.sides.get(&side)?.cpu_ratio.ln()));
            average(&logs.collect::<Vec<_>>())
        };
        (!both.is_empty()).then(|| {
            let counts = [
                both.len().to_string(),
                count(|_, own| own.cpu_ratio < LOSS),
                count(|plain, own| own.p99_us > LONGER * plain.p99_us),
            ];
            let averages = sizes.iter().map(|(size, _)| average(*size));
            [side.name().to_owned()].into_iter().chain(counts).chain(averages).collect()
        })
    });
    Table::new(&header, rows.collect())
}

/// The geometric average of what these are the logarithms of, and its standard error as a part of
/// it.
fn average(logs: &[f64]) -> String {
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    match logs.len() {
        0 => "–".to_owned(),
        1 => format!("{:.3}", mean.exp()),
        _ => {
            let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
            let error = (squares / (n - 1.0) / n).sqrt();
            format!("{:.3} ± {:.1}%", mean.exp(), error * 100.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_averaged_as_ratios_with_their_error() {
        let of = |ratios: &[f64]| average(&ratios.iter().map(|r| r.ln()).collect::<Vec<_>>());
        assert_eq!(of(&[2.0, 0.5]), "1.000 ± 69.3%");
        assert_eq!(of(&[1.5, 1.5, 1.5]), "1.500 ± 0.0%");
        assert_eq!((of(&[1.25]), of(&[])), ("1.250".to_owned(), "–".to_owned()));
    }

    #[test]
    fn only_sides_that_were_measured_have_a_row() {
        let numbers = |cpu_ratio, p99_us| ServerNumbers {
            cpu_us: 1.0,
            per_s: 1.0,
            p99_us,
            cpu_ratio,
            rate_ratio: 1.0,
            cpu_spread: [cpu_ratio; 2],
        };
        let row = |size, ratio, late| super::super::servers::ServerRow {
            name: "server".into(),
            words: "Server".into(),
            size,
            connections: 4,
            sides: [(Side::Plain, numbers(1.0, 100.0)), (Side::Uncopy, numbers(ratio, late))]
                .into(),
            copies_cpu: None,
            elision_cpu: 1.0,
            options: vec![],
            turns: 1,
            congestion: None,
            controls: Default::default(),
            switched: None,
            switch_cpu: None,
            same_cpu: None,
        };
        let rows = vec![row(64 << 10, 0.97, 111.0), row(1 << 20, 2.0, 109.0)];
        let table = table(&ServerResults { rows, ..Default::default() });
        assert_eq!(table.rows, [["uncopy", "2", "1", "1", "0.970", "2.000"]]);
        assert_eq!(table.header[4..], ["CPU at 64 KB, average", "CPU at 1 MB, average"]);
    }
}
