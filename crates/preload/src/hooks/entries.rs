//! The way in of calls that come with every request: what concerns nobody goes on to libc's function from here.
//!
//! An entry is a few compares and a jump, with no frame and no branch that is taken; all of them lie in one page. What its conditions do not settle is judged in
//! Rust, by a function that is told, where a register is left for that, where the call returns to: that names the call site.
//!
//! The jump leads to libc's function itself once [`go_directly`] has written its address into it. A jump through a pointer, or an entry in a page of its own, is dear
//! after each sleep of the processor, which has then forgotten where such jumps lead: docs/inside/shims.md.
//!
//! unsafe: assembly, because no compiled function knows where it returns to, and none can be held to this shape; and code that is written.

use super::allocate::{
    calloc_ours, free_ours, malloc_ours, posix_memalign_ours, realloc_ours, usable_size,
};
use super::copy::{large, large_end, near_copy, near_copy_end};
use super::descriptors::close_perhaps_ours;
use super::input::{UNUSUAL, pread_for, read_for, recv_for, recvfrom_for};
use super::output::{send_from, sendto_from, write_from};
use super::waiting::{epoll_pwait_ours, epoll_wait_ours, poll_ours, ppoll_ours};
use crate::process::PROCESS;
use crate::real::{EARLY, EARLY_BYTES, cells, first};
use core::arch::{global_asm, naked_asm};
use core::ffi::{c_int, c_ulong, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{
    MSG_ZEROCOPY, epoll_event, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use uncopy_copies::{Copies, near};
use uncopy_kernel::descriptors::LOWEST;
use uncopy_lend::send::Lending;
use uncopy_process::process::Process;
use uncopy_ranges::span::PAGE;
use uncopy_space::gate;
use uncopy_space::space::Space;
use uncopy_stack::linux::file;
use uncopy_tcp_calls::Tcp;
use uncopy_twin::Blocks;

/// Copies below this many bytes are never looked at.
pub(super) const LOOK: usize = 4096;

// All entries have less than 2 KB, and so lie in one page: they begin at a multiple of that, because what comes behind them does.
global_asm!(".pushsection uncopy_entries, 1, \"ax\", @progbits", ".p2align 11", ".popsection");

/// Defines an entry, `name(arguments), if conditions, else body`; `told in` a register where the call returns to. The conditions:
///
/// - `untracked`: nothing is tracked; `unserved`: no pages are looked after;
/// - `no_rings`: no connection goes through a ring;
/// - `small n`: nothing that the twin allocator takes over; `small_product n, each`;
/// - `no_twin p`, `not_early p`, `not_null p`: of a block;
/// - `few_received n`: it does not matter what comes ([`Space::heeds_input`]), nor is it answered from a kept file;
/// - `few_sent n`: nothing that may go by reference;
/// - `usual flags, unusual`: none of these flags;
/// - `no_descriptor_of_ours fd`.
macro_rules! entry {
    (
        $doc:literal, $name:ident($($arg:ident: $type:ty),*) -> $result:ty,
        if { $($condition:tt)* } else $body:ident $(told in $register:literal)?
    ) => {
        entry! {
            @ [] [] { $doc $name($($arg: $type),*) ($result) $body
                [$(concat!("mov ", $register, ", qword ptr [rsp]"),)?] }
            $($condition)*
        }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt untracked; $($more:tt)*) => {
        entry! { @
            [$($asm)* "cmp byte ptr [rip + {process} + {state}], {inherited}", "jae 2f",]
            [$($operand)* state = const STATE, inherited = const gate::INHERITED,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt unserved; $($more:tt)*) => {
        entry! { @
            [$($asm)* "cmp byte ptr [rip + {process} + {state}], {serving}", "jae 2f",]
            [$($operand)* state = const STATE, serving = const gate::SERVING,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt no_rings; $($more:tt)*) => {
        entry! { @
            [$($asm)* "cmp dword ptr [rip + {process} + {rings}], 0", "jne 2f",]
            [$($operand)* rings = const offset_of!(Process, tcp) + Tcp::IN_USE,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt small $n:literal; $($more:tt)*) => {
        // (All bits of the limit are the other way round, here and below.)
        entry! { @
            [$($asm)* "mov rax, qword ptr [rip + {process} + {from}]", "not rax",
                concat!("cmp ", $n, ", rax"), "jae 2f",]
            [$($operand)* from = const Process::BLOCKS + Blocks::FROM,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt small_product $n:literal, $each:literal; $($more:tt)*) => {
        entry! { @
            // (`rdx` holds no argument.)
            [$($asm)* concat!("mov rax, ", $n), concat!("mul ", $each), "jo 2f",
                "mov rcx, qword ptr [rip + {process} + {from}]", "not rcx", "cmp rax, rcx", "jae 2f",]
            [$($operand)* from = const Process::BLOCKS + Blocks::FROM,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt no_twin $p:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("mov rax, ", $p), "sub rax, qword ptr [rip + {process} + {base}]",
                "cmp rax, qword ptr [rip + {process} + {length}]", "jb 2f",]
            [$($operand)* base = const Process::BLOCKS + Blocks::BASE, length = const Process::BLOCKS + Blocks::LENGTH,]
            $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt not_early $p:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* "lea rax, [rip + {early}]", concat!("mov rcx, ", $p), "sub rcx, rax",
                "cmp rcx, {early_bytes}", "jb 2f",]
            [$($operand)* early = sym EARLY, early_bytes = const EARLY_BYTES,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt not_null $p:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("test ", $p, ", ", $p), "jz 2f",] [$($operand)*] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt few_received $n:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("cmp ", $n, ", {kept}"), "jae 2f",
                "mov rax, qword ptr [rip + {process} + {heeded}]", concat!("add rax, ", $n), "jc 2f",]
            [$($operand)* kept = const file::READ_MIN, heeded = const offset_of!(Process, space) + Space::INPUT,]
            $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt few_sent $n:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* "mov rax, qword ptr [rip + {process} + {lent}]", "not rax",
                concat!("cmp ", $n, ", rax"), "jae 2f",]
            [$($operand)* lent = const offset_of!(Process, lending) + Lending::FROM,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt usual $flags:literal, $unusual:ident; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("test ", $flags, ", {unusual}"), "jnz 2f",]
            [$($operand)* unusual = const $unusual,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt no_descriptor_of_ours $fd:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("cmp ", $fd, ", dword ptr [rip + {lowest}]"), "jge 2f",]
            [$($operand)* lowest = sym LOWEST,] $end $($more)* }
    };
    (
        @ [$($asm:tt)*] [$($operand:tt)*]
        { $doc:literal $name:ident($($arg:ident: $type:ty),*) ($result:ty) $body:ident [$($told:tt)*] }
    ) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As its man page says.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "uncopy_entries")]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            naked_asm!(
                $($asm)*
                concat!(".globl uncopy_exit_", stringify!($name)),
                concat!(".hidden uncopy_exit_", stringify!($name)),
                concat!("uncopy_exit_", stringify!($name), ":"),
                "jmp 3f",
                "2:",
                $($told)*
                "jmp {body}",
                // Until it goes directly.
                ".pushsection .text.uncopy_exits, \"ax\", @progbits",
                "3:",
                "mov rax, qword ptr [rip + {cell}]",
                "test rax, rax",
                "jz 4f",
                "jmp rax",
                "4:",
                "jmp {first}",
                ".popsection",
                $($operand)*
                process = sym PROCESS,
                cell = sym cells::$name,
                first = sym first::$name,
                body = sym $body,
            )
        }
    };
}

const STATE: usize = offset_of!(Process, space) + Space::STATE;

/// Defines the entry of a copy: small ones go on to the real routine, larger ones to `$large` unless
/// nothing is elided, near ones to `$near` where that is faster.
macro_rules! copy_entry {
    ($name:ident, $large:ident, $near:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As its man page says.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "uncopy_entries")]
        pub unsafe extern "C" fn $name(
            dst: *mut c_void,
            src: *const c_void,
            n: usize,
        ) -> *mut c_void {
            naked_asm!(
                "cmp rdx, {least}",
                "jae 3f",
                "2:",
                concat!(".globl uncopy_exit_", stringify!($name)),
                concat!(".hidden uncopy_exit_", stringify!($name)),
                concat!("uncopy_exit_", stringify!($name), ":"),
                "jmp 4f",
                // (See `uncopy_copies::near::is_near`.)
                "3:",
                "mov eax, edi",
                "sub eax, esi",
                "dec eax",
                "and eax, 4095",
                "cmp eax, dword ptr [rip + {process} + {reach}]",
                "jb 6f",
                "5:",
                "cmp rdx, {look}",
                "jb 2b",
                "cmp byte ptr [rip + {process} + {state}], 0",
                "je 2b",
                "7:",
                "mov rcx, qword ptr [rsp]",
                "jmp {large}",
                "6:",
                "cmp rdx, {most}",
                "ja 5b",
                "cmp rdx, {look}",
                "jb {near}",
                "cmp byte ptr [rip + {process} + {state}], 0",
                "jne 7b",
                "jmp {near}",
                ".pushsection .text.uncopy_exits, \"ax\", @progbits",
                "4:",
                "mov rax, qword ptr [rip + {cell}]",
                "test rax, rax",
                "jz 8f",
                "jmp rax",
                "8:",
                "jmp {first}",
                ".popsection",
                least = const near::LEAST,
                most = const near::MOST,
                look = const LOOK,
                reach = const offset_of!(Process, copies) + Copies::REACH,
                cell = sym cells::$name,
                first = sym first::$name,
                process = sym PROCESS,
                state = const STATE,
                large = sym $large,
                near = sym $near,
            )
        }
    };
}

/// Another name of [`pread`], on x86-64.
///
/// # Safety
/// As for [`pread`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = "uncopy_entries")]
pub unsafe extern "C" fn pread64(fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t {
    naked_asm!("jmp {pread}", pread = sym pread)
}

/// Defines all entries, and [`exits`].
macro_rules! entries {
    (
        $( $doc:literal, $name:ident($($arg:ident: $type:ty),*) -> $result:ty,
            if { $($condition:tt)* } else $body:ident $(told in $register:literal)?; )*
        copies: $( $copy_doc:literal, $copy:ident, $large:ident, $near:ident; )*
    ) => {
        $( entry! {
            $doc, $name($($arg: $type),*) -> $result,
            if { $($condition)* } else $body $(told in $register)?
        } )*
        $( copy_entry!($copy, $large, $near, $copy_doc); )*

        mod labels {
            unsafe extern "C" {
                $(
                    #[link_name = concat!("uncopy_exit_", stringify!($name))]
                    pub(super) safe static $name: [u8; super::JUMP];
                )*
                $(
                    #[link_name = concat!("uncopy_exit_", stringify!($copy))]
                    pub(super) safe static $copy: [u8; super::JUMP];
                )*
            }
        }

        /// Where each entry is left, and what for.
        fn exits() -> impl Iterator<Item = (usize, &'static AtomicPtr<c_void>)> {
            [
                $( (&raw const labels::$name as usize, &cells::$name), )*
                $( (&raw const labels::$copy as usize, &cells::$copy), )*
            ]
            .into_iter()
        }
    };
}

entries! {
    "`malloc(3)`.", malloc(n: size_t) -> *mut c_void,
        if { small "rdi"; unserved; } else malloc_ours;
        "`calloc(3)`.", calloc(n: size_t, each: size_t) -> *mut c_void,
        if { small_product "rdi", "rsi"; unserved; } else calloc_ours;
        "`realloc(3)`.", realloc(p: *mut c_void, n: size_t) -> *mut c_void,
        if { not_null "rdi"; no_twin "rdi"; small "rsi"; unserved; } else realloc_ours;
        "`posix_memalign(3)`.", posix_memalign(to: *mut *mut c_void, align: size_t, n: size_t) -> c_int,
        if { small "rdx"; } else posix_memalign_ours;
        "`malloc_usable_size(3)`.", malloc_usable_size(p: *mut c_void) -> size_t,
        if { no_twin "rdi"; } else usable_size;
        "`free(3)`: ends the views of the block.", free(p: *mut c_void) -> (),
        if { no_twin "rdi"; untracked; not_early "rdi"; } else free_ours;

        "`read(2)`.", read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t,
        if { few_received "rdx"; unserved; no_rings; } else read_for told in "rcx";
        "`pread(2)`.", pread(fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t,
        if { few_received "rdx"; unserved; no_rings; } else pread_for told in "r8";
        "`recv(2)`.", recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t,
        if { few_received "rdx"; usual "ecx", UNUSUAL; unserved; no_rings; } else recv_for;
        "`recvfrom(2)`.",
        recvfrom(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> ssize_t,
        if { few_received "rdx"; usual "ecx", UNUSUAL; unserved; no_rings; } else recvfrom_for;
        "`write(2)`.", write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t,
        if { few_sent "rdx"; unserved; no_rings; } else write_from told in "rcx";
        "`send(2)`.", send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t,
        if { few_sent "rdx"; usual "ecx", MSG_ZEROCOPY; unserved; no_rings; } else send_from told in "r8";
        "`sendto(2)`. (All six registers are taken: its call sites share an account.)",
        sendto(fd: c_int, buf: *const c_void, n: size_t, flags: c_int, addr: *const sockaddr, len: socklen_t) -> ssize_t,
        if { few_sent "rdx"; usual "ecx", MSG_ZEROCOPY; unserved; no_rings; } else sendto_from;

        "`poll(2)`.", poll(fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int,
        if { no_rings; } else poll_ours;
        "`ppoll(2)`.",
        ppoll(fds: *mut pollfd, count: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int,
        if { no_rings; } else ppoll_ours;
        "`epoll_wait(2)`.",
        epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int,
        if { no_rings; } else epoll_wait_ours;
        "`epoll_pwait(2)`.",
        epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int,
        if { no_rings; } else epoll_pwait_ours;
        "`close(2)`.", close(fd: c_int) -> c_int,
        if { no_descriptor_of_ours "edi"; no_rings; } else close_perhaps_ours;

    copies:
    "`memcpy(3)`.", memcpy, large, near_copy;
    "`memmove(3)`.", memmove, large, near_copy;
    "`mempcpy(3)`.", mempcpy, large_end, near_copy_end;
}

/// Bytes of a jump to an address within 2 GB, the first of which is [`JMP`].
const JUMP: usize = 5;
const JMP: u8 = 0xe9;

/// Lets every entry jump to libc's function itself. For the constructor, which is the first to run, so that there is no second thread.
///
/// The code is written while it cannot be executed, and is then put in place at once. Where that is not allowed (a policy against code that is made at run time) all stays
/// as it was, and costs what a jump through a pointer does.
pub fn go_directly() {
    let begin = exits().map(|(at, _)| at).min().unwrap_or(0) & !(PAGE - 1);
    let end = exits().map(|(at, _)| at + JUMP).max().unwrap_or(0).next_multiple_of(PAGE);
    let bytes = end - begin;
    // SAFETY: new memory, which takes the place of the same code but for the jumps; what was there is the library's own.
    unsafe {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let Ok(copy) = rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, flags.0, flags.1)
        else {
            return;
        };
        core::ptr::copy_nonoverlapping(begin as *const u8, copy.cast::<u8>(), bytes);
        let code = core::slice::from_raw_parts_mut(copy.cast::<u8>(), bytes);
        exits().for_each(|(at, cell)| aim(&mut code[at - begin..][..JUMP], at, cell));
        let executable = MprotectFlags::READ | MprotectFlags::EXEC;
        let done = rustix::mm::mprotect(copy, bytes, executable).is_ok()
            && rustix::mm::mremap_fixed(
                copy,
                bytes,
                bytes,
                MremapFlags::MAYMOVE,
                begin as *mut c_void,
            )
            .is_ok();
        if !done {
            _ = rustix::mm::munmap(copy, bytes);
        }
    }
}

/// Lets the jump in `code`, which is for `at`, lead to what stands in `cell`, if it is near enough.
fn aim(code: &mut [u8], at: usize, cell: &AtomicPtr<c_void>) {
    let to = cell.load(Ordering::Relaxed) as usize;
    let distance = to.wrapping_sub(at + JUMP) as isize;
    if to != 0
        && code[0] == JMP
        && let Ok(distance) = i32::try_from(distance)
    {
        code[1..].copy_from_slice(&distance.to_le_bytes());
    }
}
