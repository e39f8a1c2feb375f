//! Whether a copy is worth eliding.
//!
//! What this room is asked stands in [`Policy`], under the tracker's lock; in [`Pauses`] and [`CopyPrices`], without one; and what
//! it did in [`Records`], for readers in other processes. All else is its own.
//!
//! | module | one idea |
//! | --- | --- |
//! | `site` | which account a copy belongs to |
//! | `regime` | who decides: accounts, or all call sites alike |
//! | `policy` | the accounts of all call sites |
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

mod copy_prices;
mod costs;
mod estimate;
mod pauses;
mod policy;
mod reasons;
mod records;
mod regime;
mod scale;
mod site;
mod trial;
mod window;

pub use self::copy_prices::CopyPrices;
pub use self::costs::{BadCosts, COLD_OUTPUT, COLD_OUTPUT_8THS, Costs, LEND_MIN};
pub use self::pauses::{Pauses, UNTIL_THEN};
pub use self::policy::{AUDIT, CREDIT_MAX, Policy};
pub use self::reasons::{REASONS, Reason};
pub use self::records::{RECORDS, Record, Records, UNTRIED};
pub use self::regime::Regime;
pub use self::scale::Charged;
pub use self::site::{CLASS_BITS, PAUSES, SiteId};
pub use self::trial::Outcome;
pub use self::window::Times;
