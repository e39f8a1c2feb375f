//! Linux's own sockets, pipes and files, as a stack.
//!
//! What is theirs alone is here: which descriptors take several pieces as one ([`on`]), what alignment O_DIRECT wants, pages that go by
//! reference through a pipe, files that are kept in memory ([`mod@file`]).

pub mod file;
pub mod on;

use self::on::On;
use crate::buffers::Pieces;
use crate::stack::{Input, Lending, Lent, Output};
use libc::iovec;
use uncopy_core::regions::RegionId;
use uncopy_lend::kind::{Kind, fits};
use uncopy_lend::send::Target;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;

/// Whether the call just refused may have been refused for the sake of its pieces: they are aligned otherwise than the program's buffer (O_DIRECT), or
/// a part of the buffer is not memory. The plain call knows the right answer.
fn refused_for_pieces() -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    matches!(errno, Some(libc::EINVAL | libc::EFAULT))
}

/// The same of an input. From a socket the message is gone where an address was wrong: the plain call would take the next.
fn refused_input(on: On) -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    refused_for_pieces() && !(on == On::Vectored && errno == Some(libc::EFAULT))
}

/// An input call.
#[derive(Debug)]
pub struct Receive<A, P> {
    process: &'static Process,
    on: On,
    as_it_is: A,
    scattered: P,
}

impl<A, P> Receive<A, P>
where
    A: FnMut() -> isize,
    P: FnMut(&mut Pieces) -> Option<isize>,
{
    /// `as_it_is` makes it as the program did, `scattered` with other pieces; `None`: it cannot be made so.
    #[inline]
    pub fn new(process: &'static Process, on: On, as_it_is: A, scattered: P) -> Self {
        Self { process, on, as_it_is, scattered }
    }
}

impl<A, P> Input for Receive<A, P>
where
    A: FnMut() -> isize,
    P: FnMut(&mut Pieces) -> Option<isize>,
{
    #[inline]
    fn as_it_is(&mut self) -> isize {
        (self.as_it_is)()
    }

    #[inline]
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        self.on.takes(&self.process.calls, pieces, buffers)
    }

    #[inline]
    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        (self.scattered)(pieces).filter(|n| *n != -1 || !refused_input(self.on))
    }
}

/// A read of what may be a file that is kept in memory.
#[derive(Debug)]
pub struct Read<I, R> {
    /// The call, if it is not.
    pub call: I,
    /// What is known of it; none where it is not to be looked at.
    pub kept: Option<file::Read>,
    /// The plain positioned read, as `preadv(2)` answers.
    pub positioned: R,
}

impl<I, R> Input for Read<I, R>
where
    I: Input,
    R: Fn(&[iovec], i64) -> isize,
{
    #[inline]
    fn as_it_is(&mut self) -> isize {
        self.call.as_it_is()
    }

    #[inline]
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        self.call.takes(pieces, buffers)
    }

    #[inline]
    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        self.call.scatter(pieces)
    }

    /// (A kept file lies in memory of ours that consists of views: there is nothing to hand over.)
    #[inline]
    fn by_reference(
        &mut self,
        room: usize,
        _: impl FnMut(RegionId, &[Span], usize) -> bool,
    ) -> Option<isize> {
        // SAFETY: who made the call vouches for its buffer.
        unsafe { file::read(self.kept.as_ref()?, room, &self.positioned) }
    }
}

/// An output call on a stream, which may take pages.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Where to, and how.
    pub target: Target,
    /// It asks for nothing that a call by reference could not do.
    pub plain: bool,
    /// Where the call returns to.
    pub caller: usize,
}

/// An output call.
#[derive(Debug)]
pub struct Send<A, P> {
    process: &'static Process,
    on: On,
    stream: Option<Stream>,
    as_it_is: A,
    gathered: P,
    kind: Option<Kind>,
}

impl<A, P> Send<A, P>
where
    A: FnMut() -> isize,
    P: FnMut(&Pieces) -> isize,
{
    /// `as_it_is` makes it as the program did, `gathered` with other pieces; `stream` tells more of it, where it is one that may go by
    /// reference.
    #[inline]
    pub fn new(
        process: &'static Process,
        on: On,
        stream: Option<Stream>,
        as_it_is: A,
        gathered: P,
    ) -> Self {
        Self { process, on, stream, as_it_is, gathered, kind: None }
    }
}

impl<A, P> Output for Send<A, P>
where
    A: FnMut() -> isize,
    P: FnMut(&Pieces) -> isize,
{
    #[inline]
    fn as_it_is(&mut self) -> isize {
        (self.as_it_is)()
    }

    #[inline]
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        self.on.takes(&self.process.calls, pieces, buffers)
    }

    #[inline]
    fn gather(&mut self, pieces: &Pieces) -> Option<isize> {
        let sent = (self.gathered)(pieces);
        (sent != -1 || !refused_for_pieces()).then_some(sent)
    }

    #[inline]
    fn lending(&self) -> Option<Lending> {
        let Stream { plain, caller, .. } = self.stream?;
        Some(Lending { from: self.process.lending.from(), plain, caller })
    }

    fn can_lend(&mut self, pieces: &[iovec]) -> bool {
        let kind = self.stream.and_then(|s| self.process.lending.kind(s.target.fd));
        self.kind = kind.filter(|k| fits(*k, pieces));
        self.kind.is_some()
    }

    fn lend(&mut self, pieces: &Pieces, lent: u64) -> Lent {
        match (self.kind, &self.stream) {
            (Some(kind), Some(stream)) => {
                self.process.lending.send(kind, &stream.target, pieces, lent)
            }
            _ => Lent::No,
        }
    }
}
