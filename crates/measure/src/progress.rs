//! The progress bar, on standard error and only if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `steps` steps.
pub fn bar(steps: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  ({eta} left)")
        .expect("the template is right");
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target).with_style(style);
    bar.tick();
    bar
}

/// Prints the result of a row, for a user who waits for many of them: on standard error, so that
/// what is printed in the end stays whole.
pub fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        eprintln!("{line}");
    } else {
        bar.println(line);
    }
}
