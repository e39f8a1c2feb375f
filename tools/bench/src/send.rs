//! `uncopy-bench send`: what sending costs the sender, in the ways that Linux has, and under
//! uncopy, which runs the program that calls `send`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use uncopy_measure::facts::Facts;
use uncopy_measure::medians::{median, quotient, round, spread};
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;
use uncopy_measure::values::{Settings, positive, seconds, size};
use uncopy_measure::{Failure, cores, failure, library, progress, units};

use super::receiver::{Done, Listener, Order, Receiver, Socket};
use super::send_plan::{SendMethod, SendPlan};
use super::{sender, warm};

/// Options of `uncopy-bench send`.
#[derive(Clone, Debug, clap::Args)]
pub struct SendArgs {
    /// Message sizes
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "16K,64K,512K,1M",
        value_parser = size,
    )]
    pub sizes: Vec<usize>,
    /// Distinct buffers that are sent in turns
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,64",
        value_parser = positive,
    )]
    pub buffers: Vec<usize>,
    /// Whether a buffer is sent many times as it is, or once: written anew before each send
    #[arg(long, value_enum, value_delimiter = ',', default_value = "many,once")]
    pub times: Vec<Times>,
    /// What the messages are sent through
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    pub sockets: Vec<Socket>,
    /// Ways besides that of the plain program
    #[arg(long, value_enum, value_delimiter = ',', default_value = "zerocopy,sendfile,uring")]
    pub ways: Vec<SendMethod>,
    /// Times that the columns are measured in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub repeats: usize,
    /// Length of each timed window
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub seconds: Duration,
    /// Messages whose every byte the receiver compares before each window, and as many after it
    #[arg(long, value_name = "N", default_value = "130")]
    pub verify: u64,
    /// Memory to touch and give back beforehand [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = uncopy_measure::units::parse_size)]
    pub warm: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How often a buffer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Again and again as it is: what a cache does.
    Many,
    /// Once: all of it is written before each send.
    Once,
}

/// The results that `--json` prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendResults {
    /// The mode.
    pub bench: String,
    /// How it was measured.
    pub settings: Settings,
    /// One for each combination of parameters.
    pub rows: Vec<SendRow>,
}

/// One combination of parameters.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendRow {
    /// Bytes in a message.
    pub size: usize,
    /// Distinct buffers.
    pub buffers: usize,
    /// How often each is sent.
    pub times: Times,
    /// Through what.
    pub socket: Socket,
    /// Plain `send`, the same again (what it differs by is noise), `send` under uncopy, then the
    /// other ways.
    pub columns: Vec<Column>,
}

/// One way in one row.
#[derive(Debug, Serialize, Deserialize)]
pub struct Column {
    /// The way.
    pub way: SendMethod,
    /// On which side.
    pub side: Side,
    /// Why there are no numbers.
    pub refused: Option<String>,
    /// The sender's CPU time for a message.
    pub cpu_us: f64,
    /// Smallest and largest.
    pub cpu_us_spread: [f64; 2],
    /// Messages in a second.
    pub messages_per_s: f64,
    /// Smallest and largest.
    pub messages_per_s_spread: [f64; 2],
    /// Of the sends without copying that the kernel reported done, the share that it copied after
    /// all.
    pub copied_share: Option<f64>,
    /// Messages that were compared byte by byte.
    pub verified_messages: u64,
    /// The facts of the sender. (Not in results of older versions.)
    #[serde(default)]
    pub facts: Facts,
}

/// Measures and prints.
pub fn main(args: &SendArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let results = measure(args, &library)?;
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    let columns = || results.rows.iter().flat_map(|row| &row.columns);
    let verified: u64 = columns().map(|column| column.verified_messages).sum();
    uncopy_measure::print(&format!(
        "{}\nMedians of {} turns of {} s. CPU: of the sender, us a message; the receiver reads \
         everything.\n\
         copied: sends by reference that the kernel copied after all, by its own report.\n\
         many: buffers are sent as they are again and again; once: written anew before each send.\n\
         Every byte of {} messages was compared, before and after the timing, and all of them were \
         right.\n",
        table(&results.rows),
        args.repeats,
        args.seconds.as_secs_f64(),
        units::grouped(verified)
    ))
}

/// Measures every row.
pub fn measure(args: &SendArgs, library: &Path) -> Result<SendResults, Failure> {
    let available = cores::all()?;
    let sender_core = available[0];
    cores::pin(*available.get(1).unwrap_or(&available[0]))?;
    warm::memory(args.warm.unwrap_or(1 << 30))?;
    let mut ways =
        [Side::Plain, Side::Again, Side::Uncopy].map(|side| (SendMethod::Send, side)).to_vec();
    ways.extend(args.ways.iter().filter(|w| **w != SendMethod::Send).map(|w| (*w, Side::Plain)));
    let mut shapes = Vec::new();
    for &socket in &args.sockets {
        for &times in &args.times {
            for &buffers in &args.buffers {
                shapes.extend(args.sizes.iter().map(|&size| Shape {
                    size,
                    buffers,
                    times,
                    socket,
                }));
            }
        }
    }
    let bar = progress::bar(shapes.len() * args.repeats * ways.len());
    let mut rows = Vec::new();
    for shape in shapes {
        let Shape { size, buffers, times, socket } = shape;
        let mut samples: Vec<Vec<Sample>> = ways.iter().map(|_| Vec::new()).collect();
        for turn in 0..args.repeats {
            for nth in 0..ways.len() {
                let nth = (nth + turn) % ways.len();
                let (way, side) = ways[nth];
                bar.set_message(format!(
                    "{}, {buffers} buffers, {}",
                    units::size(size as u64),
                    way.text()
                ));
                samples[nth].push(sample(args, shape, way, side, sender_core, library)?);
                bar.inc(1);
            }
        }
        let columns = ways.iter().zip(&samples).map(|((way, side), s)| column(*way, *side, s));
        rows.push(SendRow { size, buffers, times, socket, columns: columns.collect() });
    }
    bar.finish_and_clear();
    let settings =
        Settings { quick: false, repeats: args.repeats, seconds: args.seconds.as_secs_f64() };
    Ok(SendResults { bench: "send".to_owned(), settings, rows })
}

