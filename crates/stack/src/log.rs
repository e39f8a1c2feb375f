//! Files whose appends may be held, as a stack: bytes go to memory that outlives the program, or by
//! Linux as long as the file is plain.
//!
//! unsafe: buffers of the program's, which are handed on.

use crate::buffers::Pieces;
use crate::calls::OutputCall;
use crate::linux;
use crate::linux::on::refused_for_pieces;
use crate::ring::written;
use crate::stack::Output;
use core::ffi::c_int;
use uncopy_log_files::{Appended, Plain};
use uncopy_log_service::PlainReason;
use uncopy_process::process::Process;

/// Before a call that reads: what was held is home, as long as what this returns is kept.
pub(crate) fn reads(process: &'static Process, fd: c_int) -> Option<Plain> {
    process.log.plainly(fd, PlainReason::NotAppended)
}

/// An output call.
#[derive(Debug)]
pub struct Send<'a> {
    process: &'static Process,
    fd: c_int,
    call: &'a OutputCall,
}

/// A call that no append of ours is: the kernel answers it.
struct NoAppend;

/// Where it writes: at its position (`None`), or at a place.
fn place(call: &OutputCall) -> Result<Option<i64>, NoAppend> {
    match *call {
        OutputCall::Write { .. } | OutputCall::Writev { .. } => Ok(None),
        OutputCall::Pwrite { at, .. } | OutputCall::Pwritev { at, .. } if at >= 0 => Ok(Some(at)),
        OutputCall::Pwritev2 { at: -1, flags: 0, .. } => Ok(None),
        OutputCall::Pwritev2 { at, flags: 0, .. } if at >= 0 => Ok(Some(at)),
        _ => Err(NoAppend),
    }
}

impl<'a> Send<'a> {
    /// `call`, on the file `fd`.
    pub fn new(process: &'static Process, fd: c_int, call: &'a OutputCall) -> Self {
        Self { process, fd, call }
    }

    /// Makes it, from `pieces` where there are some.
    fn carry(&mut self, pieces: Option<&Pieces>) -> isize {
        let Self { process, fd, call } = *self;
        // SAFETY: the program's own call, or the same bytes from where they are.
        let by_linux = || unsafe {
            match pieces {
                Some(pieces) => linux::gather(fd, call, pieces),
                None => linux::send(fd, call),
            }
        };
        // SAFETY: the program's own arguments.
        let bytes = unsafe { written(call, pieces) };
        let (Ok(at), Some(bytes)) = (place(call), bytes) else {
            let _plain = process.log.plainly(fd, PlainReason::NotAppended);
            return by_linux();
        };
        // SAFETY: the program's own buffers, or the same bytes from where they are.
        match unsafe { process.log.write(fd, bytes.as_slice(), at) } {
            Appended::Made(n) => n,
            Appended::Plain(plain) => {
                let n = by_linux();
                if let Some(plain) = plain {
                    plain.wrote(n);
                }
                n
            }
        }
    }
}

impl Output for Send<'_> {
    fn as_it_is(&mut self) -> isize {
        self.carry(None)
    }

    fn gather(&mut self, pieces: &Pieces) -> Option<isize> {
        let sent = self.carry(Some(pieces));
        (sent != -1 || !refused_for_pieces()).then_some(sent)
    }
}
