//! The processes' tables, merged by program, with names in place of addresses.

use std::collections::BTreeMap;

use uncopy_decide::Costs;
use uncopy_flow::Sizes;
use uncopy_flow::layout::{CLASSES, Kind, Step, header};
use uncopy_flow::part::{Node, Part, Row, Site};
use uncopy_flow::predict::{self, Copied, Saving};
use uncopy_measure::printable::printable;

use crate::stat::symbols::Files;

/// Where a call is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSite {
    /// The call.
    pub call: String,
    /// The function that makes it, and where in it.
    pub function: String,
    /// The file that the function is in.
    pub library: String,
}

impl CallSite {
    /// The function without where in it; where nobody knows its name, where in its file.
    pub fn name(&self) -> &str {
        match self.function.rsplit_once("+0x") {
            Some((name, _)) if !name.is_empty() => name,
            _ => &self.function,
        }
    }
}

impl std::fmt::Display for CallSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (function, library) = (printable(self.name()), printable(&self.library));
        write!(f, "{}  {function} ({library})", self.call)
    }
}

/// One end of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The kind of its descriptor.
    pub kind: Kind,
    /// The call.
    pub place: CallSite,
}

/// Where a path begins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody knows: what the program made, or copied by code of its own.
    Program,
    /// An input call.
    Input(End),
    /// The kernel passed it on by itself.
    Pass(Kind),
}

/// Where a path ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sink {
    /// An output call.
    Output(End),
    /// In the program: nothing of it was sent on from where it was copied to last.
    Program,
}

impl Sink {
    /// The sink in one word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Output(end) => end.kind.name(),
            Self::Program => "ends here",
        }
    }

    /// The output call.
    pub fn output(&self) -> Option<&End> {
        match self {
            Self::Output(end) => Some(end),
            Self::Program => None,
        }
    }
}

/// A step on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathStep {
    /// A copy.
    Copy(CallSite),
    /// The data lay for a while.
    Rest,
}

/// How often each step of a path is made; those of the paths that share it together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Calls.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Calls by class.
    pub sizes: Sizes,
    /// Bytes that went through these copies, on all paths: more than were copied, where a store is
    /// read often.
    pub through: u64,
    /// Bytes of watched inputs, where these copies put them.
    pub watched: u64,
    /// Bytes of pages of them that the program touched there.
    pub touched: u64,
    /// Bytes that uncopy is predicted not to copy.
    pub elided: f64,
}

impl Steps {
    fn add(&mut self, node: &Node, through: u64, elided: f64) {
        self.elided += elided * node.bytes as f64;
        add(&mut self.watched, node.shown);
        add(&mut self.touched, node.touched_here);
        add(&mut self.through, through);
        add(&mut self.ops, node.ops);
        add(&mut self.bytes, node.bytes);
        (0..CLASSES).for_each(|c| add(&mut self.sizes[c], node.sizes[c]));
    }
}

impl Steps {
    /// The share of them that is predicted to be elided.
    pub fn elided_share(&self) -> f64 {
        (self.elided / self.bytes.max(1) as f64).clamp(0.0, 1.0)
    }

    /// Share of the bytes whose pages are touched where these copies put them; `None`: not watched.
    pub fn touched_share(&self) -> Option<f64> {
        let share = self.touched as f64 / self.watched.max(1) as f64;
        (self.watched > 0).then_some(share.min(1.0))
    }
}

/// From an input by copies to an output, or to where it ends in the program.
#[derive(Clone, Debug)]
pub struct Path {
    /// Where it begins.
    pub source: Source,
    /// The steps on the way, and how often each.
    pub way: Vec<(PathStep, Steps)>,
    /// Where it ends.
    pub sink: Sink,
    /// Output calls; of a path that ends in the program: its last copies.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Those calls by class.
    pub sizes: Sizes,
    /// Bytes of it that were watched for touches.
    pub watched: u64,
    /// Bytes of touched pages among them.
    pub touched: u64,
    /// Of what was watched where it arrived, the share that was touched there.
    pub touched_first: f64,
    /// Input calls, as far as they are this path's.
    pub inputs: f64,
    /// The predicted saving.
    pub saving: Saving,
}

