//! The state of the screen: programs with their rates, the order, the selected one; and what keys
//! do to it.

use std::collections::HashMap;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;
use uncopy_counters::Snapshot;

use super::history::History;
use crate::stat::process;
use crate::stat::program::Program;
use crate::stat::symbols::Symbols;

const PAGE: f64 = 4096.0;

/// The columns by which lines can be ordered, and their headings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The process.
    Pid,
    /// Its name.
    Command,
    /// Copies elided a second.
    Copies,
    /// Bytes elided a second.
    Elided,
    /// Bytes copied all the same a second.
    Copied,
    /// Bytes touched a second.
    Touched,
    /// Faults a second.
    Faults,
    /// Memory in extents.
    Extents,
    /// Memory of the allocator.
    Allocator,
}

/// All of them, from left to right.
pub const COLUMNS: [(Column, &str); 9] = [
    (Column::Pid, "PID"),
    (Column::Command, "COMMAND"),
    (Column::Copies, "COPIES/s"),
    (Column::Elided, "ELIDED/s"),
    (Column::Copied, "COPIED/s"),
    (Column::Touched, "TOUCHED/s"),
    (Column::Faults, "FAULTS/s"),
    (Column::Extents, "EXTENTS"),
    (Column::Allocator, "ALLOCATOR"),
];

impl Column {
    /// The meaning of the column, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pid => "The process.",
            Self::Command => "Its name.",
            Self::Copies => "Copies left out.",
            Self::Elided => "Bytes of these.",
            Self::Copied => "Bytes of large copies that were made all the same.",
            Self::Touched => "Bytes that had to be filled in, because the program looked at them.",
            Self::Faults => "How often that was.",
            Self::Extents => "Input data that is held.",
            Self::Allocator => "Large blocks of the program's.",
        }
    }
}

/// A program's line.
#[derive(Debug)]
pub struct Line {
    /// At the last look.
    pub program: Program,
    /// Between the last two looks; from the program's start, at the first.
    rates: Rates,
    /// Bytes elided a second.
    pub elided: History,
    /// Faults a second.
    pub faults: History,
    looked: Instant,
    symbols: Option<Symbols>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    copies: f64,
    elided: f64,
    copied: f64,
    touched: f64,
    faults: f64,
}

impl Rates {
    fn new(now: &Snapshot, before: &Snapshot, seconds: f64) -> Self {
        let d = now.since(before);
        let rate = |n: u64| n as f64 / seconds.max(0.001);
        Self {
            copies: rate(d.elided_copies),
            elided: rate(d.elided_bytes),
            copied: rate(d.copied_bytes),
            touched: rate(d.touched_pages) * PAGE,
            faults: rate(d.faults),
        }
    }
}

impl Line {
    /// The value of a column that is a number.
    pub fn value(&self, column: Column) -> f64 {
        let c = &self.program.counters;
        match column {
            Column::Pid | Column::Command => f64::from(self.program.pid),
            Column::Copies => self.rates.copies,
            Column::Elided => self.rates.elided,
            Column::Copied => self.rates.copied,
            Column::Touched => self.rates.touched,
            Column::Faults => self.rates.faults,
            Column::Extents => c.extent_bytes as f64,
            Column::Allocator => c.twin_live_bytes as f64,
        }
    }

    /// Where the call that returns to `address` was made.
    pub fn place(&mut self, address: u64) -> String {
        let pid = self.program.pid;
        self.symbols.get_or_insert_with(|| Symbols::of(pid)).place(address).to_string()
    }
}

/// The next step after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Stay,
    /// End.
    Quit,
}

/// All that is shown.
#[derive(Debug)]
pub struct State {
    /// The lines in the order of the screen.
    pub lines: Vec<Line>,
    /// The selected one, and how far the table is scrolled.
    pub table: TableState,
    /// The number in [`COLUMNS`] of what they are ordered by.
    pub sort: usize,
    /// Smallest first.
    pub ascending: bool,
    /// No new looks are taken.
    pub paused: bool,
    /// The meaning of keys and words is shown in place of all.
    pub help: bool,
    /// The first line of that that is shown.
    pub help_from: u16,
    /// The call sites of the selected program are shown.
    pub details: bool,
    selected: Option<u32>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            table: TableState::default(),
            sort: 3,
            ascending: false,
            paused: false,
            help: false,
            help_from: 0,
            details: true,
            selected: None,
        }
    }
}

impl State {
    /// A new look at all programs.
    pub fn take(&mut self, programs: Vec<Program>, now: Instant) {
        let mut old: HashMap<(u32, u64), Line> =
            self.lines.drain(..).map(|l| ((l.program.pid, l.program.start_time), l)).collect();
        for program in programs {
            let line = match old.remove(&(program.pid, program.start_time)) {
                Some(mut line) => {
                    let seconds = now.saturating_duration_since(line.looked).as_secs_f64();
                    line.rates = Rates::new(&program.counters, &line.program.counters, seconds);
                    line.elided.push(line.rates.elided as u64);
                    line.faults.push(line.rates.faults as u64);
                    Line { program, looked: now, ..line }
                }
                None => {
                    let age = process::age(program.start_time);
                    let rates = Rates::new(&program.counters, &Snapshot::default(), age);
                    let (elided, faults) = <(History, History)>::default();
                    Line { program, rates, elided, faults, looked: now, symbols: None }
                }
            };
            self.lines.push(line);
        }
        self.order();
    }

