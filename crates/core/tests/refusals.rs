//! The obstacle to a copy is the reason that its call site is told, as the machine said it.

#[allow(dead_code, reason = "other tests use more of it")]
mod machine;

use machine::{BASE, Machine, page_of};
use std::sync::{Arc, Mutex};
use uncopy_core::excluded::Why;
use uncopy_core::plan::CopyPlan;
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_counters::{Counters, Snapshot};
use uncopy_decide::{
    Control, Costs, Event, Observer, Operation, Pauses, Policy, Reason, Refusal, SiteId,
};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

const LEN: usize = 8 * PAGE;
const POOL_PAGES: usize = 256;
const FROM: usize = BASE;
const TO: usize = BASE + LEN + PAGE;
const LIMITS: Limits = Limits { extent_bytes: POOL_PAGES / 2 * PAGE, ranges: 100, views: 1000 };

/// Why copies were missed, and what was noted as refused.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Missed>>);

#[derive(Default)]
struct Missed {
    missed: Vec<Reason>,
    refused: Vec<(Span, Refusal)>,
}

impl Observer for Heard {
    fn did(&mut self, operation: Operation) {
        if let Operation::Refused { span, why } = operation {
            self.0.lock().unwrap().refused.push((span, why));
        }
    }

    fn told(&mut self, _: SiteId, event: Event) {
        if let Event::Missed(why) = event {
            self.0.lock().unwrap().missed.push(why);
        }
    }
}

/// One copy from resident memory, where the machine refuses as `prepare` says, and limits are
/// `limits`: why it was missed, what was refused, and what was counted.
fn copy(
    limits: Limits,
    prepare: impl FnOnce(&mut Tracker<Machine>),
) -> (Vec<Reason>, Vec<(Span, Refusal)>, Snapshot) {
    let mut machine = Machine::new(2 * (LEN / PAGE + 1), POOL_PAGES, 1, false);
    for page in (0..LEN).step_by(PAGE) {
        machine.program[page_of(FROM + page)] = Some(Box::new([1; PAGE]));
        machine.program[page_of(TO + page)] = Some(Box::new([2; PAGE]));
    }
    let pauses: &'static Pauses = Box::leak(Box::default());
    let control = Control::new(Policy::new(false, Costs::REFERENCE, pauses), 16 << 10);
    let shape = PoolShape { boundary: POOL_PAGES / 2, pages: POOL_PAGES };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let mut tracker = Tracker::new(machine, shape, limits, control, filter, counters);
    let heard = Heard::default();
    tracker.observed_by(Some(Box::new(heard.clone())));
    prepare(&mut tracker);
    let mut plan = CopyPlan::default();
    tracker.copy_begin(TO, FROM, LEN, 0x900d, true, &mut plan);
    tracker.unpin(&mut plan.pins);
    tracker.check().unwrap();
    let Missed { missed, refused } = std::mem::take(&mut *heard.0.lock().unwrap());
    (missed, refused, counters.snapshot())
}

#[test]
fn what_the_machine_refuses_is_the_reason_and_is_counted_once() {
    for why in Refusal::ALL {
        let source = Span::sized(FROM, LEN);
        let asked = u64::from(why != Refusal::Stays);
        let (missed, refused, counted) = copy(LIMITS, |t| t.memory.register_refuses = Some(why));
        assert_eq!((missed, refused), (vec![why.into()], vec![(source, why)]));
        assert_eq!((counted.refusals, counted.exhausted), (asked, 0));
        let (missed, refused, counted) = copy(LIMITS, |t| t.memory.move_refuses = Some(why));
        assert_eq!(missed, [why.into()]);
        assert_eq!(refused, [(Span::sized(FROM, PAGE), why)]);
        assert_eq!((counted.refusals, counted.exhausted), (asked, 0));
    }
}

#[test]
fn a_limit_is_the_reason_and_is_counted_once() {
    let nothing = |_: &mut Tracker<Machine>| ();
    for (limits, why) in [
        (Limits { ranges: 0, ..LIMITS }, Reason::ExhaustedMappings),
        (Limits { extent_bytes: LEN / 2, ..LIMITS }, Reason::ExhaustedExtents),
    ] {
        let (missed, refused, counted) = copy(limits, nothing);
        assert_eq!((missed, refused, counted.exhausted), (vec![why], vec![], 1));
    }
}

#[test]
fn memory_that_has_to_stay_is_no_refusal_of_the_kernels() {
    let page = Span::sized(FROM + PAGE, PAGE);
    let changing = |t: &mut Tracker<Machine>| t.memory.changing = true;
    let excluded = |t: &mut Tracker<Machine>| t.excluded().insert(page, Why::Given);
    for heard in [copy(LIMITS, changing), copy(LIMITS, excluded)] {
        let (missed, refused, counted) = heard;
        assert_eq!((missed, counted.refusals), (vec![Reason::Resident], 0));
        assert_eq!(refused, [(Span::sized(FROM, LEN), Refusal::Stays)]);
    }
}
