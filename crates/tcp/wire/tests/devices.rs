//! The wires on devices of the kernel's: a veth pair, a TAP, a TAP beside one of the pair. Needs
//! root; left out, with the reason, elsewhere.

mod support;

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, PacketBuilder, TcpHeader};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::{Frames, index_of, ip, leave_out, own_network, pair_of_devices};
use uncopy_tcp_wire::steer::{Attach, Steer, SteeredFlow};
use uncopy_tcp_wire::tap::Tap;
use uncopy_tcp_wire::xsk::{Mode, Xsk};
use uncopy_tcp_wire::{Offload, Piece, Wire, beside, copied};

const SOON: Duration = Duration::from_millis(200);

fn address(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

/// A segment from `from` to `to` whose payload is `tag`.
fn segment(
    from: &str,
    to: &str,
    tag: &str,
    change: impl FnOnce(&mut Ipv4Header, &mut TcpHeader),
) -> Vec<u8> {
    let (from, to) = (address(from), address(to));
    let mut tcp = TcpHeader::new(from.port(), to.port(), 1, 1000);
    tcp.ack = true;
    let mut v4 =
        Ipv4Header::new(0, 64, IpNumber::TCP, from.ip().octets(), to.ip().octets()).unwrap();
    change(&mut v4, &mut tcp);
    v4.set_payload_len(tcp.header_len() + tag.len()).unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    v4.header_checksum = v4.calc_header_checksum();
    v4.write(&mut frame).unwrap();
    tcp.write(&mut frame).unwrap();
    frame.extend(tag.as_bytes());
    frame
}

fn plain(_: &mut Ipv4Header, _: &mut TcpHeader) {}

fn opening(_: &mut Ipv4Header, tcp: &mut TcpHeader) {
    (tcp.syn, tcp.ack) = (true, false);
}

/// The frames that arrive at the wire within a while, as text behind the headers' place.
fn tags(wire: &mut impl Wire, frames: &[Vec<u8>]) -> Vec<String> {
    let mut seen = Vec::new();
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        wire.receive(64, |frame, _| {
            let known = frames.iter().position(|f| f == frame).expect("one of those sent");
            seen.push(tag_of(&frames[known]));
        })
        .unwrap();
    }
    seen
}

fn tag_of(frame: &[u8]) -> String {
    let text = frame.iter().rev().take_while(|b| b.is_ascii_lowercase() || **b == b' ');
    let mut text: Vec<u8> = text.copied().collect();
    text.reverse();
    String::from_utf8(text).unwrap()
}

#[test]
fn only_its_own_flows_and_listeners_are_steered_to_the_service() {
    if !own_network() {
        return;
    }
    pair_of_devices();
    let mut steer = Steer::load(1000, 100).unwrap();
    steer.attach(index_of("inner"), Attach::Driver).unwrap();
    let xsk = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    steer.serve(0, &xsk).unwrap();
    steers(steer, xsk, false);
}

#[test]
fn a_tap_beside_a_device_gets_the_same_and_its_own_frames_leave_by_the_device() {
    if !own_network() {
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        leave_out("no /dev/net/tun");
        return;
    }
    pair_of_devices();
    // (The hardware address that `segment` sends to.)
    ip("link set inner address 02:00:00:00:00:01");
    let (steer, mut taps) = beside::open("inner", 1000, 100).unwrap();
    let mut tap = taps.remove(0);
    steer.listen(address("0.0.0.0:91")).unwrap();
    let outer = Frames::on("outer");
    let ours = segment("10.0.0.3:5", "10.0.0.9:91", "for this host", opening);
    let mut elsewhere = segment("10.0.0.3:5", "10.0.0.9:91", "for another host", opening);
    elsewhere[5] = 9;
    // (Its tag is not in the frame any more when the classifier sees it.)
    let mut tagged = segment("10.0.0.3:5", "10.0.0.9:91", "in a vlan", opening);
    let without = tagged.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    [&ours, &elsewhere, &tagged].into_iter().for_each(|frame| outer.send(frame));
    assert_eq!(tags(&mut tap, &[ours, elsewhere, without]), ["for this host"]);

    let frame = numbered(3, 1000);
    assert!(tap.send(frame.len(), Offload::default(), copied(&frame)).unwrap());
    assert_eq!(outer.receive(SOON).as_ref(), Some(&frame));
    // One of several segments stays whole on its way, and so does one of the peer's.
    let large = segment("10.0.0.9:91", "10.0.0.3:5", &"a".repeat(40_000), plain);
    let offload = Offload { checksum: true, segment: Some(1448) };
    assert!(tap.send(large.len(), offload, copied(&large)).unwrap());
    assert_eq!(outer.receive(SOON).map(|frame| frame.len()), Some(large.len()));
    let name = tap.name().to_owned();
    assert_ne!(index_of(&name), 0);
    drop((steer, tap, taps));
    // (A process that another test starts just then has its descriptor, too, until it executes.)
    let dropped = Instant::now();
    while index_of(&name) != 0 {
        assert!(dropped.elapsed() < Duration::from_secs(10), "{name} is there still");
        std::thread::sleep(Duration::from_millis(1));
    }

    // The TAP device behaves as AF_XDP does.
    let (steer, mut taps) = beside::open("inner", 1000, 100).unwrap();
    steers(steer, taps.remove(0), true);
}

