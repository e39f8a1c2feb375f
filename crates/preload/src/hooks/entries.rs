//! The way in of calls that come with every request: what concerns nobody goes on to libc's
//! function from here.
//!
//! An entry is a few compares and a jump; all of them lie in one page. For a call of few bytes
//! there is no frame, and no branch that is taken (but for lists, which are summed up in a loop).
//! Calls that its conditions do not settle are judged in Rust, by a function that may be told where
//! the call returns to: that names the call site.
//!
//! The jump leads to libc's function itself once [`go_directly`] has written its address into it. A
//! jump through a pointer, or an entry in a page of its own, is dear after each sleep of the
//! processor, which has then forgotten where such jumps lead: docs/inside/shims.md.
//!
//! unsafe: assembly, because no compiled function knows where it returns to, and none can be held
//! to this shape.

mod patch;

pub use patch::go_directly;

use super::allocate::{
    calloc_ours, free_ours, malloc_ours, posix_memalign_ours, realloc_ours, usable_size,
};
use super::copy::{large, large_end, near_copy, near_copy_end};
use super::descriptors::close_perhaps_ours;
use super::files;
use super::fill::clear_views;
use super::input::{
    pread_for, read_for, readv_for, recv_for, recvfrom_for, recvmsg_for, remembered_large,
};
use super::output::{send_from, sendmsg_from, sendto_from, write_from, writev_from};
use super::own;
use super::rows::{LOOK, with_rows};
use super::waiting::{epoll_pwait_ours, epoll_wait_ours, poll_ours, ppoll_ours};
use crate::process::PROCESS;
use crate::real::{EARLY, EARLY_BYTES, cells, first};
use core::arch::{global_asm, naked_asm};
use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{
    MSG_ZEROCOPY, epoll_event, iovec, msghdr, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};
use uncopy_copies::{Copies, near};
use uncopy_kernel::descriptors::LOWEST;
use uncopy_kernel::user_access;
use uncopy_lend::send::Lending;
use uncopy_process::process::Process;
use uncopy_space::gate;
use uncopy_space::space::{ORIGIN_MIN, Space};
use uncopy_stack::calls::UNUSUAL;
use uncopy_stack::linux::file;
use uncopy_tcp_calls::Tcp;
use uncopy_twin::Blocks;

/// From so many bytes on zeros may take the place of views: the least copy that is elided.
const CLEARED: usize = 16 << 10;

// The section begins and ends at multiples of 2 KB. All entries together have less, and so lie in
// one page (tests/jumps.sh looks).
global_asm!(".pushsection uncopy_entries, 1, \"ax\", @progbits", ".p2align 11", ".popsection");

/// A place in an entry that Rust finds by its name.
macro_rules! place {
    ($kind:literal, $name:ident) => {
        concat!(
            ".globl ",
            $kind,
            stringify!($name),
            "\n",
            ".hidden ",
            $kind,
            stringify!($name),
            "\n",
            $kind,
            stringify!($name),
            ":"
        )
    };
}

/// Defines an entry by its assembly, which is left by a jump to `9`, and by the operands that are
/// its own. Until it goes directly `9` leads through what stands in its cell.
macro_rules! placed {
    (
        $doc:literal, $name:ident $args:tt -> $result:ty, [$($asm:tt)*] [$($operand:tt)*]
    ) => {
        placed! {
            leads by cells, $doc, $name $args -> $result,
            [$($asm)*] [$($operand)* process = sym PROCESS,]
        }
    };
    (
        leads by $cells:ident, $doc:literal, $name:ident $args:tt -> $result:ty,
        [$($asm:tt)*] [$($operand:tt)*]
    ) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "uncopy_entries")]
        pub unsafe extern "C" fn $name $args -> $result {
            naked_asm!(
                ".cfi_startproc",
                place!("uncopy_entry_", $name),
                $($asm)*
                ".cfi_endproc",
                ".pushsection .text.uncopy_exits, \"ax\", @progbits",
                "9:",
                ".cfi_startproc",
                "mov rax, qword ptr [rip + {cell}]",
                "test rax, rax",
                "jz 8f",
                "jmp rax",
                "8:",
                "jmp {first}",
                ".cfi_endproc",
                ".popsection",
                $($operand)*
                cell = sym $cells::$name,
                first = sym first::$name,
            )
        }
    };
}

/// Where the call returns to, in this register.
macro_rules! told {
    ($register:literal) => {
        concat!("mov ", $register, ", qword ptr [rsp]")
    };
}

