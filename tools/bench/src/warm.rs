//! Memory that a virtual machine has never touched costs several times as much at first.

// Unsafe: a mapping that is only written to and given back.

use uncopy_measure::Failure;

/// Touches `bytes` of memory and gives them back, so that the program that is measured next finds
/// pages that the machine has already. No more than half of what is free.
pub fn memory(bytes: usize) -> Result<(), Failure> {
    let bytes = bytes.min(available() / 2);
    if bytes == 0 {
        return Ok(());
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that replaces nothing, and is unmapped at once.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(
                Failure::new("cannot touch memory").because(std::io::Error::last_os_error())
            );
        }
        libc::munmap(at, bytes);
    }
    Ok(())
}

/// Bytes that could be had without swapping.
pub fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kb = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    kb.unwrap_or(0) << 10
}
