//! A script, carried out line by line: each call is told to its actor, what it says is judged, and
//! what it has caused is waited for.

use super::Fault;
use super::pair::Pair;
use super::settle::{has_all_by_linux, settle};
use super::variant::Variant;
use std::time::{Duration, Instant};
use uncopy_differ::model::end::{self, SURE, Side, State, bytes};
use uncopy_differ::model::set::{Member, Set};
use uncopy_differ::model::{
    Because, Call, Handle, Mismatch, Polled, Said, World, answers, key, recv_flags, send_flags,
};
use uncopy_differ::op::{
    Actor, Ask, Ctl, DupBy, Events, Flags, HANDLES, Handle as Number, How, Op, Opt, PollBy, RecvBy,
    SETS, SendBy, Timeout,
};
use uncopy_differ::script::{Line, Script};

/// The result of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The words of the answer.
    pub text: String,
    /// The model knows no other answer.
    pub exact: bool,
}

impl Entry {
    /// What follows may differ.
    fn be_vague(&mut self, why: &str) {
        self.text += &format!(" ({why})");
        self.exact = false;
    }
}

/// How far a script was carried out.
enum Ends {
    AsWritten,
    /// Nothing is known for sure any more.
    Here,
}

/// So long nothing may come of what was sent.
const PATIENCE: Duration = Duration::from_secs(8);
/// After this whoever calls asks whether its peer lives.
const TOLD: Duration = Duration::from_millis(12);
/// Bytes of a call to somebody whose answer is a reset.
const FEW: usize = 4096;
/// Where numbers that are said begin.
const NAMED: usize = crate::worker::NAMED as usize;

/// See above.
pub struct Run<'a> {
    pair: &'a mut Pair,
    world: World,
    /// That a process was killed is told a while later ([`TOLD`]).
    dies_later: bool,
    /// The call that each actor waits in.
    waiting: [Option<Call>; 8],
    log: Vec<Entry>,
}

type End = (usize, Side);

/// (Whether a line makes sense may depend on what the model does not know for sure.)
fn skip(why: &str) -> Result<Entry, Fault> {
    Ok(Entry { text: format!("({why})"), exact: false })
}

fn said(said: &Said, exact: bool) -> Entry {
    let Said { result, errno, signals, digest, more } = said;
    let mut text = result.to_string();
    if *result < 0 {
        text = uncopy_differ::model::name(*errno);
    }
    if *signals > 0 {
        text += &format!(" SIGPIPE x{signals}");
    }
    if *digest != 0 {
        text += &format!(" {digest:016x}");
    }
    if !more.is_empty() {
        text += &format!(" {more:?}");
    }
    Entry { text, exact }
}

fn judged(answer: &Said, verdict: Result<bool, Mismatch>) -> Result<Entry, Fault> {
    match verdict {
        Ok(exact) => Ok(said(answer, exact)),
        Err(why) => Err(Fault::wrong(format!("it says {}; {why}", said(answer, true).text))),
    }
}

impl<'a> Run<'a> {
    /// Carries a script out: what each line has come to, and what is wrong with the last of them.
    pub fn script(
        pair: &'a mut Pair,
        script: &Script,
        way: Option<&Variant>,
    ) -> (Vec<Entry>, Result<bool, Fault>) {
        let mut numbers = vec![];
        for connection in &script.connections {
            match pair.connects(connection) {
                Ok(pair) => numbers.push(pair),
                Err(fault) => return (vec![], Err(fault)),
            }
        }
        let attached = match way.is_some_and(|way| way.at_once) {
            true => pair.attach(&numbers),
            false => Ok(true),
        };
        let mut world = World::new(&script.connections, &numbers);
        world.by_turns = way.is_some();
        let dies_later = way.is_some();
        let mut run = Run { pair, world, dies_later, waiting: [const { None }; 8], log: vec![] };
        let done = attached.and_then(|attached| {
            match run.lines(&script.lines)? {
                Ends::AsWritten => run.finish()?,
                Ends::Here => run.pair.is_left()?,
            }
            Ok(attached)
        });
        (run.log, done)
    }

    fn lines(&mut self, lines: &[Line]) -> Result<Ends, Fault> {
        for line in lines {
            let before = self.world.clone();
            let entry = self.line(line)?;
            self.log.push(entry);
            self.comes_about(&before)?;
            // (Also where it was refused: what is unread may have been asked for.)
            if let Op::Pass { h, .. } = line.op
                && self.comes_later(line.actor, h)
            {
                let last = self.log.last_mut();
                last.into_iter().for_each(|last| last.be_vague("what is unread comes later"));
                return Ok(Ends::Here);
            }
        }
        Ok(Ends::AsWritten)
    }

