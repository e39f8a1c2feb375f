//! The bucket is drained (TAS, figure 3.2): what may go out now, by rate, window and what the
//! application wrote.

use super::{DUPLICATES, Flow, PACING_TICK, flag};
use crate::segment::{Flags, Outgoing};
use crate::seq::Seq;
use crate::time::{MILLISECOND, Now, Time};

/// The next thing to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
// The segment is the common case: a box around it would be an allocation on the data path.
#[allow(clippy::large_enum_variant)]
pub enum Transmit {
    /// This segment.
    Segment(Outgoing),
    /// Something, but not before this moment.
    Wait(Time),
    /// Nothing, until the application writes or the peer acknowledges.
    Nothing,
    /// The peer's window is closed, and nothing is on the way that would open it.
    Closed,
}

/// How late a lane may be, in ns, without a flow losing what its rate gave it meanwhile: as much as
/// goes out in a burst.
const CATCHES_UP: u64 = MILLISECOND;

/// The run that one segment may hold, and what has to be noted of it.
struct Run {
    start: Seq,
    len: u32,
}

impl Flow {
    /// The next segment, of at most `most` bytes. More than a segment's worth is given only where
    /// the wire cuts it into segments.
    #[inline]
    pub fn transmit(&mut self, now: Now, most: u32) -> Transmit {
        if !self.has_more() {
            return Transmit::Nothing;
        }
        if self.pace != 0 && now.time < self.next_send {
            self.set(flag::LIMITED);
            return Transmit::Wait(self.next_send);
        }
        if self.has(flag::RECOVERING)
            && let Some(run) = self.lost()
        {
            self.recovery.resent = run.start + run.len;
            return Transmit::Segment(self.segment(now, &run));
        }
        self.stream(now, most)
    }

