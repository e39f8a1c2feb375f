//! The fast path's state of a connection (TAS, table 3.1), laid out by cache line, and nothing
//! else.
//!
//! | line | touched by | fields |
//! | --- | --- | --- |
//! | 0 | every segment in and out | numbers of both directions, windows, flags, sizes of buffers |
//! | 1 | segments out, and what the slow path collects | pacing, counters, round trip, addresses |
//! | 2 to 5 | only out of order ([`Recovery`]) | what came so, what the peer has, retransmission |
//!
//! The paper counts 102 bytes; lines 0 and 1 are its fields in 128 bytes. Buffers have no head and
//! tail of their own: their sizes are powers of two, so a position follows from a sequence number.
//! The neighbour's hardware address is the caller's `route`. New are timestamps and what SACK
//! takes.
//!
//! The functions of the fast path are methods of [`Flow`] and take constant time:
//! [`Flow::receive`], [`Flow::transmit`], [`Flow::acknowledge`], [`Flow::write`], [`Flow::read`].
//! They may run on another core than the slow path, with one lock per flow around both. A segment
//! that they do not handle they hand back as an [`Exception`], with nothing changed.

mod acks;
mod receive;
mod send;

pub use receive::{Exception, Place, Received};
pub use send::Transmit;

use crate::intervals::Intervals;
use crate::segment::{Blocks, Flags, Outgoing, RingRange, Segment, SynOptions, Tuple};
use crate::seq::Seq;
use crate::time::{Nanos, Now, Time};
use core::net::Ipv4Addr;

/// Runs of out-of-order data that are remembered, each way, with SACK: what fits into four cache
/// lines. Without SACK, one (the paper's). Measured (`examples/goodput`: 100 flows, 10 Gbit/s, 100
/// us, CUBIC): at 5% loss 0.53 of the link with SACK, 0.18 with one interval; at 1% 0.94 and 0.91;
/// up to 0.1% no difference.
pub const RUNS: usize = 14;

/// The smallest and the largest buffer, as powers of two. Windows of more than 1 GB do not exist
/// (RFC 7323, 2.3).
pub const BUFFER_BITS: core::ops::RangeInclusive<u8> = 6..=30;

/// Ticks of the wheel of flows that wait for their rate: 1 us, a segment's time at 12 Gbit/s.
pub(crate) const PACING_TICK: u32 = 10;

/// The most that a byte costs ([`Flow::pace`]): 16 ms. So a segment is sent each half minute at the
/// least, and times a wire's largest frame it fits into 64 bits.
const SLOWEST: u64 = 1 << 44;

/// Duplicates of an acknowledgement that mean a loss (RFC 5681).
const DUPLICATES: u8 = 3;

/// In `rcv_bits`: the receive buffer was larger once, and the peer may have been told so.
const WAS_LARGER: u8 = 1 << 7;

/// The flags of a flow.
pub(crate) mod flag {
    /// Established, and the application has not closed: the fast path may handle it.
    pub const FAST: u16 = 1 << 0;
    /// Both sides send timestamps.
    pub const STAMPS: u16 = 1 << 1;
    /// Both sides understand SACK.
    pub const SACK: u16 = 1 << 2;
    /// Both sides understand ECN.
    pub const ECN: u16 = 1 << 3;
    /// Echo exactly the marks of each segment (DCTCP), instead of echoing until the sender says
    /// that it has slowed down (RFC 3168).
    pub const ECN_EXACT: u16 = 1 << 4;
    /// The next acknowledgements echo congestion.
    pub const ECHO: u16 = 1 << 5;
    /// The next data says that we have slowed down.
    pub const REDUCED: u16 = 1 << 6;
    /// An acknowledgement is due at the end of the batch.
    pub const ACK_DUE: u16 = 1 << 7;
    /// The slow path looks whether what is on the way is acknowledged.
    pub const WATCHED: u16 = 1 << 8;
    /// From a loss until everything that had been sent then is acknowledged.
    pub const RECOVERING: u16 = 1 << 9;
    /// Our FIN follows the data.
    pub const FIN_QUEUED: u16 = 1 << 10;
    /// The peer's FIN is known, in order or not: the slow path looks at each segment.
    pub const FIN_SEEN: u16 = 1 << 11;
    /// Small segments wait while others are on the way (RFC 896).
    pub const NAGLE: u16 = 1 << 12;
    /// In the list of flows that may have something to send.
    pub const READY: u16 = 1 << 13;
    /// The congestion window, not the application, held data back since the slow path last looked.
    pub const LIMITED: u16 = 1 << 14;
    /// After a timeout: everything that the peer is not known to have is sent again.
    pub const RESENDING: u16 = 1 << 15;
}