impl Path {
    /// Copies in the application.
    pub fn copies(&self) -> usize {
        self.way.iter().filter(|(w, _)| matches!(w, PathStep::Copy(_))).count()
    }

    /// Copies since the data last lay for a while.
    pub fn copies_after_rest(&self) -> usize {
        let after = self.way.iter().rposition(|(w, _)| *w == PathStep::Rest).map_or(0, |at| at + 1);
        self.way[after..].len()
    }

    /// Copies between the kernel and the program.
    pub fn kernel_copies(&self) -> usize {
        let output = self.sink.output().is_some_and(|end| end.place.call != "vmsplice");
        let output = usize::from(output);
        match self.source {
            Source::Program => output,
            Source::Input(_) => 1 + output,
            Source::Pass(_) => 0,
        }
    }

    /// Share of the bytes whose pages are touched; `None`: not watched.
    pub fn touched_share(&self) -> Option<f64> {
        (self.watched > 0).then(|| self.touched as f64 / self.watched as f64)
    }
}

/// An input site, and what became of its bytes.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Input calls.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that left at least once.
    pub forwarded: u64,
    /// Bytes that ended without having left.
    pub consumed: u64,
    /// Bytes that were too few, or forgotten.
    pub lost: u64,
    /// Inputs that were watched.
    pub probes: u64,
    /// Bytes of them.
    pub watched: u64,
    /// Bytes of touched pages among them.
    pub touched: u64,
    /// Touches.
    pub faults: u64,
}

impl Input {
    /// Bytes that were there still in the end.
    pub fn held(&self) -> u64 {
        self.bytes
            .saturating_sub(self.forwarded)
            .saturating_sub(self.consumed)
            .saturating_sub(self.lost)
    }
}

/// One program: all processes that executed it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its path.
    pub path: String,
    /// Its processes.
    pub pids: Vec<u64>,
    /// Bytes in.
    pub bytes_in: u64,
    /// Bytes out.
    pub bytes_out: u64,
    /// CPU time, ns, without what following took.
    pub cpu_ns: u64,
    /// The time that following took, in ns.
    pub follow_ns: u64,
    /// From the first sight to the last, ns.
    pub wall_ns: u64,
    /// Copies that carried input data.
    pub copies: u64,
    /// Bytes of input data in them.
    pub copied_bytes: u64,
    /// Bytes that were rewritten.
    pub rewritten: u64,
    /// Times that a bound made the follower forget.
    pub forgot: u64,
    /// Page faults that no disk was read for: of memory that the kernel provided anew, mostly.
    pub fresh: u64,
    /// Their cost, ns of CPU time. An allocator that keeps freed memory instead of giving it back
    /// to the kernel saves most of it.
    pub fresh_ns: f64,
    /// Whether touches could not be looked for.
    pub no_watch: bool,
    /// Input sites, most bytes first.
    pub inputs: Vec<(End, Input)>,
    /// Paths, largest shares first.
    pub paths: Vec<Path>,
}

impl Program {
    /// The share of a path: of all that left, or, where it ends in the program, of all that
    /// arrived.
    pub fn share(&self, path: &Path) -> f64 {
        let whole = if path.sink == Sink::Program { self.bytes_in } else { self.bytes_out };
        path.bytes as f64 / whole.max(1) as f64
    }

    /// The saving of all paths together.
    pub fn saving(&self) -> Saving {
        self.paths.iter().fold(Saving::default(), |sum, p| Saving {
            bytes: sum.bytes + p.saving.bytes,
            ns: sum.ns + p.saving.ns,
        })
    }
}

/// The mean of sizes that are known by class and together.
pub fn mean(bytes: u64, ops: u64) -> f64 {
    bytes as f64 / ops.max(1) as f64
}

