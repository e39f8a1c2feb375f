//! Changes to the process as a whole. Most of it only in children, so that the script goes on.
//!
//! unsafe: system calls that touch no memory of the script's.

use super::log::Note;
use core::mem::zeroed;
use std::fs;
use uncopy_torture::op::{Limited, Op, Rights};

/// Carries out `op`, if it is one of these.
pub fn carry_out(op: Op, in_child: bool, note: &mut Note) {
    match op {
        Op::Rights { how } if in_child || how == Rights::NoNewPrivs => give_up(how, note),
        Op::Rights { .. } => note.add("not"),
        Op::Limit { what, more } => limit(what, more, note),
        _ => {}
    }
}

fn give_up(how: Rights, note: &mut Note) {
    // SAFETY: the calls read what is passed, and change this process's rights.
    unsafe {
        match how {
            Rights::NoNewPrivs => {
                note.result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) as isize);
            }
            Rights::NoCapabilities => {
                // _LINUX_CAPABILITY_VERSION_3, this thread; nothing effective, permitted,
                // inheritable.
                let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
                note.result(libc::syscall(libc::SYS_capset, &header, &none) as isize);
            }
            Rights::OwnNetwork => {
                let result = libc::unshare(libc::CLONE_NEWNET) as isize;
                if note.result(result) == 0 {
                    loopback_up();
                }
            }
            Rights::OwnUsers => {
                let mut tries = 0;
                let result = loop {
                    // Refused while a thread that was joined is still on its way out.
                    let result = libc::unshare(libc::CLONE_NEWUSER);
                    tries += 1;
                    if result == 0 || tries == 50 {
                        break result;
                    }
                    libc::usleep(1000);
                };
                if note.result(result as isize) == 0 {
                    let map = |file: &str, text: &str| fs::write(file, text).is_ok();
                    note.add(map("/proc/self/setgroups", "deny"));
                    note.add(map("/proc/self/uid_map", "0 0 1"));
                    note.add(map("/proc/self/gid_map", "0 0 1"));
                }
            }
            Rights::OwnFiles => {
                note.result(libc::unshare(libc::CLONE_FILES | libc::CLONE_FS) as isize);
            }
            Rights::Setns => {
                for (name, kind) in
                    [(c"/proc/self/ns/net", libc::CLONE_NEWNET), (c"/proc/self/ns/uts", 0)]
                {
                    let fd = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    note.result(libc::setns(fd, kind) as isize);
                    libc::close(fd);
                }
            }
        }
    }
}

/// A new network namespace's loopback is down.
unsafe fn loopback_up() {
    // SAFETY: the structure is large enough for both requests.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = zeroed();
        request.ifr_name[0] = b'l' as _;
        request.ifr_name[1] = b'o' as _;
        libc::ioctl(fd, libc::SIOCGIFFLAGS, &mut request);
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        libc::ioctl(fd, libc::SIOCSIFFLAGS, &mut request);
        libc::close(fd);
    }
}

/// Far above what the script will use.
fn limit(what: Limited, more: usize, note: &mut Note) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name: &str| -> u64 {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        let number = line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok());
        number.unwrap_or(u64::MAX >> 20)
    };
    let (resource, used) = match what {
        Limited::AddressSpace => (libc::RLIMIT_AS, kilobytes("VmSize:")),
        Limited::Data => (libc::RLIMIT_DATA, kilobytes("VmData:")),
    };
    // SAFETY: reads and writes the limit.
    unsafe {
        let mut old: libc::rlimit = zeroed();
        libc::getrlimit(resource, &mut old);
        let wanted = if more == 0 { old.rlim_max } else { (used << 10) + ((more as u64) << 20) };
        let new = libc::rlimit { rlim_cur: wanted.min(old.rlim_max), ..old };
        note.result(libc::setrlimit(resource, &new) as isize);
    }
}
