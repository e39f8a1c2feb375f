//! The gate below libc, through which all calls go.
//!
//! Statics: it is one for a process; what was found where it could not be had.

use std::sync::OnceLock;
use uncopy_gate::{Gate, Judge, Reason, Refusal};
use uncopy_log_book::as_ever::AsEver;

static GATE: OnceLock<Gate> = OnceLock::new();
static FOUND: OnceLock<String> = OnceLock::new();

/// The finding that keeps the gate from having all calls, for people.
#[must_use]
pub fn found() -> Option<&'static str> {
    FOUND.get().map(String::as_str)
}

/// Each call of libc's is judged from now on.
pub(crate) fn install(judge: Judge) -> Result<(), AsEver> {
    let gate = uncopy_gate::install(judge).map_err(reason)?;
    GATE.set(gate).map_err(|_| AsEver::PastUs)
}

/// Why the gate is not to be had, or has not all calls any more.
fn reason(refusal: Refusal) -> AsEver {
    let _ = FOUND.set(refusal.what);
    match refusal.reason {
        Reason::PastUs => AsEver::PastUs,
        Reason::Code => AsEver::Code,
        Reason::Sandbox => AsEver::Sandbox,
    }
}

/// Whether what was loaded since makes its calls by libc.
pub(crate) fn looks_at_code() -> Result<(), AsEver> {
    GATE.get().ok_or(AsEver::PastUs)?.look().map_err(reason)
}
