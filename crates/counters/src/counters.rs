//! Counters of uncopy's work, which any thread may add to and any reader may look at.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($( $(#[doc = $doc:literal])* $name:ident, )*) => {
        /// Counters since the process began (or since its fork). Laid out as plain 64-bit words,
        /// in this order, so that a reader in C or in another process can use it.
        #[repr(C)]
        #[derive(Debug, Default)]
        pub struct Counters { $( $(#[doc = $doc])* pub $name: AtomicU64, )* }

        /// A copy of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot { $( $(#[doc = $doc])* pub $name: u64, )* }

        /// Names and meanings, in the order of the layout.
        pub const NAMES: &[(&str, &str)] = &[ $( (stringify!($name), concat!($($doc),*)), )* ];

        impl Counters {
            /// All at zero.
            pub const fn new() -> Self { Self { $( $name: AtomicU64::new(0), )* } }

            /// Reads every counter; each one is exact, together they are only nearly of one moment.
            pub fn snapshot(&self) -> Snapshot { Snapshot { $( $name: self.$name.load(Relaxed), )* } }

            /// Adds to every counter.
            pub fn add_all(&self, more: &Snapshot) { $( self.$name.fetch_add(more.$name, Relaxed); )* }

            /// Sets every counter to what it is in `now`, and says what that added. Each counter by
            /// itself: of two callers each gets his part.
            pub fn catch_up(&self, now: &Snapshot) -> Snapshot {
                Snapshot { $( $name: now.$name.wrapping_sub(self.$name.swap(now.$name, Relaxed)), )* }
            }

            /// Sets every counter to zero (a forked child starts anew).
            pub fn reset(&self) { $( self.$name.store(0, Relaxed); )* }
        }

        impl Snapshot {
            /// Names and values in the order of the layout.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [ $( (stringify!($name), self.$name), )* ].into_iter()
            }

            /// Without what says how much there is now: what can be added up over processes. Of a
            /// reason why nothing is elided, the sum is the number of processes.
            #[must_use]
            pub fn sums(mut self) -> Self {
                $( if is_gauge(stringify!($name)) && !stringify!($name).starts_with("off_") { self.$name = 0; } )*
                self
            }

            /// From the values in the order of the layout; those that are missing are zero.
            pub fn from_values(mut values: impl Iterator<Item = u64>) -> Self {
                Self { $( $name: values.next().unwrap_or(0), )* }
            }

            /// The additions since `earlier` (gauges included: they may wrap below zero).
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $( $name: self.$name.wrapping_sub(earlier.$name), )* }
            }
        }
    };
}

