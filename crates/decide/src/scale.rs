//! How much dearer our own calls are *in this program* than modelled, measured while it runs.
//!
//! `uncopy doctor` measures in a loop, where our code is in the cache and the branches are known. In a program that
//! runs a quarter of a millisecond of Python between two copies the books take up to three times as long. So calls are timed now
//! and then, and what [`Costs`](crate::costs::Costs) says of them is corrected by what is found.

use crate::estimate::nearer;

/// A kind of our own work. What each costs more in a program than in a loop differs: frees come in the middle of the
/// program's own work, copies often follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Bookkeeping {
    /// For copies that are elided, or looked at.
    Copies,
    /// For input calls that receive into extents.
    Inputs,
    /// For output calls that are gathered from extents.
    Outputs,
    /// For frees of memory that holds views.
    Frees,
}

const KINDS: usize = 4;

/// What was charged for our own calls at modelled prices, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Keeping the books of each kind.
    books: [i64; KINDS],
    /// Calls that change page tables, and clearing pages.
    pages: i64,
}

impl Charged {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (sum, more) in self.books.iter_mut().zip(other.books) {
            *sum += more;
        }
        self.pages += other.pages;
        self
    }

    /// The one kind of books that was charged, and how much; `None`: several, none, or page tables too.
    fn one_kind(&self) -> Option<(usize, i64)> {
        let mut charged = self.books.iter().copied().enumerate().filter(|(_, ns)| *ns > 0);
        let one = charged.next()?;
        (self.pages == 0 && charged.next().is_none()).then_some(one)
    }
}

/// How much dearer keeping the books is here than modelled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scale {
    /// Of each kind, in 256ths; 0: never timed.
    factors: [u32; KINDS],
    charged: Charged,
    /// All that was charged for books of each kind.
    ever: [i64; KINDS],
}

impl Scale {
    const ONE: u32 = 256;
    const LEAST: u32 = Self::ONE / 2;
    const MOST: u32 = Self::ONE * 6;

    #[inline]
    fn factor(&self, kind: usize) -> i64 {
        let factor = self.factors[kind];
        i64::from(if factor == 0 { Self::ONE } else { factor })
    }

    /// What the books of a call cost for which `ns` are modelled.
    #[inline]
    pub(crate) fn books(&mut self, kind: Bookkeeping, ns: i64) -> i64 {
        let kind = kind as usize;
        self.charged.books[kind] += ns;
        self.ever[kind] = self.ever[kind].saturating_add(ns);
        ns.saturating_mul(self.factor(kind)) / i64::from(Self::ONE)
    }

    /// What calls that change page tables cost for which `ns` are modelled: just that. In programs they take two to five times as
    /// long, but they are what a site invests before it can gain, and a price that grows with what was measured while it did
    /// would end each try before the last of its buffers.
    #[inline]
    pub(crate) fn pages(&mut self, ns: i64) -> i64 {
        self.charged.pages += ns;
        ns
    }

    /// What was charged since the last time.
    #[inline]
    pub(crate) fn restart(&mut self) -> Charged {
        core::mem::take(&mut self.charged)
    }

    /// What was `charged` took `ns`.
    pub(crate) fn took(&mut self, charged: Charged, ns: i64) {
        let Some((kind, modelled)) = charged.one_kind() else { return };
        let sample = ns.saturating_mul(i64::from(Self::ONE)) / modelled;
        let sample = sample.clamp(0, i64::from(u32::MAX)) as u32;
        let factor = nearer(self.factor(kind) as u32, sample);
        self.factors[kind] = factor.clamp(Self::LEAST, Self::MOST);
    }

    /// Of all kinds as they were charged, in percent of what is modelled; 0: not known.
    pub(crate) fn percent(&self) -> u64 {
        let modelled: i64 = self.ever.iter().sum();
        let timed = self.factors.iter().any(|f| *f > 0);
        if !timed || modelled <= 0 {
            return 0;
        }
        let scaled = |kind| self.ever[kind] as f64 * self.factor(kind) as f64;
        let scaled: f64 = (0..KINDS).map(scaled).sum();
        (scaled * 100.0 / f64::from(Self::ONE) / modelled as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `s` see 100 calls of `kind` that are modelled to cost 500 ns and take `ns`.
    fn hundred(s: &mut Scale, kind: Bookkeeping, ns: i64) {
        for i in 0..100 {
            s.restart();
            s.books(kind, 500);
            let mut ns = ns;
            if i % 2 == 0 {
                s.pages(4_000);
                ns += 60_000;
            }
            let charged = s.restart();
            s.took(charged, ns);
        }
    }

    #[test]
    fn the_books_find_their_scale_within_some_dozens_of_samples_whatever_page_table_calls_take() {
        let mut s = Scale::default();
        hundred(&mut s, Bookkeeping::Copies, 2_000);
        assert!((360..440).contains(&s.percent()), "{}", s.percent());
        assert!((1_800..2_200).contains(&s.books(Bookkeeping::Copies, 500)));
        assert_eq!(s.pages(4_000), 4_000);
    }

    #[test]
    fn each_kind_of_books_has_its_own_scale_and_one_that_was_never_timed_is_charged_as_modelled() {
        let mut s = Scale::default();
        hundred(&mut s, Bookkeeping::Copies, 100);
        hundred(&mut s, Bookkeeping::Outputs, 1_500);
        assert_eq!(s.books(Bookkeeping::Copies, 500), 250, "half of it is the least");
        assert!((1_400..1_600).contains(&s.books(Bookkeeping::Outputs, 500)));
        assert_eq!(s.books(Bookkeeping::Frees, 500), 500);
    }

    #[test]
    fn what_two_kinds_took_together_is_no_sample() {
        let mut s = Scale::default();
        for _ in 0..100 {
            s.books(Bookkeeping::Copies, 500);
            s.books(Bookkeeping::Frees, 500);
            let charged = s.restart();
            s.took(charged, 100_000);
        }
        assert_eq!(s.books(Bookkeeping::Copies, 500), 500);
    }

    #[test]
    fn a_call_that_was_charged_nothing_is_no_sample() {
        let mut s = Scale::default();
        s.took(Charged::default(), 1_000_000);
        assert_eq!(s.percent(), 0);
    }
}
