//! The shortest part of a script that still fails (delta debugging).

use crate::script::{Line, Script};

/// Leaves out lines, as many as possible, such that `fails` still says so. `fails` is asked at most
/// `tries` times.
pub fn shrink(script: &Script, tries: usize, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut left = tries;
    let mut best = script.clone();
    let mut ask = |lines: Vec<Line>| {
        if left == 0 {
            return None;
        }
        left -= 1;
        let candidate = script.with_lines(lines);
        fails(&candidate).then_some(candidate)
    };
    let mut chunk = best.lines.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        // From the end: what comes after the failure goes at once.
        while at < best.lines.len() {
            let end = best.lines.len() - at;
            let start = end.saturating_sub(chunk);
            let mut lines = best.lines.clone();
            lines.drain(start..end);
            match ask(lines) {
                Some(candidate) => {
                    best = candidate;
                    shorter = true;
                }
                None => at += end - start,
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !shorter {
            break;
        }
    }
    // Without threads of their own, if it fails so too.
    for i in 0..best.lines.len() {
        if best.lines[i].fresh {
            let mut lines = best.lines.clone();
            lines[i].fresh = false;
            best = ask(lines).unwrap_or(best);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Profile, generate};
    use crate::op::Op;

    #[test]
    fn only_the_lines_that_matter_are_left() {
        let script = generate(5, &Profile::default());
        // "Fails" when an input comes before a copy that comes before an output.
        let fails = |s: &Script| {
            let find = |from: usize, f: fn(&Op) -> bool| {
                (from..s.lines.len()).find(|i| f(&s.lines[*i].op))
            };
            find(0, |o| matches!(o, Op::Input { .. }))
                .and_then(|i| find(i, |o| matches!(o, Op::Copy { .. })))
                .and_then(|i| find(i, |o| matches!(o, Op::Output { .. })))
                .is_some()
        };
        assert!(fails(&script));
        let short = shrink(&script, 10_000, fails);
        assert_eq!(short.lines.len(), 3, "{short}");
        assert!(fails(&short));
    }

    #[test]
    fn no_more_is_asked_than_was_permitted() {
        let script = generate(5, &Profile::default());
        let mut asked = 0;
        shrink(&script, 7, |_| {
            asked += 1;
            false
        });
        assert_eq!(asked, 7);
    }
}
