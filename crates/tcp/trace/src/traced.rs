//! A wire that is looked at, or not.

use crate::capture::{Capture, Passes};
use crate::chosen::Chosen;
use rustix::fd::BorrowedFd;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use uncopy_tcp_wire::{Offload, PIECES, Piece, Wire};

type File = Box<dyn Write + Send>;

/// The trace of all wires that share it. A trace that cannot be written ends; nothing else does.
#[derive(Debug, Default)]
pub struct Trace {
    on: AtomicBool,
    to: Mutex<Option<(Chosen, Capture<File>)>>,
    frames: AtomicU64,
    failed: Mutex<Option<io::Error>>,
}

impl Trace {
    /// From now on frames of these flows are written there, until [`Trace::end`]; another trace
    /// under way ends.
    ///
    /// # Errors
    /// Those of writing the file's beginning.
    pub fn begin(&self, chosen: Chosen, wire: &str, to: File) -> io::Result<()> {
        let capture = Capture::new(to, wire)?;
        self.end()?;
        self.frames.store(0, Relaxed);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some((chosen, capture));
        self.on.store(true, Relaxed);
        Ok(())
    }

    /// Frames that were written since the last one began.
    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    /// A trace is under way.
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// No more is written; what was is in the file.
    ///
    /// # Errors
    /// Returns the error that kept a frame from being written, if there was one.
    pub fn end(&self) -> io::Result<()> {
        self.on.store(false, Relaxed);
        let ended = self.to.lock().unwrap_or_else(PoisonError::into_inner).take();
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let flushed = ended.map_or(Ok(()), |(_, mut capture)| capture.flush());
        failed.map_or(flushed, Err)
    }

    #[cold]
    fn passes(&self, passes: Passes, frame: &[u8]) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((chosen, capture)) = &mut *to else { return };
        if !chosen.has(frame) {
            return;
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
        if let Err(why) = capture.frame(now, passes, frame) {
            self.on.store(false, Relaxed);
            *to = None;
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        } else {
            self.frames.fetch_add(1, Relaxed);
        }
    }
}

/// A wire whose frames a [`Trace`] sees: as they are handed to it, or come from it. (So a frame
/// that the device will segment is one frame, and its checksum may be the device's to complete, as
/// in any capture on the sending host.)
#[derive(Debug)]
pub struct Traced<W> {
    wire: W,
    trace: Arc<Trace>,
}

impl<W> Traced<W> {
    /// The wire, seen by `trace`.
    pub fn new(wire: W, trace: Arc<Trace>) -> Self {
        Self { wire, trace }
    }
}

impl<W: Wire> Wire for Traced<W> {
    fn frame_max(&self) -> usize {
        self.wire.frame_max()
    }

    fn offers(&self) -> Offload {
        self.wire.offers()
    }

    fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8], Offload)) -> io::Result<usize> {
        let trace = &self.trace;
        self.wire.receive(max, |frame, offload| {
            if trace.on.load(Relaxed) {
                trace.passes(Passes::In, frame);
            }
            each(frame, offload);
        })
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool> {
        let trace = &self.trace;
        self.wire.send(length, offload, |frame| {
            let leaves = fill(frame);
            if leaves && trace.on.load(Relaxed) {
                trace.passes(Passes::Out, frame);
            }
            leaves
        })
    }

    fn gathers(&self) -> bool {
        // (Whole frames are looked at.)
        self.wire.gathers() && !self.trace.is_on()
    }

    fn gather(
        &mut self,
        headers: usize,
        payload: &[Piece<'_>; PIECES],
        offload: Offload,
        fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        self.wire.gather(headers, payload, offload, fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wire.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chosen::tests::segment;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::collections::VecDeque;
    use std::os::fd::AsFd;
    use uncopy_tcp_wire::copied;

    /// Frames that are sent come back.
    struct Loop(VecDeque<Vec<u8>>, std::fs::File);

    impl Wire for Loop {
        fn frame_max(&self) -> usize {
            1514
        }
        fn offers(&self) -> Offload {
            Offload::default()
        }
        fn receive(
            &mut self,
            max: usize,
            mut each: impl FnMut(&[u8], Offload),
        ) -> io::Result<usize> {
            let count = max.min(self.0.len());
            self.0.drain(..count).for_each(|frame| each(&frame, Offload::default()));
            Ok(count)
        }
        fn send(
            &mut self,
            length: usize,
            _: Offload,
            fill: impl FnOnce(&mut [u8]) -> bool,
        ) -> io::Result<bool> {
            let mut frame = vec![0; length];
            let leaves = fill(&mut frame);
            if leaves {
                self.0.push_back(frame);
            }
            Ok(leaves)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn descriptor(&self) -> BorrowedFd<'_> {
            self.1.as_fd()
        }
    }

    /// A file that a test can read while it is written; it takes so many bytes.
    #[derive(Clone)]
    struct Memory(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut all = self.0.lock().unwrap();
            if all.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            all.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn wire() -> (Traced<Loop>, Arc<Trace>) {
        let trace = Arc::new(Trace::default());
        let file = std::fs::File::open("/dev/null").unwrap();
        (Traced::new(Loop(VecDeque::new(), file), trace.clone()), trace)
    }

    fn passes(wire: &mut Traced<Loop>, frame: &[u8]) {
        assert!(wire.send(frame.len(), Offload::default(), copied(frame)).unwrap());
        let mut came = vec![];
        assert_eq!(wire.receive(8, |frame, _| came = frame.to_vec()).unwrap(), 1);
        assert_eq!(came, frame);
    }

    /// Directions and bytes of the frames of a file, which must be in order of time, and of today.
    fn read(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Flags;
        use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
        let mut reader = PcapNgReader::new(file).unwrap();
        let (mut frames, mut last) = (vec![], Duration::ZERO);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(interface) => {
                    let resolution = InterfaceDescriptionOption::IfTsResol(9);
                    assert!(interface.options.contains(&resolution), "nanoseconds");
                }
                Block::EnhancedPacket(packet) => {
                    assert!(packet.timestamp >= last && packet.timestamp <= now);
                    assert!(now - packet.timestamp < Duration::from_secs(60));
                    last = packet.timestamp;
                    let [Flags(direction)] = packet.options[..] else { panic!("no direction") };
                    assert_eq!(packet.original_len as usize, packet.data.len());
                    frames.push((direction, packet.data.to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
        frames
    }

    #[test]
    fn frames_of_the_chosen_flows_are_in_the_file_each_way_and_no_others() {
        let (mut wire, trace) = wire();
        let (mine, other) = (segment(80, 4000, b"mine"), segment(81, 4000, b"another"));
        let file = Memory(Arc::default(), usize::MAX);
        passes(&mut wire, &mine);
        let chosen = Chosen::new(vec![":80".parse().unwrap()]);
        trace.begin(chosen, "loop", Box::new(file.clone())).unwrap();
        passes(&mut wire, &mine);
        passes(&mut wire, &other);
        trace.end().unwrap();
        passes(&mut wire, &mine);
        let frames = read(&file.0.lock().unwrap());
        assert_eq!(frames, [(Passes::Out as u32, mine.clone()), (Passes::In as u32, mine)]);
    }

    #[test]
    fn a_file_that_takes_no_more_ends_the_trace_and_nothing_else() {
        let (mut wire, trace) = wire();
        let full = Memory(Arc::default(), 20_000);
        trace.begin(Chosen::default(), "loop", Box::new(full)).unwrap();
        let frame = segment(1, 2, &[7; 1400]);
        for _ in 0..40 {
            passes(&mut wire, &frame);
        }
        assert!(!trace.on.load(Relaxed));
        assert_eq!(trace.end().unwrap_err().kind(), io::ErrorKind::StorageFull);
        trace.begin(Chosen::default(), "loop", Box::new(io::sink())).unwrap();
        passes(&mut wire, &frame);
        trace.end().unwrap();
    }
}
