//! Whether a process shares memory that it can write to: what it stores there leaves it without a
//! call.
#![forbid(unsafe_code)]

/// Whether `smaps`, as `/proc/self/smaps` has it, has such a mapping. (`sh`: a mapping that is
/// shared, and of what may be written through it; of a file that is open for reading only the
/// kernel does not say so.)
#[must_use]
pub fn is_shared(smaps: &[u8]) -> bool {
    let mut flags = smaps.split(|byte| *byte == b'\n').filter_map(|l| l.strip_prefix(b"VmFlags:"));
    flags.any(|line| line.split(|byte| *byte == b' ').any(|flag| flag == b"sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_shared_if_its_flags_say_so_whatever_its_name() {
        let of = |flags: &str| {
            let text = format!(
                "7f0000000000-7f0000001000 r--s 00000000 fe:01 5  /srv/sh sh\nSize: 4 kB\nVmFlags: \
                 {flags} \n"
            );
            is_shared(text.as_bytes())
        };
        assert!(of("rd wr sh mr mw me ms sd"));
        assert!(of("rd sh mr mw me ms"));
        assert!(!of("rd mr me ms"));
        assert!(!is_shared(b""));
    }
}
