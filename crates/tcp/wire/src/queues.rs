//! All queues of a device by AF_XDP, and the program that steers to them what is the service's.

use crate::steer::{Attach, Steer};
use crate::xsk::{Mode, Xsk};
use crate::{QUEUES, at, device};
use std::io;
use std::time::{Duration, Instant};

/// The kernel takes a queue from its last owner some milliseconds after that has closed it (on a
/// workqueue): so long a new one waits.
const RELEASED: Duration = Duration::from_secs(1);

/// Frames that a queue has room for before they are dropped: one for each flow, so that all may
/// have something to say at once; but not too few for bulk, nor more than 128 MB of memory.
const ROOM: std::ops::RangeInclusive<u32> = 2048..=65_536;

/// Binds to each queue on which the device `name` receives, and attaches the program: in the
/// driver, or behind it where the driver takes none. There is room for `flows` flows and
/// `listeners` listeners; none is the service's yet.
///
/// # Errors
/// No such device; no right; the device has an XDP program, or a queue an owner, already. The text
/// says which step it was.
pub fn open(name: &str, flows: u32, listeners: u32) -> io::Result<(Steer, Vec<Xsk>)> {
    let device = device(name)?;
    let mut steer = Steer::load(flows, listeners).map_err(at("loading the XDP program"))?;
    let attached = match steer.attach(device.0, Attach::Driver) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            steer.attach(device.0, Attach::Generic)
        }
        attached => attached,
    };
    attached.map_err(at("attaching the XDP program"))?;
    let queues = device.queue_counts().map_err(at("asking for the device's queues"))?.rx_count();
    if queues > QUEUES {
        return Err(io::Error::other(format!(
            "it has {queues} queues, of which {QUEUES} can be served at most (ethtool -L)"
        )));
    }
    let room = flows.next_power_of_two().clamp(*ROOM.start(), *ROOM.end());
    let mut wires = Vec::new();
    for queue in 0..queues {
        let wire = bind(name, queue, room).map_err(at("binding to a queue of the device"))?;
        steer.serve(queue, &wire)?;
        wires.push(wire);
    }
    Ok((steer, wires))
}

fn bind(name: &str, queue: u32, room: u32) -> io::Result<Xsk> {
    let end = Instant::now() + RELEASED;
    let mut mode = Mode::ZeroCopy;
    loop {
        match Xsk::bind_with_room(name, queue, mode, room).map_err(|e| (e.raw_os_error(), e)) {
            Err((Some(libc::EOPNOTSUPP), _)) if mode == Mode::ZeroCopy => mode = Mode::Copy,
            Err((Some(libc::EBUSY), _)) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound.map_err(|(_, e)| e),
        }
    }
}
