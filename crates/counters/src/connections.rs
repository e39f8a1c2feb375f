//! The fates of TCP connections under `--tcp`: which reasons there are for one to stay with Linux,
//! and what was done, in words. `uncopy run --verbose`, `uncopy stat` and `uncopy tcp flows` say
//! it.

use crate::counters::{Counters, Snapshot};
use crate::formatting::{grouped, rough_size};
use core::sync::atomic::AtomicU64;

/// Why a whole connection is Linux's.
#[derive(Clone, Copy, Debug)]
pub struct Stays {
    /// Its short name, as `uncopy_tcp_service`'s `Reason` has it.
    pub name: &'static str,
    /// The text of the reason.
    pub text: &'static str,
    /// The next step for a user who wants a ring.
    pub next: &'static str,
    /// Where such connections are counted.
    pub counter: fn(&Counters) -> &AtomicU64,
    /// How many there were.
    pub count: fn(&Snapshot) -> u64,
}

macro_rules! stays {
    ($( $name:literal $counter:ident $text:literal $next:literal )*) => {
        /// All of them. docs/inside/tcp.md has them for people.
        pub const STAYS: &[Stays] = &[ $( Stays {
            name: $name,
            text: $text,
            next: $next,
            counter: |all| &all.$counter,
            count: |all| all.$counter,
        }, )* ];
    };
}

stays! {
    "peer-not-here" tcp_stayed_peer
        "the other end is not under uncopy"
        "start the other program with 'uncopy run --tcp', too"
    "waiting" tcp_stayed_waiting
        "the other end has not been shown yet"
        "start the other program with 'uncopy run --tcp', too; if it runs so, see what it says"
    "short" tcp_stayed_short
        "closed after too few calls for a ring to pay"
        "use a connection for several requests: it is looked up with the fourth call, \
         and with the 64th where most are shorter"
    "no-service" tcp_stayed_service
        "no answer from the service"
        "'uncopy run --require --tcp -- true' says what keeps one from starting"
    "remote" tcp_stayed_remote
        "the other end is on another host, or in another network namespace"
        "let both containers have one network namespace (a pod, --network container:NAME); \
         for other hosts: 'uncopy tcp serve --if DEVICE'"
    "other-user" tcp_stayed_user
        "the other end is another user's"
        "run both as one user, or as root 'uncopy tcp serve --all-users --across-users'"
    "forked" tcp_stayed_forked
        "shared with a forked process, or handed to an executed program"
        "let the process that uses a connection open or accept it"
    "used" tcp_stayed_use
        "used as rings are not"
        "limitations.md (docs/, or share/doc/uncopy) has a list: stdio, a standard stream, splice, \
         SCM_RIGHTS, O_ASYNC, options for time stamps"
    "io-uring" tcp_stayed_io_uring
        "the program uses io_uring"
        "have it use epoll, where it can be told to"
    "sandbox" tcp_stayed_sandbox
        "the program has entered a sandbox"
        "leave the sandbox out, where the program is trusted"
    "filtered" tcp_stayed_filtered
        "a filter is attached to the socket"
        "leave the filter out: only the kernel heeds it"
    "over-limit" tcp_stayed_limit
        "limit of the service reached"
        "'uncopy tcp serve' with more --connections, or more --memory"
    "no-memory" tcp_stayed_memory
        "no memory for it, or no descriptors"
        "raise the limits of the program and the service (ulimit -n, memory)"
    "not-connected" tcp_stayed_unconnected
        "not a connected TCP socket"
        "nothing: it was closed before it was looked at"
}

/// The reason of this name.
pub fn stays(name: &str) -> Option<&'static Stays> {
    STAYS.iter().find(|stays| stays.name == name)
}

/// Reasons that occur, most frequent first, and how often.
pub fn stayed(s: &Snapshot) -> Vec<(&'static Stays, u64)> {
    let mut all: Vec<_> = STAYS.iter().map(|of| (of, (of.count)(s))).collect();
    all.retain(|(_, n)| *n > 0);
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    all
}

