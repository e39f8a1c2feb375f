use std::fmt;

/// Word size and architecture of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Whether addresses are 64 bits wide.
    pub is_64: bool,
    /// Byte order.
    pub big_endian: bool,
    /// The `e_machine` number.
    pub number: u16,
}

const MIPS: u16 = 8;
const X86: u16 = 3;
const PPC: u16 = 20;
const PPC64: u16 = 21;
const S390: u16 = 22;
const ARM: u16 = 40;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const RISCV: u16 = 243;

impl Machine {
    /// The machine that this program was built for.
    pub const OWN: Self = Self {
        is_64: cfg!(target_pointer_width = "64"),
        big_endian: cfg!(target_endian = "big"),
        number: if cfg!(target_arch = "x86_64") {
            X86_64
        } else if cfg!(target_arch = "aarch64") {
            AARCH64
        } else if cfg!(target_arch = "riscv64") {
            RISCV
        } else {
            0
        },
    };
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.is_64 { 64 } else { 32 };
        let name = match self.number {
            X86_64 if self.is_64 => return write!(f, "x86-64"),
            X86_64 => return write!(f, "x32"),
            X86 => return write!(f, "32-bit x86"),
            AARCH64 => return write!(f, "AArch64"),
            ARM => "ARM",
            RISCV => "RISC-V",
            PPC64 | PPC => "PowerPC",
            S390 => "S/390",
            MIPS => "MIPS",
            number => return write!(f, "{bits}-bit machine number {number}"),
        };
        write!(f, "{bits}-bit {name}")
    }
}
