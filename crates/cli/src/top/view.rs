//! The screen: totals, a line for each program, the selected one's history and call sites, the
//! keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, Wrap};
use uncopy_decide::REASONS;
use uncopy_measure::printable::printable;
use uncopy_measure::units::{grouped, rough_size, size};

use super::state::{COLUMNS, Column, State};
use crate::stat::program::{Decision, Site};

const HISTORY: u16 = 24;
/// A shorter history says nothing.
const SHORTEST: u16 = 8;
/// The widths of the columns.
const WIDTHS: [u16; COLUMNS.len()] = [7, 16, 9, 10, 10, 10, 9, 9, 10];
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws all of it.
pub fn draw(frame: &mut Frame, state: &mut State) {
    if state.help {
        legend(frame, state);
        return;
    }
    let details = state.details && !state.lines.is_empty() && frame.area().height >= 20;
    let below = if details { frame.area().height / 2 } else { 0 };
    let [head, table, detail, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(totals(state), head);
    programs(frame, state, table);
    if details {
        selected(frame, state, detail);
    }
    frame.render_widget(help(), keys);
}

fn totals(state: &State) -> Paragraph<'static> {
    let sum = |column| state.lines.iter().fold(0.0, |all, l| all + l.value(column));
    let count = state.lines.len();
    let mut spans = vec![
        Span::styled("uncopy top", BOLD),
        format!("  {count} program{}", if count == 1 { "" } else { "s" }).into(),
        format!("  elided {}/s", rough_size(sum(Column::Elided))).into(),
        format!("  copied {}/s", rough_size(sum(Column::Copied))).into(),
        format!("  faults {:.0}/s", sum(Column::Faults)).into(),
        format!("  extents {}", rough_size(sum(Column::Extents))).into(),
    ];
    if state.paused {
        spans.push(Span::styled("  PAUSED", BOLD.fg(Color::Yellow)));
    }
    Paragraph::new(TextLine::from(spans))
}

/// Keys, and what they do in a word and in a sentence.
const KEYS: [(&str, &str, &str); 7] = [
    ("q", "quit", "Quit (also Esc, Ctrl-C)."),
    ("?", "help", "Show this (also h)."),
    ("↑↓", "select", "Select a program (also j, k)."),
    ("←→ 1-9", "sort by", "Sort by the column beside, or by that number (also s, S)."),
    ("r", "reverse", "The smallest first, or the largest."),
    ("d", "call sites", "Show the selected program's call sites, or not (also Enter)."),
    ("p", "pause", "Take no new look, or go on (also the space bar)."),
];

/// The meaning of keys, and of the words on the screen.
fn legend(frame: &mut Frame, state: &mut State) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    let title = |text: &'static str| TextLine::styled(text, BOLD.fg(Color::Yellow));
    let line = |word: &str, width: usize, says: &str| {
        TextLine::from(vec![Span::styled(format!(" {word:width$} "), BOLD), says.to_owned().into()])
    };
    let mut here = vec![title("Keys")];
    here.extend(KEYS.iter().map(|(key, _, says)| line(key, 9, says)));
    here.extend(["".into(), title("Columns (/s: in a second)")]);
    here.extend(COLUMNS.iter().map(|(column, name)| line(name, 9, column.meaning())));
    let mut there = vec![title("What becomes of a call site's copies")];
    there.extend(Decision::ALL.map(|decision| line(decision.name(), 18, decision.meaning())));
    there.extend(["".into(), title("Why a copy was made all the same")]);
    there.extend(REASONS.iter().map(|(_, name, says)| line(name, 18, says.trim())));
    frame.render_widget(Paragraph::new(TextLine::styled("uncopy top: help", BOLD)), head);
    if body.width >= BESIDE {
        let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(body);
        scrolled(frame, &mut state.help_from, [(here, left), (there, right)]);
    } else {
        here.push("".into());
        here.extend(there);
        scrolled(frame, &mut state.help_from, [(here, body)]);
    }
    frame.render_widget(Paragraph::new(" ↑↓: scroll   q: quit   any other key: back"), foot);
}

