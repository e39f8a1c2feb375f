//! The addresses of hosts on the link, the mark of a frame (RFC 3168), and what a handshake offers.

use std::net::Ipv4Addr;

/// The host that receives; those that send are 0, 1, 2, ...
pub const RECEIVER: usize = 100;
/// The port at which it listens.
pub const PORT: u16 = 7000;

/// The address of a host.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, host as u8 + 1)
}

/// Of a host, its Ethernet address.
pub fn hardware(host: usize) -> [u8; 6] {
    [2, 0, 0, 78, 0, host as u8 + 1]
}

/// To which host a frame goes; `None`: to all, or nobody here.
pub fn to(frame: &[u8]) -> Option<usize> {
    let host = usize::from(*frame.get(5)?).checked_sub(1)?;
    (frame[..6] == hardware(host)).then_some(host)
}

const IP: usize = 14;

/// Marks a frame of a flow that can be told so ("congestion experienced"). False: it cannot.
pub fn mark(frame: &mut [u8]) -> bool {
    let is_ip = frame.len() >= IP + 20 && frame[12..14] == [8, 0] && frame[IP] >> 4 == 4;
    if !is_ip || frame[IP + 1] & 3 == 0 {
        return false;
    }
    let before = u16::from_be_bytes([frame[IP], frame[IP + 1]]);
    frame[IP + 1] |= 3;
    let after = u16::from_be_bytes([frame[IP], frame[IP + 1]]);
    // RFC 1624.
    let sum = u16::from_be_bytes([frame[IP + 10], frame[IP + 11]]);
    let mut new = u32::from(!sum) + u32::from(!before) + u32::from(after);
    new = (new & 0xffff) + (new >> 16);
    new = (new & 0xffff) + (new >> 16);
    frame[IP + 10..IP + 12].copy_from_slice(&(!(new as u16)).to_be_bytes());
    true
}

/// The offer of the first segment of a connection's end: a SYN's or a SYN-ACK's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// To mark instead of to drop: both ECE and CWR of a SYN, ECE alone of its answer (RFC 3168,
    /// 6.1.1).
    pub ecn: bool,
    /// Timestamps.
    pub stamps: bool,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Windows of more than 64 KB.
    pub scale: bool,
    /// The largest segment that it takes, bytes.
    pub segment: u16,
}

/// The offer of this frame; `None`: it is no first segment.
pub fn offer(frame: &[u8]) -> Option<Offer> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const ECE_CWR: u8 = 0xc0;
    const ECE: u8 = 0x40;
    let tcp = frame.get(IP + 20..).filter(|_| frame[12..14] == [8, 0] && frame[IP] == 0x45)?;
    let flags = *tcp.get(13).filter(|flags| **flags & SYN > 0 && frame[IP + 9] == 6)?;
    let asked = if flags & ACK > 0 { ECE } else { ECE_CWR };
    let mut offer = Offer { ecn: flags & ECE_CWR == asked, ..Offer::default() };
    let mut options = tcp.get(20..usize::from(tcp[12] >> 4) * 4)?;
    while let Some(&kind) = options.first() {
        let length = match (kind, options.get(1)) {
            (0, _) | (2.., None) => break,
            (1, _) => 1,
            (_, Some(&length)) => usize::from(length).max(2),
        };
        match (kind, options.get(2..length)) {
            (2, Some(&[high, low])) => offer.segment = u16::from_be_bytes([high, low]),
            (3, Some(_)) => offer.scale = true,
            (4, Some(_)) => offer.sack = true,
            (8, Some(_)) => offer.stamps = true,
            _ => {}
        }
        options = options.get(length..)?;
    }
    Some(offer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_says_what_it_offers_and_other_segments_nothing() {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 78, 0, 101]);
        // A SYN as Linux sends it, with ECE and CWR.
        frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0xc2, 0, 0, 0, 0, 0, 0]);
        frame.extend([2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7]);
        let all = Offer { ecn: true, stamps: true, sack: true, scale: true, segment: 1460 };
        assert_eq!(offer(&frame), Some(all));
        let flags = IP + 20 + 13;
        // Its answer agrees by ECE alone: with both it would not.
        frame[flags] = 0x52;
        assert_eq!(offer(&frame), Some(all));
        frame[flags] = 0xd2;
        assert_eq!(offer(&frame), Some(Offer { ecn: false, ..all }));
        frame[flags] = 0x10;
        assert_eq!(offer(&frame), None);
        assert_eq!(offer(&frame[..40]), None);
    }

    fn sum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_marked_header_has_the_right_sum_and_what_cannot_be_marked_stays() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = [0x45, 2, 0, 46, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 78, 0, 101];
        frame[IP..IP + 20].copy_from_slice(&header);
        let right = sum(&frame[IP..IP + 20]).to_be_bytes();
        frame[IP + 10..IP + 12].copy_from_slice(&right);
        assert!(mark(&mut frame));
        assert_eq!((frame[IP + 1], sum(&frame[IP..IP + 20])), (3, 0));
        frame[IP + 1] = 0;
        assert!(!mark(&mut frame) && frame[IP + 1] == 0);
    }

    #[test]
    fn frames_are_for_the_host_whose_address_they_have() {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&hardware(RECEIVER));
        assert_eq!(to(&frame), Some(RECEIVER));
        frame[..6].fill(0xff);
        assert_eq!(to(&frame), None);
    }
}
