//! Bytes to segments and back: Ethernet, IPv4 and TCP.
//!
//! The formats are `etherparse`'s. Compared: `smoltcp::wire` has the same formats, but its
//! `Ipv4Repr` has no ECN bits, its `TcpRepr` no ECE and CWR (so half of the work would be done on
//! raw fields), it brings seven crates to etherparse's one (which we have already), and its present
//! version needs a newer compiler than the project does. etherparse stops at an option that it does
//! not know; `options` goes on behind it.
//!
//! IPv6 has its place here: one more arm in [`parse`] and in [`emit`], and a variant of [`Tuple`].

use crate::segment::{Blocks, Flags, Outgoing, Segment, SynOptions, Tuple};
use crate::seq::Seq;
use core::net::Ipv4Addr;
use etherparse::checksum::Sum16BitWords;

use etherparse::{
    EtherType, Ethernet2Header, Ethernet2HeaderSlice, IpEcn, IpNumber, Ipv4Header, Ipv4HeaderSlice,
    TcpHeader, TcpHeaderSlice, TcpOptionElement, TcpOptionReadError, TcpOptionsIterator,
};

/// Ethernet, IPv4 without options, TCP with all options: the most that [`emit`] writes.
pub const MAX_HEADERS: usize = 14 + 20 + 60;

/// The hop count that our packets begin with: what Linux uses.
const TTL: u8 = 64;

/// The ICMP type and code of "fragmentation needed", and the length of the part of its packet that
/// has to be there: the IP header and the ports and sequence number of TCP.
const ICMP_FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];

/// The two hardware addresses of a way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Ours.
    pub local: [u8; 6],
    /// The neighbour's.
    pub peer: [u8; 6],
}

/// The side that looks after checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// We compute and check them.
    Software,
    /// The device does, of TCP's: what arrives was checked, and what is sent gets the sum of the
    /// pseudo header only (as `CHECKSUM_PARTIAL` of virtio and XDP wants it). The header of IPv4 is
    /// ours to check, as it is Linux'.
    Device,
    /// Nobody does: for tests that change what they send, and measurements.
    Nobody,
}

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A segment, and where in the frame its payload begins.
    Tcp(Segment, usize),
    /// A router has no room for a packet of ours.
    TooBig {
        /// The connection whose packet it was.
        tuple: Tuple,
        /// The sequence number of that packet.
        seq: Seq,
        /// The largest packet that would pass, IP header included; 0 where the router is too old to
        /// say so.
        mtu: u16,
    },
}

/// Why a frame holds nothing for us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another protocol: for the kernel.
    OtherProtocol,
    /// A fragment of a packet. TCP over IPv4 with path MTU discovery makes none.
    Fragment,
    /// Shorter than its headers say.
    Truncated,
    /// A wrong checksum.
    Checksum,
    /// Addresses that no connection can have.
    Address,
}

/// Reads a frame.
#[inline]
pub fn parse(frame: &[u8], checksums: Checksums) -> Result<Packet, Refused> {
    let link = Ethernet2HeaderSlice::from_slice(frame).map_err(|_| Refused::Truncated)?;
    if link.ether_type() != EtherType::IPV4 {
        return Err(Refused::OtherProtocol);
    }
    let packet = &frame[Ethernet2Header::LEN..];
    let ip = Ipv4HeaderSlice::from_slice(packet).map_err(|_| Refused::Truncated)?;
    let header = ip.slice().len();
    let total = usize::from(ip.total_len());
    // Behind the packet there may be the padding of a short frame.
    if total < header || total > packet.len() {
        return Err(Refused::Truncated);
    }
    if ip.is_fragmenting_payload() {
        return Err(Refused::Fragment);
    }
    let protocol = ip.protocol();
    if protocol != IpNumber::TCP && protocol != IpNumber::ICMP {
        return Err(Refused::OtherProtocol);
    }
    if checksums != Checksums::Nobody
        && Sum16BitWords::new().add_slice(ip.slice()).ones_complement() != 0
    {
        return Err(Refused::Checksum);
    }
    let body = &packet[header..total];
    if protocol == IpNumber::ICMP {
        return icmp(body, checksums);
    }
    let (from, to) = (ip.source_addr(), ip.destination_addr());
    if from.is_multicast() || from.is_broadcast() || to.is_multicast() || to.is_broadcast() {
        return Err(Refused::Address);
    }
    let tcp = TcpHeaderSlice::from_slice(body).map_err(|_| Refused::Truncated)?;
    if checksums == Checksums::Software
        && pseudo(ip.source(), ip.destination(), body.len()).add_slice(body).ones_complement() != 0
    {
        return Err(Refused::Checksum);
    }
    let tcp_header = tcp.slice().len();
    let mut segment = Segment {
        tuple: Tuple {
            local_ip: to,
            local_port: tcp.destination_port(),
            peer_ip: from,
            peer_port: tcp.source_port(),
        },
        seq: Seq(tcp.sequence_number()),
        ack: Seq(tcp.acknowledgment_number()),
        window: tcp.window_size(),
        flags: Flags(body[13]),
        marked: ip.ecn() == IpEcn::CongestionExperienced,
        payload: (body.len() - tcp_header) as u32,
        stamp: None,
        sack: Blocks::default(),
        syn: SynOptions::default(),
    };
    options(&body[TcpHeader::MIN_LEN..tcp_header], &mut segment);
    Ok(Packet::Tcp(segment, Ethernet2Header::LEN + header + tcp_header))
}