/// The state of a flow.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Flow {
    // Line 0.
    pub(crate) rcv_nxt: Seq,
    /// Up to where the application has read.
    pub(crate) rcv_read: Seq,
    /// Up to where the peer was told that it may send.
    pub(crate) rcv_edge: Seq,
    pub(crate) ts_recent: u32,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_max: Seq,
    /// Where the application's data ends. A FIN has this number.
    pub(crate) snd_end: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) cwnd: u32,
    /// The round trip that is being measured: until this is acknowledged, since then (microseconds;
    /// 0: none).
    rtt_seq: Seq,
    rtt_sent: u32,
    /// The stamp of the last segment that was accepted.
    pub(crate) heard: u32,
    /// The largest payload that is sent, options taken off.
    pub(crate) mss: u16,
    pub(crate) flags: u16,
    /// The receive buffer's size as a power of two, and [`WAS_LARGER`].
    rcv_bits: u8,
    snd_bits: u8,
    /// Of the two windows: ours, and the peer's behind it (RFC 7323: at most 14).
    shifts: u8,
    /// How often data was answered with data lately: see `acks`.
    acks: u8,
    dup_acks: u8,
    /// Fast retransmits since the slow path last looked.
    pub(crate) cnt_retransmits: u8,
    /// The caller's: which queue its notifications go to.
    pub(crate) context: u16,

    // Line 1.
    /// The caller's name for the flow.
    pub(crate) opaque: u64,
    /// When the bucket has something again.
    pub(crate) next_send: Time,
    /// The price of a byte: nanoseconds, 20 bits of them behind the point. 0: no rate, only the
    /// window.
    pub(crate) pace: u64,
    rcv_first: Seq,
    snd_first: Seq,
    /// Which connection of its slot this is.
    pub(crate) generation: u32,
    /// Bytes acknowledged with ECN echoes since the slow path last looked. (All that were
    /// acknowledged it sees by `snd_una`.)
    pub(crate) cnt_marked: u32,
    /// The round trip and its variation in microseconds (RFC 6298). 0: not known.
    pub(crate) rtt: u32,
    pub(crate) rtt_var: u32,
    local_ip: Ipv4Addr,
    peer_ip: Ipv4Addr,
    local_port: u16,
    peer_port: u16,
    pub(crate) route: u16,
    /// The application that it belongs to.
    pub(crate) app: u16,

    // Lines 2 to 5.
    pub(crate) recovery: Recovery,
}

/// The state that a flow needs only while something is missing.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub struct Recovery {
    /// The runs that came out of order.
    pub(crate) came: Intervals<RUNS>,
    /// The runs that the peer has out of order.
    pub(crate) sacked: Intervals<RUNS>,
    /// The recovery ends when this is acknowledged.
    pub(crate) until: Seq,
    /// Gaps before this were sent again.
    pub(crate) resent: Seq,
    /// The end of what had been sent when this round of resending began. Is something behind it
    /// known to have come, and the first gap still there, then what was sent again is lost as well.
    pub(crate) round: Seq,
    /// Where the newest segment that came out of order begins.
    pub(crate) newest: Seq,
    /// The number of the peer's FIN, once it is known.
    pub(crate) fin: Seq,
    /// When it last went back, or the last recovery ended (microseconds). Duplicates of the first
    /// round trip behind that answer what was sent before.
    pub(crate) since: u32,
}

const _: () = {
    assert!(core::mem::size_of::<Recovery>() == 256);
    assert!(core::mem::offset_of!(Flow, opaque) == 64);
    assert!(core::mem::offset_of!(Flow, recovery) == 128);
    assert!(core::mem::size_of::<Flow>() == 384);
};

