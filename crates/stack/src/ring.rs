//! TCP connections within this host, as a stack: bytes go by rings, or by Linux as long as the
//! connection has none.
//!
//! unsafe: buffers of the program's, which are handed on.

use crate::buffers::{IOV_MAX, Pieces, each, give, piece, take};
use crate::calls::{InputCall, OutputCall};
use crate::linux;
use crate::linux::on::refused_for_pieces;
use crate::stack::{Input, KeptPieces, Lending, Output};
use arrayvec::ArrayVec;
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t};
use std::sync::Arc;
use uncopy_core::plan::{MAX_PIECES, Move, OutputPlan};
use uncopy_core::regions::{Owner, Region, RegionId};
use uncopy_core::tracker::ADOPT_MIN;
use uncopy_kernel::critical;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_tcp_calls::data::{RECEIVES_OTHERWISE, Ring, SENDS_OTHERWISE, answer};
use uncopy_tcp_shared::copy;
use uncopy_tcp_socket::{Errno, Forward, GIVEN_ON, Own, Peer, Settling, Taken, Views, Way};

/// So many bytes a call moves at most (MAX_RW_COUNT).
const MOST: usize = 0x7fff_f000;
/// Addresses of programs end here.
const END: usize = 1 << 47;

/// Buffers of a call, as far as it moves them.
#[derive(Debug)]
pub(crate) enum Parts {
    One([iovec; 1]),
    Many(Vec<iovec>),
}

impl Parts {
    pub(crate) fn as_slice(&self) -> &[iovec] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

/// Whether the kernel takes a buffer of this length.
fn is_taken(at: usize, n: usize) -> bool {
    at.checked_add(n).is_some_and(|end| end <= END)
}

/// The buffer of a call that looks at as much of it as it moves. `None`: one that the kernel
/// refuses.
fn moved(buf: *const c_void, n: usize) -> Option<Parts> {
    let n = n.min(MOST);
    is_taken(buf as usize, n).then(|| Parts::One([piece(buf as usize, n)]))
}

/// As above, of a call that looks at all of it first.
fn whole(buf: *const c_void, n: usize) -> Option<Parts> {
    if is_taken(buf as usize, n) { moved(buf, n) } else { None }
}

/// As above, of `read(2)`. (Without room read returns, where recv waits.)
fn readable(buf: *const c_void, n: usize) -> Option<Parts> {
    if n > 0 { whole(buf, n) } else { None }
}

/// The buffers that a list names, as far as a call moves them. `None`: a list that the kernel
/// refuses.
unsafe fn listed(iov: *const iovec, count: usize) -> Option<Parts> {
    if count > IOV_MAX {
        return None;
    }
    // SAFETY: the program's list.
    let mut parts: Vec<iovec> = unsafe { each(iov, count) }.map(|(at, n)| piece(at, n)).collect();
    let taken = |part: &iovec| is_taken(part.iov_base as usize, part.iov_len);
    if parts.len() != count || !parts.iter().all(taken) {
        return None;
    }
    let mut left = MOST;
    for part in &mut parts {
        part.iov_len = part.iov_len.min(left);
        left -= part.iov_len;
    }
    Some(Parts::Many(parts))
}

/// As above. `None` too where there are no bytes: then readv returns, where recvmsg waits, and so
/// does writev, where sendmsg finds the stream ended.
unsafe fn with_bytes(iov: *const iovec, count: usize) -> Option<Parts> {
    // SAFETY: the program's list.
    let parts = unsafe { listed(iov, count) }?;
    parts.as_slice().iter().any(|part| part.iov_len > 0).then_some(parts)
}

/// The flags that positioned calls on a stream mean: at position -1 they are none. `None`: the
/// kernel answers.
fn unpositioned(at: off_t, flags: c_int) -> Option<c_int> {
    let known = flags & !(libc::RWF_NOWAIT | libc::RWF_HIPRI) == 0;
    let nowait = flags & libc::RWF_NOWAIT != 0;
    (at == -1 && known).then_some(if nowait { libc::MSG_DONTWAIT } else { 0 })
}

/// The flags of an input call on a stream. `None`: the kernel answers.
fn asks(call: &InputCall) -> Option<c_int> {
    match *call {
        InputCall::Read { .. } | InputCall::Readv { .. } => Some(0),
        InputCall::Pread { .. } | InputCall::Preadv { .. } => None,
        InputCall::Preadv2 { at, flags, .. } => unpositioned(at, flags),
        InputCall::Recv { flags, .. }
        | InputCall::Recvfrom { flags, .. }
        | InputCall::Recvmsg { flags, .. } => Some(flags),
    }
}

/// The buffers of an input call; `pieces` stand for them where there are some. `None`: the kernel
/// refuses them.
unsafe fn room(call: &InputCall, pieces: Option<&Pieces>) -> Option<Parts> {
    // SAFETY: the program's own arguments.
    unsafe {
        match (*call, pieces.map(|p| p.as_slice())) {
            (InputCall::Read { .. }, Some([one])) => readable(one.iov_base, one.iov_len),
            (InputCall::Recv { .. } | InputCall::Recvfrom { .. }, Some([one])) => {
                moved(one.iov_base, one.iov_len)
            }
            (InputCall::Recv { .. } | InputCall::Recvfrom { .. }, Some(many)) => {
                listed(many.as_ptr(), many.len())
            }
            (InputCall::Recvmsg { .. }, Some(many)) => listed(many.as_ptr(), many.len()),
            (_, Some(many)) => with_bytes(many.as_ptr(), many.len()),
            (InputCall::Read { buf, n }, None) => readable(buf, n),
            (InputCall::Recv { buf, n, .. } | InputCall::Recvfrom { buf, n, .. }, None) => {
                moved(buf, n)
            }
            (InputCall::Recvmsg { msg, .. }, None) => {
                let header = take(msg)?;
                listed(header.msg_iov, header.msg_iovlen)
            }
            (
                InputCall::Readv { iov, count }
                | InputCall::Preadv { iov, count, .. }
                | InputCall::Preadv2 { iov, count, .. },
                None,
            ) => with_bytes(iov, count as usize),
            (InputCall::Pread { .. }, None) => None,
        }
    }
}

/// An input call.
#[derive(Debug)]
pub struct Receive<'a> {
    ring: Ring<'a>,
    fd: c_int,
    call: &'a InputCall,
    told: bool,
    process: &'static Process,
    caller: usize,
    /// Bytes that were received already, and are to be copied.
    taken: Option<Taken>,
}