    /// Sorts the lines; the selected program stays selected, wherever it comes to stand.
    fn order(&mut self) {
        let (column, ascending) = (COLUMNS[self.sort].0, self.ascending);
        self.lines.sort_by(|a, b| {
            let by_column = match column {
                Column::Command => b.program.command.cmp(&a.program.command),
                _ => a.value(column).total_cmp(&b.value(column)),
            };
            let by_column = if ascending { by_column } else { by_column.reverse() };
            by_column.then_with(|| a.program.pid.cmp(&b.program.pid))
        });
        let at = self.lines.iter().position(|l| Some(l.program.pid) == self.selected);
        let at = at.or_else(|| (!self.lines.is_empty()).then_some(0));
        self.select(at);
    }

    fn select(&mut self, at: Option<usize>) {
        self.table.select(at);
        self.selected = at.and_then(|i| self.lines.get(i)).map(|l| l.program.pid);
    }

    fn step(&mut self, by: isize) {
        let at = self.table.selected().unwrap_or(0).saturating_add_signed(by);
        self.select((!self.lines.is_empty()).then(|| at.min(self.lines.len() - 1)));
    }

    /// The effect of a key.
    pub fn key(&mut self, key: KeyEvent) -> Next {
        let asked = key.code == KeyCode::Char('?') || key.code == KeyCode::Char('h');
        let ends = matches!(key.code, KeyCode::Char('c' | 'q'));
        if self.help && self.scrolls_help(key.code) {
            return Next::Stay;
        }
        if asked || self.help && !ends {
            // (Any other key leads back.)
            self.help = !self.help;
            self.help_from = 0;
            return Next::Stay;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Next::Quit;
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Right | KeyCode::Char('s' | '>') => self.sort_by(self.sort + 1),
            KeyCode::Left | KeyCode::Char('S' | '<') => self.sort_by(self.sort + COLUMNS.len() - 1),
            KeyCode::Char(c @ '1'..='9') => self.sort_by(c as usize - '1' as usize),
            KeyCode::Char('r') => {
                self.ascending = !self.ascending;
                self.order();
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('d') | KeyCode::Enter => self.details = !self.details,
            _ => {}
        }
        Next::Stay
    }

    /// A key that moves within the help. (How far that goes the screen knows.)
    fn scrolls_help(&mut self, key: KeyCode) -> bool {
        self.help_from = match key {
            KeyCode::Up | KeyCode::Char('k') => self.help_from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.help_from.saturating_add(1),
            KeyCode::PageUp => self.help_from.saturating_sub(10),
            KeyCode::PageDown => self.help_from.saturating_add(10),
            _ => return false,
        };
        true
    }

    fn sort_by(&mut self, column: usize) {
        self.sort = column % COLUMNS.len();
        self.order();
    }

    /// The selected line.
    pub fn chosen(&mut self) -> Option<&mut Line> {
        self.lines.get_mut(self.table.selected()?)
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use super::*;

    /// A program with this number that has elided so many bytes.
    pub fn program(pid: u32, elided_bytes: u64) -> Program {
        let counters = Snapshot { elided_bytes, elided_copies: 1, ..Snapshot::default() };
        let command = format!("program-{pid}");
        Program { pid, command, start_time: 0, counters, none_elides: false, sites: Vec::new() }
    }

    fn order(state: &State) -> Vec<u32> {
        state.lines.iter().map(|l| l.program.pid).collect()
    }

    fn press(state: &mut State, c: char) -> Next {
        state.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE))
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut state = State::default();
        let start = Instant::now();
        state.take(vec![program(1, 1000)], start);
        state.take(vec![program(1, 5000)], start + Duration::from_secs(2));
        assert!((state.lines[0].value(Column::Elided) - 2000.0).abs() < 1.0);
    }

    #[test]
    fn the_fastest_is_first_and_the_order_follows_the_keys() {
        let mut state = State::default();
        let start = Instant::now();
        state.take(vec![program(1, 0), program(2, 0), program(3, 0)], start);
        state.take(
            vec![program(1, 10), program(2, 30), program(3, 20)],
            start + Duration::from_secs(1),
        );
        assert_eq!(order(&state), [2, 3, 1]);
        press(&mut state, 'r');
        assert_eq!(order(&state), [1, 3, 2]);
        press(&mut state, '1');
        assert_eq!(order(&state), [1, 2, 3]);
        press(&mut state, 'S');
        assert_eq!(COLUMNS[state.sort].0, Column::Allocator);
    }

    #[test]
    fn the_selected_program_stays_selected_when_the_order_changes_or_another_ends() {
        let mut state = State::default();
        let start = Instant::now();
        state.take(vec![program(1, 0), program(2, 0), program(3, 0)], start);
        press(&mut state, 'j');
        assert_eq!(state.chosen().unwrap().program.pid, 2);
        state.take(vec![program(2, 0), program(3, 9)], start + Duration::from_secs(1));
        assert_eq!(order(&state), [3, 2]);
        assert_eq!(state.chosen().unwrap().program.pid, 2);
        state.take(Vec::new(), start + Duration::from_secs(2));
        assert!(state.chosen().is_none());
        press(&mut state, 'j');
    }

    #[test]
    fn a_question_mark_shows_what_keys_do_and_any_key_but_those_that_scroll_leads_back() {
        let mut state = State::default();
        for (key, shown) in [('?', true), ('?', false), ('h', true), ('r', false)] {
            assert_eq!(press(&mut state, key), Next::Stay);
            assert_eq!((state.help, state.ascending), (shown, false), "{key}");
        }
        press(&mut state, '?');
        for (key, from) in [('j', 1), ('j', 2), ('k', 1)] {
            press(&mut state, key);
            assert_eq!((state.help, state.help_from), (true, from), "{key}");
        }
        assert_eq!(press(&mut state, 'q'), Next::Quit);
    }

    #[test]
    fn q_and_control_c_end_it() {
        let mut state = State::default();
        assert_eq!(press(&mut state, 'q'), Next::Quit);
        assert_eq!(press(&mut state, 'c'), Next::Stay);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(interrupt), Next::Quit);
    }
}
