//! The facts of a side, as data: the class of its threads in the kernel's schedule, its cores, and
//! what its own sockets say (`getsockopt`, on a descriptor that is taken from the process). Two
//! sides that differ in it are not compared fairly, unless that is what is compared.

// Unsafe: descriptors of another process, and options of sockets, are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Facts by their names. (Of threads and sockets that differ, all values.)
pub type Facts = BTreeMap<String, String>;

/// So many sockets of a process are looked at.
const LOOKED_AT: usize = 64;
/// Whether buffers have a size that was set (`SO_BUF_LOCK`).
const SO_BUF_LOCK: libc::c_int = 72;

/// Of a process, which lives and whose descriptors may be taken: a child's may.
pub fn of_process(pid: u32) -> Facts {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut tell = |fact, value| {
        found.entry(fact).or_default().insert(value);
    };
    for class in threads(pid) {
        tell("threads", class);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if let Some(cores) = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")) {
        tell("cores", cores.trim().to_owned());
    }
    match sockets(pid) {
        Ok(sockets) => {
            for socket in sockets.into_iter().filter(is_connection).take(LOOKED_AT) {
                of_socket(&socket, &mut tell);
            }
        }
        Err(e) => tell("sockets", format!("cannot be seen ({e})")),
    }
    let joined = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" or ");
    found.into_iter().map(|(fact, values)| (fact.to_owned(), joined(values))).collect()
}

/// The classes of its threads: fields 19, 40 and 41 of their `stat` (proc(5)).
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let class = |stat: String| -> Option<String> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let [nice, priority, policy] = [19, 40, 41].map(|field| fields.get(field - 3).copied());
        let name = match policy?.parse() {
            Ok(libc::SCHED_OTHER) => "ordinary",
            Ok(libc::SCHED_FIFO) => "first in, first out",
            _ => "another class",
        };
        Some(format!("{name}, nice {}, priority {}", nice?, priority?))
    };
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(class).collect()
}

/// Its sockets, as descriptors of ours.
fn sockets(pid: u32) -> io::Result<Vec<OwnedFd>> {
    let opened = |result: libc::c_long| -> io::Result<OwnedFd> {
        match libc::c_int::try_from(result) {
            // SAFETY: the kernel has just made it, for us alone.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: numbers alone.
    let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:["));
        let number = entry.file_name().to_string_lossy().parse::<libc::c_int>();
        if let (true, Ok(number)) = (is_socket, number) {
            let call = libc::SYS_pidfd_getfd;
            // SAFETY: as above.
            match opened(unsafe { libc::syscall(call, process.as_raw_fd(), number, 0) }) {
                // (It was closed meanwhile.)
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => {}
                socket => sockets.push(socket?),
            }
        }
        if sockets.len() > 4 * LOOKED_AT {
            break;
        }
    }
    Ok(sockets)
}

/// The bytes of an option; none: it has none.
fn option<const N: usize>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
) -> Option<[u8; N]> {
    let (mut bytes, mut length) = ([0; N], N as libc::socklen_t);
    let at = bytes.as_mut_ptr().cast();
    // SAFETY: writes at most `length` bytes there.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at, &raw mut length) };
    (done == 0).then_some(bytes)
}

fn number(socket: &OwnedFd, level: libc::c_int, name: libc::c_int) -> Option<i32> {
    option(socket, level, name).map(i32::from_ne_bytes)
}

/// Of TCP, and no listener.
fn is_connection(socket: &OwnedFd) -> bool {
    number(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && number(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(0)
}

fn of_socket(socket: &OwnedFd, tell: &mut impl FnMut(&'static str, String)) {
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    if let Some(name) = option::<16>(socket, libc::SOL_TCP, libc::TCP_CONGESTION) {
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        tell("congestion control", name);
    }
    if let Some(now) = number(socket, libc::SOL_TCP, libc::TCP_NODELAY) {
        tell("small segments", if now == 0 { "wait" } else { "go at once" }.to_owned());
    }
    // (The sixth byte of `struct tcp_info`: what both ends agreed to.)
    if let Some([.., options, _, _]) = option::<8>(socket, libc::SOL_TCP, libc::TCP_INFO) {
        tell("timestamps", yes(options & 1 > 0));
        tell("selective acknowledgements", yes(options & 2 > 0));
        tell("scaled windows", yes(options & 4 > 0));
        tell("marks", yes(options & 8 > 0));
    }
    if let Some(which) = number(socket, libc::SOL_SOCKET, SO_BUF_LOCK) {
        tell("buffers with a size of their own", which.to_string());
    }
    if let Some(us) = number(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL) {
        tell("asks the device, us", us.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    #[test]
    fn a_childs_socket_and_threads_say_what_they_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        let stdin = Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        let mut child = Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap();
        let facts = of_process(child.id());
        socket.set_nodelay(false).unwrap();
        let other = of_process(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((&*facts["small segments"], &*other["small segments"]), ("go at once", "wait"));
        for fact in ["threads", "cores", "congestion control", "marks", "timestamps"] {
            assert!(!facts[fact].is_empty() && facts[fact] == other[fact], "{facts:?} {other:?}");
        }
    }
}