    /// Something is to be sent, for the first time or again, if windows and rate allow it.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.snd_nxt != self.snd_max || self.has(flag::RECOVERING) || self.unsent()
    }

    /// Data, or a FIN, that never went out.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.snd_end.since(self.snd_max) >= 0
            && (self.snd_end != self.snd_max || self.has(flag::FIN_QUEUED))
    }

    /// The first gap in what the peer has that was not sent again.
    fn lost(&self) -> Option<Run> {
        if self.has(flag::RESENDING) {
            return None;
        }
        let recovery = &self.recovery;
        let end = recovery.sacked.end()?;
        let (start, stop) = recovery.sacked.gap(recovery.resent.max(self.snd_una));
        // Behind it there has to be as much as says that it is not only late; of the first gap that
        // is known.
        let settled = end - u32::from(DUPLICATES) * u32::from(self.mss);
        if start != self.snd_una && start.after(settled) {
            return None;
        }
        let len = stop?.distance(start).min(u32::from(self.mss));
        // Sent again and not known to have come, and sent behind all that is known to have come:
        // that is what is on the way.
        let again = recovery.resent.max(self.snd_una);
        let pipe = again.distance(self.snd_una) - recovery.sacked.covered_before(again)
            + self.snd_max.distance(end);
        (pipe + len <= self.cwnd || again == self.snd_una).then_some(Run { start, len })
    }

    /// The bytes from `snd_nxt` on.
    #[inline]
    fn stream(&mut self, now: Now, most: u32) -> Transmit {
        let mss = u32::from(self.mss);
        let mut most = self.in_a_burst(most).max(mss);
        let mut stop = self.snd_end;
        if self.snd_nxt != self.snd_max && !self.recovery.sacked.is_empty() {
            // Bytes that the peer has are not sent again.
            let (start, gap_end) = self.recovery.sacked.gap(self.snd_nxt);
            self.snd_nxt = start.min(self.snd_max);
            stop = gap_end.map_or(stop, |end| end.min(stop));
        }
        if self.snd_nxt != self.snd_max {
            most = mss;
        }
        let start = self.snd_nxt;
        let available = stop.since(start).max(0) as u32;
        let fin = self.has(flag::FIN_QUEUED) && stop == self.snd_end && !start.after(stop);
        if available == 0 && !fin {
            return Transmit::Nothing;
        }
        let on_way = self.on_way();
        let mut offered = (self.snd_una + self.snd_wnd).since(start).max(0) as u32;
        if start == self.snd_una && start != self.snd_max {
            // There was room for it when it went out. If the window is closed now, the answer says
            // what became of it.
            offered = offered.max(mss.min(self.in_flight()));
        }
        let allowed = self.cwnd.saturating_sub(on_way);
        let mut len = available.min(most).min(offered).min(allowed);
        if len < available && len > mss {
            // Whole segments, as long as there is more.
            len -= len % mss;
        }
        let idle = on_way == 0;
        if len < available.min(mss) {
            // A window cut it. A whole segment is worth waiting for, but only while an
            // acknowledgement is to come (RFC 1122, 4.2.3.4).
            if allowed < available.min(mss) {
                self.set(flag::LIMITED);
            }
            if !idle {
                return Transmit::Nothing;
            }
            if len == 0 && available > 0 {
                return if offered == 0 { Transmit::Closed } else { Transmit::Nothing };
            }
        } else if len < mss && !idle && self.has(flag::NAGLE) && !fin && start == self.snd_max {
            return Transmit::Nothing;
        }
        let run = Run { start, len };
        if start == self.snd_max && self.rtt_sent == 0 && !self.has(flag::RECOVERING) {
            // (Of several segments the first tells: the others wait for it.)
            self.rtt_seq = start + len.clamp(1, mss);
            self.rtt_sent = now.time.micros().max(1);
        }
        Transmit::Segment(self.segment(now, &run))
    }

    /// Of `most` bytes, what goes out at once of a flow that is slowed down by rate: what it sends
    /// in a millisecond, and two segments at least, as Linux' do
    /// (`tcp_tso_autosize`, `tcp_min_tso_segs`).
    #[inline]
    fn in_a_burst(&self, most: u32) -> u32 {
        if self.pace == 0 {
            return most;
        }
        let burst = (MILLISECOND << 20) / self.pace;
        most.min(u32::try_from(burst).unwrap_or(u32::MAX).max(2 * u32::from(self.mss)))
    }

    /// The bytes on the way as far as congestion is concerned.
    pub(crate) fn on_way(&self) -> u32 {
        let recovery = &self.recovery;
        if self.snd_nxt != self.snd_max {
            // After a timeout everything behind `snd_nxt` counts as lost.
            return self.snd_nxt.distance(self.snd_una)
                - recovery.sacked.covered_before(self.snd_nxt);
        }
        match recovery.sacked.end() {
            Some(end) if self.has(flag::RECOVERING) && !self.has(flag::RESENDING) => {
                let again = recovery.resent.max(self.snd_una);
                again.distance(self.snd_una) - recovery.sacked.covered_before(again)
                    + self.snd_max.distance(end.max(again))
            }
            _ => self.in_flight(),
        }
    }

    /// The segment for `run`; a FIN with it, if it reaches the end and there is one.
    #[inline]
    fn segment(&mut self, now: Now, run: &Run) -> Outgoing {
        let fresh = run.start == self.snd_max;
        let mut segment = self.bare(now, run.start);
        segment.payload.start = self.snd_at(run.start);
        segment.payload.len = run.len;
        let mut end = run.start + run.len;
        if end == self.snd_end {
            segment.flags = segment.flags.with(Flags::PSH);
            if self.has(flag::FIN_QUEUED) {
                segment.flags = segment.flags.with(Flags::FIN);
                end += 1;
            }
        }
        if self.has(flag::ECN) && fresh {
            // A segment that is sent again must not be marked (RFC 3168, 6.1.5).
            segment.markable = true;
            if self.has(flag::REDUCED) {
                self.unset(flag::REDUCED);
                segment.flags = segment.flags.with(Flags::CWR);
            }
        }
        if self.snd_nxt == run.start {
            self.snd_nxt = end;
        }
        self.snd_max = self.snd_max.max(end);
        if self.snd_nxt.before(self.snd_max) && fresh {
            self.snd_nxt = self.snd_max;
        }
        if self.pace != 0 {
            // An idle flow saves nothing up, but for what the wheel's ticks took from it: a flow at
            // 10 Gbit/s has a segment a tick. A flow that waited for its rate makes up for a lane
            // that came late: else it would never reach the rate, and BBR would take what it
            // reached for the way's.
            let late = if self.has(flag::LIMITED) { CATCHES_UP } else { 1 << PACING_TICK };
            let segments = run.len.div_ceil(self.mss.into()).max(1);
            let earliest = Time(now.time.0.saturating_sub(late));
            self.next_send =
                self.next_send.max(earliest) + self.cost(run.len + segments * (40 + 18));
        }
        segment
    }

    /// Sends everything again that the peer is not known to have, because nothing has come back for
    /// too long.
    pub(crate) fn time_out(&mut self, now: Now, forget: bool) {
        let first = self.recovery.sacked.runs().first();
        if forget || first.is_some_and(|run| run.0 == self.snd_una) {
            // Bytes that were reported to have come out of order may have been thrown away since
            // (RFC 2018, 8).
            self.recovery.sacked.clear();
        }
        self.go_back(now, true);
    }

    /// A smaller segment size from now on.
    pub(crate) fn shrink(&mut self, mss: u16) {
        self.mss = self.mss.min(mss).max(super::MIN_MSS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Terms;
    use crate::time::MICROSECOND;

    /// The bytes that a flow of 1 MB/s sends in 100 ms of which it is asked every `every`, after it
    /// was asked in vain for so long.
    fn sent(idle: u64, every: u64) -> u32 {
        let terms = Terms { mss: 1000, window: 1 << 30, snd_bits: 20, ..Terms::NOBODY };
        let mut flow = Flow::new(&terms);
        flow.set_rate(1_000_000);
        let first = flow.snd_end;
        let (mut at, end) = (idle, idle + 100 * MILLISECOND);
        flow.snd_end = first + (1 << 19);
        while at < end {
            let now = Now::new(Time(at), 0);
            while matches!(flow.transmit(now, 1000), Transmit::Segment(_)) {}
            at += every;
        }
        flow.snd_max.distance(first)
    }

    #[test]
    fn a_flow_reaches_its_rate_though_its_lane_comes_late() {
        let in_time = sent(0, 10 * MICROSECOND);
        // (100,000 bytes, less what headers take.)
        assert!((90_000..=96_000).contains(&in_time), "{in_time}");
        let late = sent(0, 700 * MICROSECOND);
        assert!(late.abs_diff(in_time) <= 3_000, "{late} {in_time}");
    }

    #[test]
    fn a_flow_that_was_idle_saves_nothing_up() {
        let [fresh, idle] = [0, 5_000 * MILLISECOND].map(|idle| sent(idle, 10 * MICROSECOND));
        assert!(idle <= fresh + 1_000, "{idle} {fresh}");
    }
}
