//! Who descends from whom, and who of them listens, as `/proc` says.

use std::collections::HashSet;
use std::fs;

/// All processes that descend from `ancestor`, without itself; nearer ones first.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = numbers().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&older) = found.get(next) {
        found.extend(all.iter().filter(|(_, parent)| *parent == older).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// Its children.
pub fn children(of: u32) -> Vec<u32> {
    numbers().filter(|pid| parent(*pid) == Some(of)).collect()
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Its parent. (Who seems to be dead may have threads that live.)
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let words = std::str::from_utf8(&stat[close + 1..]).ok()?;
    words.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether one of `pids` has a listening TCP socket.
pub fn listens(pids: &[u32]) -> bool {
    pids.iter().any(|pid| {
        let listening = listening(*pid);
        !listening.is_empty() && sockets(*pid).any(|inode| listening.contains(&inode))
    })
}

/// The inodes of all listening TCP sockets that a process can see.
fn listening(pid: u32) -> HashSet<u64> {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|text| text.lines().filter_map(listener).collect::<Vec<u64>>())
        .collect()
}

/// The inode in a line of `/proc/net/tcp`, if the socket listens.
fn listener(line: &str) -> Option<u64> {
    const LISTEN: &str = "0A";
    let mut words = line.split_ascii_whitespace();
    (words.nth(3)? == LISTEN).then(|| words.nth(5)?.parse().ok())?
}

/// The inodes of a process's sockets.
fn sockets(pid: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_count() {
        let line = |state: &str| {
            format!(
                "   0: 0100007F:1E61 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1 0"
            )
        };
        assert_eq!(listener(&line("0A")), Some(4711));
        assert_eq!(listener(&line("01")), None);
        assert_eq!(listener("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn this_process_descends_from_its_parent_and_is_seen_to_listen() {
        let me = std::process::id();
        assert!(descendants(std::os::unix::process::parent_id()).contains(&me));
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(&[me]));
        assert!(!listens(&[]));
    }
}