/// The terms that the slow path agreed on with the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub tuple: Tuple,
    pub route: u16,
    pub app: u16,
    pub generation: u32,
    pub opaque: u64,
    pub context: u16,
    /// Our initial sequence number, and the peer's.
    pub iss: Seq,
    pub irs: Seq,
    pub rcv_bits: u8,
    pub snd_bits: u8,
    pub rcv_shift: u8,
    pub snd_shift: u8,
    /// The largest segment that the peer takes and the way carries, options not taken off.
    pub mss: u16,
    /// `flag::STAMPS`, `SACK`, `ECN`, `ECN_EXACT`, `NAGLE`.
    pub flags: u16,
    pub ts_recent: u32,
    pub window: u32,
}

impl Terms {
    /// The terms of no connection.
    pub const NOBODY: Terms = Terms {
        tuple: Tuple {
            local_ip: Ipv4Addr::UNSPECIFIED,
            local_port: 0,
            peer_ip: Ipv4Addr::UNSPECIFIED,
            peer_port: 0,
        },
        route: 0,
        app: 0,
        generation: 0,
        opaque: 0,
        context: 0,
        iss: Seq(0),
        irs: Seq(0),
        rcv_bits: 6,
        snd_bits: 6,
        rcv_shift: 0,
        snd_shift: 0,
        mss: 0,
        flags: 0,
        ts_recent: 0,
        window: 0,
    };
}

impl Flow {
    /// A slot without a connection.
    pub fn unused() -> Flow {
        Flow::new(&Terms::NOBODY)
    }

    /// A flow whose SYN has the number `iss`; nothing of it has been agreed on.
    pub(crate) fn new(terms: &Terms) -> Flow {
        let first = terms.iss + 1;
        let mut flow = Flow {
            rcv_nxt: terms.irs + 1,
            rcv_read: terms.irs + 1,
            // A SYN can say so much: its window is not scaled.
            rcv_edge: terms.irs + 1 + (1u32 << terms.rcv_bits).min(u32::from(u16::MAX)),
            ts_recent: terms.ts_recent,
            snd_una: first,
            snd_nxt: first,
            snd_max: first,
            snd_end: first,
            snd_wnd: terms.window,
            cwnd: u32::MAX,
            rtt_seq: first,
            rtt_sent: 0,
            heard: 0,
            mss: 0,
            flags: terms.flags,
            rcv_bits: terms.rcv_bits,
            snd_bits: terms.snd_bits,
            shifts: terms.rcv_shift & 15 | terms.snd_shift << 4,
            acks: 0,
            dup_acks: 0,
            cnt_retransmits: 0,
            context: terms.context,
            opaque: terms.opaque,
            next_send: Time(0),
            pace: 0,
            rcv_first: terms.irs + 1,
            snd_first: first,
            generation: terms.generation,
            cnt_marked: 0,
            rtt: 0,
            rtt_var: 0,
            local_ip: terms.tuple.local_ip,
            peer_ip: terms.tuple.peer_ip,
            local_port: terms.tuple.local_port,
            peer_port: terms.tuple.peer_port,
            route: terms.route,
            app: terms.app,
            recovery: Recovery::default(),
        };
        flow.set_mss(terms.mss);
        flow
    }

    /// The options of every segment take their part of `mss`.
    pub(crate) fn set_mss(&mut self, mss: u16) {
        let options = if self.has(flag::STAMPS) { 12 } else { 0 };
        self.mss = mss.saturating_sub(options).max(MIN_MSS);
    }

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    #[inline]
    pub(crate) fn unset(&mut self, flag: u16) {
        self.flags &= !flag;
    }

    /// The connection's four numbers.
    #[inline]
    pub fn tuple(&self) -> Tuple {
        Tuple {
            local_ip: self.local_ip,
            local_port: self.local_port,
            peer_ip: self.peer_ip,
            peer_port: self.peer_port,
        }
    }

    /// The caller's name for the flow.
    pub fn opaque(&self) -> u64 {
        self.opaque
    }

    /// The caller's queue for it.
    pub fn context(&self) -> u16 {
        self.context
    }

    /// The size of the receive buffer, as it is now.
    #[inline]
    pub fn rcv_size(&self) -> u32 {
        1 << (self.rcv_bits & !WAS_LARGER)
    }

    /// The size of the send buffer.
    #[inline]
    pub fn snd_size(&self) -> u32 {
        1 << self.snd_bits
    }

