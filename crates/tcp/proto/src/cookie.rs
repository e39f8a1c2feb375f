//! SYN cookies: under a flood of SYNs nothing is remembered; what has to be is in the numbers that
//! the peer sends back.
//!
//! The initial sequence number holds the minute (5 bits), the segment size (2 bits) and a keyed
//! hash of these, the connection and the peer's number (25 bits). With timestamps, the last six
//! bits of ours hold the window scale and whether SACK and ECN were offered; the hash covers them
//! too. Without timestamps there is neither.

use crate::segment::{Segment, Tuple};
use crate::seq::Seq;
use crate::time::{Nanos, SECOND, Time};
use siphasher::sip::SipHasher13;

/// Segment sizes that a cookie can hold: of old modems, of the internet's least, of tunnels, of
/// Ethernet.
const SIZES: [u16; 4] = [64, 536, 1300, 1460];

/// A cookie of the minute before is still good.
pub(crate) const LIFETIME: Nanos = 120 * SECOND;

/// In the stamp's last bits, where the peer offered no window scale.
const NO_SHIFT: u8 = 15;

/// The offer of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub mss: u16,
    pub shift: Option<u8>,
    pub sack: bool,
    pub ecn: bool,
}

fn minute(now: Time) -> u32 {
    (now.0 / (60 * SECOND)) as u32
}

fn hash(key: &SipHasher13, tuple: &Tuple, irs: Seq, minute: u32, rest: u8) -> u32 {
    let mut bytes = [0; 21];
    bytes[0..4].copy_from_slice(&tuple.peer_ip.octets());
    bytes[4..8].copy_from_slice(&tuple.local_ip.octets());
    bytes[8..10].copy_from_slice(&tuple.peer_port.to_ne_bytes());
    bytes[10..12].copy_from_slice(&tuple.local_port.to_ne_bytes());
    bytes[12..16].copy_from_slice(&irs.0.to_ne_bytes());
    bytes[16..20].copy_from_slice(&minute.to_ne_bytes());
    bytes[20] = rest;
    (key.hash(&bytes) & 0x1ff_ffff) as u32
}

fn bits(offer: &Offer) -> u8 {
    offer.shift.map_or(NO_SHIFT, |shift| shift.min(14)) << 2
        | u8::from(offer.sack) << 1
        | u8::from(offer.ecn)
}

/// Our initial number for an `offer`, and the stamp to send with it.
pub(crate) fn make(
    key: &SipHasher13,
    now: Time,
    stamp: u32,
    tuple: &Tuple,
    irs: Seq,
    offer: &Offer,
) -> (Seq, u32) {
    let size = SIZES.iter().rposition(|&size| size <= offer.mss).unwrap_or(0) as u32;
    let bits = bits(offer);
    let minute = minute(now);
    let rest = bits << 2 | size as u8;
    let iss = (minute & 31) << 27 | size << 25 | hash(key, tuple, irs, minute, rest);
    // The latest stamp that ends so and is not in the future.
    let ending = (stamp & !63) | u32::from(bits);
    let stamp = if ending > stamp { ending.wrapping_sub(64) } else { ending };
    (Seq(iss), stamp)
}

/// The offer, if `segment` acknowledges a cookie of this minute or the last.
pub(crate) fn check(key: &SipHasher13, now: Time, segment: &Segment) -> Option<Offer> {
    let cookie = (segment.ack - 1).0;
    let bits = segment.stamp.map_or(NO_SHIFT << 2, |(_, echo)| (echo & 63) as u8);
    let size = cookie >> 25 & 3;
    let now = minute(now);
    let minute =
        [now, now.wrapping_sub(1)].into_iter().find(|minute| minute & 31 == cookie >> 27)?;
    let rest = bits << 2 | size as u8;
    if cookie & 0x1ff_ffff != hash(key, &segment.tuple, segment.seq - 1, minute, rest) {
        return None;
    }
    Some(Offer {
        mss: SIZES[size as usize],
        shift: Some(bits >> 2).filter(|&shift| shift != NO_SHIFT),
        sack: bits & 2 != 0,
        ecn: bits & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Blocks, Flags, SynOptions};
    use core::net::Ipv4Addr;

    fn answer(ack: Seq, stamp: Option<(u32, u32)>) -> Segment {
        Segment {
            tuple: Tuple {
                local_ip: Ipv4Addr::new(10, 0, 0, 1),
                local_port: 80,
                peer_ip: Ipv4Addr::new(10, 0, 0, 2),
                peer_port: 999,
            },
            seq: Seq(1001),
            ack,
            window: 0,
            flags: Flags::ACK,
            marked: false,
            payload: 0,
            stamp,
            sack: Blocks::default(),
            syn: SynOptions::default(),
        }
    }

    #[test]
    fn a_cookie_comes_back_within_its_minutes_and_only_unchanged() {
        let key = SipHasher13::new_with_keys(1, 2);
        let now = Time(3_000 * SECOND);
        for mss in [100, 536, 1400, 9000] {
            for shift in [None, Some(0), Some(14)] {
                let offer = Offer { mss, shift, sack: true, ecn: false };
                let tuple = answer(Seq(0), None).tuple;
                let (iss, stamp) = make(&key, now, 0x1234_5678, &tuple, Seq(1000), &offer);
                assert!(stamp <= 0x1234_5678 && stamp > 0x1234_5678 - 64);
                let good = answer(iss + 1, Some((5, stamp)));
                let got = check(&key, now, &good).expect("its own cookie");
                assert!(got.mss <= mss && got.shift == shift && got.sack && !got.ecn);
                assert!(check(&key, now + 60 * SECOND, &good).is_some());
                assert!(check(&key, now + 121 * SECOND, &good).is_none());
                assert!(check(&key, now, &answer(iss + 2, Some((5, stamp)))).is_none());
                assert!(check(&key, now, &answer(iss + 1, Some((5, stamp ^ 1)))).is_none());
            }
        }
    }
}