counters! {
    /// Copies that were elided, wholly or in part.
    elided_copies,
    /// Bytes that those copies did not move, fringes not counted.
    elided_bytes,
    /// Bytes that large copies of tracked data moved all the same: fringes, resident islands.
    copied_bytes,
    /// Large copies of tracked data that were executed because of the policy's back-off.
    backoff_copies,
    /// Bytes that input calls put straight into extents.
    input_bytes,
    /// Bytes that output calls gathered from extents.
    output_bytes,
    /// Page faults on pages of views that were resolved.
    faults,
    /// Pages that those faults filled: what the program touched of its views.
    touched_pages,
    /// Page faults on registered pages that held nothing (freed memory).
    empty_faults,
    /// Pages that were materialized, by faults or otherwise.
    materialized_pages,
    /// Pages moved out of the program's buffers (`UFFDIO_MOVE`).
    moved_pages,
    /// Pages moved into the program's buffers as they were (`UFFDIO_MOVE`).
    moved_in_pages,
    /// Pages that freed memory in use again was populated with, for those that were moved out.
    populated_pages,
    /// `UFFDIO_MOVE` calls.
    moves,
    /// `UFFDIO_REGISTER` and `UFFDIO_UNREGISTER` calls.
    registrations,
    /// Refusals by the kernel (EBUSY, EINVAL, ...) that were answered by copying.
    refusals,
    /// Copies that were executed because the extent memory or the mappings were used up.
    exhausted,
    /// Views materialized because they were the least recently used ones at a cap.
    evicted_views,
    /// Memory-map events (unmap, remove, remap) that the kernel reported.
    events,
    /// Extents alive now.
    extents,
    /// Bytes of extents alive now, whole pages.
    extent_bytes,
    /// Views alive now.
    views,
    /// Bytes of the program that are views now, and so have no memory of their own.
    missing_bytes,
    /// Bytes of free pages that the pool keeps for reuse now.
    pool_free_bytes,
    /// Bytes of pages of extents that are gone, which wait to be dropped together.
    pool_held_bytes,
    /// Address ranges registered now.
    registered_ranges,
    /// What the last experiment has measured where sites elided: ns of processor time for each MB
    /// that the program copied; 0: there was none.
    eliding_mb_ns,
    /// The same where none did.
    copying_mb_ns,
    /// Times that the fault-handling thread was bound to the core of the program's one thread, or
    /// unbound.
    handler_bindings,
    /// Times that eliding at no call site was compared with what their accounts say, or the other
    /// way round.
    trials,
    /// Of these, how many ended with a change.
    trials_won,
    /// Blocks that the twin allocator handed out.
    twin_blocks,
    /// Bytes in live blocks of the twin allocator now.
    twin_live_bytes,
    /// Bytes that it keeps for the next blocks now, resident or unmapped.
    twin_kept_bytes,
    /// Address space in bytes that its live blocks have beyond what the program was promised; it
    /// costs memory only as far as a block was larger before.
    twin_slack_bytes,

    /// Bytes of the twin allocator's pages that may have memory behind them now: the program was
    /// promised them, and they were not given back since.
    twin_touched_bytes,
    /// The lowest limit of memory that applies (of a control group or one above it), in bytes; 0:
    /// none is known.
    memory_limit_bytes,
    /// Bytes that may be held now beyond what the program has asked for.
    memory_allowed_bytes,
    /// Bytes that are held beyond that.
    memory_held_bytes,
    /// Times that memory was given back because more was held than that.
    memory_given_back,

    // Output by reference.
    /// Bytes that output calls handed to the kernel by reference.
    lent_bytes,
    /// Output calls that did.
    lent_sends,
    /// Bytes of program memory that became views because they were sent again and again.
    adopted_bytes,
    /// Pages dropped, rather than recycled, because they had been lent.
    dropped_pages,
    /// Pages dropped, rather than recycled, because they had been the program's: it may have given
    /// them to somebody.
    retired_pages,
    /// Outputs from extents not lent: too few bytes, or too many beside them.
    unlent_small,
    /// Outputs from extents not lent: the first time that these bytes were sent.
    unlent_sent_once,
    /// Outputs not lent, or ranges not adopted: the policy leaves the call site alone for a while.
    unlent_resting,
    /// Outputs not lent: not a stream socket or pipe that takes pages, or the call's flags.
    unlent_peer,
    /// Outputs not lent: no pipe of ours was free, or the kernel refused.
    unlent_refused,
    /// Repeated ranges not adopted: the caps on extent memory, mappings or views, or the kernel
    /// refused.
    unlent_resident,

    // Why: the kernel's answers to registering, moving and filling that were not "done".
    /// EBUSY: pinned by a device, shared after fork, or of another userfaultfd.
    refused_busy,
    /// EAGAIN that remained after some tries: contended, or the memory map was changing.
    refused_again,
    /// ENOMEM: memory, or `vm.max_map_count`.
    refused_no_memory,
    /// EPERM, EACCES, ENOSYS: a sandbox.
    refused_permission,
    /// EINVAL and its kin: memory that is not private and anonymous, or locked.
    refused_unsuitable,
    /// Anything else.
    refused_other,
    /// Fills of missing pages that were put off (EAGAIN, ENOMEM) and made later.
    delayed_fills,
    /// Fills that `UFFDIO_COPY` refused and `UFFDIO_MOVE` did.
    moved_fills,

    // Why: what was used up; together they are `exhausted`.
    /// The cap on extent memory, or the pool, had no room for an extent.
    exhausted_extents,
    /// The cap on registered ranges.
    exhausted_mappings,
    /// The cap on views.
    exhausted_views,
    /// No memory for the books themselves.
    exhausted_books,

    // Why a large copy was not even looked at under the lock.
    /// Copies to or from the running thread's own stack.
    stack_copies,
    /// Copies made while a fork was under way.
    forked_copies,

    // Why nothing (more) is elided; 1 where it holds.
    /// userfaultfd is not permitted.
    off_permission,
    /// The kernel has none, or none with `UFFDIO_MOVE`.
    off_kernel,
    /// No memory or address space for the pool, or no descriptors.
    off_resources,
    /// A limit of memory leaves too little room to begin.
    off_limit,
    /// The monitor thread could not be made.
    off_thread,
    /// The program entered a sandbox, or locked all its memory.
    off_sandbox,
    /// A filter of system calls would end the program for those that it takes.
    off_filter,
    /// Our descriptors were closed, or the kernel stopped taking our calls.
    off_descriptors,

    /// Reads that were answered from a kept file.
    kept_reads,
    /// Bytes that those reads did not read.
    kept_read_bytes,
    /// Parts of kept files that `sendfile` sent to a program within this host from memory.
    kept_sends,
    /// Bytes of these. (Those of them that were not copied are among `tcp_given_on_bytes`.)
    kept_sent_bytes,
    /// Bytes that were read to keep them.
    kept_fill_bytes,
    /// Files kept now.
    kept_files,
    /// Bytes of files kept now.
    kept_bytes,
    /// Leases that were taken on files.
    leases,
    /// Leases that another's opening for writing or truncation ended.
    lease_breaks,
    /// Longest time between hearing of that and giving the lease up, in ns.
    lease_answer_ns_max,

    // Why a file that is read again and again is not kept.
    /// Somebody has it open for writing.
    no_lease_writer,
    /// It is another user's.
    no_lease_owner,
    /// Its file system is none that is known to keep leases, or its mount counts every access.
    no_lease_file_system,
    /// It could not be opened again, or it changed meanwhile, or the kernel refused otherwise.
    no_lease_other,

    // TCP within this host (`--tcp`).
    /// Connections within this host that the program opened or accepted, whatever became of them.
    tcp_begun,
    /// Connections that got a ring each way.
    tcp_connections,
    /// Calls that sent through rings.
    tcp_sends,
    /// Bytes that they sent.
    tcp_sent_bytes,
    /// Calls that received from rings.
    tcp_receives,
    /// Bytes that they received.
    tcp_received_bytes,
    /// Of the bytes sent: copied into blocks that the receiver maps, instead of into the ring.
    tcp_block_bytes,
    /// Of the bytes sent: given on without a copy, from blocks in which they had come from others,
    /// or to which they were copied once, because they are sent again and again.
    tcp_given_on_bytes,
    /// Of the bytes received: taken from such blocks without a copy, as views.
    tcp_viewed_bytes,
    /// Large messages that went by the ring because the receiver would not view them, or is not to
    /// map what this program sends.
    tcp_blocks_unwanted,
    /// The same, because no block was free: the receiver keeps too many, or all are out.
    tcp_blocks_short,
    /// This program gives no blocks and takes none: a filter of system calls does not let pass what
    /// they take, or by which programs look into each other (1 where that is so).
    tcp_blocks_filtered,
    /// The same, because it can gain no rights (NoNewPrivs), as sandboxes can that show nowhere.
    tcp_blocks_no_new_privs,
    /// Blocks that were copied because the call site's data is touched too often.
    tcp_views_refused,
    /// Connections that this program closed with bytes unread in the ring: reset, as Linux does.
    tcp_closed_unread,
    /// Connections whose other program died with bytes unread in the ring: a reset is reported, as
    /// Linux would.
    tcp_died_unread,
    /// Connections whose other program wrote into the ring what no honest one writes: a reset is
    /// reported. Each direction counts.
    tcp_poisoned,

    /// All connections stayed with Linux: a filter of system calls would end the program for what
    /// shared memory takes (1 where that is so).
    tcp_filtered,

    // Why a connection stayed with Linux.
    /// The other end's program is not under uncopy, or took too long to use it.
    tcp_stayed_peer,
    /// It was not connected, or closed, when the service looked.
    tcp_stayed_unconnected,
    /// The service's limit for one program.
    tcp_stayed_limit,
    /// The service had no memory for it, or the program no descriptors.
    tcp_stayed_memory,
    /// No service, and none could be started.
    tcp_stayed_service,
    /// The other end is on another host, or in another network namespace.
    tcp_stayed_remote,
    /// The program uses it as rings are not used.
    tcp_stayed_use,
    /// The other end is another user's, and the service serves each user apart.
    tcp_stayed_user,
    /// The program has set up io_uring: what it does with descriptors there nobody sees.
    tcp_stayed_io_uring,
    /// The program has entered a sandbox.
    tcp_stayed_sandbox,
    /// The program shares it with a forked process, or has handed it to an executed program.
    tcp_stayed_forked,
    /// A filter is attached to it.
    tcp_stayed_filtered,
    /// It was closed, or the program ended, after too few calls for a ring to pay.
    tcp_stayed_short,
    /// It was closed, or the program ended, before the other end was shown.
    tcp_stayed_waiting,
    /// Rings of libuv's for `epoll_ctl` that were refused: libuv makes these calls by itself then,
    /// and its connections can go through rings of ours.
    tcp_io_uring_refused,

    /// Times that the statistics could not be published (1 or more: nobody outside sees them).
    unpublished,
    /// Recordings that could not be begun (no room, no such directory, a limit on the size of
    /// files).
    unrecorded,

    /// Calls that failed because a test said so (`UNCOPY_INJECT`).
    injected,
}

/// Whether the counter of this name says how much there is now, rather than how much there was.
pub fn is_gauge(name: &str) -> bool {
    const GAUGES: &[&str] = &[
        "extents",
        "extent_bytes",
        "views",
        "missing_bytes",
        "pool_free_bytes",
        "pool_held_bytes",
        "registered_ranges",
        "twin_live_bytes",
        "twin_kept_bytes",
        "twin_slack_bytes",
        "twin_touched_bytes",
        "memory_limit_bytes",
        "memory_allowed_bytes",
        "memory_held_bytes",
        "eliding_mb_ns",
        "copying_mb_ns",
        "kept_files",
        "kept_bytes",
        "lease_answer_ns_max",
    ];
    GAUGES.contains(&name) || name.starts_with("off_")
}

/// Adds to a counter.
#[inline]
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
