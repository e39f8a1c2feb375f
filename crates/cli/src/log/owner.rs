//! Root recovers a user's log with that user's rights: what a log says is its user's word, and must
//! not reach files that are not the user's.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, lstat};
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgid, setgroups, setuid};
use uncopy_measure::{Failure, failure};

/// Gives up all rights but those of the owner of `directory`. `false`: there is no such directory.
///
/// # Errors
/// It is no directory (nor is what a link leads to taken for it), it is somebody else's and this is
/// not root, or the kernel refuses.
pub fn becomes_owner_of(directory: &Path) -> Result<bool, Failure> {
    let shown = directory.display();
    let stat = match lstat(directory) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(false),
        stat => stat.map_err(|why| failure!("{shown}: cannot look at it").because(why.desc()))?,
    };
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR {
        return Err(failure!("{shown} is not a directory").advise("name the log's own"));
    }
    let (owner, own) = (Uid::from_raw(stat.st_uid), geteuid());
    if owner == own {
        return Ok(true);
    }
    if !own.is_root() {
        return Err(
            failure!("{shown} is user {owner}'s").advise("run this as root, or as that user")
        );
    }
    let refused = |why: Errno| failure!("{shown}: cannot become user {owner}").because(why.desc());
    // (A user whom nobody knows has the directory's group alone.)
    let known = User::from_uid(owner).map_err(refused)?;
    let name = known.as_ref().and_then(|user| std::ffi::CString::new(user.name.as_str()).ok());
    match (known, name) {
        (Some(user), Some(name)) => {
            initgroups(&name, user.gid).and_then(|()| setgid(user.gid)).map_err(refused)?;
        }
        _ => {
            let group = Gid::from_raw(stat.st_gid);
            setgroups(&[group]).and_then(|()| setgid(group)).map_err(refused)?;
        }
    }
    setuid(owner).map_err(refused)?;
    Ok(true)
}
