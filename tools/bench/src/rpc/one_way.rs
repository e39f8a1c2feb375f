//! Requests that nobody answers: the server only receives them, or only sends them (TAS, Figure
//! 3.6). The side that receives compares every byte.
//!
//! To a server that receives, a connection first says the number of its first request. Where a
//! request could begin, a word may be a mark: the server says how many requests it has compared
//! since the one before. The client sends as many in a call as fit, so that it is not what limits:
//! by a call for each it would be on Linux' side, whatever the server does. How long it waited for
//! the server says so. A server that sends is told how many requests, from which number on; what it
//! is told ahead of time is enough that it never waits for that.

use std::io;
use std::time::{Duration, Instant};

use super::choices::{Wait, Way};
use super::ends::{End, Ends};
use super::plan::Plan;
use super::requests::{requests, wrong};
use super::work::work;

/// Requests that a server is told to send at once; twice as many are under way.
const BATCH: u64 = 512;
/// A request has at least so many bytes: a number.
pub const SMALLEST: usize = 8;
const WORD: usize = size_of::<u64>();
/// No request begins with it.
const MARK: u64 = u64::MAX;

/// The received part of a stream of requests.
struct Stream {
    /// The next request, or that of which some has come.
    number: u64,
    /// Bytes of it that have come.
    seen: usize,
    bytes: Vec<u8>,
    /// It has to be made for this number.
    stale: bool,
}

impl Stream {
    fn new(number: u64, size: usize) -> Self {
        Self { number, seen: 0, bytes: vec![0; size], stale: true }
    }

    /// Compares bytes of one request; how many, and whether it is complete. `None`: they are wrong.
    fn compare(&mut self, came: &[u8]) -> Option<(usize, bool)> {
        if std::mem::take(&mut self.stale) {
            let size = self.bytes.len();
            requests(self.number, size, &mut self.bytes);
        }
        let length = came.len().min(self.bytes.len() - self.seen);
        if came[..length] != self.bytes[self.seen..self.seen + length] {
            return None;
        }
        self.seen += length;
        let complete = self.seen == self.bytes.len();
        if complete {
            (self.number, self.seen, self.stale) = (self.number + 1, 0, true);
        }
        Some((length, complete))
    }
}

/// The server's side of a connection.
pub struct Served {
    /// Bytes of a word that has not come whole.
    word: Vec<u8>,
    stream: Option<Stream>,
    /// Requests, since the last mark.
    compared: u64,
}

impl Served {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self { word: vec![], stream: None, compared: 0 }
    }

    /// Takes what has come; false: the client has gone.
    pub fn serve(&mut self, plan: &Plan, end: &End, buffer: &mut [u8]) -> io::Result<bool> {
        let got = match end.receive(buffer, true) {
            Ok(None) => return Ok(true),
            Ok(Some(0)) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            got => got?.unwrap_or(0),
        };
        match plan.way {
            Way::Out => self.send(plan, end, &buffer[..got])?,
            _ => self.receive(plan, end, &buffer[..got])?,
        }
        Ok(true)
    }

    /// The next word of `came`, if it is whole with what came before.
    fn word(&mut self, came: &mut &[u8]) -> Option<u64> {
        let length = (WORD - self.word.len()).min(came.len());
        self.word.extend_from_slice(&came[..length]);
        *came = &came[length..];
        let word = u64::from_le_bytes(self.word.as_slice().try_into().ok()?);
        self.word.clear();
        Some(word)
    }

    fn receive(&mut self, plan: &Plan, end: &End, mut came: &[u8]) -> io::Result<()> {
        let Some(mut stream) = self.stream.take() else {
            self.stream = self.word(&mut came).map(|first| Stream::new(first, plan.size));
            return if self.stream.is_some() { self.receive(plan, end, came) } else { Ok(()) };
        };
        while !came.is_empty() {
            let (number, seen) = (stream.number, stream.seen);
            let compared = if seen > 0 {
                stream.compare(came)
            } else {
                // It is one word at least.
                let Some(word) = self.word(&mut came) else { break };
                if word == MARK {
                    end.send_all(&std::mem::take(&mut self.compared).to_le_bytes())?;
                    continue;
                }
                stream.compare(&word.to_le_bytes()).map(|(_, complete)| (0, complete))
            };
            let (length, complete) = compared.ok_or_else(|| wrong(0, number, seen))?;
            came = &came[length..];
            if complete {
                self.compared += 1;
                if plan.work > 0 {
                    work(plan.work);
                }
            }
        }
        self.stream = Some(stream);
        Ok(())
    }

    fn send(&mut self, plan: &Plan, end: &End, mut came: &[u8]) -> io::Result<()> {
        let mut request = vec![0; plan.size];
        while let Some(first) = self.word(&mut came) {
            for number in first..first + BATCH {
                if plan.work > 0 {
                    work(plan.work);
                }
                requests(number, plan.size, &mut request);
                end.send_all(&request)?;
            }
        }
        Ok(())
    }
}

