//! Costs of operations, and their text form, by which measured prices travel from `uncopy doctor`
//! to the library: `copy_mb=55000,fault=11000,...`: names of the fields with whole ns. A field that
//! is not named has its cost on the reference machine.

use crate::event::Event;
use core::fmt;
use uncopy_ranges::span::PAGE;

macro_rules! prices {
    ($( $(#[doc = $doc:literal])* $name:ident $ns:literal )*) => {
        /// Costs on this machine, in ns.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Costs { $( $(#[doc = $doc])* pub $name: i64, )* }

        impl Costs {
            /// Measured on the reference machine (see the README's tables).
            pub const REFERENCE: Self = Self { $( $name: $ns ),* };
        }

        type Field = (&'static str, fn(&mut Costs) -> &mut i64);
        const FIELDS: &[Field] = &[ $( (stringify!($name), |c| &mut c.$name) ),* ];
    };
}

prices! {
    /// Copying 1 MB, most of it in the cache (cold it takes 144 us on the reference machine, hot
    /// 30): what is copied has just been received.
    copy_mb 40_000
    /// The books of a copy that does what the last one did.
    again 120
    /// The books of any other elided copy.
    elide 500
    /// Looking at a copy in vain.
    look 250
    /// Receiving into an extent instead of in place.
    input 500
    /// Gathering an output from extents; its bytes cost a part of what copying them would.
    output 300
    /// One fault, handled by the thread on another core.
    fault 11_000
    /// The same on the same core.
    fault_near 3_000
    /// Each page that a fault fills.
    fill 1_000
    /// Each page that the kernel provides anew, cleared.
    fresh 1_200
    /// One `UFFDIO_MOVE` call.
    move_pages 2_000
    /// Each page of it.
    move_page 60
    /// One `UFFDIO_REGISTER` call.
    register 1_500
    /// A refusal by the kernel: the call, and what follows because of it.
    refused 20_000
    /// The kernel's copying of 1 MB from memory into a socket.
    send_mb 60_000
    /// Handing pages to the kernel: each call.
    lend 4_000
    /// The same: each page.
    lend_page 60
    /// Dropping a page that was lent and getting another.
    drop_page 1_300
}

impl Costs {
    /// From how many bytes on a send by reference costs less than the kernel's copying;
    /// `usize::MAX`: never.
    pub fn lend_from(&self) -> usize {
        let gain = self.send_mb * PAGE as i64 / (1 << 20) - self.lend_page;
        if gain <= 0 {
            return usize::MAX;
        }
        let pages = self.lend / gain + 1;
        (pages as usize * PAGE).max(LEND_MIN)
    }
}

/// So many at `ns` each: no more than can be added up.
#[inline]
pub(crate) fn each(many: usize, ns: i64) -> i64 {
    i64::try_from(many).unwrap_or(i64::MAX).saturating_mul(ns).min(1 << 52)
}

impl Costs {
    /// The cost of copying `bytes`, in ns.
    #[inline]
    pub fn copying(&self, bytes: usize) -> i64 {
        each(bytes, self.copy_mb) >> 20
    }

    /// The cost of `event`, in ns, where the copy that it is about, if any, is counted as executed
    /// elsewhere; less than nothing where that is saved. `near`: faults are answered on the core
    /// that took them.
    pub fn of(&self, event: Event, near: bool) -> i64 {
        let c = self;
        let fault = if near { c.fault_near } else { c.fault };
        let warm = |bytes| c.copying(bytes) * WARM_8THS / 8;
        match event {
            Event::ElidedAgain { bytes } => c.again - c.copying(bytes),
            Event::Elided { bytes } => c.elide - c.copying(bytes),
            Event::Looked => c.look,
            Event::CopiedOut { bytes } => c.elide + warm(bytes),
            Event::Received => c.input,
            // (As much to look up and to change as a copy that does what the last one did.)
            Event::Freed => c.again,
            Event::Gathered { bytes, cold } => {
                // (A few cold bytes are a cache line or two.)
                let start = if cold >= PAGE { COLD_OUTPUT } else { 0 };
                let reading =
                    warm(bytes.saturating_sub(cold)) + c.copying(cold) * COLD_OUTPUT_8THS / 8;
                c.output + start + reading
            }
            Event::Lent { bytes, pages } => {
                c.lend + each(pages, c.lend_page) - (each(bytes, c.send_mb) >> 20)
            }
            Event::Dropped { pages } => each(pages, c.drop_page),
            Event::Registered => c.register,
            Event::Refused => c.refused,
            Event::Moved { calls, pages } => {
                each(calls as usize, c.move_pages) + each(pages, c.move_page)
            }
            Event::Untracked { pages } => c.register + each(pages, c.fresh),
            Event::Materialized { pages } => c.move_pages + each(pages, c.fill),
            // (Less than half of what their faults would cost.)
            Event::Populated { pages } => c.move_pages + each(pages, c.fresh) * 2 / 5,
            Event::Fault { pages } => fault + each(pages, c.fill),
            Event::Reused => fault,
            Event::Missed(_) | Event::NeverTried | Event::AnswersNear(_) => 0,
            Event::Copied { .. } => 0,
        }
    }
}

/// Least that one call lends, in bytes, whatever the prices are.
pub const LEND_MIN: usize = 32 << 10;

/// How much of a copy's price an output pays for bytes that are not in the cache, besides
/// [`COLD_OUTPUT`]: Redis, which makes one copy of a value that it has not touched for long, loses
/// by eliding it at 64 KB and gains a tenth of its time at most at 512 KB.
pub const COLD_OUTPUT_8THS: i64 = 6;
/// The cost of an output of bytes that are not in the cache, more than of others, in ns: short
/// pieces are over before the processor fetches ahead.
pub const COLD_OUTPUT: i64 = 2_000;

/// How much of a copy's price an output pays for bytes that are in the cache: the copy would have
/// left them one level nearer to the processor, and the next reader waits for what the copy waited
/// for. So of several copies of the same bytes the first saves least.
pub const WARM_8THS: i64 = 2;

/// Largest price, in ns; so the accounts cannot overflow.
pub const MAX: i64 = 1_000_000_000;

/// The error in a text, and the part that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCosts {
    /// Not of the form `NAME=NS`.
    Form(String),
    /// No such price.
    Name(String),
    /// The same price for the second time.
    Twice(String),
    /// Not a whole number, or not one that is accepted.
    Value(String),
}

impl fmt::Display for BadCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(part) => write!(f, "'{part}' is not NAME=NS"),
            Self::Name(name) => {
                let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
                write!(f, "no price is called '{name}'; there are {}", names.join(", "))
            }
            Self::Twice(name) => write!(f, "{name} is given twice"),
            Self::Value(part) => write!(f, "'{part}' is not a whole number of ns in 0..{MAX}"),
        }
    }
}

