//! The addresses of hosts on the link, and the mark of a frame (RFC 3168).

use std::net::Ipv4Addr;

/// The host that receives; those that send are 0, 1, 2, ...
pub const RECEIVER: usize = 100;
/// The port at which it listens.
pub const PORT: u16 = 7000;

/// Of a host.
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

#[cfg(test)]
mod tests {
    use super::*;

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