    /// What was unread when an end was passed on is the peer's still, or something stands in for
    /// the end (docs/limitations.md): when it comes nobody knows.
    fn comes_later(&self, actor: Actor, h: Number) -> bool {
        self.dies_later
            && self.world.handle(actor.process(), h).is_some_and(|handle| {
                !has_all_by_linux(self.pair, &self.world, (handle.connection, handle.side))
            })
    }

    /// The effects of a line have come about, and calls that waited for them return.
    fn comes_about(&mut self, before: &World) -> Result<(), Fault> {
        settle(self.pair, &mut self.world, before);
        let mut again = true;
        while again {
            again = false;
            for actor in Actor::ALL {
                again |= self.goes_on(*actor, before)?;
            }
            if again {
                let before = self.world.clone();
                settle(self.pair, &mut self.world, &before);
            }
        }
        Ok(())
    }

    /// A call that waits returns, if it is to. `before`: as it was before the line.
    fn goes_on(&mut self, actor: Actor, before: &World) -> Result<bool, Fault> {
        let Some(mut call) = self.waiting[actor.index()].take() else { return Ok(false) };
        let expected = self.world.expect(&call);
        let answer = match (expected.returns, expected.waits) {
            (true, false) => Some(self.pair.returns(actor, &brief(&call))?),
            (true, true) => self.pair.sleeps(actor)?,
            (false, _) if self.world.absorbs(&mut call) => self.pair.sleeps(actor)?,
            // (It may have told of what the line has taken since.)
            (false, _) if self.world.by_turns && matches!(call, Call::Wait { .. }) => {
                self.pair.sleeps(actor)?
            }
            (false, _) => self.pair.wait(actor, Duration::ZERO)?,
        };
        let Some(answer) = answer.map(|answer| ordered(&call, answer)) else {
            self.waiting[actor.index()] = Some(call);
            if expected.returns
                && let Some(last) = self.log.last_mut()
            {
                last.exact = false;
            }
            return Ok(false);
        };
        let verdict = self.world.take(&call, &answer, Because::Later);
        let told_before = || self.world.told_before(&call, &answer, before);
        let verdict = verdict.or_else(|why| if told_before() { Ok(false) } else { Err(why) });
        let entry = judged(&answer, verdict)
            .map_err(|fault| fault.of(&format!("{actor} waited: {}", brief(&call))))?;
        if let Some(last) = self.log.last_mut() {
            last.text += &format!("; {actor}: {}", entry.text);
            last.exact &= entry.exact;
        }
        Ok(true)
    }

    // ------------------------------------------------------------ what keeps lines from making
    // sense

    fn runs(&self, actor: Actor) -> bool {
        self.world.processes[actor.process()].runs
            && self.waiting[actor.index()].is_none()
            && (!actor.is_child() || self.pair.has_child(actor.process()))
    }

    fn waits_in(&self, is: impl Fn(Actor, &Call) -> bool) -> bool {
        let calls = Actor::ALL.iter().zip(&self.waiting);
        calls.filter_map(|(actor, call)| Some((*actor, call.as_ref()?))).any(|(s, c)| is(s, c))
    }

    fn is_received_from(&self, of: End) -> bool {
        self.waits_in(|_, call| matches!(call, Call::Recv { end, .. } if *end == of))
    }

    fn is_sent_to(&self, of: End) -> bool {
        self.waits_in(|_, call| match call {
            Call::Send { end, .. } | Call::Stream { end, .. } => *end == of,
            _ => false,
        })
    }

    /// Some call that waits uses the end, or a set of this side's.
    fn is_used(&self, of: End) -> bool {
        self.is_received_from(of)
            || self.is_sent_to(of)
            || self.waits_in(|_, call| match call {
                Call::Poll { polled, .. } => polled.iter().any(|(what, _)| match what {
                    Polled::End(connection, side) => (*connection, *side) == of,
                    Polled::Set(..) => false,
                }),
                _ => false,
            })
    }

    /// Ends that a call looks at, as members of sets too.
    fn looks_at(&self, call: &Call) -> Vec<End> {
        let of_set = |side, set| self.world.ends_of(side, set);
        match call {
            Call::Poll { polled, .. } => polled
                .iter()
                .flat_map(|(what, _)| match *what {
                    Polled::End(connection, side) => vec![(connection, side)],
                    Polled::Set(side, set) => of_set(side, set),
                })
                .collect(),
            Call::Wait { side, set, .. } => of_set(*side, *set),
            Call::Recv { end, .. } => vec![*end],
            Call::Send { .. } | Call::Stream { .. } => vec![],
        }
    }

    /// A call that would wait for what another one that waits takes, or the other way round: which
    /// of the two is first is nobody's promise.
    fn competes(&self, call: &Call) -> bool {
        let receives = |call: &Call| matches!(call, Call::Recv { .. });
        let ends = self.looks_at(call);
        self.waits_in(|_, other| {
            receives(call) != receives(other)
                && self.looks_at(other).iter().any(|end| ends.contains(end))
        })
    }