/// `inner` is reached so, and nothing is steered yet. `seen`: packet sockets of Linux' see what is
/// steered too.
fn steers(steer: Steer, mut wire: impl Wire, seen: bool) {
    let flow = SteeredFlow { local: address("10.0.0.1:80"), remote: address("10.0.0.2:4000") };
    steer.take(flow).unwrap();
    steer.listen(address("10.0.0.1:90")).unwrap();
    steer.listen(address("0.0.0.0:91")).unwrap();

    let ours = [
        segment("10.0.0.2:4000", "10.0.0.1:80", "of our flow", plain),
        segment("10.0.0.2:4000", "10.0.0.1:80", "with options of ip", |v4, _| {
            v4.options = Ipv4Options::try_from([1_u8, 1, 1, 0].as_slice()).unwrap();
        }),
        segment("10.0.0.3:5", "10.0.0.1:90", "to our listener", opening),
        segment("10.0.0.3:5", "10.0.0.9:91", "to our listener anywhere", opening),
    ];
    let mut udp = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
        .udp(4000, 80)
        .write(&mut udp, b"not tcp")
        .unwrap();
    let linuxs = [
        segment("10.0.0.2:4001", "10.0.0.1:80", "another port", plain),
        segment("10.0.0.3:4000", "10.0.0.1:80", "another host", plain),
        segment("10.0.0.1:80", "10.0.0.2:4000", "the other way", plain),
        segment("10.0.0.2:4000", "10.0.0.1:80", "a fragment", |v4, _| v4.more_fragments = true),
        segment("10.0.0.2:4000", "10.0.0.1:80", "a later fragment", |v4, _| {
            v4.fragment_offset = IpFragOffset::try_new(100).unwrap();
        }),
        segment("10.0.0.3:5", "10.0.0.1:92", "opens elsewhere", opening),
        segment("10.0.0.3:5", "10.0.0.8:90", "opens at another address", opening),
        segment("10.0.0.3:5", "10.0.0.1:90", "not opening", plain),
        segment("10.0.0.3:5", "10.0.0.1:90", "an answer", |_, tcp| tcp.syn = true),
        udp,
        // Cut off within each header: nothing is read behind the end.
        segment("10.0.0.2:4000", "10.0.0.1:80", "", plain)[..52].to_vec(),
        segment("10.0.0.2:4000", "10.0.0.1:80", "", plain)[..20].to_vec(),
    ];
    let all: Vec<_> = ours.iter().chain(&linuxs).cloned().collect();

    let (outer, inner) = (Frames::on("outer"), Frames::on("inner"));
    for frame in &all {
        outer.send(frame);
    }
    let expected: Vec<_> = ours.iter().map(|f| tag_of(f)).collect();
    assert_eq!(tags(&mut wire, &all), expected, "what the service gets");
    for frame in if seen { &all[..] } else { &linuxs[..] } {
        assert_eq!(inner.receive(SOON).as_ref(), Some(frame), "what Linux gets: {}", tag_of(frame));
    }
    assert_eq!(inner.receive(SOON), None);

    // Given up, all is Linux's.
    assert!(steer.leave(flow).unwrap());
    assert!(!steer.leave(flow).unwrap());
    assert!(steer.stop_listening(address("10.0.0.1:90")).unwrap());
    outer.send(&ours[0]);
    outer.send(&ours[2]);
    assert_eq!(inner.receive(SOON).as_ref(), Some(&ours[0]));
    assert_eq!(inner.receive(SOON).as_ref(), Some(&ours[2]));
    assert!(tags(&mut wire, &all).is_empty());
    // So it is when the service has ended.
    drop((steer, wire));
    outer.send(&ours[3]);
    assert_eq!(inner.receive(SOON).as_ref(), Some(&ours[3]));
}

