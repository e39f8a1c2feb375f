//! An echo server that copies every message before it sends the last copy back, and what it costs
//! on each side.
//!
//! | file | one idea |
//! | --- | --- |
//! | `args`, `plan` | its options; what the server is told and tells |
//! | `server`, `connection` | the server, a hidden subcommand of the program that measures |
//! | `load`, `turns` | what drives it; servers side by side, in turns |
//! | `measure`, `rows` | the rows in order; from single windows to medians |
//! | `chart`, `summary` | bars for a terminal; a row in words |

mod args;
mod chart;
mod connection;
mod load;
mod measure;
mod plan;
mod rows;
pub mod server;
mod summary;
mod turns;

pub use args::EchoArgs;
pub use chart::chart;
pub use measure::measure;
pub use plan::{Checksum, Places, Touched};
pub use rows::{Compared, Results, Row};
pub use summary::{ratio, touch_text};
