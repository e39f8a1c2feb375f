//! The work that was done, in words: the summary of `--verbose`.

use crate::connections;
use crate::counters::Snapshot;
use crate::formatting::{grouped, rough_size};

const PAGE: u64 = 4096;

/// Whether there was anything to save.
pub fn saved_anything(s: &Snapshot) -> bool {
    s.elided_copies > 0 || s.lent_sends > 0 || s.kept_reads > 0 || s.kept_sends > 0
}

/// The work that was done and why no more was, a phrase each; zeros are left out.
pub fn phrases(s: &Snapshot) -> Vec<String> {
    let mut all = Vec::new();
    let bytes = |n: u64| rough_size(n as f64);
    let mut say = |n: u64, text: String| {
        if n > 0 {
            all.push(text);
        }
    };
    let copies = |n: u64| counted(n, "copy", "copies");
    say(
        s.elided_copies,
        format!("{} left out, {}", copies(s.elided_copies), bytes(s.elided_bytes)),
    );
    let touched = bytes(s.touched_pages * PAGE);
    let faults = counted(s.faults, "page fault", "page faults");
    say(
        s.touched_pages,
        format!("{touched} of that filled in after all, because the program touched it ({faults})"),
    );
    say(
        s.copied_bytes,
        format!(
            "{} copied beside it: the edges of buffers, and what was in use",
            bytes(s.copied_bytes)
        ),
    );
    let resting = copies(s.backoff_copies);
    say(
        s.backoff_copies,
        format!("{resting} made as ever, at places where leaving them out does not pay"),
    );
    let sends = counted(s.lent_sends, "send", "sends");
    say(
        s.lent_sends,
        format!("{} sent without a copy into the kernel ({sends})", bytes(s.lent_bytes)),
    );
    let reads = counted(s.kept_reads, "read", "reads");
    say(s.kept_reads, format!("{reads} answered from kept files, {}", bytes(s.kept_read_bytes)));
    let sends = counted(s.kept_sends, "send", "sends");
    say(s.kept_sends, format!("{sends} of kept files from memory, {}", bytes(s.kept_sent_bytes)));
    let connections = connections::line(s);
    say(u64::from(connections.is_some()), connections.unwrap_or_default());
    for (n, why) in [
        (s.tcp_died_unread, "the other program died before it had read everything"),
        (s.tcp_poisoned, "the other program wrote into the shared memory what makes no sense"),
    ] {
        say(n, format!("{} reported: {why}", counted(n, "reset", "resets")));
    }
    say(
        s.tcp_filtered,
        "no connection through shared memory: a filter of system calls would end the program for \
         what that takes ('uncopy doctor' names it)"
            .to_owned(),
    );
    for (n, why) in [
        (s.tcp_blocks_filtered, "a filter of system calls does not let pass what it takes"),
        (s.tcp_blocks_no_new_privs, "it was started with NoNewPrivs"),
    ] {
        say(n, format!("no message without a copy (tcp-references): {why}"));
    }
    let refused = copies(s.refusals);
    say(s.refusals, format!("{refused} made because the kernel would not move the pages"));
    for (n, of, option) in [
        (s.exhausted_extents, "memory", "--extent-memory"),
        (s.exhausted_mappings, "mappings", "--max-mappings"),
    ] {
        say(n, format!("{} made because the {of} for it was used up ({option})", copies(n)));
    }
    say(
        s.injected,
        format!("{} made to fail (UNCOPY_INJECT)", counted(s.injected, "call", "calls")),
    );
    all.extend(obstacles(s).map(|(_, text)| text.to_owned()));
    all
}

/// Reasons why nothing, or nothing more, was left out: in how many processes, and which.
fn obstacles(s: &Snapshot) -> impl Iterator<Item = (u64, &'static str)> {
    [
        (s.off_permission, "userfaultfd is not permitted ('uncopy doctor' says who permits it)"),
        (s.off_kernel, "the kernel has no UFFDIO_MOVE (Linux 6.8 or newer has)"),
        (s.off_resources, "no memory, address space or descriptors were left for it"),
        (s.off_limit, "a control group's memory limit left too little room to begin"),
        (s.off_thread, "no thread could be made for it"),
        (
            s.off_sandbox,
            "nothing more was left out once the program entered a sandbox or locked its memory",
        ),
        (
            s.off_filter,
            "a filter of system calls would end the program for those that it takes ('uncopy \
             doctor' names them)",
        ),
        (
            s.off_descriptors,
            "nothing more was left out once the program had closed our descriptors",
        ),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
}

fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { more })
}

/// A line on what `others` processes that a program started did; none if that is nothing.
pub fn of_others(others: u64, s: &Snapshot) -> Option<String> {
    let phrases = phrases(s);
    let they = match others {
        0 => "what it started".to_owned(),
        n => format!("{} that it started", counted(n, "process", "processes")),
    };
    (!phrases.is_empty()).then(|| format!("{they}: {}", phrases.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_zero_is_not_mentioned() {
        assert!(phrases(&Snapshot::default()).is_empty());
        let s = Snapshot { elided_copies: 1, elided_bytes: 65536, ..Snapshot::default() };
        assert_eq!(phrases(&s), ["1 copy left out, 64.0 KB"]);
        // Counters of the allocator or the books say nothing to a user.
        assert!(phrases(&Snapshot { twin_blocks: 9, events: 3, ..Snapshot::default() }).is_empty());
    }

    #[test]
    fn many_are_grouped_and_reasons_are_given() {
        let s = Snapshot {
            elided_copies: 12_345,
            elided_bytes: 3 << 30,
            touched_pages: 256,
            faults: 200,
            backoff_copies: 7,
            off_sandbox: 1,
            ..Snapshot::default()
        };
        assert_eq!(
            phrases(&s),
            [
                "12,345 copies left out, 3.0 GB",
                "1.0 MB of that filled in after all, because the program touched it (200 page \
                 faults)",
                "7 copies made as ever, at places where leaving them out does not pay",
                "nothing more was left out once the program entered a sandbox or locked its memory",
            ]
        );
    }

    #[test]
    fn reads_and_sends_of_kept_files_are_said() {
        let s = Snapshot { kept_sends: 1, kept_sent_bytes: 1 << 20, ..Snapshot::default() };
        assert!(saved_anything(&s));
        let s = Snapshot { kept_reads: 2, kept_read_bytes: 2 << 20, ..s };
        assert_eq!(
            phrases(&s),
            [
                "2 reads answered from kept files, 2.0 MB",
                "1 send of kept files from memory, 1.0 MB"
            ]
        );
    }

    #[test]
    fn others_are_one_line_or_none() {
        assert_eq!(of_others(0, &Snapshot::default()), None);
        let s = Snapshot {
            elided_copies: 2,
            elided_bytes: 1 << 20,
            faults: 1,
            touched_pages: 1,
            ..Snapshot::default()
        };
        assert_eq!(
            of_others(2, &s).unwrap(),
            "2 processes that it started: 2 copies left out, 1.0 MB; \
             4.0 KB of that filled in after all, because the program touched it (1 page fault)"
        );
    }
}
