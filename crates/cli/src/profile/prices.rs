//! The prices for the prediction: given ones, those that `uncopy doctor` keeps, or what is measured
//! as the profile begins.

use uncopy_decide::Costs;
use uncopy_measure::cache;
use uncopy_options::COSTS;

use crate::doctor::{FURTHEST, quick};

/// The prices, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Prices in ns.
    pub costs: Costs,
    /// Where they are from.
    pub origin: Origin,
}

/// Where prices are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A variable has them.
    Given,
    /// `uncopy doctor` measured them on this machine.
    Kept,
    /// They were measured as the profile began; those of faults are the reference machine's, if
    /// there is a reason.
    Measured(Option<String>),
    /// All are the reference machine's, for this reason.
    Reference(String),
}

impl Prices {
    /// Those that hold here.
    pub fn find() -> Self {
        let parsed = |text: String| Costs::parse(&text).ok();
        if let Some(costs) = std::env::var(COSTS).ok().and_then(parsed) {
            return Self { costs, origin: Origin::Given };
        }
        if let Some(costs) = cache::handed_on().and_then(parsed) {
            return Self { costs, origin: Origin::Kept };
        }
        match quick::costs() {
            Ok((costs, refused)) => {
                Self { costs, origin: Origin::Measured(refused.map(|why| why.to_string())) }
            }
            Err(why) => {
                Self { costs: Costs::REFERENCE, origin: Origin::Reference(why.to_string()) }
            }
        }
    }

    /// The prices' origin, for people.
    pub fn words(&self) -> String {
        let from = match &self.origin {
            Origin::Given => format!("as {COSTS} has them"),
            Origin::Kept => "as 'uncopy doctor' measured them on this machine".to_owned(),
            Origin::Measured(None) => "measured on this machine as the profile began".to_owned(),
            Origin::Measured(Some(why)) => format!(
                "measured on this machine as the profile began; those of faults are the reference \
                 machine's ({why})"
            ),
            Origin::Reference(why) => format!("the reference machine's ({why})"),
        };
        let Costs { copy_mb, fault, fill, fresh, .. } = self.costs;
        let [copy_mb, fault, fill, fresh] = [copy_mb, fault, fill, fresh].map(short);
        format!(
            "prices: {from}. Copying 1 MB {copy_mb}, a fault {fault} and {fill} for each page that \
             it fills, a new page {fresh}{}",
            self.doubtful()
        )
    }

    /// A remark on measured prices that are as far from the reference machine's as they may be, and
    /// what to do.
    fn doubtful(&self) -> String {
        if !matches!(self.origin, Origin::Kept | Origin::Measured(_)) {
            return String::new();
        }
        let (of, reference) = (&self.costs, &Costs::REFERENCE);
        let bounded: Vec<&str> = [
            ("copying", of.copy_mb, reference.copy_mb),
            ("a fault", of.fault, reference.fault),
            ("a page that it fills", of.fill, reference.fill),
            ("a new page", of.fresh, reference.fresh),
        ]
        .iter()
        .filter(|(_, here, there)| *here <= there / FURTHEST || *here >= there * FURTHEST)
        .map(|(name, ..)| *name)
        .collect();
        if bounded.is_empty() {
            return String::new();
        }
        format!(
            " (at the bound of what is believed, a quarter or {FURTHEST} times the reference \
             machine's: {}. The machine was busy, then: 'uncopy doctor' while it is idle measures \
             them, and later profiles use those)",
            bounded.join(", ")
        )
    }

    /// For programs: where they are from, and why not measured.
    pub fn name(&self) -> (&'static str, Option<&str>) {
        match &self.origin {
            Origin::Given => ("given", None),
            Origin::Kept => ("kept", None),
            Origin::Measured(why) => ("measured", why.as_deref()),
            Origin::Reference(why) => ("reference", Some(why.as_str())),
        }
    }
}

/// A price in the unit that suits it.
fn short(ns: i64) -> String {
    if ns < 1000 { format!("{ns} ns") } else { format!("{:.1} us", ns as f64 / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_prices_were_used_is_said_and_which_of_them_could_not_be_measured() {
        let of = |origin| Prices { costs: Costs { fill: 900, ..Costs::REFERENCE }, origin };
        let said = of(Origin::Measured(None)).words();
        assert_eq!(
            said,
            "prices: measured on this machine as the profile began. Copying 1 MB 40.0 us, a fault \
             11.0 us and 900 ns for each page that it fills, a new page 1.2 us"
        );
        let said = of(Origin::Measured(Some("no userfaultfd".to_owned()))).words();
        assert!(said.contains("those of faults are the reference machine's (no userfaultfd)"));
        let said = of(Origin::Reference("no memory".to_owned())).words();
        assert!(said.starts_with("prices: the reference machine's (no memory). Copying"), "{said}");
    }

    #[test]
    fn a_measured_price_at_its_bound_is_said_to_be_doubtful() {
        let of =
            |fault, origin| Prices { costs: Costs { fault, ..Costs::REFERENCE }, origin }.words();
        let most = Costs::REFERENCE.fault * FURTHEST;
        let said = of(most, Origin::Measured(None));
        assert!(said.contains("machine's: a fault. The machine was busy"), "{said}");
        assert!(of(most, Origin::Kept).contains("'uncopy doctor' while it is idle"));
        assert!(!of(most - 1, Origin::Measured(None)).contains("bound"));
        assert!(!of(most, Origin::Given).contains("bound"), "given prices are the user's own");
    }
}
