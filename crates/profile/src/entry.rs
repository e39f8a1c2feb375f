//! Entry points that hand on where the call returns to, and the functions behind them.
//!
//! unsafe: assembly, because nothing else knows a function's return address; calls through pointers
//! that `dlsym` returned, with all six argument registers, whatever of them the function takes.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use uncopy_kernel::imports;

/// The arguments of a call, as far as they are in registers.
pub type Arguments = [usize; 6];

/// A function behind ours.
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

extern "C" fn missing() -> isize {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

impl Real {
    /// The one called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Looks it up.
    #[cold]
    pub fn find(&self) -> *mut c_void {
        imports::bind();
        // SAFETY: a plain lookup.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            found = missing as *const () as *mut c_void;
        }
        self.at.store(found, Relaxed);
        found
    }

    /// Whether it has been found.
    pub fn found(&self) -> bool {
        !self.at.load(Relaxed).is_null()
    }

    /// Calls it.
    ///
    /// # Safety
    /// The caller keeps the contract of the man page. The function takes no more than six integers
    /// or pointers.
    pub unsafe fn call(&self, [a, b, c, d, e, f]: Arguments) -> isize {
        let mut real = self.at.load(Relaxed);
        if real.is_null() {
            real = self.find();
        }
        // SAFETY: the caller's promise; what a function does not take it does not look at.
        unsafe {
            let real: unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize =
                core::mem::transmute(real);
            real(a, b, c, d, e, f)
        }
    }
}

/// Defines interposed functions: `name(arguments, caller, real) body`. The body makes the call
/// itself, as `real.call(arguments)`. `find()` looks all of them up.
#[macro_export]
macro_rules! interposed {
    ($( $(#[doc = $doc:literal])* $name:ident($args:pat, $caller:pat, $real:ident) $body:block )*) => {
        $(
            /// See the function of this name.
            pub mod $name {
                #[allow(unused_imports)]
                use super::*;
                use $crate::entry::Real;

                /// The function behind ours.
                pub static REAL: Real = Real::new(const {
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!(),
                    }
                });

                $(#[doc = $doc])*
                /// Puts the return address behind the arguments.
                ///
                /// # Safety
                /// The caller keeps the contract of the man page.
                #[unsafe(naked)]
                #[unsafe(export_name = stringify!($name))]
                pub unsafe extern "C" fn entry() {
                    core::arch::naked_asm!(
                        ".cfi_startproc",
                        "push qword ptr [rsp]",
                        ".cfi_adjust_cfa_offset 8",
                        "call {hook}",
                        "add rsp, 8",
                        ".cfi_adjust_cfa_offset -8",
                        "ret",
                        ".cfi_endproc",
                        hook = sym hook,
                    )
                }

                #[allow(clippy::too_many_arguments)]
                unsafe extern "C" fn hook(
                    a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, caller: usize,
                ) -> isize {
                    let ($args, $caller, $real) = ([a, b, c, d, e, f], caller, &REAL);
                    // SAFETY: the program's own call.
                    unsafe { $body }
                }
            }
        )*

        /// Looks all of them up.
        pub fn find() {
            $( $name::REAL.find(); )*
        }
    };
}
