//! Whether a program that is started now will find the service of `--tcp`, or start one: what is
//! missing, for `--require`. Without it, connections are Linux's where there is none.

use std::path::Path;

use nix::errno::Errno;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_service::{Options, Rendezvous, Service, tell};

/// The obstacle; `None`: a service answers under this name (without one, this user's or the
/// system's), or one can be started for `library`.
pub fn obstacle(name: Option<&str>, library: &Path) -> Option<Failure> {
    let (error, name) = Rendezvous::of(name).ask(tell).err()?;
    let why = match Errno::from_raw(error.raw_os_error()) {
        Errno::ECONNREFUSED => return none_can_start(name, library),
        Errno::EACCES => "belongs to another user's process".to_owned(),
        Errno::ECONNRESET => "is served for another user".to_owned(),
        Errno::EPROTO => "is served by another version of uncopy".to_owned(),
        Errno::ETIMEDOUT => "does not answer".to_owned(),
        other => format!("cannot be asked ({})", other.desc()),
    };
    Some(failure!("there is no TCP service: its name @{name} {why}"))
}

/// Nobody answers: what keeps a program from starting one.
fn none_can_start(name: String, library: &Path) -> Option<Failure> {
    let candidates = uncopy_tcp_service::commands(library);
    if !candidates
        .iter()
        .any(|file| nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok())
    {
        return Some(failure!(
            "there is no TCP service, and no command to start one: {} cannot be executed",
            candidates[0].display()
        ));
    }
    // (The name is free again at once: nobody was told of it.)
    let bound = Service::bind(Options { name, ..Options::of_this_user() });
    let memory = || {
        let made = uncopy_tcp_shared::region::create().map(drop);
        made.map_err(|e| Failure::new("no shared memory").because(e))
    };
    let why = bound.map(drop).map_err(Failure::new).and_then(|()| memory()).err()?;
    Some(why.within("there is no TCP service, and none can be started"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("uncopy-require-{}-{of}", std::process::id())
    }

    /// A library beside which a command lies.
    fn installed() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/true", directory.path().join("uncopy")).unwrap();
        let library = directory.path().join("libuncopy.so");
        (directory, library)
    }

    #[test]
    fn a_service_that_answers_or_can_be_started_is_no_obstacle() {
        let (_directory, library) = installed();
        let name = name("runs");
        assert_eq!(obstacle(Some(&name), &library), None, "it can be started");
        let options = Options { name: name.clone(), ..Options::of_this_user() };
        let service = Service::bind(options).unwrap();
        let stop = service.stop();
        let runs = std::thread::spawn(move || service.run());
        assert_eq!(obstacle(Some(&name), Path::new("/nowhere/libuncopy.so")), None, "it answers");
        stop.stop();
        runs.join().unwrap().unwrap();
    }

    #[test]
    fn without_the_command_it_is_named() {
        let why = obstacle(Some(&name("nobody")), Path::new("/nowhere/libuncopy.so")).unwrap();
        let why = why.to_string();
        assert!(why.contains("no command to start one: /nowhere/uncopy"), "{why}");
    }

    #[test]
    fn a_name_that_somebody_else_holds_is_named() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
        use std::os::fd::AsRawFd;
        let (_directory, library) = installed();
        let name = name("held");
        // (Of the service's own kind, and nobody listens.)
        let kind = SockType::SeqPacket;
        let holder = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(holder.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
        let why = obstacle(Some(&name), &library).unwrap().to_string();
        assert!(why.contains(&name) && why.contains("none can be started"), "{why}");
    }

    #[test]
    fn a_service_that_does_not_answer_is_named() {
        let (_directory, library) = installed();
        let name = name("mute");
        let _mute =
            Service::bind(Options { name: name.clone(), ..Options::of_this_user() }).unwrap();
        let why = obstacle(Some(&name), &library).unwrap().to_string();
        assert!(why.ends_with(&format!("@{name} does not answer")), "{why}");
    }
}
