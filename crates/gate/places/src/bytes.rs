//! Bytes of system calls, wherever instructions begin.

/// Where bytes of `syscall`, `sysenter` or `int 0x80` are.
pub(crate) fn first_bytes(of: &[u8]) -> Option<usize> {
    first_pair(of, |a, b| (a == 0x0f) & ((b == 0x05) | (b == 0x34)) | (a == 0xcd) & (b == 0x80))
}

/// Where such bytes are, or may be: a breakpoint (`int3`) may lie over the first of them.
pub(crate) fn possible_bytes(of: &[u8]) -> Option<usize> {
    first_pair(of, |a, b| {
        let long = (a == 0x0f) | (a == 0xcc);
        long & ((b == 0x05) | (b == 0x34)) | ((a == 0xcd) | (a == 0xcc)) & (b == 0x80)
    })
}

/// The first two bytes that are of interest. (Most text has none, so it is asked of many at once,
/// without branches: some GB a second.)
fn first_pair(of: &[u8], is: impl Fn(u8, u8) -> bool) -> Option<usize> {
    const AT_ONCE: usize = 64;
    let mut at = 0;
    while let Some(some) = of.get(at..=at + AT_ONCE) {
        if some.iter().zip(&some[1..]).fold(false, |any, (&a, &b)| any | is(a, b)) {
            break;
        }
        at += AT_ONCE;
    }
    of[at..].windows(2).position(|it| is(it[0], it[1])).map(|i| at + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_call_are_found_wherever_they_lie() {
        for at in 0..200 {
            let mut text = vec![0x0f; 202];
            assert_eq!(first_bytes(&text), None);
            text[at + 1] = 0x05;
            assert_eq!((first_bytes(&text), possible_bytes(&text)), (Some(at), Some(at)));
            text.fill(0xcc);
            assert_eq!(possible_bytes(&text), None);
            text[at + 1] = 0x80;
            assert_eq!((first_bytes(&text), possible_bytes(&text)), (None, Some(at)));
            text[at] = 0xcd;
            assert_eq!(first_bytes(&text[..at + 2]), Some(at));
            assert_eq!(first_bytes(&text[..=at]), None);
        }
        assert_eq!(first_bytes(&[]), None);
    }
}
