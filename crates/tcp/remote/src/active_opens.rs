//! Programs' sockets that connect to other hosts, until they are connected.
//!
//! A socket is registered before it connects. If its way leads by our device, it gets the mark by
//! which its segments come here ([`crate::detour`]), and the program goes on to connect it. Its SYN
//! says who it is, and is answered by nobody until the peer has answered ours. Then a stand-in with
//! the peer's name connects to it: to Linux the two have connected to each other at the same time
//! (RFC 9293, 3.5). So the program's socket connects, or does not, as any: it waits, can be polled,
//! times out, and is closed by Linux.

use crate::detour::Detour;
use crate::options::{congestion, get, number, set};
use crate::packets::{self, Sent};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, connect, getsockname, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uncopy_tcp_proto::{Algorithm, FlowId, ResetReason};
use uncopy_tcp_routes::Routes;
use uncopy_tcp_service::ends::{STAND_IN, has_filter, network_namespace};
use uncopy_tcp_service::{Lent, Owner};

/// A program connects as soon as it is told that it may; and what it sends is sent again after a
/// second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many sockets of one user may have been told to connect and not have begun: they are searched
/// for each that begins.
const WAITING: usize = 1024;
/// `TCP_SYN_SENT` and `TCP_CLOSE` of include/net/tcp_states.h: a socket that connects, one that is
/// not connected.
const CONNECTS: u8 = 2;
const CLOSED: u8 = 7;
/// linux/tcp.h.
const TCP_FASTOPEN_CONNECT: i32 = 30;

/// A socket that is about to connect.
#[derive(Debug)]
pub struct Asked {
    /// The program, as the service knows it.
    pub program: u64,
    /// The socket, as Linux knows it.
    pub cookie: u64,
    /// The socket.
    pub socket: Lent,
    /// The owner of the program.
    pub owner: Owner,
    /// The peer.
    pub to: SocketAddrV4,
    /// How it is to slow down, if the program has said so.
    pub congestion: Option<Algorithm>,
    /// Its number among all that were asked about: a socket may connect several times.
    number: u64,
    since: Instant,
}

/// Names all that was asked about a socket before: nobody waits for it any more.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    cookie: u64,
    number: u64,
    /// Only what this program has asked about: a program that says no more than a socket's name may
    /// not have it.
    program: Option<u64>,
}

/// The meaning of a packet that a program has sent.
#[derive(Debug)]
pub enum Passed {
    /// A connection is to be opened.
    Opens(Opening),
    /// Its socket connects to somebody else by now.
    Again(Before),
}

/// One that has begun.
#[derive(Debug)]
pub struct Opening {
    /// The socket.
    pub asked: Asked,
    /// Its address.
    pub local: SocketAddrV4,
    /// The sequence number of its SYN.
    pub number: u32,
}

/// Both ends of a connection: the program's, its peer's.
type Ends = (SocketAddrV4, SocketAddrV4);

/// See the module.
#[derive(Debug)]
pub struct ActiveOpens {
    detour: Detour,
    /// Sockets whose SYN has not come.
    waiting: Mutex<Vec<Asked>>,
    /// Connections that the peer has not answered.
    opening: Mutex<HashMap<FlowId, Opening>>,
    /// The peers' answers: none is no objection.
    decided: Mutex<Vec<(FlowId, Option<ResetReason>)>>,
    /// Connections whose stand-in has sent its SYN: the answer comes here, and is for the stand-in.
    meeting: Mutex<HashMap<Ends, Instant>>,
    /// The number of the next question.
    next: AtomicU64,
    /// Expires when some may have waited for too long.
    timer: OwnedFd,
    /// Their segments do not come here any more.
    over: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn local(socket: impl AsFd) -> Option<SocketAddrV4> {
    let address = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv4Addr::UNSPECIFIED,
        IpAddr::V6(_) => return None,
    };
    Some(SocketAddrV4::new(ip, address.port()))
}

/// The state of a socket, as [`CLOSED`].
fn state(socket: impl AsFd) -> Option<u8> {
    let mut state = [0; 1];
    let got = get(socket, libc::SOL_TCP, libc::TCP_INFO, &mut state);
    (got == Ok(1)).then_some(state[0])
}

/// The address of ours that Linux would have for this peer.
pub fn source(peer: SocketAddrV4) -> Option<Ipv4Addr> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    connect(&socket, &peer).ok()?;
    local(&socket).map(|local| *local.ip())
}

/// A socket is no connection's of ours any more that it was of before. False: that cannot be.
pub fn freed(socket: &Lent) -> bool {
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, 0).is_ok()
}

impl ActiveOpens {
    /// None yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(detour: Detour) -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            over: AtomicBool::new(false),
            detour,
            waiting: Mutex::default(),
            opening: Mutex::default(),
            decided: Mutex::default(),
            meeting: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Readable when [`purge`](Self::purge) is to be called.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Sockets that have waited for too long become Linux's: their segments went another way.
    pub fn purge(&self) {
        let mut expired = [0; 8];
        let _ = rustix::io::read(&self.timer, &mut expired);
        let mut waiting = lock(&self.waiting);
        let late = |asked: &mut Asked| asked.since.elapsed() >= TIMEOUT;
        waiting.extract_if(.., late).for_each(|asked| self.detour.leave(&asked.socket));
        if let Some(oldest) = waiting.iter().map(|asked| asked.since).min() {
            self.set_timer(TIMEOUT.saturating_sub(oldest.elapsed()));
        }
    }

