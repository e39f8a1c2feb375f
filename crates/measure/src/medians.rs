//! Medians and rounding.

/// The middle of `values` (of an even number the mean of the two middle ones); 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The smallest and the largest of `values`, rounded to `digits` behind the point; zeros of none.
pub fn spread(values: impl IntoIterator<Item = f64>, digits: i32) -> [f64; 2] {
    let both = values
        .into_iter()
        .fold(None, |both: Option<[f64; 2]>, v| {
            let [low, high] = both.unwrap_or([v, v]);
            Some([low.min(v), high.max(v)])
        })
        .unwrap_or_default();
    both.map(|v| round(v, digits))
}

/// `numerator / denominator`, or 0 where that has no meaning.
pub fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

/// Rounds to `digits` behind the point.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
        assert_eq!(spread([2.04, 1.0, 3.0], 1), [1.0, 3.0]);
        assert_eq!(spread([], 1), [0.0, 0.0]);
    }

    #[test]
    fn quotients_and_rounding() {
        assert_eq!(quotient(1.0, 0.0), 0.0);
        assert_eq!(round(quotient(2.0, 3.0), 3), 0.667);
    }
}