    fn set_is_used(&self, side: Side) -> bool {
        self.waits_in(|_, call| match call {
            Call::Wait { side: s, .. } => *s == side,
            Call::Poll { polled, .. } => {
                polled.iter().any(|(what, _)| matches!(what, Polled::Set(s, _) if *s == side))
            }
            _ => false,
        })
    }

    /// Whether a process may lose these descriptors.
    fn may_lose(&self, process: usize, handles: impl Iterator<Item = Number> + Clone) -> bool {
        let known = self.world.is_close_known(process, handles.clone());
        let used = handles
            .filter_map(|h| self.world.handle(process, h))
            .any(|h| self.is_used((h.connection, h.side)));
        known && !used
    }

    // ------------------------------------------------------------ lines

    fn line(&mut self, line: &Line) -> Result<Entry, Fault> {
        let (actor, process) = (line.actor, line.actor.process());
        match line.op {
            Op::Signal { restart } => return self.signal(actor, restart),
            Op::Kill {} => return self.kill(actor),
            _ if !self.runs(actor) => return skip("busy"),
            _ => {}
        }
        let handle = |h: Number| self.world.handle(process, h);
        let of = |handle: Handle| (handle.connection, handle.side);
        match line.op {
            Op::Send { h, len, by, flags, pieces } => {
                let Some(handle) = handle(h) else { return skip("none") };
                self.send(actor, handle, len, by, flags, pieces)
            }
            Op::Recv { h, len, by, flags, pieces } => {
                let Some(handle) = handle(h) else { return skip("none") };
                self.receive(actor, handle, len, by, flags, pieces)
            }
            Op::Stream { h, len, chunk, fill, edge } => {
                let Some(handle) = handle(h) else { return skip("none") };
                self.stream(actor, handle, (len, chunk), fill, edge)
            }
            Op::Drain { h, chunk, by } => {
                let Some(handle) = handle(h) else { return skip("none") };
                self.drain(actor, handle, chunk, by)
            }
            Op::Shut { h, how } => {
                let Some(handle) = handle(h) else { return skip("none") };
                let end = of(handle);
                if how != How::Rd && (self.is_sent_to(end) || self.world.end(end).is_loose()) {
                    return skip("used");
                }
                // (docs/limitations.md: what is unread then.)
                if how != How::Wr && self.world.end(end).unread() > 0 {
                    return skip("unread");
                }
                let answer = self.pair.call(actor, &format!("shut {} {how}", handle.number))?;
                judged(&answer, self.world.shut(end, how, &answer))
            }
            Op::Close { h, by } => {
                let Some(handle) = handle(h) else { return skip("none") };
                if !self.may_lose(process, std::iter::once(h)) {
                    return skip("used");
                }
                let answer = self.pair.call(actor, &format!("close {} {by}", handle.number))?;
                self.world.closes(process, h);
                judged(&answer, answers(&answer, 0))
            }
            Op::Dup { h, to, by } => self.dup(actor, h, to, by),
            Op::CloseFrom {} => {
                let numbers = self.world.processes[process].handles.iter().flatten();
                let sets = self.world.sets[actor.side()].iter().flatten().map(|set| set.number);
                let most = numbers.map(|handle| handle.number).chain(sets).max().unwrap_or(0);
                let above = most.max((NAMED + HANDLES) as i32) + 1;
                let answer = self.pair.call(actor, &format!("closefrom {above}"))?;
                judged(&answer, answers(&answer, 0))
            }
            Op::Nonblock { h, on, by } => {
                let Some(handle) = handle(h) else { return skip("none") };
                if self.is_used(of(handle)) {
                    return skip("used");
                }
                let text = format!("nonblock {} {} {by}", handle.number, u8::from(on));
                let answer = self.pair.call(actor, &text)?;
                self.world.end_mut(of(handle)).nonblocking = on;
                judged(&answer, answers(&answer, 0))
            }
            Op::Set { h, what, on } => {
                let Some(handle) = handle(h) else { return skip("none") };
                let used = self.is_used(of(handle)) && what != Opt::Nodelay;
                let resets = what == Opt::Cork
                    && end::resets_for_data(
                        &self.world.connections[handle.connection],
                        handle.side,
                    );
                if used || resets || self.world.processes[process].executed {
                    return skip("used");
                }
                let text = format!("opt {} {what} {}", handle.number, u8::from(on));
                let answer = self.pair.call(actor, &text)?;
                self.world.sets(of(handle), what, on);
                judged(&answer, answers(&answer, 0))
            }
            Op::Ask { h, what } => {
                let Some(handle) = handle(h) else { return skip("none") };
                self.ask(actor, handle, what)
            }
            Op::Poll { h, events, also, others, set, by, wait } => {
                self.poll(actor, [(h, events), (also, others)], set, by, wait)
            }
            Op::NewSet { .. }
            | Op::EndSet { .. }
            | Op::Control { .. }
            | Op::Nest { .. }
            | Op::Wait { .. }
                if actor.is_child() =>
            {
                skip("a child")
            }
            Op::NewSet { s } | Op::EndSet { s } if s >= SETS => skip("none"),
            Op::NewSet { s } => {
                let sets = &mut self.world.sets[actor.side()];
                if sets[s].is_some() {
                    return skip("there");
                }
                let answer = self.pair.call(actor, "newset")?;
                sets[s] = Some(Set { number: answer.result as i32, entries: vec![] });
                judged(&answer, answers(&Said { result: 0, ..answer.clone() }, 0))
                    .map(|entry| Entry { text: "made".into(), ..entry })
            }
            Op::EndSet { s } => {
                let side = actor.side();
                let Some(set) = &self.world.sets[side][s] else { return skip("none") };
                // (Entries that a child holds live on in other sets.)
                if self.set_is_used(side) || self.world.processes[side + 2].runs {
                    return skip("used");
                }
                let answer = self.pair.call(actor, &format!("close {} close", set.number))?;
                self.world.sets[side][s] = None;
                for other in self.world.sets[side].iter_mut().flatten() {
                    other.entries.retain(|entry| entry.member != Member::Set(s));
                }
                judged(&answer, answers(&answer, 0))
            }
            Op::Control { s, h, how, events } => {
                let Some(handle) = handle(h) else { return skip("none") };
                let (connection, side) = of(handle);
                let member = Member::End { connection, side, number: handle.number };
                self.control(actor, s, member, handle.number, how, events)
            }
            Op::Nest { s, within, how, events } => {
                let sets = &self.world.sets[actor.side()];
                let Some(Some(inner)) = sets.get(s) else { return skip("none") };
                // (Only in one that has a higher number: no circles.)
                if within <= s || sets.get(within).is_none_or(Option::is_none) {
                    return skip("none");
                }
                self.control(actor, within, Member::Set(s), inner.number, how, events)
            }
            Op::Wait { s, max, by, wait } => {
                let side = actor.side();
                let Some(Some(set)) = self.world.sets[side].get(s) else { return skip("none") };
                if self.set_is_used(side) {
                    return skip("used");
                }
                let text = format!("wait {} {max} {by} {wait}", set.number);
                self.calls(actor, Call::Wait { side, set: s, max, wait }, &text)
            }
            Op::Fork {} => self.fork(actor),
            Op::Exec {} => {
                let gone = (0..HANDLES)
                    .filter(|h| self.world.handle(process, *h).is_some_and(|h| h.cloexec));
                if !actor.is_child() || !self.may_lose(process, gone) {
                    return skip("not");
                }
                self.pair.tell(actor, "exec")?;
                self.pair.hello(actor)?;
                self.world.executes(process);
                Ok(Entry { text: "executed".into(), exact: true })
            }
            Op::Exit {} => {
                if !actor.is_child() || !self.may_lose(process, 0..HANDLES) {
                    return skip("not");
                }
                self.pair.tell(actor, "exit")?;
                self.pair.ends(process, false)?;
                self.world.exits(process);
                self.is_told_of_death();
                Ok(Entry { text: "ended".into(), exact: true })
            }
            Op::Pass { h, to } => self.pass(actor, h, to),
            Op::Signal { .. } | Op::Kill {} => skip("not"),
        }
    }

