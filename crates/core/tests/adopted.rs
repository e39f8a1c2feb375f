//! Memory that is sent again and again becomes an extent, which settles in a region of the sender's
//! and is given from there: as long as that pays.

#[allow(dead_code, reason = "nothing is lent here")]
mod machine;

use machine::foreign::{Foreign, take_released};
use machine::{BASE, Machine, page_of};
use std::sync::atomic::Ordering::Relaxed;
use uncopy_core::plan::{Move, OutputPlan, RecallPlan, Went};
use uncopy_core::regions::RegionId;
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

const PAGES: usize = 256;
const LEN: usize = PAGES * PAGE;
const VALUE: Span = Span { start: BASE, end: BASE + LEN };
const REGION: usize = 0x9000_0000;
const CALLER: usize = 0x900d;

struct World {
    tracker: Tracker<Machine>,
    counters: &'static Counters,
    region: RegionId,
}

fn world() -> World {
    let mut machine = Machine::new(PAGES, 8 * PAGES, 1, false);
    machine.foreign = vec![Foreign::new(REGION, PAGES, false)];
    machine.program.iter_mut().for_each(|page| *page = Some(Box::new([1; PAGE])));
    let pauses: &'static Pauses = Box::leak(Box::default());
    let policy = Policy::new(true, Costs::REFERENCE, pauses).without_experiments();
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let limits = Limits { extent_bytes: 4 * LEN, ranges: 100, views: 1000 };
    let shape = PoolShape { boundary: 4 * PAGES, pages: 8 * PAGES };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let control = Control::new(policy, 16 << 10);
    let mut tracker = Tracker::new(machine, shape, limits, control, filter, counters);
    let region = tracker.memory.foreign[0].region();
    let region = tracker.begin_region(region).expect("there is memory for that");
    World { tracker, counters, region }
}

impl World {
    /// Whether the value is adopted. Then it settles.
    fn adopts(&mut self) -> bool {
        if !self.tracker.adopt(VALUE, CALLER, LEN) {
            return false;
        }
        self.settles();
        true
    }

    fn settles(&mut self) {
        let mut plan = OutputPlan::default();
        self.tracker.output_begin(&[(VALUE.start, LEN)], &mut plan);
        let again = self.tracker.sent_again(&plan, LEN);
        let &[(id, from)] = again.as_slice() else { panic!("it is one extent") };
        let bytes: Vec<u8> =
            (from.start..from.end).map(|at| self.tracker.memory.extent_byte(at)).collect();
        let to = Span::sized(REGION, LEN);
        self.tracker.memory.foreign[0].fill(to, |at| bytes[at]);
        assert_eq!(self.tracker.settle(&[Move { id, region: self.region, to }]), 1);
        self.tracker.unpin(&mut plan.pins);
        self.tracker.check().unwrap();
    }

    /// It comes home, as before a fork.
    fn is_recalled(&mut self) {
        let mut plan = RecallPlan::default();
        self.tracker.recall_begin(None, &mut plan).unwrap();
        for copy in &plan.copies {
            for i in 0..copy.len {
                *self.tracker.memory.pool_byte(copy.to + i) =
                    self.tracker.memory.extent_byte(copy.from + i);
            }
        }
        self.tracker.recall_commit(&mut plan);
        self.gives_back();
    }

    fn gives_back(&mut self) {
        while let Some(release) = self.tracker.take_release() {
            release.carry_out();
        }
        assert_eq!(take_released(), [(REGION, Span::sized(REGION, LEN))]);
    }

    /// It is sent, and given from where it lies.
    fn sends(&mut self) {
        let mut plan = OutputPlan::default();
        self.tracker.output_begin(&[(VALUE.start, LEN)], &mut plan);
        assert_eq!(plan.pieces.as_slice(), [(REGION, LEN)]);
        self.tracker.output_done(&mut plan, LEN, Went::Kept(LEN));
    }

    /// The program writes to all of it.
    fn is_written(&mut self, byte: u8) {
        for at in (VALUE.start..VALUE.end).step_by(PAGE) {
            while self.tracker.memory.program[page_of(at)].is_none() {
                assert_eq!(self.tracker.fault(at), Fault::Resolved);
            }
            let page = self.tracker.memory.program[page_of(at)].as_mut().unwrap();
            **page = [byte; PAGE];
        }
        self.gives_back();
    }
}

#[test]
fn a_value_that_is_sent_unwritten_is_adopted_once() {
    let mut w = world();
    assert!(w.adopts());
    for _ in 0..100 {
        w.sends();
        assert!(!w.adopts(), "it is a view already");
    }
    assert_eq!(w.counters.adopted_bytes.load(Relaxed), LEN as u64);
    assert_eq!(w.counters.lent_bytes.load(Relaxed), 0, "the kernel has none of it");
    assert_eq!(w.counters.output_bytes.load(Relaxed), 100 * LEN as u64);
}

#[test]
fn a_site_that_writes_to_its_value_after_each_send_soon_adopts_no_more() {
    let mut w = world();
    let mut adopted = 0;
    for i in 0..250 {
        if w.adopts() {
            adopted += 1;
            w.sends();
            w.is_written(i as u8);
        }
    }
    assert!((1..=10).contains(&adopted), "adopted {adopted} times");
}

#[test]
fn a_site_that_writes_to_its_value_now_and_then_goes_on_adopting() {
    let mut w = world();
    for i in 0..60 {
        assert!(w.adopts(), "it rests after {i} values");
        (0..60).for_each(|_| w.sends());
        w.is_written(i);
    }
}

#[test]
fn a_value_that_was_called_back_before_a_fork_and_settles_anew_goes_on_earning() {
    let mut w = world();
    for i in 0..60 {
        assert!(w.adopts(), "its site rests after {i} values");
        w.is_recalled();
        w.settles();
        (0..60).for_each(|_| w.sends());
        w.is_written(i);
    }
}
