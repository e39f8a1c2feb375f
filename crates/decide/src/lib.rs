//! Whether a copy is worth eliding.
//!
//! The tracker has one door to it, [`Control`]: through it a [`Controller`] is told [`Event`]s and asked whether to [`Act`], and a [`Witness`]
//! may see all that passes. [`Pauses`] and [`CopyPrices`] are for those who hold no lock; [`Records`] say what was done, to readers in other
//! processes. All else is its own.
//!
//! | module | one idea |
//! | --- | --- |
//! | `event` | what a controller is told, and what it is asked |
//! | `controller` | who decides |
//! | `control` | what the tracker holds: a controller, and a clock for it |
//! | `deed` | what a program did, as far as it can be done again |
//! | `choice` | which controllers there are |
//! | `fixed` | one that learns nothing |
//! | `ladder` | one of two rules: one experiment, and a brake for each site |
//! | `site` | which account a copy belongs to |
//! | `regime` | who decides: accounts, or all call sites alike |
//! | `policy` | one with an account for each call site |
//! | `costs` | what things cost, and the text form of that |
//! | `copy_prices` | what copies cost in this very program |
//! | `scale` | how much dearer our own calls are in it |
//! | `estimate` | how such an estimate follows its samples |
//! | `window` | whether what a site saves is worth having |
//! | `trial` | whether a program gains if all sites elide, or none does, where each for itself does not |
//! | `pauses` | which call sites are left alone, readable without a lock |
//! | `reasons` | why a copy is not elided |
//! | `records` | what was decided and done for each call site, for readers |
#![forbid(unsafe_code)]

mod choice;
mod control;
mod controller;
mod copy_prices;
mod costs;
mod deed;
mod estimate;
mod event;
mod fixed;
mod ladder;
mod pauses;
mod policy;
mod reasons;
mod records;
mod regime;
mod scale;
mod site;
mod trial;
mod window;

pub use self::choice::{Basis, Choice};
pub use self::control::Control;
pub use self::controller::Controller;
pub use self::copy_prices::CopyPrices;
pub use self::costs::{BadCosts, COLD_OUTPUT, COLD_OUTPUT_8THS, Costs, LEND_MIN, WARM_8THS};
pub use self::deed::{Deed, Witness};
pub use self::event::{Act, Event};
pub use self::fixed::Fixed;
pub use self::ladder::Ladder;
pub use self::pauses::{Pauses, UNTIL_THEN};
pub use self::policy::{AUDIT, CREDIT_MAX, Policy};
pub use self::reasons::{REASONS, Reason};
pub use self::records::{RECORDS, Record, Records, UNTRIED};
pub use self::regime::Regime;
pub use self::scale::Charged;
pub use self::site::{CLASS_BITS, PAUSES, SiteId};
pub use self::trial::Outcome;
pub use self::window::Times;
