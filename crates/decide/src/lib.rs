//! Whether a copy is worth eliding.
//!
//! The tracker has one door to it, [`Control`]: through it a [`Controller`] is told [`Event`]s and
//! asked whether to [`Act`], and a [`Observer`] may see all that passes. [`Pauses`] is for those
//! who hold no lock; [`Records`] say what was done, to readers in other processes. All else is its
//! own.
//!
//! | module | one idea |
//! | --- | --- |
//! | `event` | what a controller is told, and what it is asked |
//! | `controller` | who decides |
//! | `control` | what the tracker holds: a controller, and a clock for it |
//! | `operation` | what a program did, as far as it can be done again |
//! | `choice` | which controllers there are |
//! | `fixed` | one that learns nothing |
//! | `site` | which account a copy belongs to |
//! | `policy` | one with an account for each call site |
//! | `experiment` | whether a program gains if its sites elide, or if none does: by trying |
//! | `backoff` | how long what did not pay is left alone |
//! | `costs` | what things cost, and the text form of that |
//! | `pauses` | which call sites are left alone, readable without a lock |
//! | `reasons` | why a copy is not elided, or memory not moved |
//! | `records` | what was decided and done for each call site, for readers |
#![forbid(unsafe_code)]

mod backoff;
mod choice;
mod control;
mod controller;
mod costs;
mod event;
mod experiment;
mod fixed;
mod operation;
mod pauses;
mod policy;
mod reasons;
mod records;
mod site;
mod times;

pub use self::backoff::Backoff;
pub use self::choice::{Basis, Choice};
pub use self::control::Control;
pub use self::controller::Controller;
pub use self::costs::{BadCosts, COLD_OUTPUT, COLD_OUTPUT_8THS, Costs, LEND_MIN, WARM_8THS};
pub use self::event::{Act, Event};
pub use self::experiment::Outcome;
pub use self::fixed::Fixed;
pub use self::operation::{Observer, Operation};
pub use self::pauses::Pauses;
pub use self::policy::{CREDIT, CREDIT_MAX, Policy};
pub use self::reasons::{REASONS, Reason, Refusal};
pub use self::records::{RECORDS, Record, Records, UNTRIED};
pub use self::site::{CLASS_BITS, PAUSES, SiteId};
pub use self::times::Times;
