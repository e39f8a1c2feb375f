//! The `UNCOPY_*` variables of the environment: which ones are misspelt and which hold nonsense.

use std::ffi::{OsStr, OsString};

use uncopy_decide::{Choice, Costs};
use uncopy_inject::Plan;
use uncopy_options::{self as options, BadValue, Kind, OPTIONS, Spec};

use crate::failure::Failure;
use crate::{failure, nearest, units};

/// Something to be said about a variable.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The variable.
    pub name: OsString,
    /// The failure.
    pub failure: Failure,
    /// Whether the variable is an option with a value that is not understood, so that it must
    /// not reach the library.
    pub drop: bool,
}

/// Looks through `environment`; variables that `overridden` names are not looked into, as
/// something on the command line takes their place.
pub fn complaints(
    environment: impl Iterator<Item = (OsString, OsString)>,
    overridden: impl Fn(&str) -> bool,
) -> Vec<Complaint> {
    let mut found: Vec<Complaint> = environment
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(b"UNCOPY_"))
        .filter_map(|(name, value)| {
            let shown = name.to_string_lossy().into_owned();
            if let Some(spec) = OPTIONS.iter().find(|s| s.env == shown) {
                if overridden(spec.env) {
                    return None;
                }
                let failure = bad_value(spec, &value)?;
                return Some(Complaint { name, failure, drop: true });
            }
            if shown == options::INJECT {
                let failure = bad_injection(&value)?;
                return Some(Complaint { name, failure, drop: true });
            }
            if shown == options::COSTS {
                let failure = bad_costs(&value)?;
                return Some(Complaint { name, failure, drop: true });
            }
            if shown == options::CONTROLLER {
                let failure = bad_controller(&value)?;
                return Some(Complaint { name, failure, drop: true });
            }
            if options::known(&shown) {
                return None;
            }
            let hint = nearest::variable(&shown).map_or_else(
                || "'uncopy options' lists the variables".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            let failure =
                failure!("{shown} is not a variable of uncopy and has no effect").advise(hint);
            Some(Complaint { name, failure, drop: false })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn bad_value(spec: &Spec, value: &OsStr) -> Option<Failure> {
    let shown = value.to_string_lossy();
    let bad = options::parse(spec, &shown).err()?;
    Some(failure!("{}={shown} is ignored: {}", spec.env, explain(spec, bad)))
}

fn bad_injection(value: &OsStr) -> Option<Failure> {
    let shown = value.to_string_lossy();
    let (part, why) = Plan::parse(&shown).err()?;
    Some(failure!("{}={shown} is ignored: {part}: {why}", options::INJECT))
}

fn bad_costs(value: &OsStr) -> Option<Failure> {
    let shown = value.to_string_lossy();
    let why = Costs::parse(&shown).err()?;
    Some(failure!("{}={shown} is ignored: {why}", options::COSTS))
}

fn bad_controller(value: &OsStr) -> Option<Failure> {
    let shown = value.to_string_lossy();
    if Choice::parse(&shown).is_some() {
        return None;
    }
    let (name, names) = (options::CONTROLLER, Choice::NAMES);
    let failure = failure!("{name}={shown} is ignored: no controller is called so");
    Some(failure.advise(format_args!("there are {names}")))
}

/// Explains what a value of `spec` has to look like, for a user who gave a bad one.
pub fn explain(spec: &Spec, bad: BadValue) -> String {
    match bad {
        BadValue::Range => format!("it must be in {}", range(spec)),
        BadValue::Syntax => match spec.kind {
            Kind::Flag | Kind::FlagOr(_) | Kind::Word(_) => {
                format!("it must be {}", alternatives(spec))
            }
            Kind::Bytes => "it must be a number of bytes such as 65536, 64K or 1M".to_owned(),
            Kind::Count => "it must be a whole number".to_owned(),
        },
    }
}

/// `yes or no`.
fn alternatives(spec: &Spec) -> String {
    let range = range(spec);
    range.rsplit_once(", ").map_or_else(|| range.clone(), |(all, last)| format!("{all} or {last}"))
}

/// The values that `spec` accepts.
pub fn range(spec: &Spec) -> String {
    match spec.kind {
        Kind::Flag => "yes, no".to_owned(),
        Kind::FlagOr(words) => format!("yes, no, {}", words.join(", ")),
        Kind::Word(words) => words.join(", "),
        Kind::Bytes => format!("{}..{}", units::size(spec.min), units::size(spec.max)),
        Kind::Count => format!("{}..{}", spec.min, spec.max),
    }
}

/// The value that `spec` has when nothing is said.
pub fn default_text(spec: &Spec) -> String {
    match spec.kind {
        Kind::Bytes => units::size(spec.default),
        Kind::Flag | Kind::FlagOr(_) | Kind::Word(_) | Kind::Count => {
            options::text(spec, spec.default)
        }
    }
}

/// Says on standard error what is wrong with this process's own environment and gives the
/// complaints back.
pub fn report(overridden: impl Fn(&str) -> bool) -> Vec<Complaint> {
    let found = complaints(std::env::vars_os(), overridden);
    for complaint in &found {
        crate::outcome::complain(&complaint.failure);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pairs: &[(&str, &str)]) -> Vec<Complaint> {
        complaints(pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())), |_| false)
    }

    #[test]
    fn a_misspelt_variable_is_told_its_neighbour() {
        let found = look(&[("UNCOPY_TRESHOLD", "1"), ("HOME", "/"), ("UNCOPY_LIBRARY", "/x")]);
        assert_eq!(found.len(), 1);
        let hint = "did you mean UNCOPY_THRESHOLD?";
        assert_eq!(found[0].failure.advice(), Some(hint));
        assert!(!found[0].drop);
    }

    #[test]
    fn bad_values_are_dropped_with_a_reason() {
        let found = look(&[("UNCOPY_THRESHOLD", "1"), ("UNCOPY_ELIDE", "perhaps")]);
        assert!(found.iter().all(|c| c.drop));
        assert!(
            found[0].failure.to_string().contains("yes or no"),
            "{}",
            found[0].failure.to_string()
        );
        assert!(
            found[1].failure.to_string().contains("8K..1G"),
            "{}",
            found[1].failure.to_string()
        );
    }

    #[test]
    fn a_bad_injection_is_dropped_whole_with_the_part_that_is_wrong() {
        let found = look(&[("UNCOPY_INJECT", "move:EBUSY:1/10,mvoe:1/2")]);
        assert!(found[0].drop && found[0].failure.to_string().contains("mvoe:1/2: no such call"));
        assert!(look(&[("UNCOPY_INJECT", "all:1/50,seed=3")]).is_empty());
    }

    #[test]
    fn bad_costs_are_dropped_whole_with_what_is_wrong() {
        let found = look(&[("UNCOPY_COSTS", "fault=1000,copy=5")]);
        assert!(
            found[0].drop
                && found[0].failure.to_string().contains("is ignored: no price is called 'copy'")
        );
        assert!(look(&[("UNCOPY_COSTS", "fault=1000")]).is_empty());
    }

    #[test]
    fn an_overridden_variable_is_left_alone() {
        let bad = [("UNCOPY_THRESHOLD".into(), "many".into())];
        assert!(complaints(bad.into_iter(), |name| name == "UNCOPY_THRESHOLD").is_empty());
    }
}
