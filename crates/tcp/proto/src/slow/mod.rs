//! The slow path (TAS, 3.2.2): everything that does not happen to every segment.
//!
//! | file | one idea |
//! | --- | --- |
//! | `commands` | what applications ask for |
//! | `handshake` | how connections begin |
//! | `exceptions` | segments that an established connection does not expect; resets |
//! | `end` | how connections end: FIN, TIME_WAIT, the slot's return |
//! | `timers` | what happens when nothing happens; congestion control |
//! | `path_mtu` | what the way has no room for |

mod commands;
mod end;
mod exceptions;
mod handshake;
mod path_mtu;
mod timers;
