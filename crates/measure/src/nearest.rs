//! The likeliest meaning of a misspelt name.

use strsim::levenshtein;
use uncopy_options::OPTIONS;

/// The option's variable nearest to a misspelt one, if one is near.
pub fn variable(given: &str) -> Option<&'static str> {
    let names = OPTIONS.iter().map(|spec| (levenshtein(spec.env, given), spec.env));
    names.min().filter(|(distance, _)| *distance <= 4).map(|(_, name)| name)
}

/// The one of `names` nearest to a misspelt one, if one is near: of a third of its length, or its
/// beginning.
pub fn name<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&&str| levenshtein(name, given);
    let near = |name: &&&str| {
        distance(name) <= 1 + name.len() / 3 || (given.len() >= 2 && name.starts_with(given))
    };
    names.iter().filter(near).min_by_key(distance).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_finds_its_neighbour() {
        assert_eq!(variable("UNCOPY_TRESHOLD"), Some("UNCOPY_THRESHOLD"));
        assert_eq!(variable("UNCOPY_COMPLETELY_DIFFERENT"), None);
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour_and_only_a_near_one() {
        let names = ["threshold", "verbose", "lend", "library"];
        assert_eq!(name("tresh", &names), Some("threshold"));
        assert_eq!(name("verbsoe", &names), Some("verbose"));
        assert_eq!(name("lib", &names), Some("library"));
        for other in ["x", "", "quiet", "file"] {
            assert_eq!(name(other, &names), None, "{other}");
        }
    }
}
