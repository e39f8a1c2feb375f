//! A connection, by however many numbers the program knows it.
//!
//! unsafe: a descriptor by its number.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use uncopy_kernel::descriptors::{Kept, have_room};
use uncopy_tcp_socket::Flow;

/// A connection, by however many numbers the program knows it.
#[derive(Debug)]
pub struct Connection {
    /// The connection.
    pub flow: Arc<Flow>,
    numbers: AtomicU32,
    /// A number of our own, if it ever had several: those of the program's may be closed in any
    /// order.
    own: AtomicI32,
    /// It connects by the service's wire: until it is connected, the service is told if it is
    /// closed.
    pub(crate) connects: AtomicBool,
    /// A splice has asked the other side in vain for what lies unread.
    pub(crate) copies: AtomicBool,
}

impl Connection {
    pub(crate) fn new(flow: Arc<Flow>, numbers: u32) -> Self {
        Self {
            flow,
            numbers: AtomicU32::new(numbers),
            own: AtomicI32::new(-1),
            connects: AtomicBool::new(false),
            copies: AtomicBool::new(false),
        }
    }

    pub(crate) fn of_child(&self, flow: Arc<Flow>) -> Self {
        let numbers = AtomicU32::new(self.numbers.load(Relaxed));
        let own = AtomicI32::new(self.own.load(Relaxed));
        // (The parent says it.)
        let (connects, copies) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { flow, numbers, own, connects, copies }
    }

    /// It has one more number. (Before the program knows it.)
    pub(crate) fn one_more(&self) -> Result<(), Errno> {
        if self.own.load(Relaxed) < 0 {
            let own = have_room(1).then(|| Kept::duplicate_of(self.flow.fd()));
            let own = own.unwrap_or(Err(Errno::MFILE))?;
            self.flow.set_number(own.as_raw_fd());
            self.own.store(own.into_raw(), Relaxed);
        }
        self.numbers.fetch_add(1, AcqRel);
        Ok(())
    }

    /// It has one number less. True: that was the last.
    pub(crate) fn one_less(&self) -> bool {
        self.numbers.fetch_sub(1, AcqRel) == 1
    }

    pub(crate) fn close_own(&self) {
        let own = self.own.swap(-1, Relaxed);
        if own >= 0 {
            // SAFETY: ours, and nobody uses it any more.
            drop(unsafe { Kept::from_raw(own) });
        }
    }

    /// Before the last number is closed.
    pub(crate) fn says_that_it_closes(&self) {
        if self.connects.load(Relaxed) && self.flow.is_undecided() {
            self.flow.context().closes(self.flow.fd());
        }
    }
}
