//! `uncopy demo`: the echo server in plain words.

use std::path::PathBuf;
use std::time::Duration;

use uncopy_measure::echo::{self, EchoArgs, Row, chart};
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, library, units, userfaultfd};

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Length of each of the 60 measurements
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    seconds: f64,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// Measures and explains.
pub fn main(args: &DemoArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let refused = userfaultfd::check().err();
    let echo = EchoArgs {
        repeats: 3,
        seconds: Duration::try_from_secs_f64(args.seconds)
            .map_err(|e| Failure::new("--seconds is no length of time").because(e))?,
        warmup: Duration::from_secs(1),
        verify: 2,
        sides: vec![Side::Plain, Side::Again, Side::Placed, Side::NoElision, Side::Uncopy],
        ..EchoArgs::default()
    };
    uncopy_measure::print(
        "\
uncopy: the same program, without its copies

  An echo server receives messages of 512 KB over 16 connections on this machine,
  copies each one 0, 1, 4 or 12 times in its own memory, as programs do when data
  goes from layer to layer, and sends the last copy back.

  It is run as it is, once more as it is (what these two differ by is noise), and with
  'uncopy run' in front. The program is the same file each time; uncopy remembers its
  copies instead of carrying them out. 'no elision' is uncopy that carries them all out,
  'placed' the same by libc's memcpy: what is left then is what buffers gain that lie
  better and keep their memory, and between the two what faster copies gain.

",
    )?;
    if let Some(why) = &refused {
        uncopy_measure::print(&format!("  Not on this machine yet: {why}\n\n"))?;
    }
    let results = echo::measure(&echo, &library)?;
    let verdict = verdict(&results.rows, refused.is_some());
    uncopy_measure::print(&format!("{}{verdict}", chart(&results.rows)))
}

fn verdict(rows: &[Row], refused: bool) -> String {
    let verified = units::grouped(rows.iter().map(|row| row.verified_messages).sum());
    let mut text = format!(
        "  {verified} of {verified} random messages came back byte for byte, before and after the \
         timing,\n  with uncopy and without.\n\n"
    );
    let elided: u64 = rows.iter().map(|row| row.uncopy.elided_bytes).sum();
    let Some(last) = rows.last() else { return text };
    if elided == 0 {
        text += if refused {
            "  Without userfaultfd no copy can be left out, so the bars of a group are alike: \
             programs still\n  run under uncopy, only no faster. See the line above for how to \
             allow it.\n"
        } else {
            "  No copy was left out, so the last two bars of a group are alike. 'uncopy run \
             --verbose' tells\n  more.\n"
        };
        return text;
    }
    text += &format!(
        "  What it means: with {} copies the plain server spends {:.0} us of processor time on \
         a\n  message, with uncopy {:.0} us. In each measurement with {} copies, {} of copying\n  \
         were left out, with {} page faults.\n  {}\n{}\n",
        last.copies,
        last.plain.cpu_us_per_req,
        last.uncopy.common.cpu_us_per_req,
        last.copies,
        units::rough_size(last.uncopy.elided_bytes as f64),
        units::grouped(last.uncopy.faults),
        without_copies(rows[0].cpu_ratio, noise(&rows[0])),
        busy(rows.iter().map(noise).fold(0.0, f64::max)),
    );
    text += "  Try it on a program of yours:   uncopy run --verbose -- PROGRAM ARGS\n  \
             All the numbers:                docs/numbers\n";
    text
}

/// By how much two plain servers differed at most in processor time, as a share.
fn noise(row: &Row) -> f64 {
    let [low, high] = row.again.cpu_ratio_spread;
    [row.again.cpu_ratio, low, high]
        .into_iter()
        .map(|ratio| (1.0 - ratio).abs())
        .fold(0.0, f64::max)
}

/// The cost or gain of uncopy where there is nothing to leave out; `ratio`: plain's processor time
/// over uncopy's.
fn without_copies(ratio: f64, noise: f64) -> String {
    // Of plain's: 2.0 is a half of it less.
    let (differs, noise_text) = (percent((1.0 - 1.0 / ratio).abs()), percent(noise));
    if (1.0 - ratio).abs() <= noise {
        return format!(
            "Without any copy to leave out uncopy differs from plain by {differs}, and two runs of \
             the\n  plain server by up to {noise_text}: neither a cost nor a gain can be told from \
             noise."
        );
    }
    let (what, why) = if ratio > 1.0 {
        ("less", "where buffers lie in memory is a gain of its own.")
    } else {
        ("more", "that is what it costs.")
    };
    format!(
        "Without any copy to leave out uncopy needs {differs} {what} processor time, and two runs \
         of the\n  plain server differ by up to {noise_text}: {why}"
    )
}

/// A warning where the plain server itself is not the same twice.
fn busy(noise: f64) -> String {
    const MUCH: f64 = 0.1;
    if noise <= MUCH {
        return String::new();
    }
    format!(
        "\n  Two runs of the plain server differed by up to {} here: the machine is busy, or is\n  \
         shared. Differences of that size mean nothing; try again when it is quiet.\n",
        percent(noise)
    )
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_never_called_a_cost_nor_noise_either() {
        let costs = "that is what it costs";
        assert!(without_copies(0.9, 0.03).contains(costs));
        for (ratio, noise) in [(2.23, 0.05), (1.02, 0.05), (0.98, 0.05)] {
            assert!(!without_copies(ratio, noise).contains(costs), "{ratio} {noise}");
        }
        assert!(without_copies(2.23, 0.05).contains("needs 55% less"));
        assert!(without_copies(0.9, 0.3).contains("neither a cost nor a gain"));
        assert!(busy(0.03).is_empty() && busy(0.3).contains("30%"));
    }

    #[test]
    fn the_demo_shows_the_four_numbers_of_copies() {
        assert_eq!(EchoArgs::default().copies, [0, 1, 4, 12]);
        assert_eq!(EchoArgs::default().sizes, [512 << 10]);
    }
}
