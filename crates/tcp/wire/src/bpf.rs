//! Four commands of `bpf(2)`: make a map, change it, load a program, attach it to a device.
//!
//! All of them are descriptors, and all ends with them: a service that dies leaves no program at
//! any device.
//!
//! unsafe: a system call that is told addresses. Their lengths are those that the map was made
//! with.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::io;

/// An instruction, as linux/bpf.h has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u8,
    /// Destination in the lower four bits, source in the upper.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

/// Kinds of maps, by their numbers in linux/bpf.h.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Hash = 1,
    Array = 2,
    XskMap = 17,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// As an XDP program, in the driver.
    Driver,
    /// As an XDP program, after the driver, on any device.
    Generic,
    /// To what has arrived, as a classifier: beside others, on any device (tcx, Linux 6.6).
    Ingress,
}

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// XDP.
    Xdp,
    /// A classifier.
    Classifier,
}

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

/// A map: keys of `key` bytes, values of `value` bytes.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes; the callers answer for the addresses among
    // them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes as *const T, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

fn descriptor(number: libc::c_int) -> OwnedFd {
    // SAFETY: `bpf` has just made it, for us.
    unsafe { OwnedFd::from_raw_fd(number) }
}

impl Map {
    /// Makes a map with room for `entries`.
    ///
    /// # Errors
    /// No right (CAP_BPF and CAP_NET_ADMIN), no memory.
    pub fn make(kind: Kind, key: usize, value: usize, entries: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key: u32,
            value: u32,
            entries: u32,
        }
        let attributes =
            Attributes { kind: kind as u32, key: key as u32, value: value as u32, entries };
        Ok(Self { fd: descriptor(bpf(MAP_CREATE, &attributes)?), key, value })
    }

    /// Its number, for instructions.
    pub fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// The map is full (`E2BIG`).
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!((key.len(), value.len()), (self.key, self.value), "as the map was made");
        self.element(MAP_UPDATE_ELEM, key, value.as_ptr())
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        assert_eq!(key.len(), self.key, "as the map was made");
        match self.element(MAP_DELETE_ELEM, key, core::ptr::null()) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn element(&self, command: libc::c_long, key: &[u8], value: *const u8) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let attributes = Attributes {
            map: self.number() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value as u64,
            flags: 0,
        };
        bpf(command, &attributes).map(drop)
    }
}

/// Loads a program.
///
/// # Errors
/// No right; or the kernel's checker refuses it: then the text has what it says.
pub fn load(name: &str, purpose: Purpose, program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        device: u32,
        attach: u32,
    }
    // (The helpers that it calls are open to any licence.)
    let license = c"Dual MIT/GPL";
    let (kind, attach) = match purpose {
        Purpose::Xdp => (PROG_TYPE_XDP, ATTACH_XDP),
        Purpose::Classifier => (PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS),
    };
    let mut attributes = Attributes {
        kind,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        device: 0,
        attach,
    };
    let length = name.len().min(attributes.name.len() - 1);
    attributes.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    let refused = match bpf(PROG_LOAD, &attributes) {
        Ok(number) => return Ok(descriptor(number)),
        Err(e) => e,
    };
    if refused.raw_os_error() == Some(libc::EPERM) {
        return Err(refused);
    }
    // Once more, to hear why.
    let mut log = vec![0_u8; 64 << 10];
    (attributes.log_level, attributes.log_size, attributes.log) =
        (1, log.len() as u32, log.as_mut_ptr() as u64);
    match bpf(PROG_LOAD, &attributes) {
        Ok(number) => Ok(descriptor(number)),
        Err(_) => {
            let text = String::from_utf8_lossy(log.split(|&b| b == 0).next().unwrap_or_default());
            Err(io::Error::new(
                refused.kind(),
                format!("the kernel refuses the program: {refused}\n{text}"),
            ))
        }
    }
}

/// Attaches a program to the device of this index, until the returned descriptor is closed.
///
/// # Errors
/// `EBUSY`: the device has an XDP program already. `EOPNOTSUPP`: its driver takes none. `EINVAL`:
/// the kernel has no such way.
pub fn attach(program: &OwnedFd, device: u32, how: Attach) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        device: u32,
        attach: u32,
        flags: u32,
    }
    let (attach, flags) = match how {
        Attach::Driver => (ATTACH_XDP, FLAGS_DRV_MODE),
        Attach::Generic => (ATTACH_XDP, FLAGS_SKB_MODE),
        Attach::Ingress => (ATTACH_TCX_INGRESS, 0),
    };
    let attributes = Attributes { program: program.as_raw_fd() as u32, device, attach, flags };
    Ok(descriptor(bpf(LINK_CREATE, &attributes)?))
}
