//! TCP by events, for programs that are written for it: the low-level API. A program with an event
//! loop needs no epoll set, no call to ask for bytes and no buffer for them: [`Context::poll`]
//! brings the bytes themselves, and what is not taken of them comes again in front of those that
//! follow.
//!
//! Where both ends of a connection are programs under uncopy on one host, its bytes go through
//! shared memory; everything else is Linux's, and nothing differs for the program. The same
//! interface over Linux' calls alone is [`Carrier::Sockets`]: the same program, to compare with.
//!
//! ```no_run
//! use uncopy_tcp_events::{Context, Listen, Settings};
//!
//! let mut context = Context::new(Settings::default())?;
//! context.listen("127.0.0.1:7".parse().unwrap(), Listen::default())?;
//! loop {
//!     for i in 0..context.poll(None)? {
//!         let connection = context.event(i).connection;
//!         // An echo: what does not go out now is not taken, and comes again when there is room.
//!         let Ok(sent) = context.send_bytes_of(i) else {
//!             context.close(connection);
//!             continue;
//!         };
//!         context.take(i, sent);
//!         if context.is_over(connection) && context.bytes(i).is_empty() {
//!             context.close(connection);
//!         }
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # std::io::Result::Ok(())
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`settings`] | over what, and how it waits |
//! | [`event`] | what happened to which connection |
//! | [`context`] | a thread's connections and their events |
//! | `connection` | what is kept of one between events |
//! | `slots` | connections by number |
//! | [`line`](mod@line) | a connection's bytes, over either stack |
//! | `watch` | a set of them, over either stack |
//! | `calls` | Linux' calls, by libc: where a library is preloaded, they are its own |

mod calls;
mod connection;
pub mod context;
pub mod event;
pub mod line;
pub mod settings;
mod slots;
mod watch;

pub use context::{Context, Listen};
pub use event::{Event, Id, What};
pub use settings::{Carrier, Settings};
pub use uncopy_tcp_socket::Waiting;
