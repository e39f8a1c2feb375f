//! Pairs of programs of each side, in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use uncopy_measure::Failure;
use uncopy_measure::side::Side;

use super::carried::Carried;
use super::choices::Api;
use super::over::network::Network;
use super::pair::{Pair, Programs, Sample};
use super::wired::Wired;

/// About how long a turn is: what else a shared machine does comes in bursts that are longer.
const TURN: Duration = Duration::from_millis(150);

/// So long all connections may take to come to their rings: 64k of them, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How they are measured.
pub struct Turns<'a> {
    /// The preload library.
    pub library: &'a Path,
    /// Cores that there are.
    pub cores: &'a [usize],
    /// The carrier that brings the programs together on uncopy's side.
    pub carried: &'a Carried,
    /// Load on each pair before it is timed.
    pub warmup: Duration,
    /// Timed load on each pair.
    pub seconds: Duration,
    /// Whether uncopy's side is measured alone.
    pub only_uncopy: bool,
    /// At the end not all connections have to be on rings: a side that sends and is not answered
    /// leaves a ring that stays full, for the room that Linux has.
    pub leave_full_rings: bool,
}

impl Turns<'_> {
    /// One pair of each side, in turns. `programs` are told the service whose rings they use
    /// themselves, if they do. So many connections have to be on rings on uncopy's side; `None`: as
    /// it comes.
    pub fn once<T: DeserializeOwned>(
        &self,
        repeat: usize,
        api: Api,
        on_rings: Option<usize>,
        programs: impl Fn(Option<String>) -> Programs,
    ) -> Result<Vec<(Side, Sample<T>)>, Failure> {
        let mut pairs = Vec::new();
        let wanted = |side: &Side| *side == Side::Uncopy || !self.only_uncopy;
        for side in Side::three_in_turn(repeat).into_iter().filter(wanted) {
            let pair = match self.carried {
                Carried::Shared(wired) => self.start(wired, side, api, on_rings, &programs)?,
                Carried::Over(network) => self.start_over(network, side, &programs(None))?,
            };
            pairs.push((side, pair));
        }
        // (Programs whose connections come to their rings late get more load: then the others get
        // it too.)
        let most = pairs.iter().map(|(_, pair)| pair.warmed()).max().unwrap_or_default();
        for (_, pair) in &mut pairs {
            while pair.warmed() < most {
                pair.warm((most - pair.warmed()).min(TURN))?;
            }
        }
        let service = self.carried.cpu_ns()?;
        let turns = (self.seconds.as_secs_f64() / TURN.as_secs_f64()).round().max(1.0) as u32;
        for turn in 0..turns {
            for i in 0..pairs.len() {
                // (Each goes first in turn.)
                let next = (i + turn as usize) % pairs.len();
                pairs[next].1.turn(self.seconds / turns, turn == 0)?;
            }
        }
        // (The service works for uncopy's side alone, also in what is the others' turn.)
        let service = self.carried.cpu_ns()?.saturating_sub(service);
        if let (Carried::Shared(wired), Some(connections), false) =
            (self.carried, on_rings, self.leave_full_rings)
        {
            for (_, pair) in pairs.iter().filter(|(side, _)| *side == Side::Uncopy) {
                wired.check(pair.pids(), connections)?;
            }
        }
        let service_of = |side| if side == Side::Uncopy { service } else { 0 };
        pairs.into_iter().map(|(side, pair)| Ok((side, pair.end(service_of(side))?))).collect()
    }

    /// A pair whose connections are on rings, on uncopy's side.
    fn start(
        &self,
        wired: &Wired,
        side: Side,
        api: Api,
        on_rings: Option<usize>,
        programs: impl Fn(Option<String>) -> Programs,
    ) -> Result<Pair, Failure> {
        let environment = [
            ("UNCOPY_TCP", "yes"),
            // Asleep is asleep. (A program that spins does so itself, by calls that do not wait.)
            ("UNCOPY_TCP_SPIN", "no"),
            (uncopy_options::TCP_SERVICE, wired.service.as_str()),
        ];
        let uses_rings = side == Side::Uncopy && api == Api::Rings;
        let programs = programs(uses_rings.then(|| wired.service.clone()));
        let started_as = if uses_rings { Side::Plain } else { side };
        let mut pair = Pair::start(&programs, started_as, self.library, &environment, self.cores)?;
        pair.warm(self.warmup)?;
        // (Connections that are used little come to their rings late.)
        let begun = Instant::now();
        while let (Side::Uncopy, Some(connections)) = (side, on_rings)
            && begun.elapsed() < TIMEOUT
            && wired.check(pair.pids(), connections).is_err()
        {
            pair.warm(TURN)?;
        }
        Ok(pair)
    }

    /// A pair with a network between its two. (Neither has a library in front.)
    fn start_over(
        &self,
        network: &Network,
        side: Side,
        programs: &Programs,
    ) -> Result<Pair, Failure> {
        let ends = network.ends(side == Side::Uncopy);
        let mut pair =
            Pair::start_over(programs, Side::Plain, self.library, &[], self.cores, Some(&ends))?;
        pair.warm(self.warmup)?;
        Ok(pair)
    }
}