    /// Bytes that came in order and that the application has not read.
    pub fn unread(&self) -> u32 {
        let fin = u32::from(self.has(flag::FIN_SEEN) && self.rcv_nxt.after(self.recovery.fin));
        self.rcv_nxt.distance(self.rcv_read).saturating_sub(fin)
    }

    /// Bytes of the send buffer that are free.
    #[inline]
    pub fn writable(&self) -> u32 {
        self.snd_size() - self.unacked()
    }

    /// Bytes of the application that are in the send buffer: not sent, or not acknowledged.
    #[inline]
    pub fn unacked(&self) -> u32 {
        // Is our FIN acknowledged, then snd_una lies one behind.
        self.snd_end.since(self.snd_una).max(0) as u32
    }

    /// Bytes on the way, a FIN among them.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.snd_max.distance(self.snd_una)
    }

    /// Nothing is on the way, and what was met nothing that a limit would follow from.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.in_flight() == 0
            && self.cnt_marked == 0
            && self.cnt_retransmits == 0
            && !self.has(flag::LIMITED)
    }

    /// Where in the send buffer the byte with the number `seq` lies.
    #[inline]
    fn snd_at(&self, seq: Seq) -> u32 {
        seq.distance(self.snd_first) & (self.snd_size() - 1)
    }

    #[inline]
    fn rcv_at(&self, seq: Seq) -> u32 {
        seq.distance(self.rcv_first) & (self.rcv_size() - 1)
    }

    /// The application wrote `n` more bytes behind what it wrote before. False, and nothing
    /// changed, if they have no room: the application does not tell the truth.
    #[must_use]
    #[inline]
    pub fn write(&mut self, n: u32) -> bool {
        if n > self.writable() || self.has(flag::FIN_QUEUED) {
            return false;
        }
        self.snd_end += n;
        true
    }

    /// The application took `n` bytes. None, and nothing changed, if there were not so many; else
    /// whether the peer has to hear of the room (then [`acknowledge`](Self::acknowledge)).
    #[must_use]
    #[inline]
    pub fn read(&mut self, n: u32) -> Option<bool> {
        if n > self.unread() {
            return None;
        }
        self.rcv_read += n;
        Some(self.has_opened())
    }

    /// There is room for so many bytes that are not read, as a power of two, from now on. Bytes
    /// that are there stay, also where they are more. Says whether the peer has to hear of it. From
    /// here on [`Place::to`] counts another way around: a caller that does this goes by
    /// [`Place::ahead`].
    #[must_use]
    #[inline]
    pub fn resize(&mut self, bits: u8) -> bool {
        let bits = bits.clamp(*BUFFER_BITS.start(), *BUFFER_BITS.end());
        let larger = 1 << bits < self.rcv_size() || self.rcv_bits & WAS_LARGER != 0;
        self.rcv_bits = if larger { bits | WAS_LARGER } else { bits };
        self.has_opened()
    }

    /// So far behind what has come the peer may send at most, by windows of a receive buffer that
    /// was larger: as far as a window can tell. 0 where it never was larger.
    #[inline]
    fn larger_window(&self) -> u32 {
        let larger = self.rcv_bits & WAS_LARGER != 0;
        if larger { u32::from(u16::MAX) << (self.shifts & 15) } else { 0 }
    }

    /// So far behind what has come a segment of the peer's may begin that is no old one.
    pub(crate) fn reach(&self) -> u32 {
        self.rcv_size().max(self.larger_window())
    }

    /// The window could be larger than the one that the peer knows.
    #[inline]
    fn has_opened(&self) -> bool {
        let offered = self.rcv_edge.since(self.rcv_nxt).max(0) as u32;
        let (_, edge) = self.window();
        let all_came = self.has(flag::FIN_SEEN) && self.rcv_nxt.after(self.recovery.fin);
        edge.since(self.rcv_nxt + offered) > 0 && !all_came
    }

    /// The window to offer, as the field has it, and where it ends. It grows only by steps worth a
    /// segment (RFC 1122, 4.2.3.3). Where the scale cuts it, its end may move back by less than a
    /// unit: what comes there is taken all the same.
    #[inline]
    fn window(&self) -> (u16, Seq) {
        let room = self.rcv_size().saturating_sub(self.rcv_nxt.distance(self.rcv_read));
        let offered = self.rcv_edge.since(self.rcv_nxt).max(0) as u32;
        let step = u32::from(self.mss).min(self.rcv_size() / 2);
        let open = if room >= offered + step { room } else { offered.min(room) };
        let shift = self.shifts & 15;
        let field = (open >> shift).min(u32::from(u16::MAX));
        (field as u16, self.rcv_nxt + (field << shift))
    }

    /// A segment with nothing but what every segment has.
    #[inline]
    fn bare(&mut self, now: Now, seq: Seq) -> Outgoing {
        let (window, edge) = self.window();
        self.rcv_edge = edge;
        self.unset(flag::ACK_DUE);
        self.goes_along();
        let mut flags = Flags::ACK;
        if self.has(flag::ECHO) {
            flags = flags.with(Flags::ECE);
        }
        Outgoing {
            tuple: self.tuple(),
            route: self.route,
            seq,
            ack: self.rcv_nxt,
            window,
            flags,
            markable: false,
            stamp: self.has(flag::STAMPS).then_some((now.stamp, self.ts_recent)),
            sack: Blocks::default(),
            syn: None,
            payload: RingRange::default(),
            mss: self.mss,
        }
    }

    /// An acknowledgement, with what came out of order.
    #[inline]
    pub fn acknowledge(&mut self, now: Now) -> Outgoing {
        let mut segment = self.bare(now, self.snd_max);
        if self.has(flag::SACK) && !self.recovery.came.is_empty() {
            self.report(&mut segment.sack);
        }
        segment
    }

    /// Asks the peer for an acknowledgement: the number before the window belongs to nothing any
    /// more.
    pub(crate) fn probe(&mut self, now: Now) -> Outgoing {
        let una = self.snd_una;
        self.bare(now, una - 1)
    }

    /// The end of the connection, at once.
    pub(crate) fn reset(&mut self, now: Now) -> Outgoing {
        let mut segment = self.bare(now, self.snd_max);
        segment.flags = Flags::RST.with(Flags::ACK);
        segment.window = 0;
        segment
    }

    /// A SYN, with the acknowledgement of the peer's if `ack`.
    pub(crate) fn syn(&self, now: Now, ack: bool, offer: SynOptions, ecn: Flags) -> Outgoing {
        let flags = Flags::SYN.with(ecn);
        Outgoing {
            tuple: self.tuple(),
            route: self.route,
            seq: self.snd_first - 1,
            ack: if ack { self.rcv_nxt } else { Seq(0) },
            // The window of a SYN is never scaled.
            window: self.rcv_size().min(u32::from(u16::MAX)) as u16,
            flags: if ack { flags.with(Flags::ACK) } else { flags },
            markable: false,
            stamp: self.has(flag::STAMPS).then_some((now.stamp, self.ts_recent)),
            sack: Blocks::default(),
            syn: Some(offer),
            payload: RingRange::default(),
            mss: self.mss,
        }
    }

    /// The window of `segment`, scaled.
    #[inline]
    pub(crate) fn scaled(&self, segment: &Segment) -> u32 {
        u32::from(segment.window) << (self.shifts >> 4)
    }

    /// One more measurement of the round trip, in microseconds (RFC 6298).
    #[inline]
    pub(crate) fn measured(&mut self, rtt: u32) {
        let rtt = rtt.max(1);
        if self.rtt == 0 {
            (self.rtt, self.rtt_var) = (rtt, rtt / 2);
        } else {
            let off = self.rtt.abs_diff(rtt);
            self.rtt_var = (self.rtt_var - self.rtt_var / 4).saturating_add(off / 4);
            self.rtt = (self.rtt - self.rtt / 8).saturating_add(rtt / 8).max(1);
        }
    }

    /// Sends at `rate` bytes a second.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.pace = ((1u128 << 20) * 1_000_000_000 / u128::from(rate.max(1)))
            .min(u128::from(SLOWEST)) as u64;
    }

    /// The time that `bytes` take at the present rate.
    #[inline]
    fn cost(&self, bytes: u32) -> Nanos {
        (u64::from(bytes).saturating_mul(self.pace)) >> 20
    }
}

/// Linux refuses to go lower than this (`tcp_min_snd_mss`): a peer that asks for segments of a byte
/// asks for our processor.
pub(crate) const MIN_MSS: u16 = 48;