impl<'a> Receive<'a> {
    /// `call`, on the connection `ring`, which is `fd`. It returns to `caller`.
    #[inline]
    pub fn new(
        ring: Ring<'a>,
        fd: c_int,
        call: &'a InputCall,
        process: &'static Process,
        caller: usize,
    ) -> Self {
        Self { ring, fd, call, told: true, process, caller, taken: None }
    }

    /// Makes it, by `pieces` where there are some.
    fn carry(&mut self, pieces: Option<&mut Pieces>) -> Option<isize> {
        if let Some(taken) = self.taken.take() {
            return Some(self.copy_taken(&taken, pieces.as_deref()));
        }
        let Self { ring, fd, call, told, .. } = self;
        let (fd, call) = (*fd, *call);
        let by_linux = |pieces: Option<&mut Pieces>, told: &mut bool| {
            // SAFETY: the program's own call, or the same with pieces of extents.
            unsafe {
                match pieces {
                    Some(pieces) => linux::scatter(fd, call, pieces, told),
                    None => Some(linux::receive(fd, call)),
                }
            }
        };
        let Some(flags) = asks(call) else { return by_linux(pieces, told) };
        let mut parts = None;
        loop {
            // (The way's references are kept while Linux makes the call.)
            let way = ring.way(false);
            if !matches!(way, Way::Here) || flags & RECEIVES_OTHERWISE != 0 {
                let received = by_linux(pieces, told);
                let urgent = flags & (libc::MSG_OOB | libc::MSG_PEEK) == libc::MSG_OOB;
                if urgent && matches!(way, Way::Bypass(_)) && received.is_some_and(|n| n >= 0) {
                    ring.urgent_is_received();
                }
                return received;
            }
            drop(way);
            if parts.is_none() {
                // SAFETY: the program's own arguments.
                parts = unsafe { room(call, pieces.as_deref()) };
            }
            let Some(room) = &parts else { return by_linux(pieces, told) };
            // SAFETY: the program's own buffers, or pieces of extents.
            if let Some(received) = unsafe { ring.receive(room.as_slice(), flags) } {
                if received.is_ok() && has_negative_length(call) {
                    return Some(answer(Err(Errno::INVAL)));
                }
                *told = received.is_err() || tells(call);
                return Some(answer(received));
            }
        }
    }
}

