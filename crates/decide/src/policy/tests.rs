use super::rest::FIRST_PAUSE;
use super::*;
use crate::controller::Controller;
use crate::event::Event;
use crate::regime::Regime;
use crate::trial::{LOSS_MAX, Outcome};
use crate::window::Times;

fn policy() -> Policy {
    let pauses = Box::leak(Box::new(Pauses::new()));
    Policy::new(32 << 10, true, Costs::REFERENCE, pauses)
}

/// The same, of a program whose time is known.
fn timed() -> Policy {
    USED.set(Some(Times::default()));
    policy()
}

/// So much time passes, where it is known.
fn pass(ns: u64) {
    USED.set(USED.get().map(|t| Times { cpu: t.cpu + ns, wall: t.wall + ns }));
}

impl Policy {
    /// [`Policy::earn`], and the time if it is asked for.
    fn earns(&mut self, site: SiteId, bytes: usize, cost: i64) {
        self.earn(site, bytes, cost);
        self.time(USED.get());
    }

    /// The program's large copies have come to `copied` bytes.
    fn has_copied(&mut self, copied: u64) -> Option<Outcome> {
        let asks = self.event(0, Event::Copied { total: copied });
        asks.then(|| self.time(USED.get())).flatten()
    }
}

#[test]
fn a_site_whose_data_is_touched_is_left_alone_for_longer_and_longer() {
    let mut p = policy();
    let site = p.site(0x1234, 1 << 20);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        while p.allows(site, 1 << 20) {
            p.charge(site, 50 * p.costs.fault);
        }
        let mut pause = 1;
        while !p.allows(site, 1 << 20) {
            pause += 1;
        }
        pauses.push(pause);
    }
    assert!(pauses.windows(2).all(|w| w[1] > w[0] + w[0] / 2), "{pauses:?}");
}

#[test]
fn a_site_that_earns_survives_a_fault_now_and_then() {
    let mut p = policy();
    let site = p.site(0x1234, 1 << 20);
    let mut rested = 0;
    for _ in 0..10_000 {
        if !p.allows(site, 512 << 10) {
            rested += 1;
            continue;
        }
        p.earns(site, 512 << 10, p.costs.elide);
        p.charge(site, p.costs.fault);
    }
    assert_eq!(rested, AUDIT, "nothing but its audit");
}