fn options(mut rest: &[u8], segment: &mut Segment) {
    // The options that nearly all segments have, and nothing else: two times nothing, and the
    // timestamps.
    if let [1, 1, 8, 10, stamps @ ..] = rest
        && let Ok(stamps) = <[u8; 8]>::try_from(stamps)
    {
        let [a, b, c, d, e, f, g, h] = stamps;
        segment.stamp = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
        return;
    }
    loop {
        let mut options = TcpOptionsIterator::from_slice(rest);
        let Some(option) = options.next() else { return };
        match option {
            Ok(TcpOptionElement::MaximumSegmentSize(mss)) => segment.syn.mss = Some(mss),
            Ok(TcpOptionElement::WindowScale(shift)) => segment.syn.shift = Some(shift),
            Ok(TcpOptionElement::SelectiveAcknowledgementPermitted) => segment.syn.sack = true,
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, others)) => {
                for (start, end) in core::iter::once(first).chain(others.into_iter().flatten()) {
                    segment.sack.push(Seq(start), Seq(end));
                }
            }
            Ok(TcpOptionElement::Timestamp(value, echo)) => segment.stamp = Some((value, echo)),
            Ok(TcpOptionElement::Noop) => {}
            // One that we do not know has its length behind its number.
            Err(TcpOptionReadError::UnknownId(_)) => {
                match rest.get(1).and_then(|&len| rest.get(usize::from(len).max(2)..)) {
                    Some(behind) => rest = behind,
                    None => return,
                }
                continue;
            }
            // From here on it cannot be read. Options that were read before count, as with Linux.
            Err(_) => return,
        }
        rest = options.rest();
    }
}

fn icmp(body: &[u8], checksums: Checksums) -> Result<Packet, Refused> {
    if !body.starts_with(&ICMP_FRAGMENTATION_NEEDED) || body.len() < 8 {
        return Err(Refused::OtherProtocol);
    }
    if checksums != Checksums::Nobody && Sum16BitWords::new().add_slice(body).ones_complement() != 0
    {
        return Err(Refused::Checksum);
    }
    let inner = &body[8..];
    let ip = Ipv4HeaderSlice::from_slice(inner).map_err(|_| Refused::Truncated)?;
    let start = inner.get(ip.slice().len()..).and_then(|tcp| tcp.first_chunk::<8>());
    let Some([a, b, c, d, seq @ ..]) = start else { return Err(Refused::Truncated) };
    if ip.protocol() != IpNumber::TCP {
        return Err(Refused::OtherProtocol);
    }
    Ok(Packet::TooBig {
        tuple: Tuple {
            local_ip: ip.source_addr(),
            local_port: u16::from_be_bytes([*a, *b]),
            peer_ip: ip.destination_addr(),
            peer_port: u16::from_be_bytes([*c, *d]),
        },
        seq: Seq(u32::from_be_bytes(*seq)),
        mtu: u16::from_be_bytes([body[6], body[7]]),
    })
}

fn pseudo(from: [u8; 4], to: [u8; 4], len: usize) -> Sum16BitWords {
    let mut sum = Sum16BitWords::new();
    sum.add_4bytes(from)
        .add_4bytes(to)
        .add_2bytes([0, IpNumber::TCP.0])
        .add_2bytes((len as u16).to_be_bytes())
}

