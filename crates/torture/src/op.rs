//! The operations. Each means something whatever came before it: an operation on a buffer that is
//! not there does nothing, ranges are cut to the buffer. So any part of a script is a script.

use crate::{operations, words};

/// Number of a buffer.
pub type Slot = usize;

words! {
    /// How a heap block is had.
    Heap {
        /// `malloc`.
        Malloc = "malloc",
        /// `calloc`.
        Calloc = "calloc",
        /// `posix_memalign` to a page.
        Memalign = "posix_memalign",
    }
    /// The kind of a mapping.
    MapOf {
        /// Private anonymous memory.
        Anonymous = "anonymous",
        /// Shared anonymous memory.
        Shared = "shared",
        /// A private mapping of a file.
        File = "file",
    }
    /// `madvise`.
    Advice {
        /// MADV_DONTNEED.
        DontNeed = "dontneed",
        /// MADV_FREE.
        Free = "free",
        /// MADV_WILLNEED.
        WillNeed = "willneed",
        /// MADV_COLD.
        Cold = "cold",
        /// MADV_PAGEOUT.
        PageOut = "pageout",
        /// MADV_HUGEPAGE.
        HugePage = "hugepage",
        /// MADV_NOHUGEPAGE.
        NoHugePage = "nohugepage",
        /// MADV_COLLAPSE; whether it succeeds is not told.
        Collapse = "collapse",
        /// MADV_WIPEONFORK: children find zeros.
        WipeOnFork = "wipeonfork",
        /// MADV_KEEPONFORK.
        KeepOnFork = "keeponfork",
        /// MADV_DONTFORK: children find nothing.
        DontFork = "dontfork",
        /// MADV_DOFORK.
        DoFork = "dofork",
        /// MADV_MERGEABLE.
        Mergeable = "mergeable",
        /// MADV_UNMERGEABLE.
        Unmergeable = "unmergeable",
        /// MADV_DONTDUMP.
        DontDump = "dontdump",
        /// MADV_DODUMP.
        DoDump = "dodump",
        /// MADV_RANDOM.
        Random = "random",
        /// MADV_NORMAL.
        Normal = "normal",
        /// MADV_POPULATE_READ.
        PopulateRead = "populate_read",
        /// MADV_POPULATE_WRITE.
        PopulateWrite = "populate_write",
        /// MADV_DONTNEED_LOCKED.
        DontNeedLocked = "dontneed_locked",
        /// MADV_GUARD_INSTALL, then MADV_GUARD_REMOVE: zeros are left.
        Guard = "guard",
    }
    /// How memory is locked, for longer than one operation.
    Hold {
        /// `mlock`.
        Now = "now",
        /// `mlock2` with MLOCK_ONFAULT.
        OnFault = "onfault",
        /// `munlock`.
        No = "no",
    }
    /// How pages are given to the kernel by reference, and then not read for a while.
    GiveBy {
        /// `vmsplice` into a pipe.
        Vmsplice = "vmsplice",
        /// `send` with MSG_ZEROCOPY on a TCP connection.
        ZeroCopy = "zerocopy",
    }
    /// The call whose list of pieces, and message header, lie in a buffer.
    ListedBy {
        /// `readv`.
        Readv = "readv",
        /// `preadv`.
        Preadv = "preadv",
        /// `recvmsg`.
        Recvmsg = "recvmsg",
        /// `readv` by inline assembly.
        RawReadv = "raw_readv",
        /// `recvmsg` by inline assembly.
        RawRecvmsg = "raw_recvmsg",
        /// `writev`.
        Writev = "writev",
        /// `sendmsg`.
        Sendmsg = "sendmsg",
        /// `writev` by inline assembly.
        RawWritev = "raw_writev",
    }
    /// A change of the process' rights. Only NO_NEW_PRIVS is set outside of children.
    Rights {
        /// `prctl(PR_SET_NO_NEW_PRIVS)`.
        NoNewPrivs = "no_new_privs",
        /// `capset` to nothing.
        NoCapabilities = "no_capabilities",
        /// `unshare(CLONE_NEWNET)`; the new namespace's loopback is taken up.
        OwnNetwork = "own_network",
        /// `unshare(CLONE_NEWUSER)`.
        OwnUsers = "own_users",
        /// `unshare(CLONE_FILES | CLONE_FS)`.
        OwnFiles = "own_files",
        /// `setns` to the namespaces (network, UTS) that it is in.
        Setns = "setns",
    }
    /// The limits of `setrlimit`: to what is in use and some MB more, or (0) no further.
    Limited {
        /// RLIMIT_AS.
        AddressSpace = "as",
        /// RLIMIT_DATA.
        Data = "data",
    }
    /// Kinds of mutexes.
    Mutex {
        /// Robust.
        Robust = "robust",
        /// Robust, with priority inheritance.
        Inherit = "inherit",
    }
    /// A call that is tried with pages that may not be reached.
    Forbidden {
        /// `pread` into them: EFAULT, or the bytes before them.
        Input = "input",
        /// `pwrite` from them.
        Output = "output",
        /// A touch, for which the program's own SIGSEGV handler permits them again.
        Touch = "touch",
        /// Pages that may be read are read, and written by `pread`: EFAULT.
        ReadOnly = "readonly",
    }
    /// The call of an input.
    InputBy {
        /// `read`.
        Read = "read",
        /// `__read_chk`.
        ReadChk = "read_chk",
        /// `readv`.
        Readv = "readv",
        /// `pread`.
        Pread = "pread",
        /// `__pread_chk`.
        PreadChk = "pread_chk",
        /// `preadv`.
        Preadv = "preadv",
        /// `preadv2`.
        Preadv2 = "preadv2",
        /// `recv`.
        Recv = "recv",
        /// `__recv_chk`.
        RecvChk = "recv_chk",
        /// `recv` with MSG_PEEK, then again without.
        RecvPeek = "recv_peek",
        /// `recv` with MSG_WAITALL.
        RecvAll = "recv_waitall",
        /// `recvfrom`.
        Recvfrom = "recvfrom",
        /// `__recvfrom_chk`.
        RecvfromChk = "recvfrom_chk",
        /// `recvmsg`.
        Recvmsg = "recvmsg",
        /// `recvmmsg`.
        Recvmmsg = "recvmmsg",
        /// `read` by inline assembly.
        RawRead = "raw_read",
        /// `readv` by inline assembly.
        RawReadv = "raw_readv",
    }
    /// The call of an output.
    OutputBy {
        /// `write`.
        Write = "write",
        /// `writev`.
        Writev = "writev",
        /// `pwrite`.
        Pwrite = "pwrite",
        /// `pwritev`.
        Pwritev = "pwritev",
        /// `pwritev2`.
        Pwritev2 = "pwritev2",
        /// `send`.
        Send = "send",
        /// `sendto`.
        Sendto = "sendto",
        /// `sendmsg`.
        Sendmsg = "sendmsg",
        /// `sendmmsg`.
        Sendmmsg = "sendmmsg",
        /// `write` by inline assembly.
        RawWrite = "raw_write",
        /// `vmsplice` into a pipe; the buffer is written to before the pipe is read.
        Vmsplice = "vmsplice",
    }
    /// The channel of an input or an output.
    Via {
        /// A file in memory.
        File = "file",
        /// A file on a disk.
        Disk = "disk",
        /// A pipe that holds all of it.
        Pipe = "pipe",
        /// A stream socket that holds all of it.
        Unix = "unix",
        /// A datagram socket.
        Datagram = "datagram",
        /// A TCP connection, with a thread at its other end: calls wait.
        Tcp = "tcp",
        /// A pipe with a thread at its other end: calls wait.
        SlowPipe = "slow_pipe",
    }
    /// How bytes are copied.
    CopyBy {
        /// `memcpy` (`memmove` where the ranges overlap).
        Memcpy = "memcpy",
        /// `memmove`.
        Memmove = "memmove",
        /// `mempcpy` (`memmove` where the ranges overlap).
        Mempcpy = "mempcpy",
        /// `bcopy`.
        Bcopy = "bcopy",
        /// `__memcpy_chk` (`memmove` where the ranges overlap).
        MemcpyChk = "memcpy_chk",
        /// `__memmove_chk`.
        MemmoveChk = "memmove_chk",
        /// `__mempcpy_chk` (`memmove` where the ranges overlap).
        MempcpyChk = "mempcpy_chk",
        /// Inlined code.
        Inline = "inline",
        /// `process_vm_readv` of the program itself.
        Kernel = "kernel",
    }
    /// How bytes are written.
    WriteBy {
        /// One by one.
        Stores = "stores",
        /// `memset`.
        Memset = "memset",
    }
}

