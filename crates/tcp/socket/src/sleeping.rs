//! A thread that sleeps over connections takes a sleeper, and gives it back. Where it is crowded at
//! the process' doors the connection gets a door of its own.

use crate::attached::Attached;
use crate::context::Context;
use crate::door::OwnDoor;
use crate::flow::Flow;
use crate::lock::lock;
use crate::sleepers::{EDGES, Sleeper};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_kernel::descriptors::Kept;

impl Context {
    /// A set for a thread to sleep in over several connections.
    pub(crate) fn sleeper(&self) -> Result<Sleeper, Errno> {
        self.sleepers.take(&self.doors, None)
    }
}

impl Flow {
    /// A set for a thread to sleep in over this connection: with its socket, or without.
    pub(crate) fn take_sleeper(&self, with_socket: bool) -> Result<Sleeper, Errno> {
        let context = &self.context;
        let mut sleeper = match self.own_sleeper.take() {
            Some(sleeper) => sleeper,
            None => {
                let socket = with_socket.then(|| self.number());
                context.sleepers.take(&context.doors, socket)?
            }
        };
        if !with_socket {
            sleeper.unwatch();
        }
        if sleeper.is_crowded()
            && let Some(attached) = self.attached()
        {
            self.watch_own_door(attached, &mut sleeper);
        }
        Ok(sleeper)
    }

    /// Nobody sleeps in it any more.
    pub(crate) fn give_back_sleeper(&self, sleeper: Sleeper) {
        // While a thread slept in it `forget` did not reach it: another socket may have its number.
        let as_it_is = |sleeper: &Sleeper| {
            !self.is_closed() && sleeper.socket.is_none_or(|(number, _)| number == self.number())
        };
        if sleeper.own.is_none() {
            return self.context.sleepers.give_back(sleeper, as_it_is);
        }
        let mut idle = lock(&self.own_sleeper.idle);
        if !self.own_sleeper.closed.load(Relaxed) && as_it_is(&sleeper) {
            *idle = Some(sleeper);
        }
    }

    /// A sleeper that shares its door gets one that is this connection's; once the other side
    /// knocks there, it listens there alone. (A knock at the shared door of a moment ago is missed
    /// by nobody: words are armed, and looked at again, after this.)
    fn watch_own_door(&self, attached: &Attached, sleeper: &mut Sleeper) {
        if sleeper.own.is_some() {
            if attached.other_knocks() {
                let shared = &self.context.doors[sleeper.door];
                sleeper.alone = epoll::delete(&sleeper.set, shared).is_ok();
            }
            return;
        }
        sleeper.shares = false;
        // (News of an inherited connection is told at the parent's doors.)
        if !self.is_inherited() && !self.own_sleeper.made.swap(true, Relaxed) {
            sleeper.own = self.make_own_door(attached, &sleeper.set).ok();
        }
    }

    fn make_own_door(&self, attached: &Attached, set: &Kept) -> Result<OwnDoor, Errno> {
        let client = self.context.known_client().ok_or(Errno::NOTCONN)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let own = OwnDoor::new(eventfd(0, flags)?)?;
        epoll::add(set, &own.0, epoll::EventData::new_u64(0), EDGES)?;
        attached.give_door(&client, own.0.as_fd())?;
        Ok(own)
    }
}