/// How many bytes of options `segment` has.
fn options_len(segment: &Outgoing) -> usize {
    let blocks = segment.sack.as_slice().len();
    let stamp = if segment.stamp.is_some() { 12 } else { 0 };
    let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
    let syn = segment.syn.map_or(0, |syn| {
        (if syn.mss.is_some() { 4 } else { 0 })
            + (if syn.shift.is_some() { 4 } else { 0 })
            + (if syn.sack { 4 } else { 0 })
    });
    stamp + sack + syn
}

/// How long the headers of `segment` are.
pub fn headers_len(segment: &Outgoing) -> usize {
    Ethernet2Header::LEN + Ipv4Header::MIN_LEN + TcpHeader::MIN_LEN + options_len(segment)
}

/// Writes the headers of `segment` to the front of `frame`, which has room for them, and says how
/// long they are; the payload goes behind them. With [`Checksums::Software`], [`seal`] has to
/// follow.
#[inline]
pub fn emit(segment: &Outgoing, link: &Link, frame: &mut [u8]) -> usize {
    match segment.stamp {
        Some(stamp) if segment.syn.is_none() && segment.sack.as_slice().is_empty() => {
            common(segment, stamp, link, frame)
        }
        _ => general(segment, link, frame),
    }
}

/// Sends a frame of [`emit`]'s another way.
pub fn relink(link: &Link, frame: &mut [u8]) {
    frame[..6].copy_from_slice(&link.peer);
    frame[6..12].copy_from_slice(&link.local);
}

/// Ethernet, IPv4, TCP, and of the options the timestamps alone.
const COMMON: usize = 14 + 20 + 32;

/// The part of the headers that is the same in nearly all segments. A template for each flow would
/// save a few stores more, and cost a cache line and a half of each flow.
const TEMPLATE: [u8; COMMON] = {
    let mut bytes = [0; COMMON];
    bytes[12] = 0x08; // IPv4
    bytes[14] = 0x45; // version, and five words of header
    bytes[20] = 0x40; // don't fragment
    bytes[22] = TTL;
    bytes[23] = 6; // TCP
    bytes[46] = 8 << 4; // eight words of header
    bytes[54] = 1; // two times nothing, so that the stamps are aligned
    bytes[55] = 1;
    bytes[56] = 8; // timestamps
    bytes[57] = 10;
    bytes
};

/// The sum of 16-bit words, not yet complemented (RFC 1071).
#[inline]
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

/// The template, and what differs. `general` writes the same bytes; a test holds them against each
/// other.
#[inline]
fn common(segment: &Outgoing, stamp: (u32, u32), link: &Link, frame: &mut [u8]) -> usize {
    let tuple = &segment.tuple;
    let (from, to) = (u32::from(tuple.local_ip), u32::from(tuple.peer_ip));
    let total = (COMMON - Ethernet2Header::LEN) as u16 + segment.payload.len as u16;
    let ecn = if segment.markable { IpEcn::Ect0 as u8 } else { IpEcn::NotEct as u8 };
    let addresses = (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff);
    let fixed = 0x4500 + 0x4000 + (u32::from(TTL) << 8) + 6;
    let ip_sum = !folded(fixed + u32::from(ecn) + u32::from(total) + addresses);
    let tcp_sum = folded(addresses + 6 + u32::from(total) - Ipv4Header::MIN_LEN as u32);
    let mut head = TEMPLATE;
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &link.peer);
    put(6, &link.local);
    put(15, &[ecn]);
    put(16, &total.to_be_bytes());
    put(24, &ip_sum.to_be_bytes());
    put(26, &from.to_be_bytes());
    put(30, &to.to_be_bytes());
    put(34, &tuple.local_port.to_be_bytes());
    put(36, &tuple.peer_port.to_be_bytes());
    put(38, &segment.seq.0.to_be_bytes());
    put(42, &segment.ack.0.to_be_bytes());
    put(47, &[segment.flags.without(Flags::URG).0]);
    put(48, &segment.window.to_be_bytes());
    put(50, &tcp_sum.to_be_bytes());
    put(58, &stamp.0.to_be_bytes());
    put(62, &stamp.1.to_be_bytes());
    frame[..COMMON].copy_from_slice(&head);
    COMMON
}

