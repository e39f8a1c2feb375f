//! Calls: a word for each, and its arguments.

use super::bytes::Worker;
use super::{Said, sockets};
use core::ffi::c_int;
use core::str::FromStr;
use uncopy_differ::op::{CloseBy, Ctl, DupBy, How, NonblockBy, PollBy, Timeout, WaitBy};

/// Milliseconds of a short wait.
const SHORT: i32 = 15;
/// Where `select` may not look.
const SELECTABLE: c_int = 1024;

fn to<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("the driver said {word}"))
}

fn milliseconds(wait: Timeout) -> i32 {
    match wait {
        Timeout::No => 0,
        Timeout::Short => SHORT,
        Timeout::Ever => -1,
    }
}

fn timespec(milliseconds: i32) -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds.max(0)) * 1_000_000 }
}

impl Worker {
    /// Makes a call. `None`: this is the forked child.
    pub fn call(&mut self, words: &[&str]) -> Option<Said> {
        let n = |at: usize| -> i64 { to(words[at]) };
        let fd = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(-1);
        Some(match words[0] {
            "send" => self.send(words),
            "recv" => self.receive(words),
            "stream" => self.stream(words),
            "poll" => poll(words),
            "shut" => {
                let how = match to(words[2]) {
                    How::Rd => libc::SHUT_RD,
                    How::Wr => libc::SHUT_WR,
                    How::Rdwr => libc::SHUT_RDWR,
                };
                // SAFETY: a number.
                Said::of(unsafe { libc::shutdown(fd, how) }.into())
            }
            "close" => close(fd, to(words[2])),
            "closefrom" => {
                // SAFETY: numbers.
                Said::of(unsafe { libc::close_range(fd as u32, u32::MAX, 0) }.into())
            }
            "dup" => dup(fd, to(words[2]), n(3) as c_int),
            "nonblock" => nonblock(fd, n(2) != 0, to(words[3])),
            "opt" => sockets::set(fd, to(words[2]), n(3) != 0),
            "ask" => sockets::ask(fd, to(words[2])),
            // SAFETY: a number.
            "newset" => Said::of(unsafe { libc::epoll_create1(0) }.into()),
            "ctl" => {
                let how = match to(words[3]) {
                    Ctl::Add => libc::EPOLL_CTL_ADD,
                    Ctl::Mod => libc::EPOLL_CTL_MOD,
                    Ctl::Del => libc::EPOLL_CTL_DEL,
                };
                let mut event = libc::epoll_event { events: n(4) as u32, u64: n(5) as u64 };
                // SAFETY: numbers, and our own event.
                Said::of(unsafe { libc::epoll_ctl(fd, how, n(2) as c_int, &mut event) }.into())
            }
            "wait" => wait(fd, n(2) as usize, to(words[3]), to(words[4])),
            "fork" => {
                // SAFETY: the child goes on as a program with one thread does.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    return None;
                }
                Said::of(child.into())
            }
            "exec" => {
                let own = std::env::current_exe().expect("there is a program");
                let own = std::ffi::CString::new(own.into_os_string().into_encoded_bytes());
                let own = own.expect("a path has no zeros");
                let words = [own.as_ptr(), c"worker".as_ptr(), c"--child".as_ptr()];
                let words = [words[0], words[1], words[2], core::ptr::null()];
                // SAFETY: strings, and a list that ends.
                Said::of(unsafe { libc::execv(words[0], words.as_ptr()) }.into())
            }
            // SAFETY: ends the process.
            "exit" => unsafe { libc::_exit(0) },
            "give" => sockets::give(fd),
            "get" => sockets::get(),
            "listen" => sockets::listen(n(1) != 0),
            "connect" => sockets::connect(n(1) != 0, n(2) as u16, n(3) != 0),
            "accept" => sockets::accept(n(1) as c_int, n(2) != 0),
            "pump" => sockets::pump(fd),
            "counters" => sockets::counters(),
            other => panic!("the driver said {other}"),
        })
    }
}

fn close(fd: c_int, by: CloseBy) -> Said {
    // SAFETY: numbers of the script's.
    unsafe {
        Said::of(match by {
            CloseBy::Close => libc::close(fd).into(),
            CloseBy::Range => libc::close_range(fd as u32, fd as u32, 0).into(),
            CloseBy::Dup2 => {
                let other = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                let onto = libc::dup2(other, fd);
                libc::close(other);
                libc::close(fd);
                i64::from(onto).min(0)
            }
        })
    }
}

