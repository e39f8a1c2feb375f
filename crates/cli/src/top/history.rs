//! How fast something went lately, as a line of little bars.

use std::collections::VecDeque;

/// Looks that are remembered.
pub const LENGTH: usize = 240;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last values, the newest last.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<u64>);

impl History {
    /// Adds the newest.
    pub fn push(&mut self, value: u64) {
        if self.0.len() == LENGTH {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The last `width` of them, as bars as high as the highest of them allows.
    pub fn bars(&self, width: usize) -> String {
        let shown = || self.0.iter().skip(self.0.len().saturating_sub(width));
        let highest = shown().copied().max().unwrap_or(0).max(1);
        let bar = |v: &u64| match v {
            0 => ' ',
            v => {
                BARS[((u128::from(*v) * 8).div_ceil(u128::from(highest)) as usize).clamp(1, 8) - 1]
            }
        };
        let bars: String = shown().map(bar).collect();
        format!("{bars:>width$}")
    }

    /// The last `width` of them.
    pub fn last(&self, width: usize) -> Vec<u64> {
        self.0.iter().skip(self.0.len().saturating_sub(width)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_values_and_the_newest_is_last() {
        let mut history = History::default();
        for value in [9000, 0, 1, 4, 8] {
            history.push(value);
        }
        assert_eq!(history.bars(4), " ▁▄█");
        assert_eq!(history.bars(7), "  █ ▁▁▁");
        for _ in 0..2 * LENGTH {
            history.push(1);
        }
        assert_eq!(history.last(usize::MAX).len(), LENGTH);
    }
}
