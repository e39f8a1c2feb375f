//! The receiver's half: Linux's queue until it is empty and the ring was offered, the ring until it
//! is empty and the sender has left. See `uncopy_tcp_shared::phase`.
//!
//! unsafe: the program's buffers.

use crate::attached::Attached;
use crate::batch;
use crate::blocks::{NUMBER, Peer};
use crate::ends::{Locked, Receiving};
use crate::flow::{Flow, ROUNDS};
use crate::kept_error::is_told_once;
use crate::kernel;
use crate::lent;
use crate::mapped::Registered;
use crate::source::advance;
use crate::wait::For;
use libc::{MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, iovec};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_shared::arena;
use uncopy_tcp_shared::layout::PAGE;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::{FINISHED, RING};
use uncopy_tcp_shared::runs::{Piece, Run};

impl Flow {
    /// As recv(2), readv(2), recvmsg(2): waits until there is something, unless the socket or
    /// `flags` say otherwise. 0: the stream has ended.
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    pub unsafe fn receive(&self, to: &[iovec], flags: i32) -> Result<usize, Errno> {
        if self.is_linux() {
            // SAFETY: the caller's promise.
            return unsafe { kernel::receive_as_it_is(self.fd(), to, flags) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.receive_behind(to, flags, false) }
    }

    /// As above; `goes_on`: the call has received something already, and ends at an urgent byte.
    unsafe fn receive_behind(
        &self,
        to: &[iovec],
        flags: i32,
        goes_on: bool,
    ) -> Result<usize, Errno> {
        let may_wait = flags & MSG_DONTWAIT == 0;
        let total: usize = to.iter().map(|part| part.iov_len).sum();
        // (An urgent byte is one.)
        let all =
            may_wait && flags & (MSG_WAITALL | MSG_OOB) == MSG_WAITALL && !self.is_nonblocking();
        let looks = flags & MSG_PEEK != 0;
        let mut got = 0;
        let mut ends = false;
        let mut rest: Vec<iovec>;
        let mut to = to;
        let mut deadline = None;
        loop {
            if got > 0 && self.would_lose_error() {
                return Ok(got);
            }
            // SAFETY: the caller's promise.
            match unsafe { self.try_receive(to, flags, goes_on || got > 0) } {
                Ok(bytes) if all && looks => {
                    if bytes == 0 || bytes >= total || ends || self.mark_follows(bytes) {
                        return Ok(bytes);
                    }
                    // (Bytes that came before the end, or before a signal, are looked at once
                    // more.)
                    ends = kernel::hung_up(self.fd())
                        || self.wait_for_more(bytes, &mut deadline).is_err();
                }
                Ok(bytes) => {
                    got += bytes;
                    if !all || bytes == 0 || got >= total {
                        return Ok(got);
                    }
                    rest = to.to_vec();
                    advance(&mut rest, bytes);
                    to = &rest;
                }
                Err(Errno::AGAIN) if may_wait && !self.is_nonblocking() => {
                    let what = For::bytes(got, looks);
                    if let Err(error) = self.wait_in_call(what, &mut deadline) {
                        // (Of no bytes Linux waits once, whatever has ended that.)
                        let none = total == 0 && !(self.context.settings.interrupted)();
                        return if got > 0 || none { Ok(got) } else { Err(error) };
                    }
                }
                Err(kernel::AT_MARK) => return Ok(got),
                Err(error) if got > 0 => {
                    self.keeps(error);
                    return Ok(got);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives what is there behind what a call has received already, without waiting. An error is
    /// the next call's to tell: Linux may tell it once.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_more(&self, to: &[iovec], flags: i32) -> usize {
        // SAFETY: the caller's promise.
        let more = unsafe { self.receive_behind(to, flags | MSG_DONTWAIT, true) };
        more.unwrap_or_else(|error| {
            self.keeps(error);
            0
        })
    }

    /// Linux' stream ends here. (An error that it tells instead is the next call's.)
    fn looks_for_end(&self) -> bool {
        let seen = kernel::look(self.fd());
        seen.inspect_err(|&error| self.keeps(error)) == Ok(Some(0))
    }

    /// Linux has an error to tell, and no bytes before it, and there is no place yet where that is
    /// kept for the next call: a call that has received something ends here.
    pub fn would_lose_error(&self) -> bool {
        !self.is_attached()
            && self.kernel_poll(PollFlags::ERR).contains(PollFlags::ERR)
            && kernel::unread(self.fd()) == Ok(0)
    }

    /// Linux' mark is not where the program is: the ring has bytes that come before all that Linux
    /// has, or is where more of them come.
    pub fn is_not_at_mark(&self) -> bool {
        let Some(attached) = self.attached() else { return false };
        let own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        match attached.inward().switch.phase.at() {
            _ if own.stands_at_mark => false,
            Ok(At::Ring) => true,
            Ok(At::Leaving) => attached.unread() > 0,
            _ => false,
        }
    }

    /// A call that looks ahead has seen so many bytes, and the urgent byte is next: it ends there.
    fn mark_follows(&self, seen: usize) -> bool {
        let Some(attached) = self.attached() else {
            return kernel::mark_follows(self.fd(), seen);
        };
        let own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let in_ring = match attached.inward().switch.phase.at() {
            Ok(At::Ring) => return false,
            Ok(At::Leaving) => attached.unread() as usize,
            _ => 0,
        };
        seen.checked_sub(in_ring).is_some_and(|seen| {
            seen > 0 && own.before_mark == seen || kernel::mark_follows(self.fd(), seen)
        })
    }

    /// Receives the urgent byte, which is Linux's.
    unsafe fn receive_urgent(
        &self,
        attached: &Attached,
        to: &[iovec],
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let was_reset = self.was_reset_by_death(attached);
        let flags = if was_reset { flags | MSG_PEEK } else { flags };
        // SAFETY: the caller's promise.
        let got = unsafe { kernel::receive(self.fd(), to, flags) };
        if was_reset {
            return got.and(Err(Errno::NOTCONN));
        }
        if got.is_ok() && flags & MSG_PEEK == 0 {
            self.stands_before_mark(&mut own);
        }
        got
    }

    /// The urgent byte was received. Linux counts up to it, and does not tell of it any more.
    fn stands_before_mark(&self, own: &mut Locked<Receiving>) {
        own.before_mark = kernel::unread(self.fd()).unwrap_or(0);
    }

    /// A call of Linux' has received the urgent byte while the connection had no slot: later nobody
    /// could say where that byte stood. So it gets none.
    #[cold]
    pub fn urgent_is_received(&self) {
        if self.attached().is_none() {
            self.stays(StayReason::Used);
        }
        // (It has got one during the call.)
        if let Some(attached) = self.attached() {
            let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
            self.stands_before_mark(&mut own);
        }
    }

    /// A call that looks ahead has seen so many bytes and waits for more.
    fn wait_for_more(
        &self,
        seen: usize,
        deadline: &mut Option<Option<Instant>>,
    ) -> Result<(), Errno> {
        let all_in_ring = |attached: &Attached| {
            attached.inward().switch.phase.at() == Ok(At::Ring)
                && attached.unread() as usize == seen
        };
        if self.attached().is_some_and(all_in_ring) {
            return self.wait_in_call(For::More(seen as u32), deadline);
        }
        self.nap_in_call(deadline)
    }

    unsafe fn try_receive(&self, to: &[iovec], flags: i32, goes_on: bool) -> Result<usize, Errno> {
        let flags = flags & !MSG_WAITALL;
        let attached = loop {
            if self.is_closed() {
                return self.received_since_closed();
            }
            if let Some(attached) = self.attached() {
                break attached;
            }
            if let Some(_bypass) = self.unattached(false) {
                // SAFETY: the caller's promise.
                let got = unsafe { self.receive_linuxs(to, flags, goes_on) };
                if flags & (MSG_OOB | MSG_PEEK) == MSG_OOB && got.is_ok() {
                    self.urgent_is_received();
                }
                return got;
            }
        };
        if flags & MSG_OOB != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.receive_urgent(attached, to, flags) };
        }
        if attached.mapped.blocks.always {
            self.peer();
        }
        self.looks_for_arena();
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        if self.is_closed() {
            return self.received_since_closed();
        }
        // SAFETY: the caller's promise.
        let got = unsafe { self.receive_across(attached, &mut own, to, flags, goes_on) };
        drop(own);
        if self.nested.load(Relaxed) {
            self.settles();
        }
        got
    }

    /// Bytes that can be received now are handed to `put`, which does not wait, and as many of them
    /// are taken as that says: no other thread gets any of them meanwhile. `room` is for as much as
    /// is looked at. Waits until there is something, as [`Flow::receive`] does.
    ///
    /// # Errors
    /// An error of `put`, or of [`Flow::receive`]; [`kernel::AT_MARK`]: an urgent byte is next,
    /// which Linux' splice never passes. Linux stands there too, and knows what splice says there.
    pub fn receive_by(
        &self,
        room: &mut [u8],
        flags: i32,
        mut put: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let waits = || flags & MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let mut deadline = None;
        loop {
            match self.try_receive_by(room, flags, &mut put) {
                Err(Errno::AGAIN) if waits() => self.wait_in_call(For::Data, &mut deadline)?,
                taken => return taken?,
            }
        }
    }

    /// The outer result is receiving's, the inner one `put`'s.
    fn try_receive_by(
        &self,
        room: &mut [u8],
        flags: i32,
        put: &mut impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<Result<usize, Errno>, Errno> {
        let attached = self.attached().ok_or(Errno::NOTCONN)?;
        self.looks_for_arena();
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        if self.is_closed() {
            return self.received_since_closed().map(Ok);
        }
        let mut part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let (looks, takes) = (flags | MSG_PEEK, flags & !MSG_PEEK);
        // SAFETY: our own buffer.
        let seen = unsafe { self.receive_locked(attached, &mut own, &[part], looks, true) }?;
        let taken = if seen == 0 { Ok(0) } else { put(&room[..seen]) };
        if let Ok(bytes @ 1..) = taken {
            part.iov_len = bytes.min(seen);
            // SAFETY: as above. It is what was just seen.
            unsafe { self.receive_locked(attached, &mut own, &[part], takes, true) }?;
        }
        drop(own);
        if self.nested.load(Relaxed) {
            self.settles();
        }
        Ok(taken)
    }

    /// Once much was received, and no arena has come. (A program whose calls find something each
    /// time never waits, and would not hear of it.) Not with a lock held.
    #[inline]
    fn looks_for_arena(&self) {
        if self.awaits_arena.load(Relaxed) {
            self.awaits_arena.store(false, Relaxed);
            self.context.pump();
        }
    }

    /// Another thread has closed it while this one waited.
    #[cold]
    fn received_since_closed(&self) -> Result<usize, Errno> {
        if self.shut.load(Relaxed) { Ok(0) } else { Err(Errno::BADF) }
    }

    /// The bytes that are there are received, also where some are the ring's and the next ones
    /// Linux', or the other way round: less than was asked for says that nothing more is there, and
    /// a program with a set that reports by edge relies on that (epoll(7)).
    unsafe fn receive_across(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        to: &[iovec],
        flags: i32,
        goes_on: bool,
    ) -> Result<usize, Errno> {
        self.counts_mark(own);
        let was_before_ring = own.before_ring > 0;
        // SAFETY: the caller's promise.
        let mut got = unsafe { self.receive_locked(attached, own, to, flags, goes_on) }?;
        let is_followed = || match attached.inward().switch.phase.at() {
            Ok(At::Leaving) => true,
            Ok(At::Offered) => attached.has_bytes(),
            Ok(At::Ring) => was_before_ring && attached.has_bytes(),
            _ => false,
        };
        let total: usize = to.iter().map(|part| part.iov_len).sum();
        if flags & MSG_PEEK != 0 {
            return if 0 < got && got < total {
                // SAFETY: the caller's promise.
                Ok(got + unsafe { self.look_on(attached, own, to, got, flags) })
            } else {
                Ok(got)
            };
        }
        while got > 0 && got < total && is_followed() {
            let mut rest = to.to_vec();
            advance(&mut rest, got);
            // SAFETY: the caller's promise.
            match unsafe { self.receive_locked(attached, own, &rest, flags, true) } {
                Ok(more @ 1..) => got += more,
                // (The end is told again.)
                Ok(_) | Err(Errno::AGAIN | kernel::AT_MARK) => break,
                Err(error) => {
                    self.keeps(error);
                    break;
                }
            }
        }
        Ok(got)
    }

    /// As [`receive_across`](Self::receive_across), of a call that only looks, and has seen `seen`
    /// bytes, all of what comes first: what comes behind them, in the ring or by Linux.
    unsafe fn look_on(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        to: &[iovec],
        seen: usize,
        flags: i32,
    ) -> usize {
        let phase = &attached.inward().switch.phase;
        let Ok((at, found)) = phase.found() else { return 0 };
        let mut rest = to.to_vec();
        advance(&mut rest, seen);
        match at {
            At::Ring | At::Leaving if own.before_ring > 0 => {
                let all = own.before_ring == seen && own.look(&attached.inward().produced).is_ok();
                // SAFETY: the caller's promise.
                if all { unsafe { self.take(attached, own, &rest, flags) }.unwrap_or(0) } else { 0 }
            }
            // All that Linux has comes before the ring. (An empty look at the ring's own beginning,
            // where nothing was received from it yet.)
            // SAFETY: as above.
            At::Offered if unsafe { self.has_seen_linuxs(own, to, seen, flags) } => {
                own.reader.forget();
                if own.look(&attached.inward().produced).is_err() {
                    return 0;
                }
                // SAFETY: the caller's promise.
                let more = unsafe { self.take(attached, own, &rest, flags) }.unwrap_or(0);
                own.reader.forget();
                // Where the sender has taken the ring back meanwhile, another offer's bytes may lie
                // there.
                let stands = matches!(phase.found(), Ok((At::Offered, now)) if now == found);
                if stands { more } else { 0 }
            }
            // (The sender may have put more into the ring before it left.)
            At::Leaving
                if own.look(&attached.inward().produced).is_ok()
                    && own.reader.filled() as usize == seen =>
            {
                // (A mark behind which the ring's bytes come this call has passed.)
                // SAFETY: as above.
                match unsafe { self.receive_linuxs(&rest, flags, !own.stands_at_mark) } {
                    Ok(more) => more,
                    Err(kernel::AT_MARK) => 0,
                    Err(error) => {
                        self.keeps(error);
                        0
                    }
                }
            }
            _ => 0,
        }
    }

    /// The same call has seen all that Linux has, no urgent byte stands in between, and nothing
    /// more has come since.
    unsafe fn has_seen_linuxs(
        &self,
        own: &Locked<Receiving>,
        to: &[iovec],
        seen: usize,
        flags: i32,
    ) -> bool {
        if kernel::is_at_mark(self.fd()) {
            // (The bytes that it has seen stand behind the mark, at which Linux ends its count.)
            // SAFETY: the caller's promise.
            return unsafe { kernel::receive(self.fd(), to, flags) } == Ok(seen);
        }
        kernel::unread(self.fd()) == Ok(seen)
            && own.before_mark == 0
            && !kernel::has_mark(self.fd())
    }

    /// Linux' bytes are received. [`kernel::AT_MARK`]: the call `goes_on`, and an urgent byte is
    /// next.
    unsafe fn receive_linuxs(
        &self,
        to: &[iovec],
        flags: i32,
        goes_on: bool,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            if goes_on {
                kernel::receive_to_mark(self.fd(), to, flags, |error| self.keeps(error))
            } else {
                kernel::receive(self.fd(), to, flags)
            }
        }
    }

    /// At the ring: a program that has looked behind an urgent byte, and has asked since then for
    /// that byte too (SO_OOBINLINE), gets it first.
    #[inline]
    fn counts_mark(&self, own: &mut Locked<Receiving>) {
        if own.stands_at_mark && kernel::is_at_mark_inline(self.fd()) {
            own.stands_at_mark = false;
            own.before_ring = 1;
        }
    }

    /// At the ring: what Linux has that comes before it. `None`: it has none of it any more.
    unsafe fn receive_before_ring(
        &self,
        own: &mut Locked<Receiving>,
        to: &[iovec],
        flags: i32,
    ) -> Option<Result<usize, Errno>> {
        let to = kernel::first(to, own.before_ring);
        let is_empty = to.iter().all(|part| part.iov_len == 0);
        // SAFETY: the caller's promise.
        match unsafe { kernel::receive(self.fd(), &to, flags) } {
            Ok(bytes) if bytes > 0 || is_empty => {
                if flags & MSG_PEEK == 0 {
                    own.before_ring -= bytes;
                }
                Some(Ok(bytes))
            }
            Err(error) if is_of_the_call(error) => Some(Err(error)),
            // (Somebody has received it past the library. Or SO_OOBINLINE was cleared, and it is an
            // urgent byte.)
            none => {
                own.before_ring = 0;
                own.stands_at_mark = flags & MSG_PEEK != 0 && kernel::is_at_mark(self.fd());
                none.err().into_iter().for_each(|error| self.keeps(error));
                None
            }
        }
    }

    /// From where the stream is now. `goes_on`: the call has received something already;
    /// [`kernel::AT_MARK`]: so an urgent byte, which is next, ends it.
    unsafe fn receive_locked(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        to: &[iovec],
        flags: i32,
        goes_on: bool,
    ) -> Result<usize, Errno> {
        let inward = attached.inward();
        let empty_buffers = to.iter().all(|part| part.iov_len == 0);
        let lent = self.lent.load(Relaxed);
        if !own.receives {
            own.receives = true;
            attached.receives();
        }
        if attached.mapped.blocks.always {
            self.wants_blocks(attached, own);
        }
        let mut rounds = 0;
        let mut may_wait = true;
        loop {
            rounds += 1;
            if own.poisoned || rounds > ROUNDS {
                return self.poison(&mut own.poisoned);
            }
            let (at, found) =
                inward.switch.phase.found().or_else(|_| self.poison(&mut own.poisoned))?;
            if matches!(at, At::Linux | At::Offered | At::Returned) {
                if lent > 0 {
                    // (A caller that has lent it is at the ring until that was received.)
                    return self.poison(&mut own.poisoned);
                }
                // SAFETY: the caller's promise.
                let got = unsafe { self.receive_linuxs(to, flags, goes_on) };
                if got == Err(kernel::AT_MARK) {
                    return got;
                }
                let looks = flags & MSG_PEEK != 0;
                if !looks {
                    own.stands_at_mark = false;
                    own.before_mark = own.before_mark.saturating_sub(got.unwrap_or(0));
                    own.before_ring = own.before_ring.saturating_sub(got.unwrap_or(0));
                }
                if at == At::Linux && got == Err(Errno::AGAIN) {
                    if !may_wait {
                        // (Nothing has come.)
                        own.waits_no_more();
                    } else if self.comes_now(attached, own, flags) {
                        may_wait = false;
                        continue;
                    }
                }
                // (Of no bytes Linux says 0 also where there are some.)
                let is_end = got == Ok(0) && (!empty_buffers || self.looks_for_end());
                if at != At::Offered
                    && (is_end || got == Err(Errno::AGAIN))
                    && let Some(error) = attached.error().take()
                {
                    // It followed what was received last.
                    return Err(error);
                }
                if at != At::Offered {
                    let ended = match got {
                        Ok(0) => is_end,
                        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
                        Err(error) => !is_of_the_call(error),
                    };
                    if ended && inward.switch.phase.at() == Ok(At::Offered) {
                        // It was offered between the two looks, and what is in the ring comes
                        // before that.
                        got.err().into_iter().for_each(|error| self.keeps(error));
                        continue;
                    }
                    let got = attached.tells(got);
                    let over = ended && matches!(got, Ok(0) | Err(Errno::CONNRESET));
                    // (Once.)
                    let first = over && !std::mem::replace(&mut own.ended, true);
                    if (first || over && attached.is_shut()) && got == Ok(0) {
                        self.sees_end(attached);
                        return attached.error().take().map_or(got, Err);
                    }
                    return got;
                }
                // Bytes that were sent through the ring come before the end of the stream, and
                // before its error, which is told once.
                match got {
                    Ok(0) if is_end => self.stream_ends(attached, own),
                    Ok(bytes) => return Ok(bytes),
                    Err(Errno::AGAIN) => {}
                    Err(error) if is_of_the_call(error) => return Err(error),
                    Err(error) => {
                        self.keeps(error);
                        own.ended |= error == Errno::CONNRESET;
                    }
                }
                own.reader.forget();
                if inward.switch.phase.enter(found) {
                    own.stands_at_mark = looks && kernel::is_at_mark(self.fd());
                    own.before_ring = 0;
                }
                continue;
            }
            self.counts_mark(own);
            if own.before_ring > 0 {
                // SAFETY: the caller's promise.
                match unsafe { self.receive_before_ring(own, to, flags) } {
                    Some(got) => return got,
                    None => continue,
                }
            }
            if goes_on && own.stands_at_mark && kernel::is_at_mark(self.fd()) {
                return Err(kernel::AT_MARK);
            }
            if own.reader.filled() == lent {
                own.look(&inward.produced).or_else(|_| self.poison(&mut own.poisoned))?;
            }
            if own.reader.filled() > lent {
                if lent > 0 {
                    return Err(Errno::AGAIN);
                }
                // SAFETY: the caller's promise.
                let taken = unsafe { self.take(attached, own, to, flags) };
                return if taken == Err(NONSENSE) { self.poison(&mut own.poisoned) } else { taken };
            }
            if at == At::Leaving {
                if lent > 0 {
                    return Err(lent::HELD);
                }
                inward.switch.phase.left();
                continue;
            }
            let passes = flags & MSG_PEEK == 0 && !goes_on;
            if passes && std::mem::take(&mut own.stands_at_mark) {
                self.passes_mark();
            }
            if let Some(error) = attached.error().take() {
                return Err(error);
            }
            if own.ended {
                if attached.is_shut() {
                    // (It may have been this side's own end so far. A reset since then is told by
                    // who knows of what the peer has left unread: this side, or Linux.)
                    self.sees_end(attached);
                    kernel::look(self.fd()).err().into_iter().for_each(|error| self.keeps(error));
                }
                return attached.error().take().map_or(Ok(0), Err);
            }
            let hint = inward.produced.flags.load(Acquire) & FINISHED != 0;
            let asks = hint || attached.is_shut() || self.is_to_ask(&mut own.asks);
            if !asks && !self.take_ask() {
                return Err(Errno::AGAIN);
            }
            let seen = kernel::look(self.fd());
            if seen == Ok(None) {
                if passes && kernel::is_at_mark(self.fd()) {
                    // (Somebody has sent it past the library: nothing else comes behind a ring.)
                    self.passes_mark();
                }
                return Err(Errno::AGAIN);
            }
            // The bytes that it published before it ended are seen now.
            own.look(&inward.produced).or_else(|_| self.poison(&mut own.poisoned))?;
            let settled = inward.switch.phase.at() == Ok(At::Ring);
            match seen {
                Ok(Some(0)) => {
                    if own.reader.filled() == lent && settled {
                        self.stream_ends(attached, own);
                    }
                }
                Err(error) if !is_told_once(error) => return Err(error),
                Err(error) => {
                    self.keeps(error);
                    own.ended |= error == Errno::CONNRESET;
                }
                // Somebody sends past the library, on this very socket: after all that is in the
                // ring.
                Ok(_) if own.reader.filled() == lent && settled => {
                    if lent > 0 {
                        return Err(lent::HELD);
                    }
                    // SAFETY: the caller's promise.
                    return unsafe { self.receive_linuxs(to, flags, goes_on) };
                }
                Ok(_) => {}
            }
        }
    }

    /// Receives what the ring has. [`NONSENSE`]: it cannot be understood; whether it is the other
    /// side's last word, or was read while that took it back, is the caller's to know.
    unsafe fn take(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        to: &[iovec],
        flags: i32,
    ) -> Result<usize, Errno> {
        let (ring, inward) = (1 - attached.mapped.side, attached.inward());
        let looks = flags & MSG_PEEK != 0;
        let mut got = 0u32;
        let mut more = false;
        let mut of_blocks = 0;
        'parts: for part in to {
            let mut left = part.iov_len;
            let mut at = part.iov_base.cast::<u8>();
            while left > 0 {
                let there = (own.reader.filled() - got).min(left.min(RING as usize) as u32);
                if there == 0 {
                    // The cached tail is used up: perhaps there is more.
                    let before = own.reader.filled();
                    if more {
                        break 'parts;
                    }
                    more = true;
                    own.look(&inward.produced).map_err(|_| NONSENSE)?;
                    if own.reader.filled() == before {
                        break 'parts;
                    }
                    continue;
                }
                let bytes = match piece(attached, own, got, there)? {
                    BytesAt::Ring(bytes) => {
                        if flags & MSG_TRUNC == 0 {
                            let timing = if looks { None } else { batch::timing(inward, bytes) };
                            let spans = own.reader.peek(got, bytes as usize);
                            // SAFETY: the caller's promise.
                            if unsafe { attached.slot().get(ring, spans, at) }.is_err() {
                                if got == 0 {
                                    return Err(Errno::FAULT);
                                }
                                break 'parts;
                            }
                            batch::timed(inward, bytes, timing);
                        }
                        bytes
                    }
                    BytesAt::Block(from, run, _peer) => {
                        // SAFETY: the caller's promise.
                        let copy = || unsafe { arena::get(from, at, run.bytes) };
                        if flags & MSG_TRUNC == 0 && copy().is_err() {
                            if got == 0 {
                                return Err(Errno::FAULT);
                            }
                            break 'parts;
                        }
                        of_blocks += run.bytes;
                        run.bytes
                    }
                };
                at = at.wrapping_add(bytes as usize);
                left -= bytes as usize;
                got += bytes;
            }
        }
        if !looks {
            let returns = attached.mapped.region.returns(ring);
            self.takes(attached, own, got, |run| returns.done(run.handle, run.bytes));
            // (A program that reads so views nothing: by a large call, or by a small one of many.)
            if of_blocks >= PAGE as u32 && attached.asks_for_blocks() {
                Self::refuses_block(attached, own);
            }
        }
        Ok(got as usize)
    }

    /// The next bytes are received; `given_back` is told of those that lie in blocks.
    pub(crate) fn takes(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        bytes: u32,
        given_back: impl FnMut(Run),
    ) {
        let inward = attached.inward();
        let had_runs = !own.runs.is_empty();
        if had_runs {
            let queue = attached.slot().queue(1 - attached.mapped.side);
            let head = own.reader.head();
            own.runs.consume(queue, head, bytes, given_back);
        }
        own.release(&inward.consumed, bytes);
        if bytes > 0 && own.stands_at_mark {
            own.stands_at_mark = false;
            self.passes_mark();
        }
        if own.rests > 0 {
            // (Bytes, and not calls: one message may take many.)
            own.rested += u64::from(bytes);
            let large = attached.mapped.blocks.from as u64;
            own.rests = own.rests.saturating_sub((own.rested / large) as u32);
            own.rested %= large;
        }
        let (used, from) = (own.reader.filled(), attached.mapped.blocks.from);
        let there = (used + bytes) as usize;
        if had_runs || there >= from && bytes as usize >= from.min(PAGE) {
            self.takes_of_much(attached, own, (bytes, had_runs));
        } else {
            self.takes_little(own);
        }
        self.counts.received(self.context.settings.counters, bytes.into());
        // A sender that waits for room waits for a third of the ring: see `Attached::has_room`.
        if RING - used >= RING / 3 {
            attached.tell(inward.produced.room.take());
        }
    }

    /// As much was there as comes in a block, or some of it lay in blocks (`had_runs`), and so many
    /// bytes of it are received. The other side hears that what lies in an arena can be read there:
    /// the receiver copies it from there as it would from the ring.
    #[inline(never)]
    fn takes_of_much(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        (bytes, had_runs): (u32, bool),
    ) {
        let mapped = &attached.mapped;
        if bytes as usize >= mapped.blocks.from || had_runs && attached.asks_for_blocks() {
            own.small = 0;
            if !self.brings_much() {
                self.much.store(true, Relaxed);
            }
        } else {
            self.takes_little(own);
        }
        if mapped.process == self.context.process() {
            let there = Self::reads_arenas(attached);
            if there[usize::from(NUMBER)] == 0 {
                own.much = own.much.wrapping_add(1);
                // (Not each call, where none will ever come: other threads look there, too.)
                if own.much.is_power_of_two() || own.much.is_multiple_of(SELDOM) {
                    self.awaits_arena.store(true, Relaxed);
                }
            }
        }
    }

    /// A call has received little.
    #[inline]
    fn takes_little(&self, own: &mut Locked<Receiving>) {
        if self.brings_much() {
            own.small += 1;
            if own.small >= SMALL {
                self.much.store(false, Relaxed);
            }
        }
    }

    /// Bytes that came by the ring behind Linux' urgent byte are taken: the program has passed that
    /// byte, and Linux passes it, too. Else poll would tell of it, and a later call for it
    /// (SO_OOBINLINE) would get it behind these bytes.
    #[cold]
    fn passes_mark(&self) {
        if let Err(error) = kernel::pass_mark(self.fd()) {
            self.keeps(error);
        }
    }

    /// Linux says that the stream has ended; what is in the ring comes before that.
    fn stream_ends(&self, attached: &Attached, own: &mut Locked<Receiving>) {
        own.ended = true;
        self.sees_end(attached);
    }
}

/// Behind one of so many calls that received of much it is looked for the other side's arena, and
/// behind the first of them more often.
const SELDOM: u32 = 16;

/// After so many calls that received little the next ones do not look for blocks.
const SMALL: u32 = 64;

/// See `take`. (No other answer of its is this one.)
const NONSENSE: Errno = Errno::CONNRESET;

/// Where the next bytes lie, `skip` of them left out, of `there` that are there.
#[inline]
fn piece(
    attached: &Attached,
    own: &Locked<Receiving>,
    skip: u32,
    there: u32,
) -> Result<BytesAt, Errno> {
    if own.runs.is_empty() {
        return Ok(BytesAt::Ring(there));
    }
    let queue = attached.slot().queue(1 - attached.mapped.side);
    match own.runs.piece(queue, own.reader.head(), skip, there).map_err(|_| NONSENSE)? {
        Piece::Ring(bytes) => Ok(BytesAt::Ring(bytes)),
        Piece::Block(run) => {
            let peer = attached.mapped.exchange.peer(run.arena).ok_or(NONSENSE)?;
            Ok(BytesAt::Block(peer.address(run).ok_or(NONSENSE)?, run, peer))
        }
    }
}

/// Where bytes lie.
enum BytesAt {
    /// So many in the ring.
    Ring(u32),
    /// There, in a block of this arena.
    Block(*const u8, Run, Arc<Peer>),
}

/// The connection has nothing to do with it: nothing was looked at, and nobody else is told.
fn is_of_the_call(error: Errno) -> bool {
    use Errno as E;
    matches!(error, E::FAULT | E::INVAL | E::MSGSIZE | E::NOMEM | E::NOBUFS | E::OPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiting;
    use crate::common::{End, at_rings, program_that, service, wait_until};
    use rustix::net::sockopt;

    /// Receives as the rest of a call that has received something.
    fn goes_on(end: &End, to: &mut [u8]) -> usize {
        let part = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        // SAFETY: ours.
        unsafe { end.flow.receive_more(&[part], 0) }
    }

    fn send_urgent(a: &End, b: &End) {
        a.send_with(b"!", MSG_OOB).unwrap();
        wait_until("it has come", || kernel::has_mark(b.flow.fd()));
        wait_until("that is known", || kernel::all_arrived(a.flow.fd()));
    }

    fn receive_urgent(end: &End) {
        let mut byte = [0];
        assert_eq!((end.receive_with(&mut byte, MSG_OOB), byte), (Ok(1), *b"!"));
    }

    #[test]
    fn an_urgent_byte_ends_a_call_that_has_received_something() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        send_urgent(&a, &b);
        let mut got = [0; 10];
        a.flow.send_by_linux(true).unwrap();
        a.send(b"Linux").unwrap();
        assert_eq!(goes_on(&b, &mut got), 0);
        receive_urgent(&b);
        assert_eq!((b.receive(&mut got), &got[..5]), (Ok(5), &b"Linux"[..]));
    }

    #[test]
    fn an_urgent_byte_before_the_ring_ends_a_call_also_after_a_reset() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        a.send_with(b"abc!", MSG_OOB).unwrap();
        wait_until("it has come", || kernel::has_mark(b.flow.fd()));
        wait_until("that is known", || kernel::all_arrived(a.flow.fd()));
        let mut got = [0; 10];
        assert_eq!(b.receive_with(&mut got, MSG_PEEK), Ok(3));
        a.send(b"ring").unwrap();
        assert_eq!(a.flow.counts.offers.load(Relaxed), 2);
        let now = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(a.flow.fd(), now).unwrap();
        a.close();
        wait_until("the reset", || kernel::is_over(b.flow.fd()));
        assert_eq!((b.receive(&mut got), &got[..3]), (Ok(3), &b"abc"[..]));
        assert_eq!((b.receive(&mut got), &got[..4]), (Ok(4), &b"ring"[..]));
        assert_eq!(b.receive(&mut got), Err(Errno::CONNRESET));
        assert_eq!(b.receive(&mut got), Ok(0));
    }