    /// A call that may wait: what it says, or that it waits now.
    fn calls(&mut self, actor: Actor, mut call: Call, text: &str) -> Result<Entry, Fault> {
        let expected = self.world.expect(&call);
        if expected.waits && self.competes(&call) {
            return skip("used");
        }
        let short = match &call {
            Call::Poll { wait, .. } | Call::Wait { wait, .. } => *wait == Timeout::Short,
            Call::Recv { end, .. } => self.world.end(*end).timeout,
            _ => false,
        };
        self.pair.tell(actor, text)?;
        let answer = match expected.waits {
            false => Some(self.pair.returns(actor, text)?),
            true if short => Some(self.pair.returns(actor, text)?),
            true => self.pair.sleeps(actor)?,
        };
        let Some(answer) = answer.map(|answer| ordered(&call, answer)) else {
            self.world.absorbs(&mut call);
            self.waiting[actor.index()] = Some(call);
            return Ok(Entry { text: "waits".into(), exact: !expected.returns });
        };
        let because = if short && expected.waits { Because::Time } else { Because::Now };
        judged(&answer, self.world.take(&call, &answer, because))
    }

    fn send(
        &mut self,
        actor: Actor,
        handle: Handle,
        len: usize,
        by: SendBy,
        flags: Flags,
        pieces: usize,
    ) -> Result<Entry, Fault> {
        let end = (handle.connection, handle.side);
        let other = *self.world.end((end.0, 1 - end.1));
        let executed = self.world.processes.iter().any(|process| process.executed);
        let mut flags = send_flags(by, flags);
        let urgent = flags.has(Flags::OOB);
        let may = by != SendBy::Sendmmsg && len > 0 && other.urgent.is_none() && !executed;
        // (Bytes that are held back plainly may have arrived by a ring: from here on two different
        // things are sent.)
        let differs = urgent && may && other.is_loose();
        if urgent && (!may || differs) {
            flags = Flags(flags.0 & !Flags::OOB.0);
        }
        let resets = end::resets_for_data(&self.world.connections[end.0], end.1);
        let e = self.world.end(end);
        let open = end::send_error(e).is_none();
        let unsure = resets && open && (len > FEW || by == SendBy::Sendmmsg || e.cork);
        if unsure || self.is_sent_to(end) {
            return skip("used");
        }
        if resets {
            flags = Flags(flags.0 & !Flags::MORE.0);
        }
        let waits = !e.nonblocking && !flags.has(Flags::DONTWAIT);
        if open && waits && other.unread() + len as u64 > SURE {
            return skip("no room");
        }
        let from = other.hi;
        let len = if by == SendBy::Splice { len.min(1 << 16) } else { len };
        let text =
            format!("send {} {by} {len} {} {} {from} {pieces}", handle.number, flags.0, key(end));
        // (These look at nothing where there is nothing to send.)
        if len == 0 && matches!(by, SendBy::Sendfile | SendBy::Splice | SendBy::Writev) {
            let answer = self.pair.call(actor, &text)?;
            return judged(&answer, answers(&answer, 0));
        }
        let sent = self.calls(actor, Call::Send { end, len: len as u64, by, flags, from }, &text);
        sent.map(|entry| Entry { exact: entry.exact && !differs, ..entry })
    }