/// The fates of all connections, in one line; none where there was none.
pub fn line(s: &Snapshot) -> Option<String> {
    let stayed = stayed(s);
    // (The counters may be a damaged file's.)
    let by_linux = stayed.iter().fold(0u64, |all, (_, n)| all.saturating_add(*n));
    let all = s.tcp_connections.saturating_add(by_linux);
    if all == 0 {
        let begun = grouped(s.tcp_begun);
        let undecided = format!(
            "{begun} begun: used in fewer than four calls so far, or handed to other processes"
        );
        return (s.tcp_begun > 0).then_some(undecided);
    }
    let mut parts = Vec::new();
    if s.tcp_connections > 0 {
        let without_copy = |bytes: u64| match bytes {
            0 => String::new(),
            bytes => format!(", of that {} without a copy", rough_size(bytes as f64)),
        };
        parts.push(format!(
            "{} through shared memory ({} messages, {} sent{}, {} received{})",
            grouped(s.tcp_connections),
            grouped(s.tcp_sends.saturating_add(s.tcp_receives)),
            rough_size(s.tcp_sent_bytes as f64),
            without_copy(s.tcp_given_on_bytes),
            rough_size(s.tcp_received_bytes as f64),
            without_copy(s.tcp_viewed_bytes)
        ));
    }
    if by_linux > 0 {
        let why: Vec<String> = stayed
            .iter()
            .map(|(of, n)| format!("{} {} ({}; {})", grouped(*n), of.name, of.text, of.next))
            .collect();
        parts.push(format!("{} by Linux: {}", grouped(by_linux), why.join("; ")));
    }
    let noun = if all == 1 { "connection" } else { "connections" };
    Some(format!("{} {noun}: {}", grouped(all), parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_and_a_counter_of_its_own() {
        let mut names: Vec<_> = STAYS.iter().map(|of| of.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAYS.len());
        let counters = Counters::new();
        for (i, of) in STAYS.iter().enumerate() {
            (of.counter)(&counters).store(i as u64 + 1, core::sync::atomic::Ordering::Relaxed);
        }
        let all = counters.snapshot();
        for (i, of) in STAYS.iter().enumerate() {
            assert_eq!((of.count)(&all), i as u64 + 1, "{}", of.name);
        }
        // And every counter of connections that stayed is a reason's.
        let counted = all.iter().filter(|(name, _)| name.starts_with("tcp_stayed_"));
        assert_eq!(counted.map(|(_, n)| n).filter(|n| *n == 0).count(), 0);
    }

    #[test]
    fn counters_that_cannot_be_are_said_too() {
        let most = u64::MAX;
        let sent = Snapshot { tcp_sends: most, tcp_receives: most, ..Snapshot::default() };
        let s = Snapshot { tcp_connections: most, tcp_stayed_remote: most, ..sent };
        let said = line(&Snapshot { tcp_stayed_short: most, ..s }).unwrap();
        assert!(said.starts_with(&format!("{} connections: ", grouped(most))), "{said}");
    }

    #[test]
    fn connections_are_one_line_with_every_reason_and_what_to_do() {
        assert_eq!(line(&Snapshot::default()), None);
        let s = Snapshot { tcp_stayed_remote: 1, ..Snapshot::default() };
        let remote = stays("remote").unwrap();
        let said = line(&s).unwrap();
        assert_eq!(
            said,
            format!("1 connection: 1 by Linux: 1 remote ({}; {})", remote.text, remote.next)
        );
        let s = Snapshot {
            tcp_connections: 2,
            tcp_sends: 1_000,
            tcp_receives: 234,
            tcp_sent_bytes: 2 << 20,
            tcp_received_bytes: 4096,
            tcp_stayed_short: 10,
            ..s
        };
        let said = line(&s).unwrap();
        assert!(
            said.starts_with(
                "13 connections: 2 through shared memory \
                 (1,234 messages, 2.0 MB sent, 4.0 KB received), 11 by Linux: 10 short ("
            ),
            "{said}"
        );
        assert!(said.contains("); 1 remote (") && !said.contains('\n'), "{said}");
        let said = line(&Snapshot { tcp_given_on_bytes: 1 << 20, ..s }).unwrap();
        assert!(said.contains("2.0 MB sent, of that 1.0 MB without a copy, 4.0 KB received)"));
        let said = line(&Snapshot { tcp_viewed_bytes: 2048, ..s }).unwrap();
        assert!(said.contains("4.0 KB received, of that 2.0 KB without a copy)"), "{said}");
    }
}
