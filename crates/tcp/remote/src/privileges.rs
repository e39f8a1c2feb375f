//! The privileges that are given up once all is open. A service over a device keeps: CAP_NET_ADMIN,
//! by which a socket may have another host's name and Linux is asked for neighbours;
//! CAP_NET_BIND_SERVICE, for peers whose port is below 1024; and, where Linux wants it for changing
//! a map, CAP_BPF.

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;

/// The capabilities that a service over a device keeps.
pub const OF_WIRES: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_BIND_SERVICE).union(CapabilitySet::BPF);

/// The capabilities that a service without one keeps.
pub const NONE: CapabilitySet = CapabilitySet::empty();

/// For the rest of this process' life, for all threads that the calling one makes; there must be no
/// others. With `user`, it is that user's from now on. It keeps what it has of `kept`.
///
/// # Errors
/// The kernel's.
pub fn drop_them(user: Option<(u32, u32)>, kept: CapabilitySet) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    let kept = kept & now.permitted;
    if let Some((uid, gid)) = user {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    Ok(())
}