#[test]
fn while_cookies_are_out_acknowledgements_for_a_listener_are_the_services_unless_linux_has_somebody_for_them()
 {
    if !own_network() {
        return;
    }
    pair_of_devices();
    for words in ["link set lo up", "addr add 10.0.0.1/32 dev lo"] {
        ip(words);
    }
    // Linux' own: somebody listens at both ports, and one connection is there.
    let _listening = [90, 92].map(|port| TcpListener::bind(("10.0.0.1", port)).unwrap());
    let linuxs = TcpStream::connect("10.0.0.1:90").unwrap();
    let peer = linuxs.local_addr().unwrap().to_string();

    let mut steer = Steer::load(1000, 100).unwrap();
    steer.attach(index_of("inner"), Attach::Driver).unwrap();
    let mut xsk = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    steer.serve(0, &xsk).unwrap();
    steer.listen(address("10.0.0.1:90")).unwrap();
    steer.listen(address("0.0.0.0:91")).unwrap();
    let back = [
        segment("10.0.0.2:4001", "10.0.0.1:90", "acknowledges", plain),
        segment("10.0.0.2:4001", "10.0.0.1:90", "and ends", |_, tcp| tcp.fin = true),
        segment("10.0.0.2:4001", "10.0.0.9:91", "where only the service listens", plain),
    ];
    let others = [
        segment(&peer, "10.0.0.1:90", "of a connection of linux", plain),
        segment("10.0.0.2:4001", "10.0.0.1:92", "to a listener of linux", plain),
        segment("10.0.0.2:4001", "10.0.0.1:90", "an answer", |_, tcp| tcp.syn = true),
        segment("10.0.0.2:4001", "10.0.0.1:90", "a reset", |_, tcp| tcp.rst = true),
        segment("10.0.0.2:4001", "10.0.0.1:90", "nothing", |_, tcp| tcp.ack = false),
    ];
    let (outer, inner) = (Frames::on("outer"), Frames::on("inner"));
    let all: Vec<_> = back.iter().chain(&others).cloned().collect();
    let passes = |xsk: &mut Xsk, ours: &[Vec<u8>], linuxs: &[Vec<u8>]| {
        all.iter().for_each(|frame| outer.send(frame));
        assert_eq!(tags(xsk, &all), ours.iter().map(|f| tag_of(f)).collect::<Vec<_>>());
        for frame in linuxs {
            let got = inner.receive(SOON);
            assert_eq!(got.as_ref(), Some(frame), "what Linux gets: {}", tag_of(frame));
        }
        assert_eq!(inner.receive(SOON), None);
    };
    passes(&mut xsk, &[], &all);
    steer.cookies(true).unwrap();
    passes(&mut xsk, &back, &others);
    steer.cookies(false).unwrap();
    passes(&mut xsk, &[], &all);
}

/// A pseudo-random frame: its number, then bytes that follow from it.
fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((0..length as u32).map(|i| (number.wrapping_mul(31).wrapping_add(i) >> 2) as u8));
    frame
}

