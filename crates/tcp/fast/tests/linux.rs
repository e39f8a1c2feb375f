//! Lanes and a slow path over the queues of a TAP device, against Linux's TCP: an echo server of
//! ours, clients of Linux that compare every byte; while lanes come and go; asleep when nothing
//! happens, and awake again.
//!
//! Needs root, /dev/net/tun, `ip` and `python3`; is left out, with the reason, where one is
//! missing.

// (Each test uses a part of it.)
#[allow(dead_code)]
mod echo;

use echo::{ALONE, LANES, Stop, clients, one_lane_soon, said, serves_sleeps_and_wakes, service};
use std::io;
use std::net::Ipv4Addr;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use uncopy_tcp_trace::{Chosen, Passes, Trace, Traced};
use uncopy_tcp_wire::tap::Tap;
use uncopy_tests::shell::shell;
use uncopy_tests::verdict::leave_out;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// A network namespace with the device's other side in it.
struct Namespace(String);

impl Namespace {
    fn new(which: &str) -> io::Result<(Namespace, Vec<Tap>)> {
        let name = format!("ucf{which}{}", std::process::id());
        let taps = Tap::open_queues(&name, LANES)
            .map_err(|e| io::Error::new(e.kind(), format!("no TAP device ({e})")))?;
        shell(&format!(
            "ip netns add {name} && ip link set {name} address 04:04:04:04:04:04 && ip link set {name} netns {name} && \
             ip -n {name} addr add 10.78.0.1/24 dev {name} && ip -n {name} link set {name} up && \
             ip -n {name} neigh replace 10.78.0.2 lladdr 02:02:02:02:02:02 dev {name} && python3 -c pass"
        ))?;
        Ok((Namespace(name), taps))
    }

    fn clients(&self, count: usize, size: usize) -> Child {
        clients(&self.0, ADDRESS, count, size)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = shell(&format!("ip netns del {}", self.0));
    }
}

#[test]
fn no_more_lanes_run_than_are_allowed() {
    let service = service(Ipv4Addr::LOCALHOST, Duration::ZERO, None).at_most(1);
    service.fix(LANES);
    assert_eq!(service.active(), 1);
}

#[test]
fn linux_gets_every_byte_back_while_lanes_come_and_go_sleep_and_wake() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (namespace, taps) = match Namespace::new("a") {
        Ok(both) => both,
        Err(reason) => return leave_out(&reason),
    };
    let service = service(ADDRESS, Duration::ZERO, None);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| service.run(taps));
        let stopped = Stop(&service);
        serves_sleeps_and_wakes(&service, |count, size| namespace.clients(count, size), || {});
        drop(stopped);
        running.join().expect("no thread panics").expect("no wire fails");
    });
}

#[test]
fn a_lane_comes_when_one_has_no_time_left_and_goes_when_the_load_does() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (namespace, taps) = match Namespace::new("b") {
        Ok(both) => both,
        Err(reason) => return leave_out(&reason),
    };
    // So long that the clients always have something for it, also where they get little of a
    // processor.
    let service = service(ADDRESS, Duration::from_millis(2), None);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| service.run(taps));
        let stopped = Stop(&service);
        let (mut most, mut times) = (1, 0);
        while most < LANES && times < 10 {
            times += 1;
            let mut clients = namespace.clients(8, 1_000_000);
            while clients.try_wait().expect("the clients").is_none() {
                most = most.max(service.active());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(said(&mut clients), "right []");
        }
        println!("a lane came, the {times}. time");
        assert_eq!(most, LANES, "lanes at most");
        one_lane_soon(&service);
        drop(stopped);
        running.join().expect("no thread panics").expect("no wire fails");
    });
}

/// The bytes of a stream, by where they belong, from segments of one direction.
fn stream(frames: &[(u32, Vec<u8>)], passes: Passes) -> Vec<u8> {
    use etherparse::{LaxSlicedPacket, TransportSlice::Tcp};
    let (mut begins, mut bytes) = (None, vec![]);
    for (_, frame) in frames.iter().filter(|(direction, _)| *direction == passes as u32) {
        let packet = LaxSlicedPacket::from_ethernet(frame).expect("a frame");
        let Some(Tcp(segment)) = packet.transport else { continue };
        if segment.syn() {
            begins = Some(segment.sequence_number().wrapping_add(1));
        }
        let at =
            segment.sequence_number().wrapping_sub(begins.expect("a SYN comes first")) as usize;
        let payload = segment.payload();
        if !payload.is_empty() {
            bytes.resize(bytes.len().max(at + payload.len()), 0);
            bytes[at..at + payload.len()].copy_from_slice(payload);
        }
    }
    bytes
}

#[test]
fn segments_on_a_traced_wire_are_in_the_file_from_the_first_to_the_last() {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Flags;
    use pcap_file::pcapng::{Block, PcapNgReader};
    const SIZE: usize = 300_000;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (namespace, taps) = match Namespace::new("c") {
        Ok(both) => both,
        Err(reason) => return leave_out(&reason),
    };
    let trace = Arc::new(Trace::default());
    let taps = taps.into_iter().map(|tap| Traced::new(tap, trace.clone())).collect();
    let service = service(ADDRESS, Duration::ZERO, None);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let other = file.reopen().expect("the same file");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| service.run(taps));
        let stopped = Stop(&service);
        let chosen = Chosen::new(vec!["10.78.0.1".parse().expect("a flow")]);
        trace.begin(chosen, "tap", Box::new(other)).expect("it begins");
        assert_eq!(said(&mut namespace.clients(1, SIZE)), "right []");
        trace.end().expect("all was written");
        drop(stopped);
        running.join().expect("no thread panics").expect("no wire fails");
    });
    let mut reader = PcapNgReader::new(file.reopen().expect("the file")).expect("pcapng");
    let mut frames = vec![];
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a block") {
            let [Flags(direction)] = packet.options[..] else { panic!("no direction") };
            frames.push((direction, packet.data.to_vec()));
        }
    }
    let (came, left) = (stream(&frames, Passes::In), stream(&frames, Passes::Out));
    println!("{} frames, {} bytes in, {} out", frames.len(), came.len(), left.len());
    assert!(came.len() >= SIZE, "{} bytes came", came.len());
    assert!(came == left, "what came is what was sent back");
}