/// Goes on where no pages are looked after, else to `2`.
macro_rules! unserved {
    () => {
        "cmp byte ptr [rip + {process} + {state}], {serving}\njae 2f"
    };
}

/// Goes on where no connection goes through a ring, else to `2`.
macro_rules! no_rings {
    () => {
        "cmp dword ptr [rip + {process} + {rings}], 0\njne 2f"
    };
}

/// Defines an entry, `name(arguments), if conditions, else body`; `told in` a register where the
/// call returns to. The conditions:
///
/// - `untracked`: nothing is tracked; `unserved`: no pages are looked after;
/// - `no_rings`: no connection goes through a ring;
/// - `small n`: nothing that the twin allocator takes over; `small_product n, each`: the same of
///   their product, which does not overflow;
/// - `no_twin p`, `not_early p`, `not_null p`: of a block;
/// - `few_sent n`: nothing that may go by reference;
/// - `not_cleared byte, n`: no zeros that may take the place of a whole page;
/// - `usual flags, unusual`: none of these flags;
/// - `no_descriptor_of_ours fd`.
macro_rules! entry {
    (
        $doc:literal, $name:ident $args:tt -> $result:ty,
        [if { $($condition:tt)* } else $body:ident $(told in $register:literal)?]
    ) => {
        entry! {
            @ [] [] { $doc $name $args ($result) $body [$(told!($register),)?] }
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
            [$($asm)* unserved!(),]
            [$($operand)* state = const STATE, serving = const gate::SERVING,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt no_rings; $($more:tt)*) => {
        entry! { @
            [$($asm)* no_rings!(),]
            [$($operand)* rings = const RINGS,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt small $n:literal; $($more:tt)*) => {
        // (The word holds the limit with all its bits the other way round, here and below.)
        entry! { @
            [$($asm)* "mov rax, qword ptr [rip + {process} + {from}]", "not rax",
                concat!("cmp ", $n, ", rax"), "jae 2f",]
            [$($operand)* from = const Process::BLOCKS + Blocks::FROM,] $end $($more)* }
    };
    (
        @ [$($asm:tt)*] [$($operand:tt)*] $end:tt
        small_product $n:literal, $each:literal; $($more:tt)*
    ) => {
        entry! { @
            // (`rdx` holds no argument.)
            [$($asm)* concat!("mov rax, ", $n), concat!("mul ", $each), "jo 2f",
                "mov rcx, qword ptr [rip + {process} + {from}]", "not rcx", "cmp rax, rcx",
                "jae 2f",]
            [$($operand)* from = const Process::BLOCKS + Blocks::FROM,] $end $($more)* }
    };
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt no_twin $p:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* concat!("mov rax, ", $p), "sub rax, qword ptr [rip + {process} + {base}]",
                "cmp rax, qword ptr [rip + {process} + {length}]", "jb 2f",]
            [$($operand)* base = const Process::BLOCKS + Blocks::BASE,
                length = const Process::BLOCKS + Blocks::LENGTH,]
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
    (@ [$($asm:tt)*] [$($operand:tt)*] $end:tt few_sent $n:literal; $($more:tt)*) => {
        entry! { @
            [$($asm)* "mov rax, qword ptr [rip + {process} + {lent}]", "not rax",
                concat!("cmp ", $n, ", rax"), "jae 2f",]
            [$($operand)* lent = const LENT,] $end $($more)* }
    };
    (
        @ [$($asm:tt)*] [$($operand:tt)*] $end:tt
        not_cleared $byte:literal, $n:literal; $($more:tt)*
    ) => {
        entry! { @
            [$($asm)* concat!("cmp ", $n, ", {cleared}"), "jb 3f",
                concat!("test ", $byte, ", ", $byte), "jnz 3f", unserved!(), "3:",]
            [$($operand)* cleared = const CLEARED, state = const STATE,
                serving = const gate::SERVING,] $end $($more)* }
    };
    (
        @ [$($asm:tt)*] [$($operand:tt)*] $end:tt
        usual $flags:literal, $unusual:ident; $($more:tt)*
    ) => {
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
        { $doc:literal $name:ident $args:tt ($result:ty) $body:ident [$($told:tt)*] }
    ) => {
        placed! {
            $doc, $name $args -> $result,
            [
                $($asm)*
                place!("uncopy_exit_", $name),
                "jmp 9f",
                "2:",
                $($told)*
                "jmp {body}",
            ]
            [
                $($operand)*
                body = sym $body,
            ]
        }
    };
}

const STATE: usize = offset_of!(Process, space) + Space::STATE;
const INPUT_LIMIT: usize = offset_of!(Process, space) + Space::INPUT;
const RINGS: usize = offset_of!(Process, tcp) + Tcp::IN_USE;
const LENT: usize = offset_of!(Process, lending) + Lending::FROM;

/// Defines the entry of a copy: small ones go on to the real routine, larger ones to `$large`
/// unless nothing is elided, near ones to `$near` where that is faster.
macro_rules! copy_entry {
    ($doc:literal, $name:ident $args:tt -> $result:ty, [$large:ident, $near:ident]) => {
        placed! {
            $doc, $name $args -> $result,
            [
                "cmp rdx, {least}",
                "jae 3f",
                "2:",
                place!("uncopy_exit_", $name),
                "jmp 9f",
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
            ]
            [
                least = const near::LEAST,
                most = const near::MOST,
                look = const LOOK,
                reach = const offset_of!(Process, copies) + Copies::REACH,
                state = const STATE,
                large = sym $large,
                near = sym $near,
            ]
        }
    };
}

/// Defines the entry of an input call, `unless` what it says finds something special. Where it
/// matters what comes ([`Space::tracks_input`]) libc's function is called, and then, if that was
/// much, `remembered_large`; else it is jumped to.
macro_rules! input_entry {
    (
        $doc:literal, $name:ident $args:tt -> $result:ty,
        [unless [$($unless:literal),*], else $body:ident $(told in $register:literal)?]
    ) => {
        placed! {
            $doc, $name $args -> $result,
            [
                $($unless,)*
                unserved!(),
                no_rings!(),
                // (The word holds the limit with all its bits the other way round: more than the
                // limit is what carries.)
                "mov rax, qword ptr [rip + {process} + {input_limit}]",
                "add rax, rdx",
                "jc 5f",
                place!("uncopy_exit_", $name),
                "jmp 9f",
                "5:",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                place!("uncopy_call_", $name),
                "call 9f",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "cmp rax, {much}",
                "jge 6f",
                "ret",
                "6:",
                "mov rdi, rax",
                "jmp {remembered}",
                "2:",
                $(told!($register),)?
                "jmp {body}",
            ]
            [
                state = const STATE,
                serving = const gate::SERVING,
                rings = const RINGS,
                input_limit = const INPUT_LIMIT,
                much = const ORIGIN_MIN,
                remembered = sym remembered_large,
                body = sym $body,
            ]
        }
    };
}

/// Whether the bytes in `r9` are too few to matter: `sent`, nothing goes by reference; `received`,
/// it does not matter what comes.
macro_rules! few {
    (asm sent) => {
        "mov rax, qword ptr [rip + {process} + {limit}]\nnot rax\ncmp r9, rax\njae 2f"
    };
    (asm received) => {
        "mov rax, qword ptr [rip + {process} + {limit}]\nadd rax, r9\njc 2f"
    };
    (word sent) => {
        LENT
    };
    (word received) => {
        INPUT_LIMIT
    };
}

/// Defines the entry of a call with a list of buffers, of which `$at` finds the list (to `r8`) and
/// its length (to `rax`): a short one of few bytes is handed on, where no pages are looked after
/// and no connection goes through a ring. The list is the program's and may be nowhere: see
/// [`goes_on`].
macro_rules! list_entry {
    (
        $doc:literal, $name:ident $args:tt -> $result:ty,
        [unless [$($unless:literal),*], at [$($at:literal),*], $few:tt,
            else $body:ident $(told in $register:literal)?]
    ) => {
        placed! {
            $doc, $name $args -> $result,
            [
                $($unless,)*
                unserved!(),
                no_rings!(),
                "cmp byte ptr [rip + {caught}], {both}",
                "jne 2f",
                "xor r9d, r9d",
                place!("uncopy_list_begins_", $name),
                $($at,)*
                "cmp rax, {together}",
                "ja 2f",
                "test eax, eax",
                "jz 5f",
                "4:",
                "add r9, qword ptr [r8 + {length}]",
                "add r8, {buffer}",
                "dec eax",
                "jnz 4b",
                place!("uncopy_list_ends_", $name),
                "5:",
                few!(asm $few),
                place!("uncopy_exit_", $name),
                "jmp 9f",
                place!("uncopy_list_fails_", $name),
                "2:",
                $(told!($register),)?
                "jmp {body}",
            ]
            [
                state = const STATE,
                serving = const gate::SERVING,
                rings = const RINGS,
                caught = sym user_access::CAUGHT,
                both = const user_access::BOTH,
                together = const TOGETHER,
                length = const offset_of!(iovec, iov_len),
                buffer = const size_of::<iovec>(),
                limit = const few!(word $few),
                body = sym $body,
            ]
        }
    };
}

/// Buffers that are summed up here, at most.
const TOGETHER: usize = 8;

/// Where a fault at `rip` goes on, if it was met in a list of buffers that lies nowhere.
pub fn goes_on(rip: usize) -> Option<usize> {
    let lists = places::lists().zip(places::lists_end()).zip(places::lists_fail());
    let mut lists = lists.map(|((begin, end), fails)| (begin.0..end.0, fails.0));
    lists.find(|(list, _)| list.contains(&rip)).map(|(_, fails)| fails)
}

/// Defines a function that gives the address of a place in each of these entries, and what stands
/// for libc's function.
macro_rules! places {
    ($function:ident of $cells:ident, $kind:literal; $($name:ident)*) => {
        pub fn $function() -> impl Iterator<Item = (usize, &'static AtomicPtr<c_void>)> {
            unsafe extern "C" {
                $(
                    #[link_name = concat!($kind, stringify!($name))]
                    safe static $name: u8;
                )*
            }
            [$( (&raw const $name as usize, &$cells::$name), )*].into_iter()
        }
    };
}

/// Defines all entries, and what is known of their places.
macro_rules! entries {
    (
        plain: $( $doc:literal, $name:ident $args:tt -> $result:ty, $way_in:tt; )*
        inputs: $( $in_doc:literal, $in:ident $in_args:tt -> $in_result:ty, $in_way:tt; )*
        lists: $( $list_doc:literal, $list:ident $list_args:tt -> $list_result:ty, $list_way:tt; )*
        copies: $( $copy_doc:literal, $copy:ident $copy_args:tt -> $copy_result:ty, $copy_way:tt; )*
        of_files: $( $file_doc:literal, $file:ident $file_args:tt -> $file_result:ty; )*
    ) => {
        $( entry! { $doc, $name $args -> $result, $way_in } )*
        $( input_entry! { $in_doc, $in $in_args -> $in_result, $in_way } )*
        $( list_entry! { $list_doc, $list $list_args -> $list_result, $list_way } )*
        $( copy_entry! { $copy_doc, $copy $copy_args -> $copy_result, $copy_way } )*
        $( placed! {
            leads by aims, $file_doc, $file $file_args -> $file_result,
            [place!("uncopy_exit_", $file), "jmp 9f",] []
        } )*

        /// Where calls lead that matter to files of a log alone: with one to `files`, else to what
        /// is behind ours. Null before that is known.
        #[allow(non_upper_case_globals)]
        mod aims {
            use super::{AtomicPtr, c_void};
            $( pub static $file: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut()); )*
        }

        /// Lets those calls lead there. For the constructor, before [`go_directly`].
        pub fn lead_files(to_log: bool) {
            $(
                let ours = files::$file as *const () as *mut c_void;
                let behind = cells::$file.load(Ordering::Relaxed);
                aims::$file.store(if to_log { ours } else { behind }, Ordering::Relaxed);
            )*
        }

        /// Where the entries are, where they are left, and where they call; and where those with
        /// lists read them.
        mod places {
            use super::{AtomicPtr, aims, c_void, cells, own};
            pub fn beginnings() -> impl Iterator<Item = *const u8> {
                [
                    $( own::$name as *const u8, )*
                    $( own::$in as *const u8, )*
                    $( own::$list as *const u8, )*
                    $( own::$copy as *const u8, )*
                    $( own::$file as *const u8, )*
                ]
                .into_iter()
            }
            places!(exits of cells, "uncopy_exit_"; $($name)* $($in)* $($list)* $($copy)*);
            places!(exits_of_files of aims, "uncopy_exit_"; $($file)*);
            places!(calls of cells, "uncopy_call_"; $($in)*);
            places!(lists of cells, "uncopy_list_begins_"; $($list)*);
            places!(lists_end of cells, "uncopy_list_ends_"; $($list)*);
            places!(lists_fail of cells, "uncopy_list_fails_"; $($list)*);
        }
    };
}

with_rows!(entries);

// (These constants stand in the entries as numbers.)
const _: () = assert!(file::READ_MIN == 1 << 16 && UNUSUAL == 0x2021);
const _: () = assert!(
    offset_of!(msghdr, msg_iov) == 16
        && offset_of!(msghdr, msg_iovlen) == 24
        && MSG_ZEROCOPY == 1 << 26
);
