//! Work for a request.

// Unsafe: the processor's own counter of cycles.

/// Takes so many cycles of the processor's constant clock.
pub fn work(cycles: u64) {
    // SAFETY: reads a counter.
    let now = || unsafe { std::arch::x86_64::_rdtsc() };
    let begun = now();
    while now().wrapping_sub(begun) < cycles {
        std::hint::spin_loop();
    }
}
