//! A library to be preloaded: installs the gate before the program begins, and counts what is
//! judged. A program that names `gate_...` weakly finds them. GATE_PENDING: everything is judged
//! from the beginning, of whatever program. GATE_INJECT: rules by which calls of ours fail.
//!
//! unsafe: what C programs call.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::OnceLock;
use uncopy_gate::{Call, Gate, Verdict, install, pending};
use uncopy_inject::Plan;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;

const NUMBERS: usize = 512;
static JUDGED: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// This call is answered by `RESULT`, not made. (`u64::MAX`: none.)
static ANSWERED: AtomicU64 = AtomicU64::new(u64::MAX);
static RESULT: AtomicU64 = AtomicU64::new(0);
/// The judge of this call waits until the word is zero. (`u64::MAX`: none.)
static WAITS: AtomicU64 = AtomicU64::new(u64::MAX);
static WAITING: AtomicU32 = AtomicU32::new(0);
/// Judges read by a pointer that leads nowhere.
static FAULTS: AtomicBool = AtomicBool::new(false);
static GATE: OnceLock<Gate> = OnceLock::new();

fn judge(call: &Call) -> Verdict {
    let number = call.number & 0xffff_ffff;
    if let Some(count) = JUDGED.get(number as usize) {
        count.fetch_add(1, SeqCst);
    }
    spoil();
    if FAULTS.load(SeqCst) {
        // SAFETY: the program's handler goes on behind the instruction, which is two bytes.
        unsafe { core::arch::asm!("mov eax, [rcx]", in("rcx") 8, out("eax") _) };
    }
    if number == FSYNC {
        has_its_stack_alone();
    }
    if number == WAITS.load(SeqCst) {
        WAITING.fetch_add(1, SeqCst);
        while number == WAITS.load(SeqCst) {
            core::hint::spin_loop();
        }
        WAITING.fetch_sub(1, SeqCst);
    }
    if number == ANSWERED.load(SeqCst) {
        return Verdict::Made(RESULT.load(SeqCst) as i64);
    }
    Verdict::GoOn
}

const FSYNC: u64 = 74;
const SCHED_YIELD: usize = 24;

/// The words that this judge has on its stack are its own, while others run.
fn has_its_stack_alone() {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    let mine = TIMES.fetch_add(1, SeqCst);
    let words = core::hint::black_box([mine; 64]);
    // SAFETY: nothing but time passes.
    unsafe { syscall4(SCHED_YIELD, 0, 0, 0, 0) };
    if core::hint::black_box(&words).iter().any(|&it| it != mine) {
        std::process::abort();
    }
}

/// Leaves nothing in the vector registers, and other flags.
fn spoil() {
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has it, and the compiler is told what changes.
        unsafe {
            core::arch::asm!(
                "vpcmpeqd xmm0, xmm0, xmm0", "vinsertf128 ymm0, ymm0, xmm0, 1",
                "vmovaps ymm1, ymm0", "vmovaps ymm7, ymm0", "vmovaps ymm15, ymm0",
                out("xmm0") _, out("xmm1") _, out("xmm7") _, out("xmm15") _,
            );
        }
    }
}

extern "C" fn begin() {
    static INJECTED: AtomicU64 = AtomicU64::new(0);
    if let Ok(rules) = std::env::var("GATE_INJECT") {
        inject::arm(&Plan::parse(&rules).expect("rules"), &INJECTED);
    }
    match install(judge) {
        Ok(gate) => {
            drop(GATE.set(gate));
            let always = std::env::var_os("GATE_PENDING").is_some();
            pending().store(always.into(), SeqCst);
        }
        Err(refusal) => println!("refused: {refusal}"),
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// How many places are led through the gate.
#[unsafe(no_mangle)]
pub extern "C" fn gate_places() -> u64 {
    GATE.get().map_or(0, |it| it.places() as u64)
}

/// Whether a look finds nothing that goes past it; says what else.
#[unsafe(no_mangle)]
pub extern "C" fn gate_look() -> bool {
    let found = GATE.get().expect("installed").look();
    if let Err(refusal) = &found {
        println!("{refusal}");
    }
    found.is_ok()
}

/// The word.
#[unsafe(no_mangle)]
pub extern "C" fn gate_pending(value: u64) {
    pending().store(value, SeqCst);
}

/// How often a call of this number was judged.
#[unsafe(no_mangle)]
pub extern "C" fn gate_judged(number: u64) -> u64 {
    JUDGED[number as usize].load(SeqCst)
}

/// How often any was.
#[unsafe(no_mangle)]
pub extern "C" fn gate_judged_all() -> u64 {
    JUDGED.iter().map(|it| it.load(SeqCst)).sum()
}

/// From now on calls of this number are not made: this is their result.
#[unsafe(no_mangle)]
pub extern "C" fn gate_answer(number: u64, result: u64) {
    RESULT.store(result, SeqCst);
    ANSWERED.store(number, SeqCst);
}

/// From now on the judge of this call waits; until it is told another one.
#[unsafe(no_mangle)]
pub extern "C" fn gate_wait(number: u64) {
    WAITS.store(number, SeqCst);
}

/// Whether judges have faults, which a handler of the program's is to leave by two bytes.
#[unsafe(no_mangle)]
pub extern "C" fn gate_fault(whether: bool) {
    FAULTS.store(whether, SeqCst);
}

/// How many judges wait.
#[unsafe(no_mangle)]
pub extern "C" fn gate_waiting() -> u32 {
    WAITING.load(SeqCst)
}