operations! {
    /// The buffer becomes a new heap block (an old one is freed before).
    Alloc = "alloc" { slot: Slot, size: usize, by: Heap, }
    /// `realloc` of a heap block.
    Realloc = "realloc" { slot: Slot, size: usize, }
    /// `free`, or `munmap`.
    Free = "free" { slot: Slot, }
    /// The buffer becomes a new mapping, and begins `skew` bytes into it.
    Map = "map" { slot: Slot, pages: usize, skew: usize, of: MapOf, }
    /// `mremap` to another size, wherever it fits.
    Remap = "remap" { slot: Slot, pages: usize, }
    /// New private anonymous pages over a part of a mapping.
    MapOver = "map_over" { slot: Slot, page: usize, pages: usize, }
    /// `madvise`.
    Advise = "advise" { slot: Slot, page: usize, pages: usize, how: Advice, }
    /// `mprotect`, something that is forbidden then, and `mprotect` back.
    Protect = "protect" { slot: Slot, page: usize, pages: usize, then: Forbidden, }
    /// `mlock`, then `munlock`.
    Lock = "lock" { slot: Slot, page: usize, pages: usize, }
    /// Input of at most `len` bytes where `give` are to be had, with the content that `key` names.
    Input = "input" { slot: Slot, at: usize, len: usize, by: InputBy, via: Via, give: usize, pieces: usize, key: u64, }
    /// Output.
    Output = "output" { slot: Slot, at: usize, len: usize, by: OutputBy, via: Via, pieces: usize, key: u64, }
    /// A copy; `site` is the call site.
    Copy = "copy" { dst: Slot, to: usize, src: Slot, from: usize, len: usize, by: CopyBy, site: usize, }
    /// Bytes written with the content that `key` names.
    Write = "write" { slot: Slot, at: usize, len: usize, by: WriteBy, key: u64, }
    /// A digest of bytes.
    Read = "read" { slot: Slot, at: usize, len: usize, }
    /// `memcmp`.
    Compare = "compare" { one: Slot, at: usize, other: Slot, with: usize, len: usize, }
    /// `mlock` or `munlock` of a few pages, which stay so.
    Hold = "hold" { slot: Slot, page: usize, pages: usize, how: Hold, }
    /// Pages that the kernel gets by reference, and that nobody reads before the buffer is written
    /// to, `take`, or the end. (They may be copied, moved and unmapped meanwhile.)
    Give = "give" { slot: Slot, at: usize, len: usize, by: GiveBy, pieces: usize, key: u64, }
    /// The kernel's references into the buffer are read and compared.
    Take = "take" { slot: Slot, }
    /// Input into or output from `slot` whose list of pieces lies in bytes `within..` of `list`,
    /// which have just been copied there.
    Listed = "listed" { slot: Slot, at: usize, len: usize, list: Slot, within: usize, by: ListedBy, via: Via, pieces: usize, key: u64, }
    /// `clone` without CLONE_VM: the child looks at the bytes, changes them, looks again, and ends.
    Clone = "clone" { slot: Slot, at: usize, len: usize, key: u64, }
    /// Signals are handled on an alternate stack there, which was copied to just before each.
    AltStack = "alt_stack" { slot: Slot, at: usize, times: usize, key: u64, }
    /// A mutex there, the thread that has locked it ends.
    Mutex = "mutex" { slot: Slot, at: usize, kind: Mutex, key: u64, }
    /// The process gives up something.
    Rights = "rights" { how: Rights, }
    /// `setrlimit`.
    Limit = "limit" { what: Limited, more: usize, }
    /// `fork`; the child carries out the lines marked with its number, then digests the buffers
    /// that these use.
    Fork = "fork" { child: usize, }
    /// Waits for a child.
    Wait = "wait" { child: usize, }
}