/// The room for an address is less than none: the kernel says so after it has received.
fn has_negative_length(call: &InputCall) -> bool {
    match *call {
        InputCall::Recvfrom { addr, len, .. } if !addr.is_null() => {
            // SAFETY: the program's own argument.
            unsafe { take(len) }.is_some_and(|len| len.cast_signed() < 0)
        }
        _ => false,
    }
}

/// Tells what a connection has to tell beside its bytes: no address, and nothing beside the data.
/// False: the program's memory is not there.
fn tells(call: &InputCall) -> bool {
    // SAFETY: the program's own arguments.
    unsafe {
        match *call {
            InputCall::Recvfrom { addr, len, .. } => addr.is_null() || give(len, 0),
            InputCall::Recvmsg { msg, .. } => {
                // (Without room for a name the kernel leaves its length alone.)
                let name = take((&raw const (*msg).msg_name).cast::<usize>());
                let named = name.is_some_and(|at| at != 0);
                (!named || give(&raw mut (*msg).msg_namelen, 0))
                    && give(&raw mut (*msg).msg_controllen, 0)
                    && give(&raw mut (*msg).msg_flags, 0)
            }
            _ => true,
        }
    }
}

impl Input for Receive<'_> {
    #[inline]
    fn as_it_is(&mut self) -> isize {
        self.carry(None).unwrap_or(-1)
    }

    #[inline]
    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        self.carry(Some(pieces)).filter(|n| *n != -1 || !linux::refused_input(self.call))
    }

    #[inline]
    fn by_reference(
        &mut self,
        room: usize,
        can_be_written: impl FnMut(usize) -> bool,
        hand_over: impl FnMut(&[(RegionId, Span)], usize) -> bool,
    ) -> Option<isize> {
        // (Most calls end here.)
        if room < LEAST || !self.ring.brings_much() || !self.process.space.wanted() {
            return None;
        }
        self.take_reference(room, can_be_written, hand_over)
    }

    #[inline]
    fn is_told(&self) -> bool {
        self.told
    }
}

/// Fewer bytes are never taken without a copy: what `--threshold` may be.
const LEAST: usize = 8 << 10;

/// The number by which views know an arena.
struct Begun {
    process: &'static Process,
    region: RegionId,
    /// A forked child has no regions.
    of: u32,
}

impl Begun {
    /// Of a peer's.
    fn of_peer(process: &'static Process, peer: &Peer) -> Option<Self> {
        Self::new(
            process,
            peer.memory(),
            Owner { release, token: core::ptr::from_ref(peer) as usize },
        )
    }

    /// Of this process' own.
    fn of_own(process: &'static Process, own: &Own) -> Option<Self> {
        let token = core::ptr::from_ref(own) as usize;
        Self::new(process, own.range(), Owner { release: release_own, token })
    }

    fn new(process: &'static Process, (at, bytes): (usize, usize), owner: Owner) -> Option<Self> {
        let region = Region { span: Span::sized(at, bytes), movable: false, owner };
        let region = process.space.begin_region(region)?;
        Some(Self { process, region, of: std::process::id() })
    }
}