fn dup(fd: c_int, by: DupBy, onto: c_int) -> Said {
    // SAFETY: numbers; that of `onto` is free.
    unsafe {
        Said::of(
            match by {
                DupBy::Dup => libc::dup(fd),
                DupBy::Dup2 => libc::dup2(fd, onto),
                DupBy::Dup3 => libc::dup3(fd, onto, libc::O_CLOEXEC),
                DupBy::Fcntl => libc::fcntl(fd, libc::F_DUPFD, onto),
                DupBy::Cloexec => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, onto),
            }
            .into(),
        )
    }
}

fn nonblock(fd: c_int, on: bool, by: NonblockBy) -> Said {
    // SAFETY: a number, and our own variable.
    unsafe {
        Said::of(
            match by {
                NonblockBy::Fcntl => {
                    let flags = libc::fcntl(fd, libc::F_GETFL) & !libc::O_NONBLOCK;
                    libc::fcntl(
                        fd,
                        libc::F_SETFL,
                        if on { flags | libc::O_NONBLOCK } else { flags },
                    )
                }
                NonblockBy::Ioctl => libc::ioctl(fd, libc::FIONBIO, &c_int::from(on)),
            }
            .into(),
        )
    }
}

/// `poll by wait fd events ...`
fn poll(words: &[&str]) -> Said {
    let (by, wait): (PollBy, Timeout) = (to(words[1]), to(words[2]));
    let mut asked: Vec<libc::pollfd> = words[3..]
        .chunks(2)
        .map(|pair| libc::pollfd { fd: to(pair[0]), events: to(pair[1]), revents: 0 })
        .collect();
    let time = milliseconds(wait);
    let spec = timespec(time);
    let spec = if time < 0 { core::ptr::null() } else { &raw const spec };
    let count = asked.len() as libc::nfds_t;
    // SAFETY: our own lists.
    let result = unsafe {
        match by {
            PollBy::Poll => libc::poll(asked.as_mut_ptr(), count, time),
            PollBy::Ppoll => libc::ppoll(asked.as_mut_ptr(), count, spec, core::ptr::null()),
            PollBy::Select | PollBy::Pselect => return select(&asked, by, time),
        }
    };
    let mut said = Said::of(result.into());
    said.more = asked.iter().map(|fd| fd.revents as u16 as u64).collect();
    said
}

fn select(asked: &[libc::pollfd], by: PollBy, time: i32) -> Said {
    const LISTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    assert!(asked.iter().all(|fd| fd.fd < SELECTABLE), "numbers are small");
    // SAFETY: our own lists; all numbers fit.
    unsafe {
        let mut lists: [libc::fd_set; 3] = core::mem::zeroed();
        for fd in asked {
            for (list, bit) in lists.iter_mut().zip(LISTS) {
                if fd.events & bit != 0 {
                    libc::FD_SET(fd.fd, list);
                }
            }
        }
        let most = asked.iter().map(|fd| fd.fd).max().unwrap_or(-1) + 1;
        let [r, w, e] = &mut lists;
        let result = if by == PollBy::Select {
            let mut value = libc::timeval { tv_sec: 0, tv_usec: i64::from(time.max(0)) * 1000 };
            let value = if time < 0 { core::ptr::null_mut() } else { &raw mut value };
            libc::select(most, r, w, e, value)
        } else {
            let spec = timespec(time);
            let spec = if time < 0 { core::ptr::null() } else { &raw const spec };
            libc::pselect(most, r, w, e, spec, core::ptr::null())
        };
        let mut said = Said::of(result.into());
        let ready = |fd: &libc::pollfd| {
            let lists = lists.iter().zip(LISTS).filter(|(list, _)| libc::FD_ISSET(fd.fd, *list));
            lists.fold(0, |all, (_, bit)| all | bit as u64)
        };
        said.more = asked.iter().map(|fd| if result < 0 { 0 } else { ready(fd) }).collect();
        said
    }
}

fn wait(set: c_int, max: usize, by: WaitBy, wait: Timeout) -> Said {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
    let time = milliseconds(wait);
    let (list, most) = (events.as_mut_ptr(), max as c_int);
    let spec = timespec(time);
    let spec = if time < 0 { core::ptr::null() } else { &raw const spec };
    // SAFETY: our own list.
    let result = unsafe {
        match by {
            WaitBy::Wait => libc::epoll_wait(set, list, most, time),
            WaitBy::Pwait => libc::epoll_pwait(set, list, most, time, core::ptr::null()),
            WaitBy::Pwait2 => epoll_pwait2(set, list, most, spec, core::ptr::null()),
        }
    };
    let mut said = Said::of(result.into());
    let told = events.iter().take(usize::try_from(result).unwrap_or(0));
    said.more = told.flat_map(|event| [event.u64, u64::from(event.events)]).collect();
    said
}

unsafe extern "C" {
    fn epoll_pwait2(
        set: c_int,
        events: *mut libc::epoll_event,
        most: c_int,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
}
