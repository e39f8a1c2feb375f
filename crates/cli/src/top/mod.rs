//! `uncopy top`: all programs under uncopy, on the whole screen.

mod history;
pub mod state;
pub mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use uncopy_measure::{Failure, values};

use self::state::{Next, State};
use crate::stat::files;

/// The options of `uncopy top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = values::refresh)]
    delay: f64,
}

/// Shows them until `q`.
pub fn main(args: &TopArgs) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("top needs a terminal")
            .advise("`uncopy stat` prints the same numbers anywhere"));
    }
    let mut terminal =
        ratatui::try_init().map_err(|e| Failure::new("cannot use the terminal").because(e))?;
    let outcome = run(&mut terminal, Duration::from_secs_f64(args.delay));
    ratatui::restore();
    outcome.map_err(|e| Failure::new("the terminal failed").because(e))
}

fn run(terminal: &mut DefaultTerminal, delay: Duration) -> std::io::Result<()> {
    let mut state = State::default();
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            due = Instant::now() + delay;
            if !state.paused {
                state.take(files::all(), Instant::now());
            }
        }
        terminal.draw(|frame| view::draw(frame, &mut state))?;
        if event::poll(due.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && state.key(key) == Next::Quit
        {
            return Ok(());
        }
    }
}