/// Adds what a file says, which may be anything.
pub fn add(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

/// The sum of such numbers.
pub fn total(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}

/// Merges the parts; programs that moved no data are left out.
pub fn programs(parts: &[Part], costs: &Costs, threshold: usize) -> Vec<Program> {
    let mut files = Files::default();
    let mut by_path: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    for part in parts {
        by_path.entry(&part.program).or_default().push(part);
    }
    let merged = by_path.into_iter().map(|(path, parts)| {
        let mut program = merge(path, &parts, &mut files, costs, threshold);
        program.paths.iter_mut().for_each(|p| p.saving = saving(p, costs, threshold));
        program.fresh_ns = program.fresh as f64 * costs.fresh as f64;
        program
    });
    let mut all: Vec<Program> = merged.filter(|p| p.bytes_in > 0 || p.bytes_out > 0).collect();
    all.sort_by_key(|p| std::cmp::Reverse(p.bytes_in.saturating_add(p.bytes_out)));
    all
}

type Key = (Source, Vec<PathStep>, Sink);

/// The bytes that went along one sequence of copies: to an output, or nowhere.
struct Went {
    node: usize,
    sink: Sink,
    ops: u64,
    bytes: u64,
    sizes: Sizes,
    watched: u64,
    touched: u64,
}

fn merge(
    path: &str,
    parts: &[&Part],
    files: &mut Files,
    costs: &Costs,
    threshold: usize,
) -> Program {
    let mut program = Program { path: path.to_owned(), ..Program::default() };
    let mut inputs: BTreeMap<End, Input> = BTreeMap::new();
    let mut paths: BTreeMap<Key, Path> = BTreeMap::new();
    let (mut first, mut last) = (u64::MAX, 0);
    let all_places: Vec<Vec<CallSite>> =
        parts.iter().map(|part| part.sites.iter().map(|s| place(s, files)).collect()).collect();
    let elided = elided_shares(parts, &all_places, costs, threshold);
    for ((part, places), elided) in parts.iter().zip(&all_places).zip(&elided) {
        program.add_totals(part);
        first = first.min(part.head(header::BEGAN));
        last = last.max(part.head(header::SEEN));
        let at = |site: usize| places.get(site).cloned().unwrap_or_default();
        for node in part.nodes.iter().filter(|n| matches!(n.step, Step::Input | Step::Pass)) {
            let end = End { kind: node.kind, place: at(node.site) };
            inputs.entry(end).or_default().add(node);
        }
        let went = went(part, &at);
        let mut through = vec![0; part.nodes.len()];
        for one in &went {
            part.chain(one.node).into_iter().for_each(|n| add(&mut through[n], one.bytes));
        }
        for one in went {
            let chain = part.chain(one.node);
            let root = &part.nodes[chain[0]];
            let end = End { kind: root.kind, place: at(root.site) };
            let source = match root.step {
                Step::Input => Source::Input(end),
                Step::Pass => Source::Pass(root.kind),
                _ => Source::Program,
            };
            let way = |n: &Node| match n.step {
                Step::Rest => PathStep::Rest,
                _ => PathStep::Copy(at(n.site)),
            };
            let nodes: Vec<(&Node, u64, f64)> =
                chain[1..].iter().map(|n| (&part.nodes[*n], through[*n], elided[*n])).collect();
            let ways: Vec<PathStep> = nodes.iter().map(|(n, ..)| way(n)).collect();
            let key = (source.clone(), ways.clone(), one.sink.clone());
            let path = paths.entry(key).or_insert_with(|| Path {
                source,
                way: ways.into_iter().map(|w| (w, Steps::default())).collect(),
                sink: one.sink.clone(),
                ops: 0,
                bytes: 0,
                sizes: [0; CLASSES],
                watched: 0,
                touched: 0,
                touched_first: 0.0,
                inputs: 0.0,
                saving: Saving::default(),
            });
            path.add(&one, &nodes, root);
        }
    }
    program.wall_ns = last.saturating_sub(first);
    program.rank(inputs, paths.into_values().collect());
    program
}

impl Program {
    /// Takes over what has any bytes, the largest first.
    fn rank(&mut self, inputs: BTreeMap<End, Input>, mut paths: Vec<Path>) {
        self.inputs = inputs.into_iter().filter(|(_, i)| i.bytes > 0).collect();
        self.inputs.sort_by_key(|(_, i)| std::cmp::Reverse(i.bytes));
        paths.retain(|path| path.bytes > 0);
        paths.sort_by(|a, b| self.share(b).total_cmp(&self.share(a)).then(b.bytes.cmp(&a.bytes)));
        self.paths = paths;
    }
}

/// Of each node of each part the share of its bytes that uncopy would not copy: a site decides for
/// all its processes' copies here.
fn elided_shares(
    parts: &[&Part],
    places: &[Vec<CallSite>],
    costs: &Costs,
    threshold: usize,
) -> Vec<Vec<f64>> {
    let mut numbers: BTreeMap<&CallSite, usize> = BTreeMap::new();
    let none = CallSite::default();
    let mut nodes = Vec::new();
    let mut begins = Vec::new();
    for (part, places) in parts.iter().zip(places) {
        let begin = nodes.len();
        begins.push(begin);
        for (i, node) in part.nodes.iter().enumerate() {
            let next = numbers.len();
            nodes.push(Copied {
                step: if i == node.parent && node.step == Step::Copy {
                    Step::Program
                } else {
                    node.step
                },
                parent: begin + node.parent,
                site: *numbers.entry(places.get(node.site).unwrap_or(&none)).or_insert(next),
                sizes: node.sizes,
                bytes: node.bytes as f64,
                touched: 0.0,
            });
        }
    }
    // Where a node was not watched, what its site does elsewhere is the best guess.
    let mut by_site = vec![[0u64; 2]; numbers.len()];
    let all = || parts.iter().flat_map(|part| &part.nodes);
    for (node, of) in all().zip(&nodes) {
        add(&mut by_site[of.site][0], node.shown);
        add(&mut by_site[of.site][1], node.touched_here);
    }
    for (node, of) in all().zip(&mut nodes) {
        let own = [node.shown, node.touched_here];
        let [shown, touched] = if node.shown > 0 { own } else { by_site[of.site] };
        of.touched = (touched as f64 / shown.max(1) as f64).min(1.0);
    }
    let shares = predict::elided_shares(&nodes, costs, threshold);
    let each = parts.iter().zip(begins);
    each.map(|(part, begin)| shares[begin..begin + part.nodes.len()].to_vec()).collect()
}

/// The bytes that left, and those that were copied and then went nowhere: of each sequence of
/// copies what neither left from there nor was copied on. (Bytes that were copied to two places end
/// in neither, by this.)
fn went(part: &Part, at: &impl Fn(usize) -> CallSite) -> Vec<Went> {
    let mut on = vec![0; part.nodes.len()];
    for (i, node) in part.nodes.iter().enumerate().filter(|(i, node)| node.parent != *i) {
        debug_assert!(node.parent < i);
        add(&mut on[node.parent], node.bytes);
    }
    let mut all = Vec::new();
    for row in &part.rows {
        add(&mut on[row.node], row.bytes);
        let end = End { kind: row.kind, place: at(row.site) };
        let Row { node, ops, bytes, sizes, watched, touched, .. } = *row;
        all.push(Went { node, sink: Sink::Output(end), ops, bytes, sizes, watched, touched });
    }
    for (i, node) in part.nodes.iter().enumerate().filter(|(_, n)| n.step == Step::Copy) {
        let bytes = node.bytes.saturating_sub(on[i]);
        let root = &part.nodes[part.chain(i)[0]];
        if bytes == 0 || root.step != Step::Input {
            continue;
        }
        let share = bytes as f64 / node.bytes as f64;
        let part = |n: u64| (n as f64 * share).round() as u64;
        all.push(Went {
            node: i,
            sink: Sink::Program,
            ops: part(node.ops),
            bytes,
            sizes: node.sizes.map(part),
            watched: root.watched,
            touched: root.touched,
        });
    }
    all
}

fn place(site: &Site, files: &mut Files) -> CallSite {
    let found = files.place(&site.module, site.address);
    CallSite { call: site.call.to_owned(), function: found.function, library: found.library }
}

impl Program {
    fn add_totals(&mut self, part: &Part) {
        self.pids.push(part.head(header::PID));
        add(&mut self.bytes_in, part.head(header::IN_BYTES));
        add(&mut self.bytes_out, part.head(header::OUT_BYTES));
        let cpu = part.head(header::USER_NS).saturating_add(part.head(header::SYSTEM_NS));
        add(&mut self.cpu_ns, cpu.saturating_sub(part.head(header::FOLLOW_NS)));
        add(&mut self.follow_ns, part.head(header::FOLLOW_NS));
        add(&mut self.copies, part.head(header::COPIES));
        add(&mut self.copied_bytes, part.head(header::COPIED_BYTES));
        add(&mut self.rewritten, part.head(header::REWRITTEN));
        add(&mut self.forgot, part.head(header::EVICTIONS).saturating_add(part.head(header::FULL)));
        add(&mut self.fresh, part.head(header::FRESH));
        self.no_watch |= part.head(header::NO_WATCH) != 0;
    }
}

impl Input {
    fn add(&mut self, node: &Node) {
        add(&mut self.ops, node.ops);
        add(&mut self.bytes, node.bytes);
        add(&mut self.forwarded, node.forwarded);
        add(&mut self.consumed, node.consumed);
        add(&mut self.lost, node.lost);
        add(&mut self.probes, node.probes);
        add(&mut self.watched, node.watched);
        add(&mut self.touched, node.touched);
        add(&mut self.faults, node.faults);
    }
}

impl Path {
    fn add(&mut self, went: &Went, nodes: &[(&Node, u64, f64)], root: &Node) {
        add(&mut self.ops, went.ops);
        add(&mut self.bytes, went.bytes);
        add(&mut self.watched, went.watched);
        add(&mut self.touched, went.touched);
        (0..CLASSES).for_each(|c| add(&mut self.sizes[c], went.sizes[c]));
        self.touched_first = (root.touched_here as f64 / root.shown.max(1) as f64).min(1.0);
        self.inputs += root.ops as f64 * went.bytes as f64 / root.bytes.max(1) as f64;
        for ((_, steps), (node, through, elided)) in self.way.iter_mut().zip(nodes) {
            steps.add(node, *through, *elided);
        }
    }
}

fn saving(path: &Path, costs: &Costs, threshold: usize) -> Saving {
    let copies = path.way.iter().filter(|(w, _)| matches!(w, PathStep::Copy(_)));
    let copies = copies
        .map(|(_, s)| predict::Copy {
            // A path's share of copies that it shares; those into a store are made once.
            bytes: path.bytes as f64 * (s.bytes as f64 / s.through.max(1) as f64).min(1.0),
            sizes: s.sizes,
            total: s.bytes as f64,
            elided: s.elided_share(),
            touched: s.touched_share().unwrap_or(0.0),
        })
        .collect();
    let known = predict::Path {
        copies,
        inputs: path.inputs,
        outputs: if path.sink == Sink::Program { 0.0 } else { path.ops as f64 },
        bytes: path.bytes as f64,
        touched: path.touched_first,
    };
    predict::predict(&known, costs, threshold)
}

#[cfg(test)]
mod tests {
    use uncopy_flow::layout::{LAYOUT, MAGIC, WORDS};

    use super::*;
    use crate::foreign_bytes::Damages;
    use crate::profile::prices::{Origin, Prices};
    use crate::profile::{html, json, text};

    /// See `foreign_bytes`.
    #[test]
    fn damaged_parts_are_read_or_refused_and_shown() {
        let mut words = vec![0u64; WORDS];
        (words[header::MAGIC], words[header::LAYOUT]) = (MAGIC, LAYOUT);
        for used in [header::SITES, header::NODES, header::ROWS, header::MODULES] {
            words[used] = 2;
        }
        let prices = Prices { costs: Costs::REFERENCE, origin: Origin::Given };
        let whole: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bolero::check!().with_type::<(Damages, Damages)>().with_iterations(300).for_each(
            |(a, b)| {
                let parts: Vec<Part> =
                    [a, b].iter().filter_map(|d| Part::read(&d.done_to(&whole))).collect();
                let programs = programs(&parts, &Costs::REFERENCE, 16 << 10);
                let _ = text::report(&programs, &prices)
                    + &json::lines(&programs, &prices)
                    + &html::page(&programs, &prices);
            },
        );
    }
}
