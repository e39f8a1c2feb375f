//! Settings: for an endpoint, a listener, a connection.

use crate::congestion::Algorithm;
use crate::seq::Seq;
use crate::time::{MICROSECOND, MILLISECOND, Nanos, SECOND};
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;
use siphasher::sip::SipHasher13;

/// Settings of all connections of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections that there is room for, those that wait for their end (TIME_WAIT) among them.
    pub flows: usize,
    /// Applications that there is room for.
    pub apps: usize,
    /// Keys the hashes: of the connection table, initial sequence numbers, ports and SYN cookies.
    /// Random, and secret.
    pub secret: [u8; 16],
    /// Added to our timestamps, so that they don't say how long this machine runs. Random.
    pub stamp_offset: u32,
    /// The largest packet of the wire, IP header included.
    pub mtu: u16,
    /// The largest payload to hand out at once: more than a segment only where the wire cuts it
    /// (segmentation offload).
    pub most: u32,
    /// Segments that one flow may send before it is another's turn.
    pub turn: u32,
    /// Offer and accept selective acknowledgements.
    pub sack: bool,
    /// Offer and accept timestamps.
    pub stamps: bool,
    /// Offer and accept explicit congestion notification.
    pub ecn: bool,
    /// Answer segments that belong to nobody with RST. Not beside a kernel to which they may
    /// belong.
    pub reset_strangers: bool,
    /// The least time between two looks at a flow's counters; else it is two round trips.
    pub control_min: Nanos,
    /// This time between two looks instead, whatever the round trip: to see what it does (TAS,
    /// figure 3.11).
    pub control: Option<Nanos>,
    /// The least retransmission timeout. Linux acknowledges a single segment after up to 40 ms
    /// (`TCP_DELACK_MIN`): what comes earlier is no sign of loss.
    pub rto_min: Nanos,
    /// The greatest (RFC 6298, 2.5).
    pub rto_max: Nanos,
    /// How long an acknowledgement may wait for an answer to go along with, where the application
    /// answers (RFC 1122, 4.2.3.2: less than half a second). 0: all go out with the batch.
    pub ack_wait: Nanos,
    /// How long a flow that nothing holds back may have something on the way before it is looked
    /// at. 0: it is looked at from the first segment on. Timeouts come so much later.
    pub watch_after: Nanos,
    /// How long TIME_WAIT lasts, and FIN_WAIT_2 once the application has closed: Linux's 60 s.
    pub time_wait: Nanos,
    /// SYNs, and SYN-ACKs, that are sent again: Linux's `tcp_syn_retries` and `tcp_synack_retries`.
    pub syn_retries: u8,
    /// See [`syn_retries`](Self::syn_retries).
    pub synack_retries: u8,
    /// Timeouts without an answer after which a connection is given up: Linux's `tcp_retries2`.
    pub retries: u8,
    /// The ports of outgoing connections that name none: Linux's.
    pub ports: RangeInclusive<u16>,
}

impl Config {
    /// Each use of the secret has a key of its own.
    pub(crate) fn key(&self, what: &[u8]) -> SipHasher13 {
        let master = SipHasher13::new_with_key(&self.secret);
        SipHasher13::new_with_keys(master.hash(what), master.hash(&[what, b"2"].concat()))
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            flows: 1024,
            apps: 16,
            secret: [0; 16],
            stamp_offset: 0,
            mtu: 1500,
            most: 0,
            turn: 16,
            sack: true,
            stamps: true,
            ecn: true,
            reset_strangers: true,
            control_min: 100 * MICROSECOND,
            control: None,
            rto_min: 50 * MILLISECOND,
            rto_max: 60 * SECOND,
            ack_wait: 0,
            watch_after: 0,
            time_wait: 60 * SECOND,
            syn_retries: 6,
            synack_retries: 5,
            retries: 15,
            ports: 32768..=60999,
        }
    }
}

/// Whether a silent peer is still there (RFC 1122, 4.2.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Asked after so long a silence.
    pub idle: Nanos,
    /// And again after so long.
    pub interval: Nanos,
    /// Given up after so many questions.
    pub count: u8,
}

impl Default for KeepAlive {
    /// Linux's.
    fn default() -> Self {
        KeepAlive { idle: 7200 * SECOND, interval: 75 * SECOND, count: 9 }
    }
}

/// Settings of each connection; those of a listener take its.
#[derive(Clone, Copy, Debug)]
pub struct FlowOptions {
    /// The size of the receive buffer, as a power of two.
    pub rcv_bits: u8,
    /// It may become so large later ([`Lane::resize`](crate::Lane::resize)), as a power of two:
    /// windows are scaled for that. The part above `rcv_bits` counts for no limit. None: it stays
    /// as it is.
    pub rcv_most: Option<u8>,
    /// The size of the send buffer, as a power of two.
    pub snd_bits: u8,
    /// The part of it that counts for the application's limit, where the rest of its bytes lie in
    /// memory that is not for this: as a power of two. None: all of it.
    pub snd_counted: Option<u8>,
    /// How to slow down.
    pub algorithm: Algorithm,
    /// Small segments wait while others are on the way (no TCP_NODELAY).
    pub nagle: bool,
    /// Whether, and how, to ask a silent peer.
    pub keep_alive: Option<KeepAlive>,
    /// Give up when sent data is not acknowledged for so long (TCP_USER_TIMEOUT), instead of after
    /// [`Config::retries`].
    pub user_timeout: Option<Nanos>,
    /// The first number of a connection that is opened, where the caller has one that nobody
    /// outside can guess; else the endpoint makes one.
    pub first: Option<Seq>,
    /// The caller's queue for notifications.
    pub context: u16,
    /// The caller's name.
    pub opaque: u64,
}

impl FlowOptions {
    /// Bytes of its buffers that count.
    pub(crate) fn buffers(&self) -> u64 {
        let sent = self.snd_counted.unwrap_or(self.snd_bits).min(self.snd_bits);
        (1 << self.rcv_bits) + (1 << sent)
    }
}

impl Default for FlowOptions {
    fn default() -> Self {
        FlowOptions {
            rcv_bits: 17,
            rcv_most: None,
            snd_bits: 17,
            snd_counted: None,
            algorithm: Algorithm::default(),
            nagle: true,
            keep_alive: None,
            user_timeout: None,
            first: None,
            context: 0,
            opaque: 0,
        }
    }
}

/// A listener.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// The application that listens.
    pub app: u16,
    /// The address, or 0.0.0.0 for all.
    pub ip: Ipv4Addr,
    /// The port.
    pub port: u16,
    /// Connections that may wait to be accepted, and as many that may be half open before SYN
    /// cookies take over.
    pub backlog: u32,
    /// Options of its connections.
    pub flow: FlowOptions,
}

/// A connection to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The application that wants it.
    pub app: u16,
    /// Our address.
    pub local_ip: Ipv4Addr,
    /// Our port, or none for one of [`Config::ports`].
    pub local_port: Option<u16>,
    /// The peer's address.
    pub peer_ip: Ipv4Addr,
    /// The peer's port.
    pub peer_port: u16,
    /// The caller's number of the way there.
    pub route: u16,
    /// How it is to be.
    pub flow: FlowOptions,
}

/// The limits of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, also half-open ones.
    pub connections: u32,
    /// Bytes of all buffers together.
    pub buffers: u64,
    /// Bytes a second that all flows together send.
    pub rate: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: u32::MAX, buffers: u64::MAX, rate: None }
    }
}