/// From so many columns on what keys do stands beside what words mean.
const BESIDE: u16 = 110;
/// Columns of the longest word there.
const LONGEST: u16 = 12;

/// Shows texts from one line on, which is brought back to where the longest of them ends.
fn scrolled<const N: usize>(
    frame: &mut Frame,
    from: &mut u16,
    texts: [(Vec<TextLine<'static>>, Rect); N],
) {
    let hidden = texts.iter().map(|(text, area)| {
        // (No word is longer than LONGEST: a line that is broken keeps all but that.)
        let kept = usize::from(area.width.saturating_sub(LONGEST)).max(1);
        let lines: usize = text.iter().map(|line| line.width().div_ceil(kept).max(1)).sum();
        lines.saturating_sub(area.height.into())
    });
    *from = (*from).min(hidden.max().unwrap_or(0).try_into().unwrap_or(u16::MAX));
    for (text, area) in texts {
        let text = Paragraph::new(text).wrap(Wrap { trim: false });
        frame.render_widget(text.scroll((*from, 0)), area);
    }
}

fn help() -> Paragraph<'static> {
    let keys = KEYS.map(|(key, does, _)| (key, does));
    let spans = keys.into_iter().flat_map(|(key, does)| {
        [Span::styled(format!(" {key} "), BOLD.bg(Color::DarkGray)), format!(" {does}  ").into()]
    });
    Paragraph::new(TextLine::from_iter(spans))
}

fn programs(frame: &mut Frame, state: &mut State, area: Rect) {
    if state.lines.is_empty() {
        let text = "\n  No program under uncopy that elides, or none that you may see.\n\n  \
                    uncopy run -- CMD starts one.";
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let columns = fitting(area.width);
    let history = area.width.saturating_sub(needed(columns) + 1).min(HISTORY);
    let history = (history >= SHORTEST).then_some(history);
    let header = COLUMNS[..columns].iter().enumerate().map(|(i, (_, name))| {
        let arrow = if state.ascending { "▲" } else { "▼" };
        let text = if i == state.sort { format!("{name}{arrow}") } else { (*name).to_owned() };
        let style = if i == state.sort { BOLD.fg(Color::Yellow) } else { BOLD };
        Cell::from(aligned(text, i != 1)).style(style)
    });
    let bars = history.map(|_| Cell::from("ELIDED/s, HISTORY").style(BOLD));
    let header = Row::new(header.chain(bars));
    let rows = state.lines.iter().map(|l| {
        let cells = COLUMNS[..columns].iter().map(|(column, _)| {
            let value = l.value(*column);
            match column {
                Column::Pid => aligned(l.program.pid.to_string(), true),
                Column::Command => aligned(printable(&l.program.command), false),
                Column::Copies | Column::Faults => aligned(grouped(value.round() as u64), true),
                _ => aligned(rough_size(value), true),
            }
        });
        let bars =
            history.map(|width| TextLine::from(l.elided.bars(width as usize)).style(Color::Green));
        Row::new(cells.chain(bars))
    });
    let widths = WIDTHS[..columns].iter().copied().chain(history).map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut state.table);
}

/// The width that so many columns need, with what lies between them.
fn needed(columns: usize) -> u16 {
    WIDTHS[..columns].iter().map(|width| width + 1).sum::<u16>().saturating_sub(1)
}

/// How many columns a screen has room for: those on the right go.
fn fitting(width: u16) -> usize {
    (1..=COLUMNS.len()).rev().find(|columns| needed(*columns) <= width).unwrap_or(1)
}

fn aligned(text: String, right: bool) -> TextLine<'static> {
    if right { TextLine::from(text).right_aligned() } else { TextLine::from(text) }
}

