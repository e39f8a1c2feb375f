//! Outputs of a process whose syncs return early, and when they leave.

use uncopy_log_book::answers::{Answers, Leaves};

/// All that may leave, as it leaves.
fn leaving(answers: &mut Answers) -> Vec<(u32, String)> {
    let mut all = Vec::new();
    while let Some((stream, bytes)) = answers.next() {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        answers.left(stream, text.len());
        all.push((stream, text));
    }
    all
}

#[test]
fn without_syncs_all_leaves_at_once() {
    let mut answers = Answers::new(100);
    assert_eq!(answers.sends(1, &[b"a"]), Leaves::Now);
    assert_eq!(answers.leaves(None), Leaves::Now);
}

#[test]
fn bytes_leave_when_the_last_number_before_them_is_durable() {
    let mut answers = Answers::new(100);
    let first = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"fir", b"st"]), Leaves::Queued);
    let (begun, files) = answers.begin();
    assert_eq!((begun, files), (first, vec![0]));
    // (While that flush is under way.)
    let second = answers.give(7).unwrap();
    assert_eq!(answers.sends(2, &[b"second"]), Leaves::Queued);
    assert_eq!(leaving(&mut answers), []);
    answers.flushed(begun);
    assert_eq!(leaving(&mut answers), [(1, "first".into())]);
    assert_eq!(answers.leaves(None), Leaves::Waits(second));
    let (begun, files) = answers.begin();
    assert_eq!((begun, files), (second, vec![7]));
    answers.flushed(begun);
    assert_eq!(leaving(&mut answers), [(2, "second".into())]);
    assert_eq!(answers.leaves(Some(2)), Leaves::Now);
}

#[test]
fn what_comes_behind_bytes_of_its_stream_stays_behind_them() {
    let mut answers = Answers::new(100);
    let number = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"abc"]), Leaves::Queued);
    answers.flushed(number);
    // (The kernel takes a part.)
    assert_eq!(answers.next_of(1), Some(&b"abc"[..]));
    answers.left(1, 1);
    assert_eq!(answers.sends(1, &[b"d"]), Leaves::Queued);
    assert_eq!(answers.sends(2, &[b"x"]), Leaves::Now);
    assert_eq!(answers.leaves(Some(1)), Leaves::Waits(number), "a shutdown comes behind");
    assert_eq!(answers.leaves(Some(2)), Leaves::Now);
    assert_eq!(leaving(&mut answers), [(1, "bc".into()), (1, "d".into())]);
    assert_eq!(answers.sends(1, &[b"e"]), Leaves::Now);
}

#[test]
fn what_has_no_room_waits_in_its_call() {
    let mut answers = Answers::new(4);
    let number = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"abc"]), Leaves::Queued);
    assert_eq!(answers.sends(2, &[b"de"]), Leaves::Waits(number));
    assert_eq!(answers.sends(2, &[b"d"]), Leaves::Queued);
    // (Nobody receives it any more.)
    answers.gone(1);
    assert_eq!(answers.sends(3, &[b"efg"]), Leaves::Queued);
    answers.flushed(number);
    assert_eq!(leaving(&mut answers), [(2, "d".into()), (3, "efg".into())]);
}

#[test]
fn nothing_leaves_after_a_flush_that_failed() {
    let mut answers = Answers::new(100);
    let number = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"a"]), Leaves::Queued);
    answers.fails();
    assert_eq!(leaving(&mut answers), []);
    assert_eq!(answers.sends(2, &[b"b"]), Leaves::Never);
    assert_eq!(answers.leaves(None), Leaves::Never);
    assert_eq!(answers.give(0), None);
    // (One that ends later does not make it good.)
    answers.flushed(number);
    assert_eq!(leaving(&mut answers), []);
}

#[test]
fn a_flush_answers_for_no_number_that_was_not_given() {
    let mut answers = Answers::new(100);
    answers.flushed(5);
    answers.give(0);
    assert_eq!(answers.leaves(None), Leaves::Waits(1));
}

#[test]
fn who_waits_is_held_up_by_nothing_that_comes_later() {
    let mut answers = Answers::new(100);
    let first = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"a"]), Leaves::Queued);
    let second = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"b"]), Leaves::Queued);
    answers.flushed(first);
    assert!(!answers.has_left(first), "its queue has not left");
    answers.left(1, 1);
    assert!(answers.has_left(first) && !answers.has_left(second));
    answers.flushed(second);
    assert!(!answers.has_left(second) && answers.is_busy());
    answers.left(1, 1);
    assert!(answers.has_left(second) && !answers.is_busy());
    answers.fails();
    assert!(!answers.has_left(first));
}

#[test]
fn a_file_that_waits_alone_waits_for_no_other() {
    let mut answers = Answers::new(100);
    assert!(!answers.waits_for_another(1));
    let number = answers.give(1).unwrap();
    assert!(!answers.waits_for_another(1) && answers.waits_for_another(2));
    assert!(answers.waits_for(1) && !answers.waits_for(2));
    answers.give(2);
    assert!(answers.waits_for_another(1) && answers.waits_for(2));
    // (The other one is to become durable still.)
    answers.flushed(number);
    assert!(answers.waits_for_another(1) && !answers.waits_for_another(2));
}

#[test]
fn queued_bytes_are_counted_for_each_stream() {
    let mut answers = Answers::new(100);
    let number = answers.give(0).unwrap();
    assert_eq!(answers.sends(1, &[b"ab", b"c"]), Leaves::Queued);
    assert_eq!(answers.sends(1, &[b"d"]), Leaves::Queued);
    assert_eq!((answers.queued(1), answers.queued(2), answers.given()), (4, 0, number));
    answers.flushed(number);
    answers.left(1, 2);
    assert_eq!(answers.queued(1), 2);
}
