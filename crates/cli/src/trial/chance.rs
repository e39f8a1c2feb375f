//! Student's distribution: how far chance goes.

/// How often chance takes a mean `t` standard errors and more above nothing, where the error is
/// known with so much freedom.
pub fn beyond(t: f64, freedom: u32) -> f64 {
    // Abramowitz and Stegun, 26.7.3 and 26.7.4.
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = if odd { (cos, cos) } else { (1.0, 1.0) };
    let mut n = if odd { 3 } else { 2 };
    while n < freedom {
        term *= cos * cos * f64::from(n - 1) / f64::from(n);
        sum += term;
        n += 2;
    }
    let within = match (odd, freedom) {
        (true, 1) => 2.0 / std::f64::consts::PI * angle,
        (true, _) => 2.0 / std::f64::consts::PI * (angle + sin * sum),
        (false, _) => sin * sum,
    };
    (1.0 - within) / 2.0
}

/// How many standard errors chance exceeds so often.
pub fn limit(chance: f64, freedom: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if beyond(middle, freedom) > chance { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_distribution_are_met() {
        for (freedom, chance, t) in [
            (1, 0.05, 6.314),
            (4, 0.001, 7.173),
            (5, 0.025, 2.571),
            (6, 0.001, 5.208),
            (11, 0.001, 4.025),
            (30, 0.05, 1.697),
            (120, 0.005, 2.617),
        ] {
            assert!((limit(chance, freedom) - t).abs() < 1e-3 * t, "{freedom}, {chance}");
        }
        assert_eq!(beyond(0.0, 7), 0.5);
        assert!(beyond(-2.571, 5) > 0.97);
    }
}
