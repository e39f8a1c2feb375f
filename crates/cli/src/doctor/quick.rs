//! The prices that a prediction needs, measured in some milliseconds. (`uncopy doctor` measures all
//! of them, takes seconds, and keeps them.)

use std::thread;

use uncopy_decide::Costs;
use uncopy_measure::{Failure, cores};
use uncopy_ranges::span::PAGE;

use super::derive;
use super::mapping::Mapping;
use super::measured::{Measured, Work};
use super::page_costs::faults;
use super::sample::{of_at_most, time};

const MB: usize = 1 << 20;
/// So many samples of each: the slowest, a cold copy, takes some 2 ms with the flushing before it.
const SAMPLES: usize = 9;

/// The prices of copies, new pages and faults; all others are the reference machine's. Those of
/// faults are, too, where they cannot be measured: then with the reason.
pub fn costs() -> Result<(Costs, Option<Failure>), Failure> {
    // In a thread of its own: it binds itself to a core.
    let done = thread::scope(|scope| scope.spawn(measure).join());
    let (results, refused) = done.map_err(|_| Failure::new("the measuring failed"))??;
    Ok((derive::some_costs(&results), refused))
}

fn measure() -> Result<(Vec<Measured>, Option<Failure>), Failure> {
    let available = cores::available()?;
    cores::pin(available[0])?;
    let mut results = memory()?.to_vec();
    let refused = match page_faults(&available) {
        Ok(found) => {
            results.extend(found);
            None
        }
        Err(why) => Some(why),
    };
    Ok((results, refused))
}

fn memory() -> Result<[Measured; 3], Failure> {
    let memory = Mapping::map(2 * MB)?;
    memory.touch(memory.span());
    let (to, from) = (memory.part(MB, MB), memory.part(0, MB));
    let hot = of_at_most(SAMPLES, || time(|| memory.copy(to, from)));
    let cold = of_at_most(SAMPLES, || {
        memory.flush(memory.span());
        time(|| memory.copy(to, from))
    });
    let part = memory.part(0, 64 << 10);
    let touch = of_at_most(SAMPLES, || {
        memory.discard(part);
        time(|| memory.touch(part))
    });
    Ok([
        Measured { work: Work::CopyHot, bytes: MB, ns: hot },
        Measured { work: Work::CopyCold, bytes: MB, ns: cold },
        Measured { work: Work::FirstTouch, bytes: part.len(), ns: touch },
    ])
}

/// Faults of one page and of sixteen on the same core, and of one on another core if there is one.
fn page_faults(available: &[usize]) -> Result<Vec<Measured>, Failure> {
    let own = available[0];
    let near = [(own, 1, Work::FaultSameCore), (own, 16, Work::FaultSameCore)];
    let far = available.get(1).map(|other| (*other, 1, Work::FaultOtherCore));
    let all = near.into_iter().chain(far);
    all.map(|(handler, pages, work)| {
        Ok(Measured { work, bytes: pages * PAGE, ns: faults(own, handler, pages)? })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_this_machines_and_no_others_are_touched() {
        let (costs, refused) = super::costs().unwrap();
        let Costs { copy_mb, fault, fill, fresh, .. } = costs;
        let reference = Costs::REFERENCE;
        assert_eq!(costs, Costs { copy_mb, fault, fill, fresh, ..reference });
        assert_ne!((copy_mb, fresh), (reference.copy_mb, reference.fresh));
        let known = (fault, fill) == (reference.fault, reference.fill);
        assert_eq!(known, refused.is_some(), "{costs}, {refused:?}");
    }
}
