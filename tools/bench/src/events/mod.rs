//! The parts that the benches of event loops share: their options, programs over the low-level API,
//! and a measurement of many rows.
//!
//! Both programs are written for the low-level API. On Linux' side, and where uncopy's side calls
//! sockets, it is over Linux' calls: the same program.

mod args;
mod measure;
mod program;

pub use self::args::PairArgs;
pub use self::measure::measure;
pub use self::program::{Base, ClientArgs, ServerArgs, begin, context, first, orders};
