//! The calls whose way in is assembly, a row each: name, arguments, conditions, and who
//! judges what these do not settle. [`entries`](super::entries) makes the ways in of them,
//! [`own`](super::own) their names within this library.

/// Copies below this many bytes are never looked at.
pub(super) const LOOK: usize = 4096;

/// Hands all rows to a macro, by kind: `"document", name(arguments) -> result, [way in];`, where
/// the way in is the kind's own matter.
macro_rules! with_rows {
    ($then:ident) => { $then! {
    plain:
    "`malloc(3)`.", malloc(n: size_t) -> *mut c_void,
    [if { small "rdi"; unserved; } else malloc_ours];

    "`calloc(3)`.", calloc(n: size_t, each: size_t) -> *mut c_void,
    [if { small_product "rdi", "rsi"; unserved; } else calloc_ours];

    "`realloc(3)`.", realloc(p: *mut c_void, n: size_t) -> *mut c_void,
    [if { not_null "rdi"; no_twin "rdi"; small "rsi"; unserved; } else realloc_ours];

    "`posix_memalign(3)`.", posix_memalign(to: *mut *mut c_void, align: size_t, n: size_t) -> c_int,
    [if { small "rdx"; } else posix_memalign_ours];

    "`malloc_usable_size(3)`.", malloc_usable_size(p: *mut c_void) -> size_t,
    [if { no_twin "rdi"; } else usable_size];

    "`free(3)`: ends the views of the block.", free(p: *mut c_void) -> (),
    [if { no_twin "rdi"; untracked; not_early "rdi"; } else free_ours];

    "`memset(3)`: zeros that fill a page of views take their place.",
    memset(to: *mut c_void, byte: c_int, n: size_t) -> *mut c_void,
    [if { not_cleared "sil", "rdx"; } else clear_views];

    "`write(2)`.", write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t,
    [if { few_sent "rdx"; unserved; no_rings; } else write_from told in "rcx"];

    "`send(2)`.", send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t,
    [if { few_sent "rdx"; usual "ecx", MSG_ZEROCOPY; unserved; no_rings; }
        else send_from told in "r8"];

    "`sendto(2)`. (All six registers are taken: its call sites share an account.)",
    sendto(fd: c_int, buf: *const c_void, n: size_t, flags: c_int, addr: *const sockaddr,
        len: socklen_t) -> ssize_t,
    [if { few_sent "rdx"; usual "ecx", MSG_ZEROCOPY; unserved; no_rings; } else sendto_from];

    "`poll(2)`.", poll(fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int,
    [if { no_rings; } else poll_ours];

    "`ppoll(2)`.",
    ppoll(fds: *mut pollfd, count: c_ulong, timeout: *const timespec,
        mask: *const sigset_t) -> c_int,
    [if { no_rings; } else ppoll_ours];

    "`epoll_wait(2)`.",
    epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int,
    [if { no_rings; } else epoll_wait_ours];

    "`epoll_pwait(2)`.",
    epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int,
    [if { no_rings; } else epoll_pwait_ours];

    "`close(2)`.", close(fd: c_int) -> c_int,
    [if { no_descriptor_of_ours "edi"; no_rings; } else close_perhaps_ours];

    inputs:
    "`read(2)`.", read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t,
    [unless ["cmp rdx, 1 << 16", "jae 2f"], else read_for told in "rcx"];

    "`pread(2)`.", pread(fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t,
    [unless ["cmp rdx, 1 << 16", "jae 2f"], else pread_for told in "r8"];

    "`pread64`: on x86-64 the same.",
    pread64(fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t,
    [unless ["cmp rdx, 1 << 16", "jae 2f"], else pread_for told in "r8"];

    "`recv(2)`.", recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t,
    [unless ["test ecx, 0x2021", "jnz 2f"], else recv_for told in "r8"];

    "`recvfrom(2)`.",
    recvfrom(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int, addr: *mut sockaddr,
        len: *mut socklen_t) -> ssize_t,
    [unless ["test ecx, 0x2021", "jnz 2f"], else recvfrom_for];

    lists:
    "`readv(2)`.", readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t,
    [unless [], at ["mov r8, rsi", "mov eax, edx"], received, else readv_for told in "rcx"];

    "`recvmsg(2)`.", recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t,
    [unless ["test edx, 0x2021", "jnz 2f"],
        at ["mov r8, qword ptr [rsi + 16]", "mov rax, qword ptr [rsi + 24]"], received,
        else recvmsg_for told in "rcx"];

    "`writev(2)`.", writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t,
    [unless [], at ["mov r8, rsi", "mov eax, edx"], sent, else writev_from told in "rcx"];

    "`sendmsg(2)`.", sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t,
    [unless ["test edx, 1 << 26", "jnz 2f"],
        at ["mov r8, qword ptr [rsi + 16]", "mov rax, qword ptr [rsi + 24]"], sent,
        else sendmsg_from told in "rcx"];

    copies:
    "`memcpy(3)`.",
    memcpy(to: *mut c_void, from: *const c_void, n: size_t) -> *mut c_void, [large, near_copy];
    "`memmove(3)`.",
    memmove(to: *mut c_void, from: *const c_void, n: size_t) -> *mut c_void, [large, near_copy];
    "`mempcpy(3)`.",
    mempcpy(to: *mut c_void, from: *const c_void, n: size_t) -> *mut c_void,
    [large_end, near_copy_end];

    of_files:
    "`open(2)`.", open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    "`open64`: on x86-64 the same.",
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    "`openat(2)`.", openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    "`openat64`: on x86-64 the same.",
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    "`creat(2)`.", creat(path: *const c_char, mode: c_uint) -> c_int;
    "`creat64`: on x86-64 the same.", creat64(path: *const c_char, mode: c_uint) -> c_int;
    "`open(2)` that checks its flags.", __open_2(path: *const c_char, flags: c_int) -> c_int;
    "`open64` that checks its flags.", __open64_2(path: *const c_char, flags: c_int) -> c_int;
    "`openat(2)` that checks its flags.",
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    "`openat64` that checks its flags.",
    __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    "`ftruncate(2)`.", ftruncate(fd: c_int, to: off_t) -> c_int;
    "`ftruncate64`: on x86-64 the same.", ftruncate64(fd: c_int, to: off_t) -> c_int;
    "`fallocate(2)`.", fallocate(fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int;
    "`fallocate64`: on x86-64 the same.",
    fallocate64(fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int;
    "`posix_fallocate(3)`.", posix_fallocate(fd: c_int, at: off_t, n: off_t) -> c_int;
    "`posix_fallocate64`: on x86-64 the same.",
    posix_fallocate64(fd: c_int, at: off_t, n: off_t) -> c_int;
    "`sync_file_range(2)`.",
    sync_file_range(fd: c_int, at: off_t, n: off_t, flags: c_uint) -> c_int;
    "`copy_file_range(2)`.",
    copy_file_range(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, n: size_t,
        flags: c_uint) -> ssize_t;
    "`rename(2)`.", rename(old: *const c_char, new: *const c_char) -> c_int;
    "`renameat(2)`.",
    renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int;
    "`renameat2(2)`.",
    renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char,
        flags: c_uint) -> c_int;
    "`fsync(2)`: what is held is durable once it returns.", fsync(fd: c_int) -> c_int;
    "`fdatasync(2)`: as `fsync`.", fdatasync(fd: c_int) -> c_int;
    "`lseek(2)`: a held file's position and end are not the kernel's.",
    lseek(fd: c_int, at: off_t, whence: c_int) -> off_t;
    "`lseek64`: on x86-64 the same.", lseek64(fd: c_int, at: off_t, whence: c_int) -> off_t;
    "`fstat(2)`.", fstat(fd: c_int, to: *mut libc::stat) -> c_int;
    "`fstat64`: on x86-64 the same.", fstat64(fd: c_int, to: *mut libc::stat) -> c_int;
    "`fstatat(2)`: with AT_EMPTY_PATH and no path as `fstat`.",
    fstatat(dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
    "`fstatat64`: on x86-64 the same.",
    fstatat64(dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
    "`statx(2)`: as `fstatat`.",
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint,
        to: *mut libc::statx) -> c_int;
    "`fstat` before glibc 2.33.", __fxstat(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int;
    "`fstat64` before glibc 2.33.",
    __fxstat64(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int;
    "`fstatat` before glibc 2.33.",
    __fxstatat(version: c_int, dir: c_int, path: *const c_char, to: *mut libc::stat,
        flags: c_int) -> c_int;
    "`fstatat64` before glibc 2.33.",
    __fxstatat64(version: c_int, dir: c_int, path: *const c_char, to: *mut libc::stat,
        flags: c_int) -> c_int;
    "`fchmod(2)`: what is held comes home first.", fchmod(fd: c_int, mode: c_uint) -> c_int;
    "`fchown(2)`: what is held comes home first.",
    fchown(fd: c_int, user: libc::uid_t, group: libc::gid_t) -> c_int;
    "`futimens(3)`: what is held comes home first.",
    futimens(fd: c_int, times: *const libc::timespec) -> c_int;
    "`futimes(3)`: what is held comes home first.",
    futimes(fd: c_int, times: *const libc::timeval) -> c_int;
    "`fsetxattr(2)`: what is held comes home first.",
    fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, n: size_t,
        flags: c_int) -> c_int;
    "`fremovexattr(2)`: what is held comes home first.",
    fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    "`utimensat(2)`: what is held comes home first.",
    utimensat(dir: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int;
    "`sync(2)`: all that is held comes home first.", sync() -> ();
    "`syncfs(2)`: as `sync`.", syncfs(fd: c_int) -> c_int;
} };
}
pub(super) use with_rows;