/// The client's side of a connection.
struct Link<'a> {
    end: &'a End,
    /// The next request that is sent, or told of.
    next: u64,
    /// The request that is being sent, and how much of it is gone: all, where it has to be made.
    out: Vec<u8>,
    sent: usize,
    stream: Stream,
    /// Requests that are to come.
    due: u64,
}

/// The client's load. Of connections that it keeps from turn to turn.
pub struct Load<'a> {
    plan: &'a Plan,
    links: Vec<Link<'a>>,
    buffer: Vec<u8>,
    /// Requests that were compared.
    pub verified: u64,
    /// Time of all turns that it sent in, and of that, in which it waited for the server: for room,
    /// or at the end for what was under way.
    lasted: Duration,
    waited: Duration,
}

/// Bytes that a client sends in a call, at least.
const PIECE: usize = 64 << 10;

impl<'a> Load<'a> {
    /// A load over these connections.
    pub fn new(plan: &'a Plan, ends: impl Iterator<Item = &'a End>) -> io::Result<Self> {
        let links = ends
            .enumerate()
            .map(|(i, end)| {
                let first = (i as u64) << 40;
                if plan.way == Way::In {
                    end.send_all(&first.to_le_bytes())?;
                }
                let stream = Stream::new(first, plan.size);
                let at_once = plan.pipeline.max(PIECE / plan.size);
                let out = vec![0; at_once * plan.size];
                Ok(Link { end, next: first, sent: out.len(), out, stream, due: 0 })
            })
            .collect::<io::Result<_>>()?;
        let buffer = vec![0; plan.message().max(PIECE)];
        Ok(Self {
            plan,
            links,
            buffer,
            verified: 0,
            lasted: Duration::ZERO,
            waited: Duration::ZERO,
        })
    }

    /// Of the time from now on is told.
    pub fn anew(&mut self) {
        (self.lasted, self.waited) = (Duration::ZERO, Duration::ZERO);
    }

    /// See [`super::plan::RpcSummary`].
    pub fn waited_share(&self) -> Option<f64> {
        let lasted = self.lasted.as_secs_f64();
        (lasted > 0.0).then(|| self.waited.as_secs_f64() / lasted)
    }

    /// Load for so long; all that was sent has been compared at its end.
    pub fn turn(&mut self, set: &Ends, length: Duration) -> io::Result<()> {
        match self.plan.way {
            Way::Out => self.receive(set, length),
            _ => self.send(length),
        }
    }

