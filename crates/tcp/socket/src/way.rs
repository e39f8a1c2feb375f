//! The side that makes a call, Linux or we; and when a connection is registered.

use crate::attached::Attached;
use crate::flow::Flow;
use crate::mapped::Registered;
use crate::order::ByLinux;
use crate::wait::For;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use uncopy_tcp_service::ends::is_stand_in;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_shared::phase::At;

/// A call that bypasses the ring: Linux makes it, begun before there was a ring, or because rings
/// do not carry it. As long as one is under way sending does not go to the ring: its bytes would
/// come first.
#[derive(Debug)]
pub struct Bypass<'a> {
    flow: &'a Flow,
    sends: bool,
}

impl<'a> Bypass<'a> {
    fn begin(flow: &'a Flow, sends: bool) -> Self {
        flow.bypassing.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self { flow, sends }
    }
}

impl Drop for Bypass<'_> {
    fn drop(&mut self) {
        let Self { flow, sends } = self;
        if flow.has_slot() {
            flow.push();
        }
        flow.bypassing.fetch_sub(1, Ordering::SeqCst);
        if *sends {
            flow.context.by_linux.sent();
        }
    }
}

/// A call that sends by Linux. News that rings tell after it comes after it.
#[derive(Debug)]
pub struct Sends<'a>(&'a ByLinux);

impl Drop for Sends<'_> {
    fn drop(&mut self) {
        self.0.sent();
    }
}

/// The side that makes a call.
#[derive(Debug)]
pub enum Way<'a> {
    /// Linux, just as it is.
    Linux,
    /// Linux, and it sends: this is to be kept meanwhile.
    LinuxSends(Sends<'a>),
    /// Linux for now: this is to be kept meanwhile.
    Bypass(Bypass<'a>),
    /// We do.
    Here,
}

impl Flow {
    /// The side that makes a call, one that `sends` or not. A connection that was used a few times
    /// is registered.
    #[inline]
    pub fn way(self: &Arc<Self>, sends: bool) -> Way<'_> {
        match self.attached.get() {
            Some(Some(attached)) if self.left.load(Ordering::Relaxed) => {
                self.way_of_linux(attached, sends)
            }
            Some(Some(_)) => Way::Here,
            Some(None) => self.of_linux(sends),
            None => self.undecided(sends),
        }
    }

    /// It has gone back: just as it is, options that rings do not have included. But the other side
    /// may ask for what it has not read. So far it may have that; what is sent now comes after it.
    #[cold]
    fn way_of_linux(&self, attached: &Attached, sends: bool) -> Way<'_> {
        let leaving = attached.out().switch.phase.at() == Ok(At::Leaving);
        if leaving {
            // Linux does not know that the peer was killed with what lies there unread.
            self.sees_end(attached);
        }
        if attached.error().is_some() || self.may_be_reset_by_linux(attached) {
            return Way::Here;
        }
        let leaves = sends && leaving;
        if leaves || self.is_asked(attached) {
            let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
            if self.serve_locked(attached, &mut own) == Err(Errno::AGAIN) && sends {
                // Linux has no room for all of it now: so this call, and later ones, wait here
                // until it has.
                self.left.store(false, Ordering::Relaxed);
                return Way::Here;
            }
            own.too_late |= sends;
        }
        self.of_linux(sends)
    }

    fn of_linux(&self, sends: bool) -> Way<'_> {
        if sends { Way::LinuxSends(Sends(&self.context.by_linux)) } else { Way::Linux }
    }

    fn undecided(self: &Arc<Self>, sends: bool) -> Way<'_> {
        if self.registered.load(Ordering::Acquire) {
            return Way::Here;
        }
        let used = self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= self.registers_after;
        if used && self.holders.sole() && !self.registered.swap(true, Ordering::SeqCst) {
            fence(Ordering::SeqCst);
            // A thread that waits in the kernel now would not see the ring. And where another
            // thread closes it, either that sees it registered, or it is not.
            if self.bypassing.load(Ordering::SeqCst) == 0 && !self.is_closed() {
                self.register();
                return Way::Here;
            }
            self.not_yet();
        }
        let bypass = Bypass::begin(self, sends);
        if self.registered.load(Ordering::SeqCst) { Way::Here } else { Way::Bypass(bypass) }
    }

    fn register(self: &Arc<Self>) {
        match uncopy_tcp_service::ends::name(self.fd()) {
            Ok(name) if name.is_local() || is_stand_in(self.fd()) => {
                self.context.register_with_service(self.clone(), name);
            }
            Ok(_) => self.clone().stays(StayReason::Remote),
            // Still on its way, or none any more.
            Err(_) => self.not_yet(),
        }
    }

    /// A call of Linux' while it is not attached; `None`: it is.
    #[inline]
    pub(crate) fn unattached(&self, sends: bool) -> Option<Bypass<'_>> {
        let bypass = Bypass::begin(self, sends);
        if matches!(self.attached.get(), Some(Some(_))) { None } else { Some(bypass) }
    }

    /// The program sends by a call that rings do not carry, with these flags: sending is Linux's as
    /// long as this is kept. Bytes that were taken back from the ring go first, which is waited
    /// for.
    ///
    /// # Errors
    /// EAGAIN: the call does not wait, or its timeout has passed. EINTR. An error of the
    /// connection that is kept for the next call.
    pub fn bypasses_to_send(&self, flags: i32) -> Result<Bypass<'_>, Errno> {
        if let Some(attached) = self.attached() {
            self.sees_end(attached);
            if let Some(error) = attached.error().take() {
                return Err(error);
            }
        }
        let bypass = Bypass::begin(self, true);
        let waits = || flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let mut deadline = None;
        loop {
            match self.send_before_bypass() {
                Err(Errno::AGAIN) if waits() => self.wait_in_call(For::Room, &mut deadline)?,
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                // Linux does not say again what it has said to the bytes that were taken back.
                // (EPIPE it does.)
                Err(_) => return self.take_error().map_or(Ok(bypass), Err),
                Ok(()) => return Ok(bypass),
            }
        }
    }

    /// No call bypasses the ring.
    pub(crate) fn nobody_bypasses(&self) -> bool {
        fence(Ordering::SeqCst);
        self.bypassing.load(Ordering::SeqCst) == 0
    }
}