impl Views for Begun {
    fn recall(&self) {
        if self.of == std::process::id() {
            self.process.space.recall(Some(self.region));
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.of == std::process::id() {
            // (All is back: else it would live.)
            self.process.space.end_region(self.region);
        }
    }
}

/// A range is not viewed any more.
fn release(peer: usize, span: Span) {
    // SAFETY: it lives as long as ranges of it are out.
    let peer = unsafe { &*(peer as *const Peer) };
    peer.released(span.start, span.len());
}

/// The same of this process' own arena.
fn release_own(own: usize, span: Span) {
    // SAFETY: as above.
    let own = unsafe { &*(own as *const Own) };
    own.released(span.start);
}

impl Receive<'_> {
    #[inline(never)]
    fn take_reference(
        &mut self,
        room: usize,
        mut can_be_written: impl FnMut(usize) -> bool,
        mut hand_over: impl FnMut(&[(RegionId, Span)], usize) -> bool,
    ) -> Option<isize> {
        let (process, caller) = (self.process, self.caller);
        let flags = asks(self.call)?;
        if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0
            || !matches!(self.ring.way(false), Way::Here)
        {
            return None;
        }
        let region = |peer: &Peer| {
            let begun: Option<&Begun> = peer.known(|| Begun::of_peer(process, peer));
            begun.map(|begun| begun.region)
        };
        let may_take = self.ring.peer().is_none_or(|peer| region(&peer).is_some());
        if !may_take {
            return None;
        }
        let there = match self.ring.await_blocks((LEAST, room), flags)? {
            Ok(there) => there,
            Err(error) => return Some(answer(Err(error))),
        };
        // (Once they are taken they are to be put somewhere.)
        if !can_be_written(there) {
            return None;
        }
        let taken = self.ring.take_blocks(there)?;
        let spans = taken.ranges().iter().map(|&(at, bytes)| Span::sized(at, bytes));
        let of = |(span, peer): (Span, &Arc<Peer>)| Some((region(peer)?, span));
        let spans: Option<ArrayVec<(RegionId, Span), MAX_PIECES>> =
            spans.zip(taken.peers()).map(of).collect();
        let viewed = spans.is_some_and(|spans| hand_over(&spans, caller));
        let bytes = taken.bytes();
        self.ring.views_blocks(bytes, viewed);
        if !viewed {
            // (The call that is made now gets them.)
            self.taken = Some(taken);
            return None;
        }
        self.told = tells(self.call);
        Some((bytes + self.receive_behind(&taken, bytes)) as isize)
    }

    /// Receives what lies behind `taken`, which fill the first `bytes` of the call's buffers, as
    /// far as it is there: a call gets as much as Linux would give it.
    fn receive_behind(&mut self, taken: &Taken, bytes: usize) -> usize {
        // SAFETY: the program's own arguments.
        match unsafe { room(self.call, None) } {
            Some(room) if taken.is_followed() => {
                let mut rest = room.as_slice().to_vec();
                skip(&mut rest, bytes);
                self.receive_rest(&rest)
            }
            _ => 0,
        }
    }

    fn receive_rest(&mut self, rest: &[iovec]) -> usize {
        let flags = asks(self.call).unwrap_or(0);
        if rest.iter().all(|part| part.iov_len == 0) {
            return 0;
        }
        // SAFETY: the program's own buffers, or pieces of extents.
        unsafe { self.ring.receive_more(rest, flags) }
    }

    /// Copies what was taken to where the call wants it, and gives it back.
    fn copy_taken(&mut self, taken: &Taken, pieces: Option<&Pieces>) -> isize {
        // SAFETY: the program's own arguments.
        let room = unsafe { room(self.call, pieces) };
        let (mut copied, mut whole) = (0, true);
        let mut parts = room.as_ref().map_or(&[][..], Parts::as_slice).iter().copied();
        let mut part = piece(0, 0);
        for (&(at, bytes), peer) in taken.ranges().iter().zip(taken.peers()) {
            let mut done = 0;
            while whole && done < bytes {
                if part.iov_len == 0 {
                    match parts.next() {
                        Some(next) => part = next,
                        None => whole = false,
                    }
                    continue;
                }
                let n = part.iov_len.min(bytes - done);
                let to = part.iov_base.cast::<u8>();
                // SAFETY: from a block that was taken, to the program's buffer, or a piece of an
                // extent.
                whole = unsafe { copy::copy(to, (at + done) as *const u8, n) }.is_ok();
                if whole {
                    part = piece(to as usize + n, part.iov_len - n);
                    (done, copied) = (done + n, copied + n);
                }
            }
            peer.released(at, bytes);
        }
        if whole && taken.is_followed() {
            let rest: Vec<iovec> = std::iter::once(part).chain(parts).collect();
            copied += self.receive_rest(&rest);
        }
        let copied = if copied > 0 { Ok(copied) } else { Err(Errno::FAULT) };
        self.told = copied.is_err() || tells(self.call);
        answer(copied)
    }
}

/// Leaves the first `bytes` of these buffers out.
fn skip(parts: &mut [iovec], mut bytes: usize) {
    for part in parts {
        let n = part.iov_len.min(bytes);
        *part = piece(part.iov_base as usize + n, part.iov_len - n);
        bytes -= n;
    }
}

/// An output call.
#[derive(Debug)]
pub struct Send<'a> {
    ring: Ring<'a>,
    fd: c_int,
    call: &'a OutputCall,
    caller: usize,
    /// Bytes that were given to the receiver where they lie.
    given: usize,
}

