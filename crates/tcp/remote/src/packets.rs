//! Packets of programs that connect: what they say, and the one that refuses.

use etherparse::{Ipv4Header, Ipv4HeaderSlice, TcpHeader, TcpHeaderSlice};
use std::net::SocketAddrV4;

/// A segment that a program's socket has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The socket's address.
    pub from: SocketAddrV4,
    /// The peer's.
    pub to: SocketAddrV4,
    /// It begins a connection. Else it answers something, or goes on.
    pub begins: bool,
    /// Its number.
    pub number: u32,
}

/// Reads a packet. None: it is no TCP over IPv4.
pub fn read(packet: &[u8]) -> Option<Sent> {
    let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if ip.protocol() != etherparse::IpNumber::TCP || ip.is_fragmenting_payload() {
        return None;
    }
    let tcp = TcpHeaderSlice::from_slice(packet.get(ip.slice().len()..)?).ok()?;
    Some(Sent {
        from: SocketAddrV4::new(ip.source_addr(), tcp.source_port()),
        to: SocketAddrV4::new(ip.destination_addr(), tcp.destination_port()),
        begins: tcp.syn() && !tcp.ack() && !tcp.rst(),
        number: tcp.sequence_number(),
    })
}

/// The peer's answer that nobody listens there, to a SYN of this number.
pub fn refusal(peer: SocketAddrV4, local: SocketAddrV4, number: u32) -> Vec<u8> {
    let mut tcp = TcpHeader::new(peer.port(), local.port(), 0, 0);
    (tcp.rst, tcp.ack) = (true, true);
    tcp.acknowledgment_number = number.wrapping_add(1);
    let (from, to) = (peer.ip().octets(), local.ip().octets());
    let length = tcp.header_len_u16();
    let mut ip = Ipv4Header::new(length, 64, etherparse::IpNumber::TCP, from, to)
        .expect("a header alone fits");
    ip.header_checksum = ip.calc_header_checksum();
    tcp.checksum = tcp.calc_checksum_ipv4(&ip, &[]).expect("a header alone fits");
    let mut packet = ip.to_bytes().to_vec();
    packet.extend_from_slice(&tcp.to_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> [SocketAddrV4; 2] {
        ["10.0.0.2:6379", "10.0.0.1:40000"].map(|end| end.parse().unwrap())
    }

    #[test]
    fn a_refusal_is_a_whole_packet_from_the_peer_that_acknowledges_the_syn() {
        let [peer, local] = ends();
        let packet = refusal(peer, local, u32::MAX);
        let ip = Ipv4HeaderSlice::from_slice(&packet).unwrap();
        assert_eq!(usize::from(ip.total_len()), packet.len());
        assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
        let tcp = TcpHeaderSlice::from_slice(&packet[20..]).unwrap();
        assert!(tcp.rst() && tcp.ack() && tcp.acknowledgment_number() == 0);
        assert_eq!(tcp.calc_checksum_ipv4(&ip, &[]).unwrap(), tcp.checksum());
        let said = Sent { from: peer, to: local, begins: false, number: 0 };
        assert_eq!(read(&packet), Some(said));
    }

    #[test]
    fn a_packet_that_is_cut_off_or_no_tcp_says_nothing() {
        let [peer, local] = ends();
        let whole = refusal(peer, local, 7);
        assert!((0..whole.len()).all(|length| read(&whole[..length]).is_none()));
        let mut udp = whole.clone();
        udp[9] = 17;
        assert_eq!(read(&udp), None);
        let mut six = whole;
        six[0] = 0x60;
        assert_eq!(read(&six), None);
    }
}