    /// The timer expires after so long.
    fn set_timer(&self, after: Duration) {
        let after = after + Duration::from_millis(1);
        let it_value =
            Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // (A valid time cannot be refused.)
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Their segments do not come here any more: nothing is taken from now on. Those that are under
    /// way.
    pub fn ends(&self) -> Vec<FlowId> {
        self.over.store(true, Relaxed);
        self.take_back(|_| true)
    }

    /// Where their segments come from.
    pub fn detour(&self) -> &Detour {
        &self.detour
    }

    /// A program is about to connect this socket. Its cookie: it is to, and its segments come here.
    /// None: it is Linux's.
    pub fn takes(
        &self,
        (program, owner): (u64, Owner),
        to: SocketAddrV4,
        socket: Lent,
        routes: &Routes,
    ) -> Option<u64> {
        // (One that is not known is looked for: until then Linux connects, and waits for it.)
        let reached = !routes.is_own(*to.ip())
            && routes.number(*to.ip()).is_some_and(|hop| routes.find(hop).is_some());
        if !reached || !self.can_be(&socket, to, routes) {
            return None;
        }
        let cookie = sockopt::socket_cookie(&socket).ok()?;
        let mut waiting = lock(&self.waiting);
        let of_owner = || waiting.iter().filter(|asked| asked.owner == owner).count();
        if self.over.load(Relaxed) || of_owner() >= WAITING {
            return None;
        }
        self.detour.take(&socket).ok()?;
        let number = self.next.fetch_add(1, Relaxed);
        let congestion = congestion(&socket);
        if waiting.is_empty() {
            self.set_timer(TIMEOUT);
        }
        waiting.push(Asked {
            program,
            cookie,
            socket,
            owner,
            to,
            congestion,
            number,
            since: Instant::now(),
        });
        Some(cookie)
    }

    /// A socket that is to connect again may have been a connection's here before. Returns what is
    /// to be taken back then, once it is [`freed`].
    pub fn had(&self, socket: &Lent) -> Option<Before> {
        let mark = number(socket, libc::SOL_SOCKET, libc::SO_MARK).ok()?;
        let ours = mark == STAND_IN.cast_signed() || self.detour.is_taken(socket);
        if !ours || state(socket) != Some(CLOSED) {
            return None;
        }
        Some(self.before(sockopt::socket_cookie(socket).ok()?))
    }

    /// All that was asked about this socket until now.
    fn before(&self, cookie: u64) -> Before {
        Before { cookie, number: self.next.load(Relaxed), program: None }
    }

    /// All that this program has asked about the socket of this cookie until now.
    pub fn before_of(&self, program: u64, cookie: u64) -> Before {
        Before { program: Some(program), ..self.before(cookie) }
    }

    /// How many are to connect, or connect.
    pub fn count(&self) -> usize {
        lock(&self.waiting).len() + lock(&self.opening).len()
    }

    /// How many of this owner's are to connect. (Those that connect have their part.)
    pub fn waiting_of(&self, owner: Owner) -> usize {
        lock(&self.waiting).iter().filter(|asked| asked.owner == owner).count()
    }

    /// Whether a stand-in can do all that is set for this socket.
    fn can_be(&self, socket: &Lent, to: SocketAddrV4, routes: &Routes) -> bool {
        let is = |level, option, value| number(socket, level, option) == Ok(value);
        let mut device = [0; 16];
        let plain = is(libc::SOL_SOCKET, libc::SO_TYPE, libc::SOCK_STREAM)
            && is(libc::SOL_SOCKET, libc::SO_PROTOCOL, libc::IPPROTO_TCP)
            && is(libc::SOL_SOCKET, libc::SO_MARK, 0)
            && is(libc::SOL_TCP, TCP_FASTOPEN_CONNECT, 0)
            && get(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut device) == Ok(0)
            && !has_filter(socket)
            && state(socket) == Some(CLOSED)
            && network_namespace(socket) == network_namespace(self.detour.own());
        plain
            && local(socket).is_some_and(|local| match *local.ip() {
                Ipv4Addr::UNSPECIFIED => source(to) == Some(self.detour.source()),
                ip => routes.addresses().contains(&ip),
            })
    }

    /// A program has sent this.
    pub fn passes(&self, packet: &[u8]) -> Option<Passed> {
        let sent = packets::read(packet)?;
        if sent.begins {
            return self.begins(&sent).map(Passed::Opens).or_else(|| self.again(&sent));
        }
        let known = lock(&self.meeting).remove(&(sent.from, sent.to)).is_some();
        if known {
            self.detour.pass_on(packet, *sent.to.ip());
        }
        None
    }

    fn begins(&self, sent: &Sent) -> Option<Opening> {
        let mut waiting = lock(&self.waiting);
        let is = |asked: &Asked| asked.to == sent.to && local(&asked.socket) == Some(sent.from);
        let at = waiting.iter().position(is)?;
        Some(Opening { asked: waiting.swap_remove(at), local: sent.from, number: sent.number })
    }

    /// A socket may connect again without a question, where the first time is not known to have
    /// failed. (One that is under way is sent again, because the peer has not answered.)
    fn again(&self, sent: &Sent) -> Option<Passed> {
        let opening = lock(&self.opening);
        let is = |opening: &&Opening| (opening.local, opening.asked.to) == (sent.from, sent.to);
        if opening.values().find(is).is_some() {
            return None;
        }
        let its = |opening: &&Opening| local(&opening.asked.socket) == Some(sent.from);
        let before = opening.values().find(its)?;
        Some(Passed::Again(self.before(before.asked.cookie)))
    }

    /// Its socket still connects as it did.
    pub fn is_current(opening: &Opening) -> bool {
        let socket = &opening.asked.socket;
        state(socket) == Some(CONNECTS) && local(socket) == Some(opening.local)
    }

    /// Its SYN is sent again after a second; then it is opened, if it can be.
    pub fn later(&self, opening: Opening) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            self.set_timer(TIMEOUT);
        }
        waiting.push(Asked { since: Instant::now(), ..opening.asked });
    }

    /// Linux connects it: its SYN is sent again after a second.
    pub fn by_linux(&self, opening: &Opening) {
        self.detour.leave(&opening.asked.socket);
    }

    /// Its socket has given up, and may be to connect again already: then it keeps its mark.
    pub fn gives_up(&self, opening: &Opening) {
        let waiting = lock(&self.waiting);
        if !waiting.iter().any(|other| other.cookie == opening.asked.cookie) {
            self.detour.leave(&opening.asked.socket);
        }
    }

    /// Nobody listens there.
    pub fn refused(&self, opening: &Opening) {
        self.detour.refuse(opening.asked.to, opening.local, opening.number);
        self.detour.leave(&opening.asked.socket);
    }

    /// It is under way.
    pub fn opens(&self, flow: FlowId, opening: Opening) {
        lock(&self.opening).insert(flow, opening);
    }

    /// The peer has answered, or will not. (If it is one of these.)
    pub fn decides(&self, flow: FlowId, why_not: Option<ResetReason>) {
        if lock(&self.opening).contains_key(&flow) {
            lock(&self.decided).push((flow, why_not));
        }
    }

    /// The answers that came since the last call.
    pub fn take_decided(&self) -> Vec<(FlowId, Opening, Option<ResetReason>)> {
        let decided = core::mem::take(&mut *lock(&self.decided));
        let mut opening = lock(&self.opening);
        let known = decided.into_iter();
        known.filter_map(|(flow, why)| Some((flow, opening.remove(&flow)?, why))).collect()
    }

    /// This program has gone. (If somebody waits for one of its after all, Linux connects it.)
    /// Those that are under way.
    pub fn take_back_of(&self, program: u64) -> Vec<FlowId> {
        self.take_back(|asked| asked.program == program)
    }

    /// Nobody waits for these any more. Those that are under way.
    pub fn take_back_before(&self, before: Before) -> Vec<FlowId> {
        let is = |asked: &Asked| (asked.cookie == before.cookie) && asked.number < before.number;
        let its = |asked: &Asked| before.program.is_none_or(|program| program == asked.program);
        self.take_back(|asked| is(asked) && its(asked))
    }

    fn take_back(&self, matches: impl Fn(&Asked) -> bool) -> Vec<FlowId> {
        let of = |asked: &mut Asked| matches(asked);
        let mut waiting = lock(&self.waiting);
        let mut back: Vec<Asked> = waiting.extract_if(.., of).collect();
        let mut flows = vec![];
        let its = |_: &FlowId, opening: &mut Opening| matches(&opening.asked);
        for (flow, opening) in lock(&self.opening).extract_if(its) {
            back.push(opening.asked);
            flows.push(flow);
        }
        for asked in back {
            // (It may be to connect again already.)
            if !waiting.iter().any(|other| other.cookie == asked.cookie) {
                self.detour.leave(&asked.socket);
            }
        }
        flows
    }

    /// A stand-in connects to it, by `connects`; from then on what the program sends stays on this
    /// host.
    ///
    /// # Errors
    /// The error of `connects`.
    pub fn meets<T, E>(
        &self,
        opening: &Opening,
        connects: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        // The answer of the program's socket is passed on once that is so, and not before: then the
        // program can send.
        let mut meeting = lock(&self.meeting);
        meeting.retain(|_, since| since.elapsed() < TIMEOUT);
        let connected = connects()?;
        if Detour::keep(&opening.asked.socket).is_ok() {
            meeting.insert((opening.local, opening.asked.to), Instant::now());
        }
        Ok(connected)
    }
}
