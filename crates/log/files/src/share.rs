//! Descriptions that several processes have: a forked child's, those of what is executed.

use crate::file::{File, State};
use crate::log::Log;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_log_service::PlainReason;
use uncopy_log_share::State as EntryState;

use crate::begin::borrowed;

impl Log {
    /// Before fork.
    pub fn before_fork(&self) {
        if self.begun() {
            self.lock_making();
            self.table.hold();
        }
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(&self) {
        if self.begun() {
            self.table.let_go();
            self.unlock_making();
        }
    }

    /// After fork, in the child: what its parent holds, and may hold later, is not the child's to
    /// write as it is.
    pub fn after_fork_child(&'static self) {
        if !self.begun() {
            return;
        }
        self.no_answers_in_child();
        self.table.let_go();
        // (Its memory stays mapped.)
        self.unlock_making();
        if let Some(session) = self.known_session() {
            // SAFETY: this process has no other thread, and uses nothing of it but the memory.
            unsafe { session.closed_in_child() };
            self.parents.store(core::ptr::from_ref(session).cast_mut(), SeqCst);
        }
        self.no_session();
        let mut made: Vec<(*const File, Arc<File>)> = Vec::new();
        for (fd, file) in self.table.all(0, u32::MAX) {
            let known = made.iter().find(|(of, _)| core::ptr::eq(*of, &*file));
            let child = match known {
                Some((_, child)) => child.clone(),
                None => {
                    let state = match file.state() {
                        State::Never => State::Never,
                        _ => State::Inherited,
                    };
                    let identity = (file.device, file.inode);
                    let fds = file.fds.load(Relaxed);
                    let appends = file.appends.load(Relaxed);
                    let child = Arc::new(File::new(state, identity, appends, fds));
                    made.push((Arc::as_ptr(&file), child.clone()));
                    child
                }
            };
            self.table.put(fd, child);
        }
    }

    /// Before a child is made without fork's handlers: it has our descriptors, and goes on without
    /// us.
    pub fn before_bare_fork(&'static self) {
        self.pauses_answers();
        if self.in_use() && self.is_own() {
            for (fd, _) in self.table.all(0, u32::MAX) {
                self.handed_over(fd);
            }
        }
    }

    /// After that, in the parent.
    pub fn after_bare_fork_parent(&'static self) {
        self.resumes_answers();
    }

    /// In a child that was made without fork's handlers.
    pub fn after_bare_fork_child(&'static self) {
        if self.begun() {
            self.no_answers_in_child();
            self.table.reset();
        }
    }

    /// An inherited file is about to be used: nobody holds it from then on.
    #[cold]
    pub(crate) fn share(&'static self, file: &Arc<File>, fd: RawFd) {
        let shared = self.session().is_some_and(|session| {
            session.ask(|client| client.share(file.device, file.inode)).is_ok()
        });
        if !shared {
            self.hold_no_more();
            self.bring_home_of_parent(file, fd);
        }
        file.alone(|| {
            if file.state() == State::Inherited {
                file.become_(State::Never);
            }
        });
    }

    /// Without a service: what the parent holds comes home by this process.
    fn bring_home_of_parent(&'static self, file: &File, fd: RawFd) {
        // SAFETY: the parent's, which was never freed, and of which memory and entries are shared.
        let Some(session) = (unsafe { self.parents.load(SeqCst).as_ref() }) else { return };
        let held = |slot: &usize| {
            let entry = session.memory.entry(*slot);
            entry.state() == EntryState::Held && entry.identity() == (file.device, file.inode)
        };
        while let Some(slot) = (0..uncopy_log_share::SLOTS).find(held) {
            let entry = session.memory.entry(slot);
            let Ok(claims) = uncopy_log_share::claims::Claims::of(session.memory.file()) else {
                return;
            };
            let what = uncopy_log_share::claims::Claim::Entry(slot);
            if !claims.claim(what) {
                entry.wait(entry.turn(), 20);
                continue;
            }
            let directory = self.settings().map(|settings| settings.directory.as_path());
            // (Bytes of it in the parent's log are struck out by the parent, or by recovery.)
            uncopy_log_service::take_over(
                &session.memory,
                slot,
                borrowed(fd),
                directory,
                false,
                |_| true,
            );
            claims.give_up(what);
            if entry.state() == EntryState::Held {
                return;
            }
        }
    }

    /// Before this process executes something else, or starts it: what that gets of descriptors is
    /// plain for good.
    pub fn before_exec(&'static self) {
        if !self.in_use() {
            return;
        }
        for (fd, _) in self.table.all(0, u32::MAX) {
            // (A child that shares our memory may have closed what this process has.)
            let Ok(flags) = rustix::io::fcntl_getfd(borrowed(fd)) else { continue };
            if flags.contains(rustix::io::FdFlags::CLOEXEC) {
                continue;
            }
            self.handed_over(fd);
        }
    }

    /// `fd` is somebody else's too from now on, who knows nothing of us: it is plain for good.
    pub fn handed_over(&'static self, fd: RawFd) {
        let Some(file) = self.file(fd) else { return };
        self.never(&file, fd, PlainReason::Shared);
        // (So no other process holds it either, whatever becomes of this one.)
        if let Some(session) = self.session() {
            let _ = session.ask(|client| client.share(file.device, file.inode));
        }
    }
}