impl<'a> Send<'a> {
    /// `call`, on the connection `ring`, which is `fd`; it returns to `caller`.
    #[inline]
    pub fn new(ring: Ring<'a>, fd: c_int, call: &'a OutputCall, caller: usize) -> Self {
        Self { ring, fd, call, caller, given: 0 }
    }

    /// What was sent is a file's: whether some of it was given where it lies says how the next
    /// ones go.
    pub fn was_of_file(&self) {
        if self.given > 0 {
            self.ring.gives_file();
        }
    }

    /// Makes it, from `pieces` where there are some, of which `forward` is given on.
    fn carry(&mut self, pieces: Option<&Pieces>, forward: Option<&Forward>) -> isize {
        let Self { ring, fd, call, .. } = self;
        let (fd, call) = (*fd, *call);
        // SAFETY: the program's own call, or the same bytes from where they are.
        let by_linux = || unsafe {
            match pieces {
                Some(pieces) => linux::gather(fd, call, pieces),
                None => linux::send(fd, call),
            }
        };
        let Some(flags) = sends(call) else { return by_linux() };
        match has_data_beside(call) {
            Some(false) => {}
            // (A message with data beside it goes by Linux.)
            Some(true) => return bypass(ring, flags, by_linux),
            None => return by_linux(),
        }
        let mut parts = None;
        loop {
            let way = ring.way(true);
            let here = matches!(way, Way::Here);
            if flags & SENDS_OTHERWISE != 0 {
                if here {
                    ring.sends_otherwise();
                }
                // (The way's references are kept until this call is made.)
                match ring.bypass(flags) {
                    Some(Ok(_bypass)) => return by_linux(),
                    Some(Err(error)) => return answer(Err(error)),
                    None => {}
                }
                drop(way);
                ring.look_again();
                continue;
            }
            if !here {
                return by_linux();
            }
            drop(way);
            if parts.is_none() {
                // SAFETY: the program's own arguments.
                parts = unsafe { bytes(call, pieces) };
            }
            let Some(bytes) = &parts else { return by_linux() };
            // SAFETY: the program's own buffers, or the same bytes from where they are.
            let sent = unsafe {
                match forward {
                    Some(forward) => ring.send_on(bytes.as_slice(), flags, forward),
                    None => ring.send(bytes.as_slice(), flags),
                }
            };
            if let Some(sent) = sent {
                return answer(sent);
            }
        }
    }
}

/// The flags of an output call on a stream. `None`: the kernel answers.
fn sends(call: &OutputCall) -> Option<c_int> {
    match *call {
        OutputCall::Pwrite { .. } | OutputCall::Pwritev { .. } => None,
        OutputCall::Pwritev2 { at, flags, .. } => unpositioned(at, flags),
        _ => Some(call.flags()),
    }
}

/// Whether a message has data beside its bytes. `None`: its header cannot be read, as the kernel
/// will say.
fn has_data_beside(call: &OutputCall) -> Option<bool> {
    match *call {
        // SAFETY: the program's own header.
        OutputCall::Sendmsg { msg, .. } => Some(unsafe { take(msg) }?.msg_controllen != 0),
        _ => Some(false),
    }
}

/// Sends by Linux while nothing is sent otherwise.
fn bypass(ring: &mut Ring<'_>, flags: c_int, by_linux: impl Fn() -> isize) -> isize {
    loop {
        match ring.bypass(flags) {
            Some(Ok(_bypass)) => return by_linux(),
            Some(Err(error)) => return answer(Err(error)),
            None => {}
        }
        ring.look_again();
    }
}

/// The buffers of an output call; `pieces` stand for them where there are some. `None`: the kernel
/// refuses them.
unsafe fn bytes(call: &OutputCall, pieces: Option<&Pieces>) -> Option<Parts> {
    // SAFETY: the program's own arguments.
    unsafe {
        match (*call, pieces.map(|p| p.as_slice())) {
            (OutputCall::Write { .. }, Some([one])) => whole(one.iov_base, one.iov_len),
            (OutputCall::Send { .. } | OutputCall::Sendto { .. }, Some([one])) => {
                moved(one.iov_base, one.iov_len)
            }
            (
                OutputCall::Send { .. } | OutputCall::Sendto { .. } | OutputCall::Sendmsg { .. },
                Some(many),
            ) => listed(many.as_ptr(), many.len()),
            (_, Some(many)) => with_bytes(many.as_ptr(), many.len()),
            (OutputCall::Write { buf, n }, None) => whole(buf, n),
            (OutputCall::Send { buf, n, .. } | OutputCall::Sendto { buf, n, .. }, None) => {
                moved(buf, n)
            }
            (OutputCall::Sendmsg { msg, .. }, None) => {
                let header = take(msg)?;
                listed(header.msg_iov, header.msg_iovlen)
            }
            (
                OutputCall::Writev { iov, count }
                | OutputCall::Pwritev { iov, count, .. }
                | OutputCall::Pwritev2 { iov, count, .. },
                None,
            ) => with_bytes(iov, count as usize),
            (OutputCall::Pwrite { .. }, None) => None,
        }
    }
}