    /// Sends to all connections in turn, and asks at the end what came.
    fn send(&mut self, length: Duration) -> io::Result<()> {
        let (begun, size) = (Instant::now(), self.plan.size);
        let before: Vec<u64> = self.links.iter().map(|link| link.next).collect();
        // (A sender that sleeps waits for room where none of its connections has any.)
        let sleeps = self.plan.wait == Wait::Sleep;
        let mut waits = false;
        let mut now = Duration::ZERO;
        while now < length {
            let mut moved = 0;
            for link in &mut self.links {
                link.make(size);
                let sent = link.end.send(&link.out[link.sent..], !std::mem::take(&mut waits))?;
                link.sent += sent;
                moved += sent;
            }
            waits = sleeps && moved == 0;
            let before = std::mem::replace(&mut now, begun.elapsed());
            if moved == 0 {
                self.waited += now - before;
            }
        }
        for (link, before) in self.links.iter_mut().zip(before) {
            link.end.send_all(&link.out[link.sent..])?;
            link.sent = link.out.len();
            link.end.send_all(&MARK.to_le_bytes())?;
            let (mut answer, mut got) = ([0; WORD], 0);
            while got < WORD {
                match link.end.receive(&mut answer[got..], false)? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => got += bytes.unwrap_or(0),
                }
            }
            let (compared, sent) = (u64::from_le_bytes(answer), link.next - before);
            if compared != sent {
                return Err(io::Error::other(format!("{sent} requests sent, {compared} arrived")));
            }
            self.verified += compared;
        }
        let lasted = begun.elapsed();
        self.lasted += lasted;
        self.waited += lasted - now;
        Ok(())
    }

    fn receive(&mut self, set: &Ends, length: Duration) -> io::Result<()> {
        let begun = Instant::now();
        for link in &mut self.links {
            link.tell()?;
            link.tell()?;
        }
        let (mut open, mut ready) = (self.links.len(), vec![]);
        while open > 0 {
            set.wait(&mut ready)?;
            let goes_on = begun.elapsed() < length;
            for &i in &ready {
                let link = &mut self.links[i];
                let got = match link.end.receive(&mut self.buffer, true)? {
                    None => continue,
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(got) => got,
                };
                let mut came = &self.buffer[..got];
                while !came.is_empty() {
                    let at = (link.stream.number, link.stream.seen);
                    let (length, complete) =
                        link.stream.compare(came).ok_or_else(|| wrong(i, at.0, at.1))?;
                    came = &came[length..];
                    if complete {
                        self.verified += 1;
                        link.due -= 1;
                        if link.due == BATCH && goes_on {
                            link.tell()?;
                        }
                        open -= usize::from(link.due == 0);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Link<'_> {
    /// Makes the next requests, where those before have been sent.
    fn make(&mut self, size: usize) {
        if self.sent == self.out.len() {
            requests(self.next, size, &mut self.out);
            self.next += (self.out.len() / size) as u64;
            self.sent = 0;
        }
    }

    /// Tells the server to send more.
    fn tell(&mut self) -> io::Result<()> {
        self.end.send_all(&self.next.to_le_bytes())?;
        self.next += BATCH;
        self.due += BATCH;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_of_a_connection_begins_as_a_mark() {
        // The word of request n is (n + 1) * odd; of all n one has the mark's.
        let word = |number: u64| {
            let mut bytes = [0; WORD];
            requests(number, WORD, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        let odd = word(0);
        let mut inverse = odd;
        (0..6).for_each(|_| {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        });
        let number = MARK.wrapping_mul(inverse).wrapping_sub(1);
        assert_eq!(word(number), MARK);
        // 64k connections of 2^40 requests each.
        assert!(number >= 1 << 56, "{number:#x}");
    }

    #[test]
    fn a_stream_in_pieces_is_compared_and_a_wrong_byte_is_found() {
        let size = 24;
        let mut bytes = vec![0; 5 * size];
        requests(7, size, &mut bytes);
        let mut stream = Stream::new(7, size);
        let (mut at, mut complete) = (0, 0);
        while at < bytes.len() {
            let end = bytes.len().min(at + 7);
            let (length, whole) = stream.compare(&bytes[at..end]).unwrap();
            at += length;
            complete += u32::from(whole);
        }
        assert_eq!((complete, stream.number), (5, 12));
        bytes[0] ^= 1;
        assert!(Stream::new(7, size).compare(&bytes).is_none());
    }
}
