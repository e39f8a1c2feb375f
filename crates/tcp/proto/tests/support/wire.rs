//! A wire with faults, one way.

use super::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use uncopy_tcp_proto::Time;

/// The wire's faults, as shares of the frames.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub drop: f64,
    pub duplicate: f64,
    /// Frames that take up to eight times as long, so that others overtake them.
    pub delay: f64,
    pub corrupt: f64,
    /// Frames marked although the queue is short.
    pub mark: f64,
    /// The time of a frame on the way, in nanoseconds.
    pub latency: u64,
    /// Bytes a second; 0: no limit.
    pub rate: u64,
    /// Bytes that wait before the wire; what comes on top is lost. From `mark_at` bytes on, what
    /// may be marked is.
    pub queue: u64,
    pub mark_at: u64,
}

impl Faults {
    pub fn none() -> Faults {
        Faults {
            drop: 0.0,
            duplicate: 0.0,
            delay: 0.0,
            corrupt: 0.0,
            mark: 0.0,
            latency: 50_000,
            rate: 0,
            queue: u64::MAX,
            mark_at: u64::MAX,
        }
    }
}

/// See the module.
pub struct Wire {
    random: Random,
    pub faults: Faults,
    queue: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    count: u64,
    free_at: u64,
    pub dropped: u64,
    /// Everything that was sent, with its time, if asked for.
    pub capture: Option<Vec<(Time, Vec<u8>)>>,
}

impl Wire {
    pub fn new(seed: u64, faults: Faults) -> Wire {
        Wire {
            random: Random::new(seed),
            faults,
            queue: BinaryHeap::new(),
            count: 0,
            free_at: 0,
            dropped: 0,
            capture: None,
        }
    }

    pub fn send(&mut self, now: Time, mut frame: Vec<u8>) {
        if let Some(capture) = &mut self.capture {
            capture.push((now, frame.clone()));
        }
        let faults = self.faults;
        if self.random.chance(faults.drop) {
            self.dropped += 1;
            return;
        }
        let mut sent = now.0;
        if faults.rate > 0 {
            let waiting = self.free_at.saturating_sub(now.0) as u128 * u128::from(faults.rate)
                / 1_000_000_000;
            if waiting as u64 > faults.queue {
                self.dropped += 1;
                return;
            }
            if waiting as u64 >= faults.mark_at {
                mark(&mut frame);
            }
            self.free_at =
                self.free_at.max(now.0) + (frame.len() as u64 + 24) * 1_000_000_000 / faults.rate;
            sent = self.free_at;
        }
        if self.random.chance(faults.mark) {
            mark(&mut frame);
        }
        if self.random.chance(faults.duplicate) {
            let at = sent + faults.latency * self.random.range(1..=3);
            self.push(at, frame.clone());
        }
        if self.random.chance(faults.corrupt) {
            let bit = self.random.below(frame.len() as u64 * 8);
            frame[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let mut at = sent + faults.latency;
        if self.random.chance(faults.delay) {
            at += self.random.below(faults.latency * 8);
        }
        self.push(at, frame);
    }

    fn push(&mut self, at: u64, frame: Vec<u8>) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count, frame)));
    }

    pub fn next(&self) -> Option<Time> {
        self.queue.peek().map(|first| Time(first.0.0))
    }

    pub fn receive(&mut self, now: Time) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop().map(|frame| frame.0.2)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Throws away what is on the way.
    pub fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Congestion experienced, if the frame may be marked.
fn mark(frame: &mut [u8]) {
    if frame.len() > 34 && frame[15] & 3 != 0 {
        let before = frame[15];
        frame[15] |= 3;
        // RFC 1624.
        let sum = u32::from(!u16::from_be_bytes([frame[24], frame[25]]))
            + u32::from(!u16::from(before))
            + u32::from(frame[15]);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// Writes frames as pcapng.
pub fn save(path: &str, frames: &[(Time, Vec<u8>)]) {
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use pcap_file::pcapng::blocks::interface_description::{
        InterfaceDescriptionBlock, InterfaceDescriptionOption,
    };
    let file = std::fs::File::create(path).expect("the capture can be created");
    let mut writer = PcapNgWriter::new(file).expect("pcapng");
    let interface = InterfaceDescriptionBlock {
        linktype: pcap_file::DataLink::ETHERNET,
        snaplen: 0,
        // (The crate writes nanoseconds; without a word readers take them for microseconds.)
        options: vec![InterfaceDescriptionOption::IfTsResol(9)],
    };
    writer.write_pcapng_block(interface).expect("pcapng");
    for (time, frame) in frames {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: std::time::Duration::from_nanos(time.0),
            original_len: frame.len() as u32,
            data: frame.as_slice().into(),
            options: vec![],
        };
        writer.write_pcapng_block(block).expect("pcapng");
    }
}