fn selected(frame: &mut Frame, state: &mut State, area: Rect) {
    let Some(line) = state.chosen() else { return };
    let [graphs, sites] = Layout::vertical([Constraint::Length(5), Constraint::Min(3)]).areas(area);
    let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(graphs);
    let name = format!("{} [{}]", printable(&line.program.command), line.program.pid);
    let elided = line.elided.last(left.width as usize);
    let latest = rough_size(line.value(Column::Elided));
    frame.render_widget(graph(format!(" {name}: {latest}/s elided "), &elided, Color::Green), left);
    let faults = line.faults.last(right.width as usize);
    let latest = line.value(Column::Faults);
    frame.render_widget(graph(format!(" {latest:.0} faults/s "), &faults, Color::Red), right);
    let mut all: Vec<Site> = line.program.sites.clone();
    all.sort_by_key(|s| std::cmp::Reverse((s.elided_bytes, s.seen())));
    let room = sites.height.saturating_sub(1) as usize;
    let rows: Vec<Row> = all.iter().take(room).map(|s| site(s, line.place(s.caller))).collect();
    let names =
        ["SIZE", "DECISION", "COPIES", "ELIDED", "BYTES", "TOUCHED", "WHY NOT", "CALL SITE"];
    let cells = names.iter().enumerate().map(|(i, n)| aligned((*n).into(), i < 6 && i != 1));
    let header = Row::new(cells).style(BOLD);
    let widths = [5, 8, 12, 12, 9, 9, 20].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(20)]);
    frame.render_widget(Table::new(rows, widths).header(header), sites);
}

fn graph(title: String, values: &[u64], colour: Color) -> Sparkline<'_> {
    Sparkline::default()
        .block(Block::new().borders(Borders::TOP).title(title))
        .data(values)
        .style(Style::new().fg(colour))
}

fn site(s: &Site, place: String) -> Row<'static> {
    let decision = s.decision();
    let colour = match decision {
        Decision::Elides => Color::Green,
        Decision::Watched => Color::Yellow,
        Decision::Rests | Decision::Abstains => Color::Red,
        Decision::Copies => Color::Reset,
    };
    Row::new([
        aligned(size(s.class), true),
        aligned(decision.name().into(), false).style(colour),
        aligned(grouped(s.seen()), true),
        aligned(grouped(s.elided), true),
        aligned(rough_size(s.elided_bytes as f64), true),
        aligned(rough_size(s.touched_pages as f64 * 4096.0), true),
        aligned(s.main_reason().unwrap_or_default().into(), false),
        aligned(place, false),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::state::tests::program;

    fn screen(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn programs_their_rates_and_the_keys_are_on_the_screen() {
        let mut state = State::default();
        let start = Instant::now();
        state.take(vec![program(7, 0)], start);
        state.take(vec![program(7, 3 << 20)], start + Duration::from_secs(1));
        let text = screen(&mut state, 130, 30);
        for expected in ["1 program ", "program-7", "3.0 MB", "ELIDED/s▼", "█", " q ", "quit"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_narrow_screen_has_whole_columns_and_a_help_that_scrolls() {
        let mut state = State::default();
        state.take(vec![program(7, 0)], Instant::now());
        let text = screen(&mut state, 80, 24);
        for expected in ["PID", "COPIES/s", "ELIDED/s", "TOUCHED/s", " ? ", "help"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("HISTORY") && !text.contains("ALLOC"), "{text}");
        state.help = true;
        let (first, last) = (REASONS[0].1, REASONS[REASONS.len() - 1].1);
        assert!(!screen(&mut state, 80, 24).contains(last));
        state.help_from = u16::MAX;
        let text = screen(&mut state, 80, 24);
        assert!(text.contains(last) && !text.contains("Keys"), "{text}");
        let text = screen(&mut state, 130, 50);
        assert!(text.contains(first) && text.contains("Keys") && text.contains(last), "{text}");
    }

    #[test]
    fn no_program_is_said_and_the_smallest_screen_is_survived() {
        assert!(screen(&mut State::default(), 80, 24).contains("uncopy run -- CMD"));
        let mut state = State::default();
        state.take(vec![program(7, 1)], Instant::now());
        for help in [false, true] {
            state.help = help;
            for (width, height) in [(1, 1), (5, 3), (20, 20)] {
                screen(&mut state, width, height);
            }
        }
    }
}
