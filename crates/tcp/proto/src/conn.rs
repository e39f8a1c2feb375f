//! The slow path's own state of a connection.

use crate::config::FlowOptions;
use crate::congestion::Control;
use crate::flow::Terms;
use crate::seq::Seq;
use crate::time::{Nanos, Time};

/// The states of RFC 9293, figure 5. (LISTEN is a listener's.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No connection.
    Closed,
    /// Our SYN went out.
    SynSent,
    /// The peer's SYN came, ours went out.
    SynReceived,
    /// Data goes both ways.
    Established,
    /// We have closed; our FIN is not acknowledged.
    FinWait1,
    /// It is; the peer has not closed.
    FinWait2,
    /// The peer has closed, we have not.
    CloseWait,
    /// Both have; neither knows that the other knows.
    Closing,
    /// The peer closed first; our FIN is not acknowledged.
    LastAck,
    /// Over; stays for a while for what is still on the way.
    TimeWait,
}

impl State {
    /// From here on the application writes no more.
    pub(crate) fn write_closed(self) -> bool {
        use State::{Closing, FinWait1, FinWait2, LastAck, TimeWait};
        matches!(self, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
    }
}

/// The timers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The next look at its counters: congestion control, retransmission timeout.
    Control,
    /// To send SYN or SYN-ACK again.
    Handshake,
    /// To ask whether a closed window has opened.
    Persist,
    /// To ask whether the peer is there.
    KeepAlive,
    /// The end of TIME_WAIT, or of timeout in FIN_WAIT_2.
    End,
}

pub(crate) const TIMERS: [Timer; 5] =
    [Timer::Control, Timer::Handshake, Timer::Persist, Timer::KeepAlive, Timer::End];

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// A connection, as the slow path sees it.
pub(crate) struct Conn {
    pub state: State,
    /// The listener, until the connection is accepted.
    pub listener: u32,
    /// It came in: half open, or waiting to be accepted.
    pub half_open: bool,
    /// The application has closed both ways: nobody reads what comes.
    pub app_closed: bool,
    pub terms: Terms,
    pub options: FlowOptions,
    pub control: Option<Control>,
    pub due: [Time; TIMERS.len()],
    /// SYNs, probes or questions sent in vain.
    pub tries: u8,
    /// Retransmission timeouts one after another.
    pub backoff: u8,
    /// The bytes that were acknowledged at the last look.
    pub counted: Seq,
    /// Bytes that the peer had behind gaps at the last look.
    pub behind_gaps: u32,
    /// The number that was unacknowledged at the last look, since when, and how many looks ago that
    /// began.
    pub stalled: (Seq, Time, u8),
    pub last_control: Time,
    /// When the SYN went out; NEVER if it went out again, and an answer measures nothing (Karn).
    pub syn_sent: Time,
    /// When something out of place was answered last.
    pub challenged: Time,
    /// Waits for the wheel with this deadline.
    pub armed: Time,
    /// The list of those in TIME_WAIT, the oldest first.
    pub older: u32,
    pub newer: u32,
    /// Since the beginning.
    pub totals: Totals,
}

/// Counts of a connection since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes whose acknowledgement echoed congestion.
    pub marked: u64,
    /// Losses that duplicates or SACK showed.
    pub fast_retransmits: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Questions to a closed window or a silent peer.
    pub probes: u32,
}

impl Conn {
    pub fn empty(terms: Terms) -> Conn {
        Conn {
            state: State::Closed,
            counted: terms.iss + 1,
            behind_gaps: 0,
            listener: NONE,
            half_open: false,
            app_closed: false,
            terms,
            options: FlowOptions::default(),
            control: None,
            due: [Time::NEVER; TIMERS.len()],
            tries: 0,
            backoff: 0,
            stalled: (Seq(0), Time(0), 0),
            last_control: Time(0),
            syn_sent: Time::NEVER,
            challenged: Time(0),
            armed: Time::NEVER,
            older: NONE,
            newer: NONE,
            totals: Totals::default(),
        }
    }

    pub fn due(&self, timer: Timer) -> Time {
        self.due[timer as usize]
    }

    pub fn set_due(&mut self, timer: Timer, time: Time) {
        self.due[timer as usize] = time;
    }

    pub fn first_due(&self) -> Time {
        self.due.into_iter().min().unwrap_or(Time::NEVER)
    }

    /// Both sides have closed: nobody here waits for the rest to arrive.
    pub fn is_left(&self) -> bool {
        self.app_closed || matches!(self.state, State::Closing | State::LastAck)
    }

    /// Bytes of both buffers that count.
    pub fn buffers(&self) -> u64 {
        self.options.buffers()
    }
}

/// A retransmission timeout that was doubled `times`, and what it may be at most.
pub(crate) fn backed_off(rto: Nanos, times: u8, most: Nanos) -> Nanos {
    rto.saturating_mul(1 << times.min(20)).min(most)
}
