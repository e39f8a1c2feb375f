//! The bytes that a call is about to send, as the program's memory has them now.
//!
//! unsafe: bytes that were filled. (The bytes that a call names are read by instructions whose
//! faults are known: `kernel::user_access`.)

use crate::calls::Sends;
use core::mem::MaybeUninit;
use uncopy_kernel::user_access::{read, read_all};

/// As many buffers as a call may have (`UIO_MAXIOV`).
const BUFFERS: u64 = 1024;

/// A buffer: where it begins, and its length.
pub(crate) type Buffer = (u64, usize);

/// The buffers of a call that goes to a stream. `None`: the kernel is to say what it finds there,
/// or the message is one that does not go into a queue.
pub(crate) fn buffers(what: Sends) -> Option<Vec<Buffer>> {
    match what {
        Sends::Bytes(at, length) => Some(vec![(at, usize::try_from(length).ok()?)]),
        Sends::Buffers(at, count) => listed(at, count),
        Sends::Message(at) => {
            let message = read(at as *const libc::msghdr)?;
            let is_plain = message.msg_name.is_null() && message.msg_controllen == 0;
            let buffers = || listed(message.msg_iov as u64, message.msg_iovlen as u64);
            is_plain.then(buffers).flatten()
        }
    }
}

fn listed(at: u64, count: u64) -> Option<Vec<Buffer>> {
    if count > BUFFERS {
        return None;
    }
    let all = (0..count).map(|i| {
        let buffer = read((at as *const libc::iovec).wrapping_add(i as usize))?;
        Some((buffer.iov_base as u64, buffer.iov_len))
    });
    all.collect()
}

/// How many bytes they have. `None`: more than any call takes.
pub(crate) fn length(buffers: &[Buffer]) -> Option<usize> {
    let all = buffers.iter().try_fold(0usize, |all, (_, n)| all.checked_add(*n));
    all.filter(|all| *all <= i32::MAX as usize)
}

/// Their bytes. `None`: they cannot be read.
pub(crate) fn copied(buffers: &[Buffer], length: usize) -> Option<Vec<u8>> {
    let mut all: Vec<MaybeUninit<u8>> = vec![MaybeUninit::new(0); length];
    let mut rest = &mut all[..];
    for (at, n) in buffers {
        let n = (*n).min(rest.len());
        let (to, behind) = core::mem::take(&mut rest).split_at_mut(n);
        if !read_all(*at as *const u8, to) {
            return None;
        }
        rest = behind;
    }
    // SAFETY: all of it was filled, at first with zeros.
    Some(all.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iovec(bytes: &[u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn bytes_are_those_of_all_buffers_in_order() {
        let list = [iovec(b"ab"), iovec(b""), iovec(b"cde")];
        let of = |what| {
            let buffers = buffers(what)?;
            copied(&buffers, length(&buffers)?)
        };
        let listed = Sends::Buffers(list.as_ptr() as u64, 3);
        assert_eq!(of(listed).as_deref(), Some(&b"abcde"[..]));
        // SAFETY: zeros are a message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (list.as_ptr().cast_mut(), 3);
        let at = |message: &libc::msghdr| Sends::Message(core::ptr::from_ref(message) as u64);
        assert_eq!(of(at(&message)).as_deref(), Some(&b"abcde"[..]));
        message.msg_controllen = 16;
        assert_eq!(of(at(&message)), None, "descriptors may be among it");
        assert_eq!(buffers(Sends::Buffers(list.as_ptr() as u64, 1025)), None);
        assert_eq!(length(&[(0, usize::MAX), (0, 1)]), None);
    }
}
