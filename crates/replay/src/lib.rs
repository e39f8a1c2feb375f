//! Recorded programs done again with any controller, on paper: the same every time, in
//! milliseconds.
//!
//! The program's operations are done again, in order, with the real tracker ([`uncopy_core`]) on
//! memory that knows of each page only whether it is there. So *which* copies become views, what
//! has to be moved, staged or filled for it, and which touches fault, is what the library does, not
//! a model of it. Modelled are:
//!
//! - *Time*: what an event costs is what `uncopy doctor` has measured where the recording was made
//!   (or says: [`Costs::of`](uncopy_decide::Costs::of)): never what else changes with it, such as
//!   which data lies in the caches, but for what the prices of cold and warm outputs say. The
//!   program's own time is what was recorded, less what the recorded controller's events cost, and
//!   so is the time that the controller is told.
//! - *Touches*: those are known that faulted when it was recorded. A copy that was not elided then
//!   shows none, so recordings for comparing controllers are made with `always`, where each first
//!   touch faults.
//! - *Order*: threads are done again one after the other, as they held the lock; a call's own
//!   waiting changes nothing.
//! - *Pages* are there unless the tracker has moved them away; what the kernel refused when it was
//!   recorded it refuses again, as often.
//! - *Gains that no event shows* (data that is not in the cache any more, a peer that is woken
//!   later) can be had as so many ns for each elided copy, or for each MB of it: [`Unseen`].
//!
//! Not modelled: sending by reference (such outputs are gathered), kept files, other stacks'
//! regions, forked children, memory that the program excludes (it shows as refusals), and what was
//! received by calls that the library did not see.
//!
//! | module | one idea |
//! | --- | --- |
//! | `paper` | memory that only knows which pages are there |
//! | `stage` | what lives as long as a process, for one replay after the other |
//! | `tally` | what happened, added up |
//! | `play` | the program, done again |
//! | `hindsight` | the best that could have been done |
//! | `table` | what each controller makes of a recording, as text |
#![forbid(unsafe_code)]

mod hindsight;
mod paper;
mod play;
mod stage;
mod table;
mod tally;

pub use self::hindsight::hindsight;
pub use self::play::{Outcome, Unseen, play, recorded};
pub use self::stage::Stage;
pub use self::table::{CHOICES, play_choice, table};
pub use self::tally::Tally;