impl Op {
    /// The buffers that the operation uses.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let (a, b) = match *self {
            Self::Alloc { slot, .. }
            | Self::Realloc { slot, .. }
            | Self::Free { slot }
            | Self::Map { slot, .. }
            | Self::Remap { slot, .. }
            | Self::MapOver { slot, .. }
            | Self::Advise { slot, .. }
            | Self::Protect { slot, .. }
            | Self::Lock { slot, .. }
            | Self::Hold { slot, .. }
            | Self::Give { slot, .. }
            | Self::Take { slot }
            | Self::Clone { slot, .. }
            | Self::AltStack { slot, .. }
            | Self::Mutex { slot, .. }
            | Self::Input { slot, .. }
            | Self::Output { slot, .. }
            | Self::Write { slot, .. }
            | Self::Read { slot, .. } => (Some(slot), None),
            Self::Copy { dst, src, .. } => (Some(dst), Some(src).filter(|s| *s != dst)),
            Self::Listed { slot, list, .. } => (Some(slot), Some(list).filter(|s| *s != slot)),
            Self::Compare { one, other, .. } => (Some(one), Some(other).filter(|s| *s != one)),
            Self::Fork { .. } | Self::Wait { .. } | Self::Rights { .. } | Self::Limit { .. } => {
                (None, None)
            }
        };
        a.into_iter().chain(b)
    }
}