impl Costs {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`BadCosts`], for the first part that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadCosts> {
        let mut costs = Self::REFERENCE;
        let mut given = [false; FIELDS.len()];
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| BadCosts::Form(part.to_owned()))?;
            let i = FIELDS
                .iter()
                .position(|(n, _)| *n == name)
                .ok_or_else(|| BadCosts::Name(name.to_owned()))?;
            if core::mem::replace(&mut given[i], true) {
                return Err(BadCosts::Twice(name.to_owned()));
            }
            *FIELDS[i].1(&mut costs) = value
                .parse()
                .ok()
                .filter(|ns| (0..=MAX).contains(ns))
                .ok_or_else(|| BadCosts::Value(part.to_owned()))?;
        }
        Ok(costs)
    }

    /// Names and prices.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let mut costs = *self;
        FIELDS.iter().map(move |(name, field)| (*name, *field(&mut costs)))
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prices: Vec<_> = self.iter().map(|(name, ns)| format!("{name}={ns}")).collect();
        f.write_str(&prices.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_costs_are_read_back_every_price_in_its_place() {
        let mut costs = Costs::REFERENCE;
        for (i, (_, field)) in FIELDS.iter().enumerate() {
            *field(&mut costs) = i as i64;
        }
        assert_eq!(Costs::parse(&costs.to_string()), Ok(costs));
        assert!(costs.to_string().starts_with("copy_mb=0,again=1,"), "{costs}");
    }

    #[test]
    fn an_event_that_is_not_named_costs_what_it_does_on_the_reference_machine() {
        let costs = Costs::parse(" fault=9000, copy_mb=0 ").unwrap();
        assert_eq!(costs, Costs { fault: 9000, copy_mb: 0, ..Costs::REFERENCE });
        assert_eq!(Costs::parse(""), Ok(Costs::REFERENCE));
    }

    #[test]
    fn sending_by_reference_pays_from_fewer_bytes_the_dearer_copying_is_and_never_where_it_is_cheap()
     {
        let copying = |send_mb| Costs { send_mb, ..Costs::REFERENCE }.lend_from();
        assert_eq!([60_000, 180_000, 10_000].map(copying), [23 * PAGE, LEND_MIN, usize::MAX]);
    }

    #[test]
    fn each_mistake_is_named() {
        let said = |text| Costs::parse(text).unwrap_err().to_string();
        assert_eq!(said("fault"), "'fault' is not NAME=NS");
        assert!(said("falt=1").starts_with("no price is called 'falt'; there are copy_mb, again"));
        assert_eq!(said("fault=1,fault=2"), "fault is given twice");
        for bad in ["fault=", "fault=-1", "fault=1.5", "fault=1000000001", "fault= 1"] {
            assert!(said(bad).starts_with(&format!("'{bad}' is not a whole number")), "{bad}");
        }
    }
}
