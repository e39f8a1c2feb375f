//! The plan of who sends how much to whom, and when: lists of flows that a seed determines, the
//! same for all that are compared.

use fastrand::Rng;

/// Sizes of flows: Pareto's distribution between a smallest and a largest size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// Its shape: the smaller, the more of all bytes are in few flows.
    pub shape: f64,
    /// The least size in bytes.
    pub least: f64,
    /// The largest size in bytes.
    pub most: f64,
}

impl Pareto {
    /// The size below which `share` of the flows are.
    pub fn quantile(&self, share: f64) -> f64 {
        let cut = 1.0 - (self.least / self.most).powf(self.shape);
        self.least / (1.0 - share * cut).powf(1.0 / self.shape)
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        let Pareto { shape, least, most } = *self;
        let ratio = least / most;
        least * shape / (shape - 1.0) * (1.0 - ratio.powf(shape - 1.0)) / (1.0 - ratio.powf(shape))
    }

    fn draw(&self, random: &mut Rng) -> u64 {
        self.quantile(random.f64()) as u64
    }
}

/// A flow that is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When it begins, in nanoseconds.
    pub start: u64,
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The size in bytes.
    pub size: u64,
}

/// Nanoseconds to the next event of a Poisson process with this mean distance.
fn wait(mean: f64, random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln() * mean
}

/// Flows from any of the first `each` hosts to any of the next `each`, `mean` nanoseconds apart,
/// one after the other until `end`.
pub fn across(seed: u64, each: u32, mean: f64, sizes: Pareto, end: u64) -> Vec<Plan> {
    assert!(each > 0 && mean > 0.0, "{each} hosts, a flow each {mean} ns");
    let mut random = Rng::with_seed(seed);
    let mut plans = Vec::new();
    let mut at = 0.0;
    loop {
        at += wait(mean, &mut random);
        if at >= end as f64 {
            return plans;
        }
        plans.push(Plan {
            start: at as u64,
            from: random.u32(0..each),
            to: each + random.u32(0..each),
            size: sizes.draw(&mut random),
        });
    }
}

/// Each of `hosts` begins flows `mean` nanoseconds apart until `end`, each to any other host. In
/// order of hosts, then of time: a host that is still sending when it is to begin the next one
/// begins when it is done (it is on or off).
pub fn on_off(seed: u64, hosts: u32, mean: f64, sizes: Pareto, end: u64) -> Vec<Vec<Plan>> {
    assert!(hosts > 1 && mean > 0.0, "{hosts} hosts, a flow each {mean} ns");
    (0..hosts)
        .map(|from| {
            let mut random = Rng::with_seed(seed ^ (u64::from(from) + 1) << 32);
            let mut plans = Vec::new();
            let mut at = 0.0;
            loop {
                at += wait(mean, &mut random);
                if at >= end as f64 {
                    return plans;
                }
                let to = (from + random.u32(1..hosts)) % hosts;
                plans.push(Plan { start: at as u64, from, to, size: sizes.draw(&mut random) });
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Pareto = Pareto { shape: 1.2, least: 10e3, most: 10e6 };

    #[test]
    fn sizes_lie_between_the_bounds_and_have_the_mean_that_is_computed() {
        assert_eq!(SIZES.quantile(0.0), 10e3);
        assert!((SIZES.quantile(1.0) - 10e6).abs() < 1.0);
        let steps = 1_000_000;
        let sum: f64 = (0..steps).map(|n| SIZES.quantile((n as f64 + 0.5) / steps as f64)).sum();
        assert!((sum / steps as f64 / SIZES.mean() - 1.0).abs() < 0.01);
    }

    #[test]
    fn flows_are_as_many_as_their_distance_says_and_cross_the_link() {
        let plans = across(1, 4, 1000.0, SIZES, 10_000_000);
        assert!((9_500..10_500).contains(&plans.len()), "{}", plans.len());
        assert!(plans.iter().all(|plan| plan.from < 4 && (4..8).contains(&plan.to)));
        assert!(plans.is_sorted_by_key(|plan| plan.start));
        assert_eq!(plans, across(1, 4, 1000.0, SIZES, 10_000_000));
        assert_ne!(plans, across(2, 4, 1000.0, SIZES, 10_000_000));
    }

    #[test]
    fn nobody_sends_to_himself() {
        let all = on_off(1, 5, 1000.0, SIZES, 100_000);
        assert!(all.iter().flatten().count() > 400);
        assert!(all.iter().flatten().all(|plan| plan.to != plan.from && plan.to < 5));
    }
}