/// As [`bytes`], of calls on a file, which may be at a place.
pub(crate) unsafe fn written(call: &OutputCall, pieces: Option<&Pieces>) -> Option<Parts> {
    let same = match *call {
        OutputCall::Pwrite { buf, n, .. } => OutputCall::Write { buf, n },
        OutputCall::Pwritev { iov, count, .. } => OutputCall::Writev { iov, count },
        other => other,
    };
    // SAFETY: the caller's promise.
    unsafe { bytes(&same, pieces) }
}

impl Output for Send<'_> {
    #[inline]
    fn as_it_is(&mut self) -> isize {
        self.carry(None, None)
    }

    #[inline]
    fn gather(&mut self, pieces: &Pieces) -> Option<isize> {
        let sent = self.carry(Some(pieces), None);
        (sent != -1 || !refused_for_pieces()).then_some(sent)
    }

    fn settles(&mut self, plan: &OutputPlan, process: &'static Process) -> bool {
        // (Room in the books may have to be made.)
        if plan.gathered < self.ring.settles_from() || critical::in_handler() {
            return false;
        }
        let again = process.space.with(|b| b.sent_again(plan, GIVEN_ON));
        let mut blocks = ArrayVec::<Settling, MAX_PIECES>::new();
        let mut moves = ArrayVec::<Move, MAX_PIECES>::new();
        for (id, from) in again.into_iter().flatten() {
            let Some(block) = self.ring.settling(from.len()) else {
                // (Where something goes there is room the next time.)
                if let Some((at, bytes)) = self.ring.unused() {
                    process.space.recall_part(Span::sized(at, bytes));
                }
                break;
            };
            let known: Option<&Begun> = block.own().known(|| Begun::of_own(process, block.own()));
            let Some(region) = known.map(|known| known.region) else { break };
            // SAFETY: an extent that the plan has pinned: its bytes stay.
            if unsafe { block.fill(from.start as *const u8) }.is_err() {
                break;
            }
            let (at, bytes) = block.range();
            moves.push(Move { id, region, to: Span::sized(at, bytes) });
            blocks.push(block);
        }
        let settled = process.space.settle_extents(&moves);
        let mut any = false;
        for (i, block) in blocks.into_iter().enumerate() {
            if settled >> i & 1 != 0 {
                block.is_settled();
                any = true;
            }
        }
        any
    }

    #[inline]
    fn keeps(&self, bytes: usize) -> bool {
        self.ring.gives_on(bytes)
    }

    fn keep(&mut self, pieces: &Pieces, mut kept: KeptPieces) -> Option<(isize, usize)> {
        let forward = self.ring.forward(pieces, &mut kept);
        drop(kept);
        let sent = self.carry(Some(pieces), forward.as_ref());
        let given = forward.as_ref().map_or(0, Forward::given);
        self.given += given;
        (sent != -1 || !refused_for_pieces()).then_some((sent, given))
    }

    /// What is sent again and again settles, whatever the flags.
    #[inline]
    fn lending(&self) -> Option<Lending> {
        Some(Lending { from: ADOPT_MIN, plain: true, caller: self.caller, to_kernel: false })
    }

    fn adopts_from(&self) -> usize {
        // (Nothing settles in a signal handler.)
        if critical::in_handler() {
            return usize::MAX;
        }
        self.ring.settles_from().max(ADOPT_MIN)
    }

    fn can_lend(&mut self, pieces: &[iovec]) -> bool {
        let core = |p: &iovec| Span::sized(p.iov_base as usize, p.iov_len).core().len();
        let bytes = pieces.iter().map(core).sum();
        bytes >= self.ring.settles_from() && self.ring.may_settle(bytes)
    }
}