#[test]
fn finding_out_which_pages_are_touched_in_every_message_does_not_end_a_try() {
    let mut p = policy();
    let site = p.site(0x1234, 512 << 10);
    (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
    assert!(p.allows(site, 512 << 10));
    // Who goes on touching is charged more.
    (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
    assert!(!p.allows(site, 512 << 10));
}

#[test]
fn what_a_site_may_waste_grows_with_the_size_of_its_copies() {
    let mut p = policy();
    let (small, large) = (p.site(0x1234, 32 << 10), p.site(0x5678, 1 << 20));
    for site in [small, large] {
        p.charge(site, CREDIT_MAX - 1);
    }
    assert!(p.paused(small) && !p.paused(large));
}

thread_local! {
    /// How late it is for the test's program; `None`: it cannot be known.
    static USED: core::cell::Cell<Option<Times>> = const { core::cell::Cell::new(None) };
}

/// `site` elides `copies`, as far as it may; `between` ns pass from one to the next. Returns how many rested.
fn elides(p: &mut Policy, site: SiteId, len: usize, copies: u32, between: u64) -> u32 {
    (0..copies).fold(0, |rested, _| {
        pass(between);
        if !p.allows(site, len) {
            return rested + 1;
        }
        p.earns(site, len, p.costs.again);
        rested
    })
}

#[test]
fn a_site_that_saves_next_to_nothing_of_what_its_process_does_rests_for_longer_and_longer() {
    let copies = 20_000;
    // (A copy of 64 KB saves some 2.4 us, one of 1 MB 40.)
    for (len, between, rests) in [
        (64 << 10, 10_000, false),
        (64 << 10, 1_000_000, true),
        (1 << 20, 200_000, false),
        (1 << 20, 2_000_000, true),
    ] {
        let mut p = timed();
        let site = p.site(0x1234, len);
        let rested = elides(&mut p, site, len, copies, between);
        assert_eq!(rested > copies * 9 / 10, rests, "{between}: {rested} of {copies} rested");
        assert!(rests || rested == AUDIT, "{between}: {rested}");
        // It gains: what new sites begin with is not its concern.
        assert_eq!(p.in_debt, 0);
    }
}

#[test]
fn a_site_that_still_invests_is_not_weighed_by_what_it_saves() {
    let mut p = timed();
    // (A copy saves a little less than its part, moving a little more than that is spent.)
    let (len, between, moves) = (1 << 20, 1_300_000, 21);
    let site = p.site(0x1234, len);
    let rested = (0..1_000).fold(0, |rested, _| {
        p.moved(site, moves, 1);
        rested + elides(&mut p, site, len, 1, between)
    });
    assert_eq!(rested, AUDIT);
    assert!(elides(&mut p, site, len, 1_000, between) > 0, "nothing is invested any more");
}

#[test]
fn finding_out_which_pages_are_touched_does_not_end_a_try_where_faults_are_slow() {
    let mut p = policy();
    p.costs.fault *= 4;
    for others_in_debt in 0..3 {
        let site = p.site(0x1234 + others_in_debt, 512 << 10);
        (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
        assert!(p.allows(site, 512 << 10), "{others_in_debt}");
        p.charge(site, CREDIT_MAX);
    }
}

#[test]
fn small_views_that_go_on_being_copied_while_a_site_rests_lengthen_no_pause_and_end_no_audit() {
    let mut p = policy();
    let len = 1 << 20;
    let site = p.site(0x1234, len);
    assert_eq!(elides(&mut p, site, len, AUDIT_AFTER, 0), 0);
    let credit = p.sites[site as usize].credit;
    for left in (1..=AUDIT).rev() {
        assert_eq!(p.pauses.left[p.slot(site)].load(Relaxed), left);
        p.earns(site, 100, p.costs.elide);
        p.moved(site, 100, 1_000);
        assert!(!p.allows(site, len));
    }
    assert!(p.allows(site, len));
    let lost = credit - p.sites[site as usize].credit;
    assert!(lost < CREDIT_MAX / 100, "an audit cost its site {lost} ns");
    // The same while it rests because it lost: more than its credit in all.
    p.charge(site, CREDIT_MAX + 1);
    let shift = p.sites[site as usize].pause_shift;
    for _ in 1..FIRST_PAUSE {
        (0..20).for_each(|_| p.earns(site, 100, p.costs.elide));
        assert!(!p.allows(site, len));
    }
    assert!(p.allows(site, len) || p.allows(site, len), "as long as it was to rest");
    assert_eq!(p.sites[site as usize].pause_shift, shift);
}

#[test]
fn sites_have_accounts_of_their_own() {
    let mut p = policy();
    let (a, b) = (p.site(0x1234, 1 << 20), p.site(0x5678, 1 << 20));
    assert_ne!(a, b);
    assert_eq!(p.site(0x1234, 1 << 20), a);
    p.charge(a, i64::from(u32::MAX));
    assert!(!p.allows(a, 1 << 20) && p.allows(b, 1 << 20));
}

#[test]
fn a_new_site_begins_with_less_where_others_fell_into_debt_until_they_earn_again() {
    let mut p = policy();
    let bad = p.site(0x1234, 1 << 20);
    p.charge(bad, CREDIT_MAX + 1);
    let (new, used) = (p.site(0x5678, 1 << 20), CREDIT_MAX / 2);
    p.charge(new, used);
    assert!(p.allows(new, 1 << 20));
    p.charge(new, 1);
    assert!(!p.allows(new, 1 << 20));
    for site in [bad, new] {
        p.earns(site, 1 << 30, 0);
    }
    let later = p.site(0x9abc, 1 << 20);
    p.charge(later, CREDIT_MAX);
    assert!(p.allows(later, 1 << 20));
}

#[test]
fn a_site_that_was_never_timed_rests_once_to_be_timed_and_goes_on_with_its_own_price() {
    let copies: &'static CopyPrices = Box::leak(Box::new(CopyPrices::new()));
    let mut p = policy().priced_by(copies);
    let (caller, len) = (0x1234, 64 << 10);
    let site = p.site(caller, len);
    let mut elided = 0;
    while p.allows(site, len) {
        p.earns(site, len, p.costs.again);
        elided += 1;
    }
    assert_eq!(elided, AUDIT_AFTER);
    let mut rested = 1;
    while p.pauses.rests(caller, len) {
        copies.took(caller, len, 500);
        rested += 1;
    }
    assert_eq!(rested, AUDIT);
    assert!(p.copy_mb(site) < p.costs.copy_mb / 3);
    for _ in 0..10 * AUDIT_AFTER {
        assert!(p.allows(site, len));
        p.earns(site, len, p.costs.again);
    }
}

/// Lets time pass until `regime` is on: of a program (whose copies are elided if none had better be) that takes 1 ms for 16 MB that it copies where `best` is on, and 2 otherwise.
fn try_until(p: &mut Policy, copied: &mut u64, best: Regime, regime: Regime) {
    for _ in 0..20_000 {
        if p.pauses.regime() == regime {
            return;
        }
        let took = if p.pauses.regime() == best { 1_000_000 } else { 2_000_000 };
        pass(took);
        *copied += 16 << 20;
        p.elided += if best == Regime::None { 16 << 20 } else { 0 };
        p.has_copied(*copied);
    }
    panic!("never");
}

#[test]
fn while_all_sites_elide_no_account_is_kept_but_of_those_that_send_by_reference() {
    let mut p = timed();
    let len = 1 << 20;
    let (rests, elides, lends) = (p.site(1, len), p.site(2, len), p.site(3, len));
    assert!(p.allows_lending(lends, len));
    p.charge(rests, i64::from(u32::MAX));
    let left = |p: &Policy, site: SiteId| p.pauses.left[p.slot(site)].load(Relaxed);
    let before = left(&p, rests);
    let credit = p.sites[elides as usize].credit;
    let mut copied = 0;
    try_until(&mut p, &mut copied, Regime::All, Regime::All);
    for site in [rests, elides] {
        for _ in 0..2 * FIRST_PAUSE {
            assert!(p.allows(site, len) && !p.paused(site) && p.trusts(site));
            p.earns(site, len, p.costs.again);
            p.fault(site, 1);
        }
    }
    assert_eq!(p.pauses.left(1, len), 0);
    // Where nothing is copied, accounts go on.
    p.charge(lends, i64::from(u32::MAX));
    assert!(!p.allows_lending(lends, len) && p.pauses.rests(3, len));
    try_until(&mut p, &mut copied, Regime::All, Regime::Accounts);
    assert_eq!(left(&p, rests), before);
    assert!(!p.allows(rests, len) && p.allows(elides, len));
    assert_eq!(p.sites[elides as usize].credit, credit);
}

#[test]
fn while_no_site_elides_no_account_is_kept_but_of_those_that_send_by_reference() {
    let mut p = timed();
    let len = 1 << 20;
    let (elides, lends) = (p.site(1, len), p.site(2, len));
    assert!(p.allows(elides, len) && p.allows_lending(lends, len));
    let credit = p.sites[elides as usize].credit;
    let mut copied = 0;
    try_until(&mut p, &mut copied, Regime::None, Regime::None);
    assert!(p.pauses.left(1, len) > 0 && p.rests_long(elides) && !p.trusts(elides));
    for _ in 0..2 * FIRST_PAUSE {
        assert!(!p.allows(elides, len) && p.allows_lending(lends, len));
        // (What undoes its copies is not its own loss.)
        p.untracked(elides, 256);
        p.copied_out(elides, len);
    }
    p.charge(lends, i64::from(u32::MAX));
    assert!(!p.allows_lending(lends, len));
    try_until(&mut p, &mut copied, Regime::Accounts, Regime::Accounts);
    assert!(p.allows(elides, len));
    assert_eq!(p.sites[elides as usize].credit, credit);
}

#[test]
fn a_fault_costs_what_it_costs_where_it_is_answered() {
    let mut p = policy();
    let site = p.site(1, 1 << 20);
    let mut cost = |near| {
        let before = p.sites[site as usize].credit;
        p.answers_near(near);
        p.fault(site, 0);
        before - p.sites[site as usize].credit
    };
    assert_eq!((cost(true), cost(false)), (Costs::REFERENCE.fault_near, Costs::REFERENCE.fault));
}

#[test]
fn faults_without_end_end_a_trial_at_once() {
    let mut p = timed();
    let site = p.site(1, 1 << 20);
    let mut copied = 0;
    try_until(&mut p, &mut copied, Regime::All, Regime::All);
    let faults = (1..).find(|_| {
        p.fault(site, 1);
        p.pauses.regime() == Regime::Accounts
    });
    assert!(faults.unwrap() <= LOSS_MAX / p.costs.fault + 1);
    // It stays so, whatever is elided until that is looked at.
    p.earns(site, 1 << 30, 0);
    assert_eq!(p.has_copied(copied), Some(Outcome::Lost));
    assert_eq!(p.pauses.regime(), Regime::Accounts);
    assert!(p.allows(site, 1 << 20), "its own account was not charged");
    // What copies save makes up for them.
    try_until(&mut p, &mut copied, Regime::All, Regime::All);
    for _ in 0..100_000 {
        p.fault(site, 1);
        p.earns(site, 1 << 20, p.costs.again);
    }
    assert_eq!(p.pauses.regime(), Regime::All);
}

#[test]
fn sites_that_are_never_left_alone_need_no_trial() {
    let mut p = timed();
    p.backoff = false;
    for i in 1..5_000 {
        pass(2_000_000);
        assert_eq!(p.has_copied(i * (16 << 20)), None);
        assert_eq!(p.pauses.regime(), Regime::Accounts);
    }
}

#[test]
fn small_copies_that_cost_more_than_they_save_rest_and_large_ones_of_the_same_site_do_not() {
    let mut p = policy();
    let (small, large) = (p.site(0x1234, 16 << 10), p.site(0x1234, 1 << 20));
    for _ in 0..20_000 {
        for (site, len, elided) in [(small, 16 << 10, 8 << 10), (large, 1 << 20, 1 << 20)] {
            if !p.pauses.rests(0x1234, len) {
                p.earns(site, elided, p.costs.elide + p.costs.input);
            }
        }
    }
    assert!(p.pauses.rests(0x1234, 16 << 10) && p.pauses.rests(0x1234, 20_000));
    assert!(!p.pauses.rests(0x1234, 1 << 20));
}
