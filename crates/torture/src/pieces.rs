//! How vectored calls cut their buffer.

use crate::bytes::mix;

/// Cuts `0..len` into about `count` parts of uneven lengths (some empty), given in an order that is
/// not that of their addresses. Each is (offset, length).
pub fn pieces(len: usize, count: usize, key: u64) -> Vec<(usize, usize)> {
    if count <= 1 {
        return vec![(0, len)];
    }
    let mut cuts: Vec<usize> =
        (1..count as u64).map(|i| (mix(key ^ i) % (len as u64 + 1)) as usize).collect();
    // Some cuts lie on pages.
    for c in cuts.iter_mut().step_by(3) {
        *c &= !4095;
    }
    cuts.sort_unstable();
    let mut parts = Vec::with_capacity(count);
    let mut start = 0;
    for end in cuts.into_iter().chain([len]) {
        parts.push((start, end - start));
        start = end;
    }
    let turn = mix(key) as usize % parts.len();
    parts.rotate_left(turn);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for key in 0..200 {
            let len = (mix(key) % 100_000) as usize;
            let mut parts = pieces(len, (key % 60) as usize, key);
            parts.sort_unstable();
            let mut at = 0;
            for (start, n) in parts {
                assert_eq!(start, at);
                at += n;
            }
            assert_eq!(at, len);
        }
    }
}