    fn receive(
        &mut self,
        actor: Actor,
        handle: Handle,
        len: usize,
        by: RecvBy,
        flags: Flags,
        pieces: usize,
    ) -> Result<Entry, Fault> {
        let end = (handle.connection, handle.side);
        let e = self.world.end(end);
        let flags = recv_flags(by, flags);
        let executed = self.world.processes[actor.process()].executed;
        if self.is_received_from(end)
            || flags.has(Flags::OOB) && (e.is_loose() || executed)
            || by == RecvBy::Splice && e.urgent.is_some() && e.is_loose()
            || executed && flags.has(Flags::TRUNC)
        {
            return skip("used");
        }
        let len = if by == RecvBy::Splice { len.min(1 << 16) } else { len };
        let text = format!("recv {} {by} {len} {} {pieces}", handle.number, flags.0);
        if len == 0 && matches!(by, RecvBy::Read | RecvBy::Readv | RecvBy::Splice) {
            let answer = self.pair.call(actor, &text)?;
            return judged(&answer, answers(&answer, 0));
        }
        let call = Call::Recv { end, len: len as u64, by, flags, got: vec![] };
        // (Linux ends it whenever it wakes.)
        if len == 0 && self.world.expect(&call).waits {
            return skip("nothing");
        }
        self.calls(actor, call, &text)
    }

    fn stream(
        &mut self,
        actor: Actor,
        handle: Handle,
        (len, chunk): (usize, usize),
        fill: bool,
        edge: bool,
    ) -> Result<Entry, Fault> {
        let end = (handle.connection, handle.side);
        let resets = end::resets_for_data(&self.world.connections[end.0], end.1);
        let e = self.world.end(end);
        if end::send_error(e).is_some() || resets || self.is_sent_to(end) || e.cork || e.timeout {
            return skip("used");
        }
        let from = self.world.end((end.0, 1 - end.1)).hi;
        let text =
            format!("stream {} {len} {chunk} {fill} {edge} {} {from}", handle.number, key(end));
        self.world.stream_begins(end, len as u64);
        self.calls(actor, Call::Stream { end, len: len as u64, fill, from }, &text)
    }