    #[test]
    fn an_urgent_byte_before_the_ring_ends_a_call_that_has_received_something() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        send_urgent(&a, &b);
        // (A look leaves the ring that was left.)
        let mut got = [0; 10];
        assert_eq!(b.receive_with(&mut got, MSG_PEEK | MSG_DONTWAIT), Err(Errno::AGAIN));
        a.send(b"ring").unwrap();
        assert_eq!(a.flow.counts.offers.load(Relaxed), 2);
        for looked in [false, true] {
            assert_eq!(goes_on(&b, &mut got), 0, "looked {looked}");
            // A look passes it, and enters the ring.
            assert_eq!(b.receive_with(&mut got, MSG_PEEK), Ok(4));
        }
        receive_urgent(&b);
        assert_eq!((b.receive(&mut got), &got[..4]), (Ok(4), &b"ring"[..]));
        // It was passed.
        a.flow.send_by_linux(true).unwrap();
        a.send(b"Linux").unwrap();
        assert_eq!((goes_on(&b, &mut got), &got[..5]), (5, &b"Linux"[..]));
    }

    #[test]
    fn an_error_that_is_met_while_the_end_is_looked_for_is_told_by_the_next_call() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        let now = Some(std::time::Duration::ZERO);
        sockopt::set_socket_linger(a.flow.fd(), now).unwrap();
        a.close();
        wait_until("the reset", || kernel::is_over(b.flow.fd()));
        assert!(!b.flow.looks_for_end());
        assert_eq!(b.receive(&mut [0]), Err(Errno::CONNRESET));
        assert_eq!(b.receive(&mut [0]), Ok(0));
    }

    /// The receiver has left its ring at an urgent byte, and the sender has offered it anew.
    fn with_ring_behind_urgent(a: &End, b: &End) {
        send_urgent(a, b);
        assert_eq!(b.receive_with(&mut [0], MSG_PEEK | MSG_DONTWAIT), Err(Errno::AGAIN));
        a.send(b"ring").unwrap();
        assert_eq!(a.flow.counts.offers.load(Relaxed), 2);
    }

    #[test]
    fn an_urgent_byte_is_gone_once_what_the_ring_has_behind_it_is_received() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        for received in [false, true] {
            let (a, b) = at_rings(&program(), &program());
            with_ring_behind_urgent(&a, &b);
            if received {
                receive_urgent(&b);
            }
            let mut got = [0; 10];
            assert_eq!(b.receive_with(&mut got, MSG_PEEK), Ok(4));
            assert!(kernel::is_at_mark(b.flow.fd()), "it was only looked behind");
            assert_eq!((b.receive(&mut got), &got[..4]), (Ok(4), &b"ring"[..]));
            assert_eq!(b.receive_with(&mut got, MSG_OOB), Err(Errno::INVAL));
            sockopt::set_socket_oobinline(b.flow.fd(), true).unwrap();
            assert_eq!(b.flow.kernel_poll(PollFlags::IN | PollFlags::PRI), PollFlags::empty());
            assert_eq!(b.receive_with(&mut got, MSG_DONTWAIT), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn an_urgent_byte_that_is_asked_for_after_a_look_behind_it_comes_first() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        for looks in [&[MSG_PEEK, 0][..], &[0]] {
            let (a, b) = at_rings(&program(), &program());
            with_ring_behind_urgent(&a, &b);
            let mut got = [0; 10];
            assert_eq!(b.receive_with(&mut got, MSG_PEEK), Ok(4));
            assert_eq!(b.flow.unread(), Ok(0));
            sockopt::set_socket_oobinline(b.flow.fd(), true).unwrap();
            assert_eq!(b.flow.unread(), Ok(5));
            for flags in looks {
                assert_eq!((b.receive_with(&mut got, *flags), &got[..5]), (Ok(5), &b"!ring"[..]));
            }
            assert_eq!(b.receive_with(&mut got, MSG_DONTWAIT), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn bytes_of_a_left_ring_behind_an_urgent_byte_are_not_counted() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        with_ring_behind_urgent(&a, &b);
        assert_eq!(b.receive_with(&mut [0; 10], MSG_PEEK), Ok(4));
        a.flow.send_by_linux(true).unwrap();
        assert_eq!(b.flow.attached().unwrap().inward().switch.phase.at(), Ok(At::Leaving));
        assert_eq!(b.flow.unread(), Ok(0));
        assert_eq!(b.receive(&mut [0; 3]), Ok(3));
        assert_eq!(b.flow.unread(), Ok(1));
    }

    #[test]
    fn a_splice_does_not_pass_an_urgent_byte_before_the_ring() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program(), &program());
        let spliced = || {
            let mut got = vec![];
            let put = |bytes: &[u8]| {
                got.extend_from_slice(bytes);
                Ok(bytes.len())
            };
            b.flow.receive_by(&mut [0; 10], 0, put).map(|bytes| (bytes, got))
        };
        a.send(b"before").unwrap();
        assert_eq!(spliced(), Ok((6, b"before".to_vec())));
        with_ring_behind_urgent(&a, &b);
        assert_eq!(spliced(), Err(kernel::AT_MARK));
        receive_urgent(&b);
        assert_eq!(spliced(), Err(kernel::AT_MARK));
        assert_eq!(b.receive(&mut [0; 1]), Ok(1));
        assert_eq!(spliced(), Ok((3, b"ing".to_vec())));
    }
}