/// One window, and what was compared around it.
struct Sample {
    timed: Done,
    verified: u64,
    facts: Facts,
}

/// A row's messages, and the socket that they go by.
#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    buffers: usize,
    times: Times,
    socket: Socket,
}

fn sample(
    args: &SendArgs,
    Shape { size, buffers, times, socket }: Shape,
    way: SendMethod,
    side: Side,
    core: usize,
    library: &Path,
) -> Result<Sample, Failure> {
    let listener = Listener::new(socket)?;
    let fresh = times == Times::Once;
    let plan = SendPlan { size, buffers, fresh, way, address: listener.address()? };
    let mut command = side.own_command(sender::NAME, library)?;
    command.arg(serde_json::to_string(&plan).expect("a plan can be written"));
    let mut sender = ServerProcess::launch(command, side, "sender", &[core])?;
    let mut receiver = Receiver::new(listener.accept()?, size);
    let measured = windows(args, &plan, &mut sender, &mut receiver);
    let timed = measured.map_err(|e| sender.explain(e))?;
    let facts = sender.facts();
    sender.stop()?;
    if side == Side::Uncopy && !timed.preloaded {
        return Err(failure!("{} was not loaded into the sender", library.display()));
    }
    Ok(Sample { timed, verified: receiver.verified, facts })
}

fn windows(
    args: &SendArgs,
    plan: &SendPlan,
    sender: &mut ServerProcess,
    receiver: &mut Receiver,
) -> Result<Done, Failure> {
    // Messages so far, which the content goes on from.
    let mut sent = 0;
    let verify = Order { messages: args.verify, nanos: 0 };
    let window = |time: Duration| Order {
        messages: 0,
        nanos: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
    };
    // Also where nothing is to be compared: it tells whether this way works at all.
    let mut run = |order, compare: bool| {
        let content = |n: u64| plan.content(sent + n);
        let compared = compare.then_some((plan.size, &content as &dyn Fn(u64) -> u64));
        let done = receiver.carry_out(sender, order, compared)?;
        sent += done.messages;
        Ok::<_, Failure>(done)
    };
    let first = run(verify, true)?;
    if first.refused.is_some() {
        return Ok(first);
    }
    run(window(args.seconds / 4), false)?;
    let timed = run(window(args.seconds), false)?;
    run(verify, true)?;
    Ok(timed)
}

fn column(way: SendMethod, side: Side, samples: &[Sample]) -> Column {
    let cpu =
        || samples.iter().map(|s| quotient(s.timed.cpu_ns as f64 / 1e3, s.timed.messages as f64));
    let rate = || {
        samples.iter().map(|s| quotient(s.timed.messages as f64 * 1e9, s.timed.elapsed_ns as f64))
    };
    let by_reference = |i: usize| samples.iter().map(|s| s.timed.sent_by_reference[i]).sum::<u64>();
    let [done, copied] = [by_reference(0), by_reference(1)];
    Column {
        way,
        side,
        refused: samples.iter().find_map(|s| s.timed.refused.clone()),
        cpu_us: round(median(cpu()), 2),
        cpu_us_spread: spread(cpu(), 2),
        messages_per_s: round(median(rate()), 1),
        messages_per_s_spread: spread(rate(), 1),
        copied_share: (done > 0).then(|| round(copied as f64 / done as f64, 4)),
        verified_messages: samples.iter().map(|s| s.verified).sum(),
        facts: samples.first().map(|s| s.facts.clone()).unwrap_or_default(),
    }
}

/// The column's headline.
pub fn name(column: &Column) -> &'static str {
    match column.side {
        Side::Uncopy => "send, uncopy",
        Side::Again => "send, again",
        _ => column.way.text(),
    }
}

fn table(rows: &[SendRow]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "socket", "times", "buffers", "size", "way", "CPU", "spread", "of send", "MB/s", "copied",
    ]);
    for row in rows {
        let plain = row.columns.first().map_or(0.0, |c| c.cpu_us);
        for (i, column) in row.columns.iter().enumerate() {
            let shape = [
                format!("{:?}", row.socket).to_lowercase(),
                format!("{:?}", row.times).to_lowercase(),
                row.buffers.to_string(),
                units::size(row.size as u64),
            ];
            let mut cells = if i == 0 { shape.to_vec() } else { vec![String::new(); 4] };
            cells.push(name(column).to_owned());
            if let Some(why) = &column.refused {
                cells.push(shortened(why));
            } else {
                let [low, high] = column.cpu_us_spread;
                cells.extend([
                    format!("{:.1}", column.cpu_us),
                    format!("{low:.1}-{high:.1}"),
                    format!("{:.2}", quotient(column.cpu_us, plain)),
                    units::grouped((column.messages_per_s * row.size as f64 / 1e6) as u64),
                    column.copied_share.map_or_else(String::new, |s| format!("{:.0}%", s * 100.0)),
                ]);
            }
            table.add_row(cells);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The part of a refusal that fits into a table.
pub fn shortened(why: &str) -> String {
    why.split([' ', ':']).next().filter(|w| w.starts_with('E')).unwrap_or("unsafe").to_owned()
}