    /// Receives until nothing is left that was sent.
    fn drain(
        &mut self,
        actor: Actor,
        handle: Handle,
        chunk: usize,
        by: RecvBy,
    ) -> Result<Entry, Fault> {
        let end = (handle.connection, handle.side);
        if self.is_received_from(end) {
            return skip("used");
        }
        let mut until = Instant::now() + PATIENCE;
        let mut exact = true;
        let chunk = if self.world.end(end).unread() > SURE { chunk.max(1000) } else { chunk };
        loop {
            let e = *self.world.end(end);
            // (Of what a reset has overtaken, more may have arrived one way than another.)
            exact &= !e.cut;
            let streams = self.is_sent_to((end.0, 1 - end.1));
            let nothing = e.unread() == 0 && !e.fin && !streams;
            if nothing {
                break;
            }
            if e.unread() == 0 && !streams {
                // The end of the stream is on its way.
                break;
            }
            let by = if e.urgent.is_some() && by == RecvBy::Splice { RecvBy::Recv } else { by };
            let text = format!("recv {} {by} {chunk} 0 1", handle.number);
            let call =
                Call::Recv { end, len: chunk as u64, by, flags: Flags::default(), got: vec![] };
            let before = self.world.clone();
            let expected = self.world.expect(&call);
            // (An urgent byte is all that there is, or it is held back; or somebody waits for it.)
            if expected.waits && (!expected.returns || self.competes(&call)) {
                break;
            }
            let short = e.timeout && expected.waits;
            let answer = self.pair.call(actor, &text)?;
            let because = if short { Because::Time } else { Because::Now };
            judged(&answer, self.world.take(&call, &answer, because)).map_err(|fault| {
                fault.of(&format!("of {} bytes {} are received", before.end(end).hi, e.copied))
            })?;
            self.comes_about(&before)?;
            if answer.result > 0 {
                until = Instant::now() + PATIENCE;
            } else {
                let holds = self.world.end((end.0, 1 - end.1)).holds;
                if answer.errno != libc::EAGAIN || holds {
                    break;
                }
                if Instant::now() > until {
                    let e = self.world.end(end);
                    return Err(Fault::stuck(format!(
                        "{} bytes were sent, and {} are received: the rest does not come",
                        e.hi, e.copied
                    )));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let e = self.world.end(end);
        Ok(Entry { text: format!("up to {}", e.copied), exact: exact && !e.is_loose() })
    }

    fn dup(&mut self, actor: Actor, h: Number, to: Number, by: DupBy) -> Result<Entry, Fault> {
        let process = actor.process();
        let Some(handle) = self.world.handle(process, h) else { return skip("none") };
        if to >= HANDLES || self.world.handle(process, to).is_some() {
            return skip("there");
        }
        let onto = NAMED + to;
        let text = format!("dup {} {by} {onto}", handle.number);
        let answer = self.pair.call(actor, &text)?;
        if answer.result < 0 {
            return judged(&answer, Err(Mismatch::new("it is to duplicate")));
        }
        let cloexec = matches!(by, DupBy::Dup3 | DupBy::Cloexec);
        let number = answer.result as i32;
        self.world.gets(process, to, Handle { number, cloexec, ..handle });
        Ok(Entry { text: "made".into(), exact: true })
    }

    fn ask(&mut self, actor: Actor, handle: Handle, what: Ask) -> Result<Entry, Fault> {
        let end = (handle.connection, handle.side);
        if self.is_received_from(end) || self.world.processes[actor.process()].executed {
            return skip("used");
        }
        let answer = self.pair.call(actor, &format!("ask {} {what}", handle.number))?;
        let e = *self.world.end(end);
        let first = answer.more.first().copied();
        let verdict = match what {
            Ask::Error => self.world.asks_error(end, &answer),
            Ask::Unread => self.world.asks_unread(end, &answer),
            Ask::Mark => {
                let right = u64::from(e.at_mark());
                if first == Some(right) {
                    Ok(true)
                } else {
                    Err(Mismatch::new(format_args!("right is {right}")))
                }
            }
            Ask::Peer if e.state == State::Closed && !e.fin => answers(&answer, libc::ENOTCONN),
            // (Whether the last acknowledgement has come is not known.)
            Ask::Peer if e.shut_wr => Ok(false),
            Ask::Peer | Ask::Name | Ask::Kind => answers(&answer, 0),
        };
        judged(&answer, verdict)
    }

    fn poll(
        &mut self,
        actor: Actor,
        asked: [(Number, Events); 2],
        set: usize,
        by: PollBy,
        wait: Timeout,
    ) -> Result<Entry, Fault> {
        let select = matches!(by, PollBy::Select | PollBy::Pselect);
        let mut polled = vec![];
        let mut text = format!("poll {by} {wait}");
        for (h, events) in asked {
            let Some(handle) = self.world.handle(actor.process(), h) else { continue };
            let what = Polled::End(handle.connection, handle.side);
            let events = Events(events.0 & 0x2007);
            polled.push((what, events));
            text += &format!(" {} {}", handle.number, events.0);
        }
        if let Some(Some(set_of)) = self.world.sets[actor.side()].get(set)
            && !actor.is_child()
            && !self.set_is_used(actor.side())
        {
            polled.push((Polled::Set(actor.side(), set), Events::IN));
            text += &format!(" {} 1", set_of.number);
        }
        if polled.is_empty() {
            return skip("none");
        }
        // (A number that is there twice is one for select.)
        if select && asked[0].0 == asked[1].0 && polled.len() > 1 {
            return skip("twice");
        }
        self.calls(actor, Call::Poll { polled, select, wait }, &text)
    }

    fn control(
        &mut self,
        actor: Actor,
        s: usize,
        member: Member,
        number: i32,
        how: Ctl,
        events: Events,
    ) -> Result<Entry, Fault> {
        let side = actor.side();
        let Some(Some(set)) = self.world.sets[side].get(s) else { return skip("none") };
        if self.set_is_used(side) {
            return skip("used");
        }
        let set = set.number;
        let (error, token) = self.world.controls(side, s, member, how, events);
        let text = format!("ctl {set} {number} {how} {} {token}", events.0);
        let answer = self.pair.call(actor, &text)?;
        judged(&answer, answers(&answer, error))
    }

    fn fork(&mut self, actor: Actor) -> Result<Entry, Fault> {
        let (process, child) = (actor.process(), actor.process() + 2);
        if actor.is_child() || !actor.is_first() || self.world.processes[child].runs {
            return skip("not");
        }
        let answer = self.pair.call(actor, "fork")?;
        if answer.result < 0 {
            return judged(&answer, Err(Mismatch::new("it is to fork")));
        }
        self.pair.hello(if process == 0 { Actor::Ax } else { Actor::Bx })?;
        self.world.forks(process, child);
        Ok(Entry { text: "forked".into(), exact: true })
    }

    fn pass(&mut self, actor: Actor, h: Number, to: Number) -> Result<Entry, Fault> {
        let other = if actor.side() == 0 { Actor::B } else { Actor::A };
        let Some(handle) = self.world.handle(actor.process(), h) else { return skip("none") };
        let there = to >= HANDLES || self.world.handle(other.process(), to).is_some();
        let used = self.is_used((handle.connection, handle.side));
        if there || used || !self.runs(other) || self.world.processes[actor.process()].executed {
            return skip("there");
        }
        let given = self.pair.call(actor, &format!("give {}", handle.number))?;
        // (docs/limitations.md: what is unread then, and another process holds it, too.)
        let unread = self.world.end((handle.connection, handle.side)).unread() > 0;
        if self.dies_later && given.errno == libc::EBUSY && given.result < 0 && unread {
            return skip("held");
        }
        if given.result != 1 {
            return judged(&given, Err(Mismatch::new("it is to be passed")));
        }
        let got = self.pair.call(other, "get")?;
        if got.result < 0 {
            return judged(&got, Err(Mismatch::new("it is to be taken")));
        }
        let number = got.result as i32;
        self.world.gets(other.process(), to, Handle { number, cloexec: false, ..handle });
        Ok(Entry { text: "passed".into(), exact: true })
    }

    fn is_told_of_death(&self) {
        if self.dies_later {
            std::thread::sleep(TOLD);
        }
    }

    fn signal(&mut self, actor: Actor, restart: bool) -> Result<Entry, Fault> {
        let Some(call) = &self.waiting[actor.index()] else { return skip("not") };
        // (One that may have returned meanwhile says nothing about signals.)
        if self.world.expect(call).returns && !matches!(call, Call::Stream { .. }) {
            return skip("not");
        }
        // (Nor does one that goes on if it has nothing, where bytes are held back: by a ring they
        // have come.)
        if restart && self.world.may_have_something(call) {
            return skip("held back");
        }
        self.interrupt(actor, restart)
    }

    fn interrupt(&mut self, actor: Actor, restart: bool) -> Result<Entry, Fault> {
        let Some(call) = self.waiting[actor.index()].clone() else { return skip("not") };
        let goes_on = match &call {
            Call::Stream { .. } => true,
            Call::Send { .. } => restart,
            // (One that has taken something, or seen it, returns that.)
            Call::Recv { .. } => restart && self.world.has_nothing(&call),
            _ => false,
        };
        // (In a call, not on its way there.)
        if let Some(answer) = self.pair.sleeps(actor)? {
            self.waiting[actor.index()] = None;
            return judged(&answer, self.world.take(&call, &answer, Because::Later));
        }
        self.pair.signal(actor, if restart { libc::SIGUSR2 } else { libc::SIGUSR1 });
        if goes_on {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(Entry { text: "goes on".into(), exact: true });
        }
        let answer = self.pair.returns(actor, &format!("a signal came in {}", brief(&call)))?;
        self.waiting[actor.index()] = None;
        judged(&answer, self.world.take(&call, &answer, Because::Signal))
    }

    fn kill(&mut self, actor: Actor) -> Result<Entry, Fault> {
        let process = actor.process();
        if !self.world.processes[process].runs {
            return skip("not");
        }
        if !self.world.is_close_known(process, 0..HANDLES) {
            return skip("used");
        }
        // (docs/limitations.md: who had ended its stream before.)
        let had_ended = (0..HANDLES).filter_map(|h| self.world.handle(process, h)).any(|handle| {
            let e = self.world.end((handle.connection, handle.side));
            e.shut_wr && e.unread() > 0
        });
        if had_ended {
            return skip("ended");
        }
        // (Likewise: whose last bytes have no room, and who leaves some unread.)
        let full = (0..HANDLES).filter_map(|h| self.world.handle(process, h)).any(|handle| {
            let other = self.world.end((handle.connection, 1 - handle.side));
            let e = self.world.end((handle.connection, handle.side));
            other.unread() > SURE && e.unread() > 0
        });
        if full {
            return skip("full");
        }
        // (How much of it was sent nobody knows.)
        let sends = |actor: &Actor| {
            let call = self.waiting[actor.index()].as_ref();
            actor.process() == process
                && call.is_some_and(|c| matches!(c, Call::Send { .. } | Call::Stream { .. }))
        };
        if Actor::ALL.iter().any(sends) {
            return skip("sends");
        }
        for other in Actor::ALL.iter().filter(|other| other.process() == process) {
            self.waiting[other.index()] = None;
        }
        self.pair.ends(process, true)?;
        self.world.exits(process);
        self.is_told_of_death();
        Ok(Entry { text: "killed".into(), exact: true })
    }

    /// All calls that wait are ended. `known`: the model knows what they are to say.
    fn ends_calls(&mut self, known: bool) -> Result<(), Fault> {
        // A stream ends with its connection: any actor that is free, once the other calls have
        // ended, shuts it down.
        let streams: Vec<End> = self
            .waiting
            .iter()
            .flatten()
            .filter_map(|call| match call {
                Call::Stream { end, .. } => Some(*end),
                _ => None,
            })
            .collect();
        let cut = !streams.is_empty() || !known;
        let is_stream = |call: &Call| matches!(call, Call::Stream { .. });
        for &actor in Actor::ALL {
            match &self.waiting[actor.index()] {
                Some(call) if cut && !is_stream(call) => self.ends_unjudged(actor)?,
                Some(_) if !cut => drop(self.interrupt(actor, false)?),
                _ => {}
            }
        }
        for process in 0..2 {
            for handle in self.world.processes[process].handles.into_iter().flatten() {
                let actors =
                    [[Actor::A, Actor::A1, Actor::A2], [Actor::B, Actor::B1, Actor::B2]][process];
                let free = actors.into_iter().find(|actor| self.runs(*actor));
                if let Some(actor) = free
                    && streams.contains(&(handle.connection, handle.side))
                {
                    self.pair.call(actor, &format!("shut {} rdwr", handle.number))?;
                }
            }
        }
        for &actor in Actor::ALL {
            if self.waiting[actor.index()].is_some() {
                self.ends_unjudged(actor)?;
            }
        }
        Ok(())
    }

    /// A call that waits is ended, of which the model no longer knows what it is to say.
    fn ends_unjudged(&mut self, actor: Actor) -> Result<(), Fault> {
        if self.pair.sleeps(actor)?.is_none() {
            self.pair.signal(actor, libc::SIGUSR1);
            self.pair.returns(actor, "all is ended")?;
        }
        self.waiting[actor.index()] = None;
        Ok(())
    }

    /// Calls that still wait are ended, and all is closed.
    fn finish(&mut self) -> Result<(), Fault> {
        self.log.push(Entry { text: "the end".into(), exact: true });
        let before = self.world.clone();
        self.comes_about(&before)?;
        let mut known = true;
        for process in [2, 3] {
            if !self.pair.has_child(process) {
                continue;
            }
            known &= self.world.is_close_known(process, 0..HANDLES);
            self.pair.ends(process, true)?;
            let child = [Actor::Ax, Actor::Bx][process - 2];
            self.waiting[child.index()] = None;
            let before = self.world.clone();
            self.world.exits(process);
            self.is_told_of_death();
            if known {
                self.comes_about(&before)?;
            }
        }
        if !self.pair.is_whole() {
            return Ok(());
        }
        self.ends_calls(known)?;
        for (process, actor) in [(0, Actor::A), (1, Actor::B)] {
            let handles = self.world.processes[process].handles.into_iter().flatten();
            let sets = self.world.sets[process].iter().flatten().map(|set| set.number);
            let numbers: Vec<i32> = handles.map(|handle| handle.number).chain(sets).collect();
            for number in numbers {
                let answer = self.pair.call(actor, &format!("close {number} close"))?;
                judged(&answer, answers(&answer, 0))?;
            }
        }
        Ok(())
    }
}

/// In which order a set tells of its members is no promise.
fn ordered(call: &Call, mut answer: Said) -> Said {
    if matches!(call, Call::Wait { .. }) {
        let mut told: Vec<[u64; 2]> = answer.more.chunks(2).map(|t| [t[0], t[1]]).collect();
        told.sort_unstable();
        answer.more = told.concat();
    }
    answer
}

/// A call in a few words.
fn brief(call: &Call) -> String {
    match call {
        Call::Recv { len, by, flags, got, .. } => {
            format!("{by} of {len} bytes, {flags}, {} taken", bytes(got))
        }
        Call::Send { len, by, .. } => format!("{by} of {len} bytes"),
        Call::Stream { len, .. } => format!("a stream of {len} bytes"),
        Call::Poll { polled, .. } => format!("poll {polled:?}"),
        Call::Wait { set, .. } => format!("a wait for set {set}"),
    }
}