#[test]
fn frames_by_af_xdp_arrive_byte_for_byte() {
    if !own_network() {
        return;
    }
    pair_of_devices();
    let mut xsk = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    let outer = Frames::on("outer");
    let mut number = 0;
    // More than all rings hold, so that each frame of memory is used several times.
    while number < 30_000 {
        let batch = 1 + number % 100;
        for i in number..number + batch {
            let frame = numbered(i, (i as usize * 7) % 1400 + 42);
            assert!(xsk.send(frame.len(), Offload::default(), copied(&frame)).unwrap());
        }
        xsk.flush().unwrap();
        for i in number..number + batch {
            let expected = numbered(i, (i as usize * 7) % 1400 + 42);
            assert!(outer.receive(SOON).as_ref() == Some(&expected), "frame {i}");
        }
        number += batch;
    }
    // One that its sender cannot fill is not sent, and takes no memory.
    for _ in 0..10_000 {
        assert!(!xsk.send(1000, Offload::default(), |_| false).unwrap());
    }
    let frame = numbered(number, 1000);
    assert!(xsk.send(frame.len(), Offload::default(), copied(&frame)).unwrap());
    xsk.flush().unwrap();
    assert!(outer.receive(SOON).as_ref() == Some(&frame), "it is the next that arrives");
    let error = xsk.send(4096, Offload::default(), |_| panic!("it does not fit")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn frames_that_find_no_room_are_refused_and_the_wire_goes_on() {
    if !own_network() {
        return;
    }
    pair_of_devices();
    let mut xsk = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    // Nobody flushes: the rings and the batch fill up, or the wire flushes by itself.
    for i in 0..20_000 {
        let frame = numbered(i, 100);
        xsk.send(frame.len(), Offload::default(), copied(&frame)).unwrap();
    }
    xsk.flush().unwrap();
    let outer = Frames::on("outer");
    let frame = numbered(7, 100);
    assert!(xsk.send(frame.len(), Offload::default(), copied(&frame)).unwrap());
    xsk.flush().unwrap();
    while outer.receive(SOON).expect("the last frame arrives") != frame {}
}

#[test]
fn arrived_frames_are_taken_after_the_device_went_down_and_more_once_it_is_up_again() {
    if !own_network() {
        return;
    }
    pair_of_devices();
    let mut steer = Steer::load(10, 10).unwrap();
    steer.attach(index_of("inner"), Attach::Driver).unwrap();
    let mut xsk = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    steer.serve(0, &xsk).unwrap();
    steer.listen(address("0.0.0.0:91")).unwrap();
    let frame = segment("10.0.0.3:5", "10.0.0.9:91", "to our listener", opening);
    let outer = Frames::on("outer");
    let mut take = |wait| {
        let mut count = 0;
        let end = Instant::now() + wait;
        while count < 200 && Instant::now() < end {
            count += xsk.receive(64, |got, _| assert_eq!(got, frame)).expect("it is only down");
        }
        count
    };
    // More than all rings hold, in the end.
    for round in 0..12 {
        // (The kernel lets a device that has come up wait for a while before it is sent to.)
        let soon = Instant::now() + Duration::from_secs(10);
        loop {
            outer.send(&frame);
            if take(Duration::from_millis(10)) > 0 {
                break;
            }
            assert!(Instant::now() < soon, "round {round}: it does not come up");
        }
        (0..200).for_each(|_| outer.send(&frame));
        ip("link set inner down");
        assert_eq!(take(SOON), 200, "round {round}");
        ip("link set inner up");
    }
}

#[test]
fn a_second_socket_on_a_queue_is_refused_by_name() {
    if !own_network() {
        return;
    }
    pair_of_devices();
    let _first = Xsk::bind("inner", 0, Mode::Copy).unwrap();
    let error = Xsk::bind("inner", 0, Mode::Copy).err().expect("the queue has an owner");
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    let error = Xsk::bind("nowhere", 0, Mode::Copy).err().expect("there is no such device");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_tap_carries_frames_both_ways_and_segments_large_ones() {
    if !own_network() {
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        leave_out("no /dev/net/tun");
        return;
    }
    let mut tap = Tap::open("tap0").unwrap();
    ip("link set tap0 arp off up");
    let linux = Frames::on("tap0");
    let until = |tap: &mut Tap, frame: &[u8]| {
        let end = Instant::now() + SOON;
        let mut found = false;
        while !found && Instant::now() < end {
            tap.receive(10, |f, _| found |= f == frame).unwrap();
        }
        found
    };
    let frame = numbered(1, 1000);
    linux.send(&frame);
    assert!(until(&mut tap, &frame), "from Linux");
    assert!(tap.send(frame.len(), Offload::default(), copied(&frame)).unwrap());
    assert!(!tap.send(frame.len(), Offload::default(), |_| false).unwrap(), "it is not to leave");
    let mut received = None;
    while received.as_ref() != Some(&frame) {
        received = Some(linux.receive(SOON).expect("to Linux"));
    }

    // 40 segments of 1,000 bytes, in one frame, whose TCP checksum the kernel completes.
    let payload = "x".repeat(40_000);
    let mut large = segment("10.0.0.2:4000", "10.0.0.1:80", &payload, plain);
    large[34 + 16..34 + 18].fill(0);
    let offload = Offload { checksum: true, segment: Some(1000) };
    assert!(tap.send(large.len(), offload, copied(&large)).unwrap());
    let arrived = linux.receive(SOON).expect("one frame");
    assert_eq!(arrived.len(), large.len());
    assert_eq!(arrived[54..], large[54..]);

    // The same, whose payload lies in pieces; and one of which a piece is not there is lost.
    let (headers, payload) = large.split_at(54);
    let [first, second] = [&payload[..1], &payload[1..]].map(Piece::from);
    let pieces = [Piece::NONE, first, Piece::NONE, second];
    assert!(tap.gather(54, &pieces, offload, |to| to.copy_from_slice(headers)).unwrap());
    let arrived = linux.receive(SOON).expect("one frame");
    assert_eq!(arrived[54..], large[54..]);
    // SAFETY: it is not mapped; what is handed a piece only shows it to the kernel.
    let nowhere = unsafe { Piece::new(core::ptr::without_provenance(8), 1000) };
    let pieces = [first, nowhere, Piece::NONE, Piece::NONE];
    assert!(!tap.gather(54, &pieces, offload, |to| to.copy_from_slice(headers)).unwrap());
    assert!(tap.send(70_000, Offload::default(), |_| panic!("it does not fit")).is_err());
    assert!(Tap::open("a name that is too long").is_err());
}
