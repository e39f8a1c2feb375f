//! When what a call has caused has come about: the kernel is asked, past whatever is in the
//! processes. Bytes that rings carry are there at once.
//!
//! unsafe: questions about descriptors.

use super::pair::Pair;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use uncopy_differ::model::World;
use uncopy_differ::model::end::{SURE, Side, State};

/// Nagle's algorithm waits 40 ms for a delayed acknowledgement.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Bytes that a socket has sent (each once) and received, and those that it has not sent yet.
fn counts(fd: &OwnedFd) -> Option<(u64, u64, u32)> {
    // SAFETY: plain data, our own variable, of this length.
    unsafe {
        // (libc's structure has the fields of old kernels only.)
        let mut all = [0u64; 64];
        let mut len = size_of_val(&all) as libc::socklen_t;
        let asked = libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            all.as_mut_ptr().cast(),
            &mut len,
        );
        if asked < 0 {
            return None;
        }
        let bytes = core::slice::from_raw_parts(all.as_ptr().cast::<u8>(), len as usize);
        let at = |offset: usize| {
            let word = bytes.get(offset..offset + 8)?;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        };
        let not_sent = bytes.get(144..148)?;
        let not_sent = u32::from_ne_bytes(not_sent.try_into().ok()?);
        Some((at(200)?.saturating_sub(at(208)?), at(128)?, not_sent))
    }
}

fn says(fd: &OwnedFd, events: i16) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: our own list.
    unsafe { libc::poll(&mut asked, 1, 0) };
    asked.revents & (events | libc::POLLERR | libc::POLLHUP) != 0
}

fn borrow(pair: &Pair, world: &World, (connection, side): (usize, Side)) -> Option<OwnedFd> {
    (0..4).find_map(|process| {
        let handles = world.processes[process].handles.iter().flatten();
        let mut ours = handles.filter(|h| (h.connection, h.side) == (connection, side));
        ours.next().and_then(|handle| pair.borrow(process, handle.number))
    })
}

/// All that was sent to an end, and the end of the stream, has arrived.
fn has_arrived(pair: &Pair, world: &World, end: (usize, Side)) -> bool {
    let Some(to) = borrow(pair, world, end) else { return true };
    let e = world.end(end);
    if e.fin && !says(&to, libc::POLLRDHUP) {
        return false;
    }
    let Some(from) = borrow(pair, world, (end.0, 1 - end.1)) else { return true };
    let (Some((sent, _, waits)), Some((_, received, _))) = (counts(&from), counts(&to)) else {
        // Something stands in for one of them.
        return true;
    };
    // (An end counts as a byte that was received.)
    waits == 0 && sent <= received
}

/// Waits for what has been sent, for ends and resets.
pub fn settle(pair: &Pair, world: &mut World, before: &World) {
    for connection in 0..world.connections.len() {
        for side in 0..2 {
            let end = (connection, side);
            let was = before.connections.get(connection).map(|pair| pair[side].state);
            let e = *world.end(end);
            if !e.is_open() {
                continue;
            }
            if e.state == State::Closed && was != Some(State::Closed) {
                wait(Instant::now() + TIMEOUT, || {
                    borrow(pair, world, end).is_none_or(|fd| says(&fd, 0))
                });
            }
            if e.is_loose() && !e.cut && e.unread() <= SURE {
                let holds = world.end((connection, 1 - side)).holds && !e.fin;
                let now = Instant::now();
                let until = if holds { now } else { now + TIMEOUT };
                if wait(until, || has_arrived(pair, world, end)) {
                    world.arrives(end);
                } else {
                    world.end_mut(end).vague = true;
                }
            } else if e.is_loose() {
                world.end_mut(end).vague = true;
            }
            world.has_room(end);
        }
    }
}

fn wait(until: Instant, mut is: impl FnMut() -> bool) -> bool {
    loop {
        if is() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
