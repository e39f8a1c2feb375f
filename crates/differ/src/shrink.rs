//! The shortest part of a script that still fails (delta debugging).

use crate::script::{Line, Script};

/// Leaves out lines, as many as possible, such that `fails` still says so. `fails` is asked at most
/// `tries` times.
pub fn shrink(script: &Script, tries: usize, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut left = tries;
    let mut best = script.clone();
    let mut ask = |candidate: Script| {
        left = left.checked_sub(1)?;
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
            let mut lines: Vec<Line> = best.lines.clone();
            lines.drain(start..end);
            match ask(best.with_lines(lines)) {
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
    // Without the last connections, where nothing needs them.
    while best.connections.len() > 1 {
        let mut candidate = best.clone();
        candidate.connections.pop();
        let Some(fewer) = ask(candidate) else { break };
        best = fewer;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;
    use crate::op::Op;

    #[test]
    fn only_the_lines_that_matter_are_left() {
        let script = generate(5, 60);
        // "Fails" when something is sent before something is received.
        let fails = |s: &Script| {
            let sends = s.lines.iter().position(|l| matches!(l.op, Op::Send { .. }));
            let receives = s.lines.iter().rposition(|l| matches!(l.op, Op::Recv { .. }));
            sends.zip(receives).is_some_and(|(s, r)| s < r)
        };
        assert!(fails(&script));
        let short = shrink(&script, 10_000, fails);
        assert_eq!((short.lines.len(), short.connections.len()), (2, 1), "{short}");
    }

    #[test]
    fn no_more_is_asked_than_was_permitted() {
        let mut asked = 0;
        shrink(&generate(5, 60), 7, |_| {
            asked += 1;
            false
        });
        assert_eq!(asked, 7);
    }
}
