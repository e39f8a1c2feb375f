//! Calls that are made to fail, and what must be counted for each.

/// A rule of `UNCOPY_INJECT`, and how the program is run under it.
#[derive(Debug)]
pub struct Rule {
    /// The rule.
    pub text: &'static str,
    /// The other demands.
    pub given: Given,
    /// The counters that must be moved somewhere in the processes of the run.
    pub counted: Counted,
    /// It is of the part that always runs.
    pub often: bool,
}

/// Options of `uncopy run`, or a limit.
#[derive(Debug)]
pub enum Given {
    /// Neither.
    Nothing,
    /// These.
    Options(&'static [&'static str]),
    /// So many kilobytes of address space.
    AddressSpace(u64),
}

/// The counters of a run.
#[derive(Debug)]
pub enum Counted {
    /// Only that something was made to fail.
    Nowhere,
    /// Not even that (without descriptors there is no summary; poke needs an unlucky fork, sigqueue
    /// a signal at the wrong moment; mremap is made in some runs only).
    Silent,
    /// This is not 0.
    Somewhere(&'static str),
}

use Counted::{Nowhere, Silent, Somewhere};
use Given::{AddressSpace, Nothing, Options};

const fn rule(text: &'static str, counted: Counted) -> Rule {
    Rule { text, given: Nothing, counted, often: false }
}

const fn often(text: &'static str, counted: Counted) -> Rule {
    Rule { text, given: Nothing, counted, often: true }
}

impl Rule {
    /// The rule and what is asked for besides.
    pub fn name(&self) -> String {
        match &self.given {
            Nothing => self.text.to_owned(),
            Options(options) => format!("{} {}", self.text, options.join(" ")),
            AddressSpace(kilobytes) => {
                format!("{} with {kilobytes} KB of address space", self.text)
            }
        }
    }
}

/// All of them.
pub const RULES: &[Rule] = &[
    rule("device:EACCES,userfaultfd:EPERM", Somewhere("off_permission")),
    rule("userfaultfd:ENOSYS", Somewhere("off_kernel")),
    rule("api", Somewhere("off_kernel")),
    often("userfaultfd:EMFILE", Somewhere("off_resources")),
    rule("mmap", Somewhere("off_resources")),
    often("thread", Somewhere("off_thread")),
    often("close_range", Somewhere("off_thread")),
    rule("register:ENOMEM", Somewhere("off_resources")),
    rule("register:EBUSY:1/3", Nowhere),
    often("register:1/20", Somewhere("elided_copies")),
    rule("unregister:ENOMEM", Somewhere("refused_no_memory")),
    often("unregister:1/3", Somewhere("elided_copies")),
    often("unregister:EINVAL", Silent),
    often("unregister:EINVAL:1/1", Silent),
    often("move:EBUSY", Somewhere("refused_busy")),
    rule("move:EAGAIN", Somewhere("refused_again")),
    often("move:EAGAIN+short:1/3", Somewhere("elided_copies")),
    rule("move:short", Somewhere("elided_copies")),
    rule("move:EINVAL:1/3", Somewhere("refused_unsuitable")),
    rule("move:ENOMEM:1/3", Somewhere("refused_no_memory")),
    rule("move:EEXIST:1/3", Somewhere("refused_other")),
    rule("move:EPERM+ENOSYS:1/3", Somewhere("refused_permission")),
    often("move:1/20", Somewhere("elided_copies")),
    often("copy:EPERM", Somewhere("moved_fills")),
    rule("copy:ENOSYS,move_in:1/10", Somewhere("moved_fills")),
    often("copy:EAGAIN+ENOMEM:1/3", Somewhere("delayed_fills")),
    rule("copy:ENOMEM", Somewhere("delayed_fills")),
    often("copy:EEXIST:1/3", Somewhere("elided_copies")),
    rule("copy:short", Somewhere("elided_copies")),
    rule("copy:1/20", Somewhere("elided_copies")),
    often("zeropage", Somewhere("delayed_fills")),
    rule("zeropage:EPERM", Nowhere),
    often("wake", Somewhere("elided_copies")),
    rule("probe", Nowhere),
    often("probe:1/3", Somewhere("elided_copies")),
    often("read", Somewhere("elided_copies")),
    rule("read:short", Somewhere("elided_copies")),
    often("poll", Somewhere("elided_copies")),
    often("heap", Somewhere("elided_copies")),
    rule("heap:1/3", Somewhere("elided_copies")),
    rule("munmap,thread", Somewhere("off_thread")),
    rule("madvise:1/3", Nowhere),
    rule("mremap", Silent),
    often("mremap:1/2", Silent),
    often("unregister:1/2,mremap:1/3", Silent),
    rule("open:1/2,unregister:1/2,mremap:1/2", Silent),
    rule("dup", Silent),
    rule("open", Somewhere("elided_copies")),
    rule("fstat", Somewhere("elided_copies")),
    rule("poke,thread:1/2", Silent),
    rule("futex", Somewhere("elided_copies")),
    rule("sigqueue", Silent),
    Rule { given: Options(&["--backoff=yes"]), ..rule("clock", Somewhere("elided_copies")) },
    rule("affinity", Somewhere("elided_copies")),
    rule("vmsplice", Somewhere("unlent_refused")),
    rule("vmsplice:short:1/2", Somewhere("lent_sends")),
    often("vmsplice:1/3,splice:1/5", Somewhere("lent_sends")),
    often("splice", Somewhere("unlent_refused")),
    often("pipe", Somewhere("unlent_refused")),
    rule("pipe:1/2,pipe_size", Somewhere("unlent_refused")),
    rule("fstat:1/3,vmsplice:1/5", Somewhere("lent_sends")),
    rule("extent", Somewhere("exhausted_extents")),
    often("extent:1/3", Somewhere("exhausted_extents")),
    rule("all:1/100", Nowhere),
    often("all:1/20", Nowhere),
    rule("all:1/5", Nowhere),
    often("all", Silent),
    rule("all,dup:0/1", Nowhere),
    Rule {
        given: Options(&["--extent-memory=256K"]),
        ..often("move:0/1", Somewhere("exhausted_extents"))
    },
    Rule {
        given: Options(&["--max-mappings=2"]),
        ..often("move:0/1", Somewhere("exhausted_mappings"))
    },
    Rule {
        given: Options(&["--extent-memory=1M", "--max-mappings=8"]),
        ..often("move:1/3", Somewhere("exhausted"))
    },
    Rule { given: AddressSpace(800000), ..often("move:0/1", Nowhere) },
    Rule { given: AddressSpace(800000), ..rule("all:1/50", Nowhere) },
];
