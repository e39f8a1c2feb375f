//! Every crash at every point of every short script; random long ones; and what is wrong is caught.
//!
//! The ignored tests are long: `LOG_SIM_SEED` and `LOG_SIM_COUNT` say which random scripts, and how
//! many. `make full` runs them.

use uncopy_log_sim::crash::Thoroughness;
use uncopy_log_sim::scripts::{OPS, STARTS, WITH_ANSWERS, every_script, random_script};
use uncopy_log_sim::{Crashes, Mutation, Op, Start};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn seed_and_count(count: u64) -> (u64, u64) {
    (number("LOG_SIM_SEED", fastrand::u64(..)), number("LOG_SIM_COUNT", count))
}

fn assert_right(crashes: &Crashes, what: &str) {
    let Crashes { points, crashes: count, replayed, wrong, .. } = crashes;
    println!("{what}: {points} points, {count} crashes, {replayed} of them replayed");
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
    assert!(*replayed > 0, "{what}: nothing was ever replayed");
}

fn every(ops: &'static [Op], start: Start, length: u32) {
    let shares = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..shares)
            .map(|share| {
                scope.spawn(move || every_script(ops, start, length, None, (share, shares)))
            })
            .collect();
        for share in shares {
            assert_right(&share.join().unwrap(), &format!("{start:?}, {length} operations"));
        }
    });
}

fn random(ops: &[Op], (seed, count): (u64, u64), millionths: u32, faults: bool) {
    println!("LOG_SIM_SEED={seed} LOG_SIM_COUNT={count}");
    let mut crashes = Crashes::new(Thoroughness::Some(millionths), seed);
    for script in 0..count {
        random_script(ops, seed.wrapping_add(script), None, faults, &mut crashes);
    }
    assert_right(&crashes, "random scripts");
}

#[test]
fn no_crash_of_a_short_script_on_a_new_file_loses_anything() {
    every(&OPS, Start::New, 3);
}

#[test]
fn no_crash_of_a_short_script_on_a_held_file_loses_anything() {
    every(&OPS, Start::Held, 3);
}

#[test]
fn no_crash_of_a_random_script_loses_anything() {
    random(&OPS, seed_and_count(300), 100_000, false);
}

#[test]
#[ignore = "long: make full"]
fn no_crash_of_a_script_on_disks_that_fail_loses_anything() {
    random(&OPS, seed_and_count(100_000), 20_000, true);
    random(&WITH_ANSWERS, seed_and_count(100_000), 20_000, true);
}

/// One script, every way to crash at each point: to look closer at what a random run found.
#[test]
#[ignore = "for one script: LOG_SIM_SEED"]
fn no_crash_of_one_script_on_disks_that_fail_loses_anything() {
    let seed = number("LOG_SIM_SEED", 1);
    let mut crashes = Crashes::new(Thoroughness::All, seed);
    random_script(&OPS, seed, None, true, &mut crashes);
    assert!(crashes.wrong.is_empty(), "{}", crashes.wrong.join("\n"));
}

#[test]
#[ignore = "long: some minutes; make full"]
fn no_crash_of_a_script_of_four_operations_loses_anything() {
    for start in STARTS {
        every(&OPS, start, 4);
    }
}

#[test]
#[ignore = "long: a million random scripts; make full"]
fn no_crash_of_many_random_scripts_loses_anything() {
    let (seed, count) = seed_and_count(1_000_000);
    let shares = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for share in 0..shares {
            let seed = seed.wrapping_add(share * (count / shares));
            scope.spawn(move || random(&OPS, (seed, count / shares), 20_000, false));
        }
    });
}

#[test]
fn no_crash_shows_an_answer_to_what_is_lost() {
    every(&WITH_ANSWERS, Start::Held, 3);
    // (Of a new file nothing is in the log so soon.)
    let crashes = every_script(&WITH_ANSWERS, Start::New, 3, None, (0, 1));
    assert!(crashes.wrong.is_empty(), "{}", crashes.wrong.join("\n"));
}

#[test]
fn no_crash_of_a_random_script_shows_an_answer_to_what_is_lost() {
    random(&WITH_ANSWERS, seed_and_count(300), 100_000, false);
}

#[test]
#[ignore = "long: some minutes; make full"]
fn no_crash_of_many_scripts_shows_an_answer_to_what_is_lost() {
    for start in STARTS {
        every(&WITH_ANSWERS, start, 4);
    }
    random(&WITH_ANSWERS, seed_and_count(100_000), 20_000, false);
}

/// With the mutation some script must lose something, and the oracle must say so.
fn is_caught(mutation: Mutation) {
    is_caught_by(&OPS, mutation);
}

fn is_caught_by(ops: &[Op], mutation: Mutation) {
    for length in 1..4 {
        for start in STARTS {
            let crashes = every_script(ops, start, length, Some(mutation), (0, 1));
            if let Some(wrong) = crashes.wrong.first() {
                println!("{mutation:?}: after {} crashes: {wrong}", crashes.crashes);
                return;
            }
        }
    }
    let mut crashes = Crashes::new(Thoroughness::Some(100_000), 1);
    for seed in 0..3000 {
        random_script(ops, seed, Some(mutation), false, &mut crashes);
        if let Some(wrong) = crashes.wrong.first() {
            println!("{mutation:?}: after {} random crashes: {wrong}", crashes.crashes);
            return;
        }
    }
    panic!("{mutation:?} passes");
}

#[test]
fn without_home_records_a_strangers_write_is_lost() {
    is_caught(Mutation::NoHome);
}

#[test]
fn without_checksums_what_was_never_written_comes_back() {
    is_caught(Mutation::NoChecksum);
}

#[test]
fn without_a_new_block_for_each_flush_what_was_acknowledged_is_lost() {
    is_caught(Mutation::NoNewBlock);
}

#[test]
fn with_home_before_the_files_own_sync_what_was_acknowledged_is_lost() {
    is_caught(Mutation::HomeBeforeSync);
}

#[test]
fn with_an_answer_sent_early_what_was_acknowledged_is_lost() {
    is_caught(Mutation::AnswerEarly);
}

#[test]
fn with_a_lease_given_up_early_a_strangers_write_is_lost() {
    is_caught(Mutation::LeaseBeforeHome);
}

#[test]
fn without_a_look_at_the_time_a_strangers_write_is_lost() {
    is_caught(Mutation::NoTime);
}

#[test]
fn without_room_kept_for_live_records_they_are_overwritten() {
    is_caught(Mutation::NoRoomKept);
}

#[test]
fn without_names_nobody_knows_whose_bytes_they_are() {
    is_caught(Mutation::NoName);
}

#[test]
fn an_answer_that_leaves_before_its_sync_is_durable_is_caught() {
    is_caught_by(&WITH_ANSWERS, Mutation::AnswerUnheld);
}

#[test]
fn a_flush_that_answers_for_later_syncs_is_caught() {
    is_caught_by(&WITH_ANSWERS, Mutation::LateNumbers);
}

#[test]
fn what_leaves_past_the_queues_without_waiting_is_caught() {
    is_caught_by(&WITH_ANSWERS, Mutation::LeavesUnheld);
}

#[test]
fn an_open_by_others_that_does_not_wait_is_caught() {
    is_caught_by(&WITH_ANSWERS, Mutation::OpenUnheld);
}

#[test]
fn promises_to_the_dead_that_are_not_kept_are_caught() {
    is_caught_by(&WITH_ANSWERS, Mutation::DeadUnsynced);
}

#[test]
fn with_records_ended_before_their_bytes_are_durable_what_was_acknowledged_is_lost() {
    is_caught(Mutation::ReleasedEarly);
}