/// Any segment.
fn general(segment: &Outgoing, link: &Link, frame: &mut [u8]) -> usize {
    let mut options = [1u8; 40];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        options[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    if let Some(syn) = segment.syn {
        if let Some(mss) = syn.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[2, 4, high, low]);
        }
        if let Some(shift) = syn.shift {
            put(&[1, 3, 3, shift]);
        }
        if syn.sack {
            put(&[1, 1, 4, 2]);
        }
    }
    if let Some((value, echo)) = segment.stamp {
        put(&[1, 1, 8, 10]);
        put(&value.to_be_bytes());
        put(&echo.to_be_bytes());
    }
    let blocks = segment.sack.as_slice();
    if !blocks.is_empty() {
        put(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (start, end) in blocks {
            put(&start.0.to_be_bytes());
            put(&end.0.to_be_bytes());
        }
    }
    let flags = segment.flags;
    let mut tcp = TcpHeader::new(
        segment.tuple.local_port,
        segment.tuple.peer_port,
        segment.seq.0,
        segment.window,
    );
    tcp.acknowledgment_number = segment.ack.0;
    tcp.fin = flags.any(Flags::FIN);
    tcp.syn = flags.any(Flags::SYN);
    tcp.rst = flags.any(Flags::RST);
    tcp.psh = flags.any(Flags::PSH);
    tcp.ack = flags.any(Flags::ACK);
    tcp.ece = flags.any(Flags::ECE);
    tcp.cwr = flags.any(Flags::CWR);
    debug_assert_eq!(at, options_len(segment));
    // At most 40 bytes, in whole words: it always fits.
    let _ = tcp.set_options_raw(&options[..at]);
    let (from, to) = (segment.tuple.local_ip.octets(), segment.tuple.peer_ip.octets());
    let total = Ipv4Header::MIN_LEN + tcp.header_len() + segment.payload.len as usize;
    tcp.checksum = !pseudo(from, to, total - Ipv4Header::MIN_LEN).ones_complement().to_be();
    // A packet that is not to be fragmented needs no number of its own (RFC 6864).
    let mut ip = Ipv4Header {
        ecn: if segment.markable { IpEcn::Ect0 } else { IpEcn::NotEct },
        total_len: total as u16,
        dont_fragment: true,
        time_to_live: TTL,
        protocol: IpNumber::TCP,
        source: from,
        destination: to,
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let ethernet =
        Ethernet2Header { source: link.local, destination: link.peer, ether_type: EtherType::IPV4 };
    let mut at = 0;
    for part in [&ethernet.to_bytes()[..], &ip.to_bytes(), &tcp.to_bytes()] {
        frame[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}

/// Completes the TCP checksum of a whole frame that [`emit`] began: it holds the sum of the pseudo
/// header.
#[inline]
pub fn seal(frame: &mut [u8]) {
    let tcp = Ethernet2Header::LEN + Ipv4Header::MIN_LEN;
    let sum = Sum16BitWords::new().add_slice(&frame[tcp..]).ones_complement();
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_ne_bytes());
}

/// The largest payload of packets of `mtu` bytes, timestamps included.
pub fn mss_of(mtu: u16) -> u16 {
    mtu.saturating_sub((Ipv4Header::MIN_LEN + TcpHeader::MIN_LEN) as u16)
}

/// An address as the tests and the service write it.
pub fn address(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::RingRange;

    fn outgoing() -> Outgoing {
        Outgoing {
            tuple: Tuple {
                local_ip: address(10, 0, 0, 1),
                local_port: 1234,
                peer_ip: address(10, 0, 0, 2),
                peer_port: 80,
            },
            route: 0,
            seq: Seq(0xfffffff0),
            ack: Seq(77),
            window: 500,
            flags: Flags::ACK.with(Flags::PSH).with(Flags::ECE),
            markable: true,
            stamp: Some((1, 2)),
            sack: Blocks::default(),
            syn: None,
            payload: RingRange { start: 0, len: 5 },
            mss: 1448,
        }
    }

    fn frame(segment: &Outgoing, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; MAX_HEADERS + payload.len()];
        let headers = emit(segment, &Link { local: [2; 6], peer: [4; 6] }, &mut frame);
        frame[headers..headers + payload.len()].copy_from_slice(payload);
        frame.truncate(headers + payload.len());
        seal(&mut frame);
        frame
    }

    fn segment(frame: &[u8]) -> (Segment, usize) {
        match parse(frame, Checksums::Software) {
            Ok(Packet::Tcp(segment, at)) => (segment, at),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_emitted_segment_is_parsed_as_the_same() {
        let mut sent = outgoing();
        sent.sack.push(Seq(5), Seq(9));
        sent.sack.push(Seq(u32::MAX), Seq(3));
        let frame = frame(&sent, b"hello");
        let (got, at) = segment(&frame);
        assert_eq!(&frame[at..], b"hello");
        assert_eq!(got.payload, 5);
        assert_eq!((got.tuple.peer_port, got.tuple.local_port), (1234, 80));
        assert_eq!(
            (got.seq, got.ack, got.window, got.flags),
            (sent.seq, sent.ack, 500, sent.flags)
        );
        assert_eq!((got.stamp, got.sack, got.marked), (sent.stamp, sent.sack, false));
    }

    #[test]
    fn common_segments_are_written_as_all_others_are() {
        let mut state = 5u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for _ in 0..20_000 {
            let segment = Outgoing {
                tuple: Tuple {
                    local_ip: random().into(),
                    local_port: random() as u16,
                    peer_ip: random().into(),
                    peer_port: random() as u16,
                },
                seq: Seq(random()),
                ack: Seq(random()),
                window: random() as u16,
                flags: Flags(random() as u8),
                markable: random() % 2 == 0,
                stamp: Some((random(), random())),
                payload: RingRange { start: 0, len: random() % 65_000 },
                ..outgoing()
            };
            let link = Link { local: [random() as u8; 6], peer: [random() as u8; 6] };
            let (mut by_template, mut by_etherparse) = ([0xaa; MAX_HEADERS], [0xaa; MAX_HEADERS]);
            assert_eq!(emit(&segment, &link, &mut by_template), COMMON);
            assert_eq!(general(&segment, &link, &mut by_etherparse), COMMON);
            assert_eq!(by_template, by_etherparse, "{segment:?}");
        }
    }

    #[test]
    fn a_syn_brings_its_offers() {
        let syn = SynOptions { mss: Some(1460), shift: Some(7), sack: true };
        let sent = Outgoing {
            flags: Flags::SYN,
            syn: Some(syn),
            payload: RingRange::default(),
            ..outgoing()
        };
        let (got, _) = segment(&frame(&sent, b""));
        assert_eq!((got.syn, got.stamp), (syn, Some((1, 2))));
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let good = frame(&outgoing(), b"hello");
        for bit in 14 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = parse(&bad, Checksums::Software);
            assert!(read.is_err(), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn unknown_and_broken_options_end_nothing_else() {
        let mut read = segment(&frame(&outgoing(), b"hello")).0;
        read.stamp = None;
        // Fast open's cookie, then timestamps.
        options(&[34, 4, 9, 9, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &mut read);
        assert_eq!(read.stamp, Some((1, 2)));
        for broken in
            [&[34][..], &[34, 0, 0], &[34, 40, 1], &[8, 3, 1], &[5, 11, 0], &[2], &[200, 1]]
        {
            options(broken, &mut read);
        }
        assert_eq!(read.stamp, Some((1, 2)));
    }

    #[test]
    fn the_device_vouches_for_the_segment_and_not_for_its_packets_header() {
        let good = frame(&outgoing(), b"hello");
        let damaged = |at: usize| {
            let mut frame = good.clone();
            frame[at] ^= 1;
            frame
        };
        // The last byte of the payload; ECN in the header of IPv4.
        let (payload, header) = (damaged(good.len() - 1), damaged(14 + 1));
        assert!(matches!(parse(&payload, Checksums::Device), Ok(Packet::Tcp(..))));
        assert_eq!(parse(&payload, Checksums::Software), Err(Refused::Checksum));
        assert_eq!(parse(&header, Checksums::Device), Err(Refused::Checksum));
    }

    #[test]
    fn a_router_without_room_is_understood() {
        let packet = frame(&outgoing(), b"hello");
        let mut message = packet[..14 + 20].to_vec();
        message[14 + 9] = 1;
        message.extend([3, 4, 0, 0, 0, 0]);
        message.extend(1400u16.to_be_bytes());
        message.extend(&packet[14..14 + 28]);
        let total = (message.len() - 14) as u16;
        message[16..18].copy_from_slice(&total.to_be_bytes());
        let read = parse(&message, Checksums::Nobody);
        let expected = Packet::TooBig { tuple: outgoing().tuple, seq: Seq(0xfffffff0), mtu: 1400 };
        assert_eq!(read, Ok(expected));
        for checksums in [Checksums::Software, Checksums::Device] {
            assert_eq!(parse(&message, checksums), Err(Refused::Checksum));
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut state = 1u64;
        let good = frame(&outgoing(), b"hello");
        for _ in 0..200_000 {
            let mut bytes = good.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            bytes.truncate((state >> 40) as usize % (bytes.len() + 1));
            let _ = parse(&bytes, Checksums::Nobody);
        }
    }
}
