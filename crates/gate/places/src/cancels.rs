//! The one call of glibc's (2.41 and later) in which threads are cancelled. Its function looks
//! whether the thread is, puts the arguments where the kernel wants them, and calls. A signal that
//! cancels acts if the instruction pointer is between the function's beginning and the call, and
//! else leaves it to that look. So all of the function is displaced: what is put in its place looks
//! once more, between these two.

use crate::object::Object;

/// `mov (%rdi), %eax; testb $8, (%rdi); jne` to where a cancelled thread goes.
const LOOKS: [u8; 7] = [0x8b, 0x07, 0xf6, 0x07, 8, 0x0f, 0x85];
/// How far that is.
const DISTANCE: usize = 4;
/// `mov %rdi, %r11`; the number and six arguments; `mov %r11, 8(%rsp)`.
const ARGUMENTS: [u8; 33] = [
    0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xce, 0x4c, 0x89, 0xc2, 0x4d,
    0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 8, 0x4c, 0x8b, 0x4c, 0x24, 16, 0x4c, 0x89, 0x5c, 0x24, 8,
];
const LENGTH: usize = LOOKS.len() + DISTANCE + ARGUMENTS.len();

/// Where the function of this call begins, and where a cancelled thread goes, if it is that one.
pub(crate) fn function(object: &Object<'_>, call: u64) -> Option<(u64, u64)> {
    let first = call.checked_sub(LENGTH as u64)?;
    let text = object.text_at(first, LENGTH)?;
    let (looks, rest) = text.split_at(LOOKS.len());
    let (distance, arguments) = rest.split_at(DISTANCE);
    let by = i32::from_le_bytes(distance.try_into().ok()?);
    let next = first + (LOOKS.len() + DISTANCE) as u64;
    (looks == LOOKS && arguments == ARGUMENTS).then(|| (first, next.wrapping_add(by as u64)))
}
