//! From values to places on an axis, and where its ticks are.

use uncopy_measure::units;

/// How values are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// A logarithmic scale: powers of ten.
    Log,
    /// A logarithmic scale: powers of two.
    Log2,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1,234 or 12k.
    Number,
    /// 64K.
    Bytes,
    /// 0.06 as 6%.
    Percent,
    /// 1.5x.
    Times,
}

impl Unit {
    /// A tick's label.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Bytes => units::size(value.round() as u64),
            Self::Percent => format!("{}%", short(value * 100.0)),
            Self::Times => format!("{}×", short(value)),
            Self::Number => short(value),
        }
    }
}

/// At most three significant digits, thousands as `k`, millions as `M`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (value, suffix) = match size {
        _ if size >= 999_500.0 => (value / 1e6, "M"),
        _ if size >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// An axis with its bounds known.
#[derive(Clone, Debug)]
pub struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    /// Where zero is put on a logarithmic axis.
    zero: Option<f64>,
}

impl Range {
    /// Over all of `values`, and a little more.
    pub fn over(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|v| v.is_finite());
        // Of nothing, or of zeros alone, anything will do.
        let high = finite.clone().fold(0.0, f64::max);
        let high = if high > 1e-12 { high } else { 1.0 };
        match scale {
            Scale::Linear => {
                let low = finite.fold(0.0, f64::min);
                let step = step(high - low, 5);
                let up = |v: f64| (v / step - 1e-9).ceil() * step;
                Self { scale, low: -up(-low), high: up(high), zero: None }
            }
            Scale::Log | Scale::Log2 => {
                let zero = finite.clone().any(|v| v <= 0.0);
                let low = finite.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low } else { high };
                let span = (high / low).ln().max(0.2);
                let pad = (span * 0.05).exp();
                let zero = zero.then(|| low / (span * 0.15).exp());
                Self { scale, low: zero.unwrap_or(low) / pad, high: high * pad, zero }
            }
        }
    }

    /// Where `value` lies between the ends, 0 to 1 (beyond them if it is out of bounds).
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Log2 => {
                let floor = self.zero.unwrap_or(self.low);
                let value = if value <= 0.0 { floor } else { value };
                (value / self.low).ln() / (self.high / self.low).ln()
            }
        }
    }

    /// Values with a line and a label, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let wanted = wanted.max(2);
        let mut ticks = match self.scale {
            Scale::Linear => {
                let step = step(self.high - self.low, wanted);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|i| i as f64 * step).collect()
            }
            Scale::Log2 => {
                let (low, high) = (self.low.log2().ceil() as i32, self.high.log2().floor() as i32);
                let every = usize::try_from(high - low + 1).unwrap_or(1).div_ceil(wanted).max(1);
                (low..=high).step_by(every).map(|i| 2f64.powi(i)).collect()
            }
            Scale::Log => self.decimal_ticks(wanted),
        };
        if self.zero.is_some() {
            // Labels that would run into that of zero are left out.
            ticks.retain(|t| self.place(*t) - self.place(0.0) > 0.06);
            ticks.insert(0, 0.0);
        }
        ticks
    }

    fn decimal_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let with = |mantissas: &[f64]| -> Vec<f64> {
            (low..=high)
                .flat_map(|e| mantissas.iter().map(move |m| m * 10f64.powi(e)))
                .filter(|t| (self.low..=self.high).contains(t))
                .collect()
        };
        let candidates: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let fits = candidates.iter().map(|m| with(m)).find(|ticks| ticks.len() <= wanted + 1);
        fits.unwrap_or_else(|| {
            let all = with(&[1.0]);
            let every = all.len().div_ceil(wanted);
            all.into_iter().step_by(every).collect()
        })
    }
}

/// A round step that divides `span` into at most about `wanted` parts.
fn step(span: f64, wanted: usize) -> f64 {
    let raw = (span / wanted as f64).max(f64::MIN_POSITIVE);
    let magnitude = 10f64.powf(raw.log10().floor());
    let rest = raw / magnitude;
    let round = [1.0, 2.0, 2.5, 5.0].into_iter().find(|r| rest <= r + 1e-9).unwrap_or(10.0);
    round * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_zero_and_end_on_a_tick() {
        let range = Range::over(Scale::Linear, [3.0, 47.0].into_iter());
        assert_eq!((range.place(0.0), range.place(50.0)), (0.0, 1.0));
        assert_eq!(range.ticks(5), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        let range = Range::over(Scale::Log2, [8192.0, 1048576.0].into_iter());
        let labels: Vec<_> = range.ticks(8).into_iter().map(|t| Unit::Bytes.text(t)).collect();
        assert_eq!(labels, ["8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"]);
        assert!(range.place(8192.0) > 0.0 && range.place(1048576.0) < 1.0);
    }

    #[test]
    fn zero_has_a_place_of_its_own_on_a_logarithmic_axis() {
        let range = Range::over(Scale::Log, [0.0, 0.01, 1.0].into_iter());
        assert!(range.place(0.0) > 0.0 && range.place(0.0) < range.place(0.01));
        assert_eq!(range.ticks(4)[0], 0.0);
        assert!(range.ticks(4).contains(&0.1));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.125, 1.5, 12.0, 123.4, 1234.0, 45_600.0, 2e6].map(short);
        assert_eq!(texts, ["0", "0.12", "1.5", "12", "123", "1234", "45.6k", "2M"]);
        assert_eq!(Unit::Percent.text(0.06), "6%");
        assert_eq!(Unit::Times.text(1.25), "1.25×");
    }

    #[test]
    fn one_value_and_none_have_a_range_too() {
        for scale in [Scale::Linear, Scale::Log, Scale::Log2] {
            for values in [vec![], vec![5.0], vec![0.0], vec![f64::NAN, 2.0]] {
                let range = Range::over(scale, values.iter().copied());
                assert!(range.place(5.0).is_finite(), "{scale:?} {values:?}");
                assert!(range.ticks(5).len() < 40);
            }
        }
    }
}
