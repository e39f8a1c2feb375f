//! A TAP device beside another one: what is the service's among what arrives at the other comes out
//! of it, and what we send leaves by the other.
//!
//! For devices that cannot do AF_XDP without copies, or have an XDP program already. Segments that
//! the kernel has joined stay joined on their way here, large ones are cut, and checksums
//! completed, behind us: bulk costs a third of what it costs by an AF_XDP that copies. Small
//! segments cost a system call each, and no more than there.
//!
//! The TAP has no address, so nothing is routed by it and nothing that comes by it is Linux'; and
//! it is root's. Filters of the device that stand behind ours (tc, nftables' ingress hook) do not
//! see what is the service's; those for what leaves do. It goes, and the other device is Linux's
//! alone, when its queues are closed, also by the death of their process.

use crate::steer::{Attach, Steer};
use crate::tap::Tap;
use crate::{QUEUES, at, device};
use std::io;

/// Frames that wait for us before more are dropped, at all queues: one for each flow, but not too
/// few for bulk, nor more than 512 MB, as each may hold 64 KB.
const ROOM: std::ops::RangeInclusive<u32> = 1024..=8192;
/// At each of many queues at least: peers do not spread evenly.
const LEAST: u32 = 256;

/// Makes the TAP, with as many queues as the device `name` receives on, and attaches the programs.
/// There is room for `flows` flows and `listeners` listeners; none is the service's yet.
///
/// # Errors
/// No such device; no `/dev/net/tun`; no right; a kernel that knows no classifiers of this kind
/// (before 6.6). The text says which step it was.
pub fn open(name: &str, flows: u32, listeners: u32) -> io::Result<(Steer, Vec<Tap>)> {
    let other = device(name)?;
    // (Not all drivers say.)
    let queues = other.queue_counts().map_or(1, |queues| queues.rx_count().clamp(1, QUEUES));
    // (A name that nobody can wait for.)
    let name = format!("uncopy-{:08x}", fastrand::u32(..));
    let taps = Tap::open_queues(&name, queues as usize);
    let taps = taps.map_err(at("making a TAP device"))?;
    let tap = &taps[0];
    // (IPv6 has nothing to say there.)
    let six = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", tap.name());
    let _ = std::fs::write(six, "1");
    let room = flows.clamp(*ROOM.start(), *ROOM.end()).div_ceil(queues).max(LEAST);
    tap.set_up(room).map_err(at("setting the TAP device up"))?;
    let its = device(tap.name())?;
    let loaded = Steer::load_to_device(its.0, flows, listeners);
    let mut steer = loaded.map_err(at("loading the classifier"))?;
    steer
        .onward(its.0, other.0)
        .map_err(at("attaching a classifier to the TAP device (tcx, since Linux 6.6)"))?;
    steer
        .attach(other.0, Attach::Ingress)
        .map_err(at("attaching the classifier to the device (tcx, since Linux 6.6)"))?;
    Ok((steer, taps))
}
