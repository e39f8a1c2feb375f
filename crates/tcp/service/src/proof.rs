//! The proof that a program has a socket: a set of epoll's that has the socket in it. Only who has
//! a descriptor can add it there.
//!
//! A set does not keep the socket open, as a copy of the descriptor would, also one under way: a
//! close by the program is the last one, whether the service runs or not.
//! Linux tells who has the set which sockets are in it, by their inodes (`/proc/self/fdinfo`), and
//! whose addresses an inode has ([`crate::diag`]).

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::net::{AddressFamily, SocketType};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// So much of what Linux writes down is read. Of one socket it is a tenth of that.
const TEXT: usize = 2048;

/// A set with one socket.
#[derive(Debug)]
pub(crate) struct Proof(OwnedFd);

impl Proof {
    /// That this process has it.
    pub fn of(socket: BorrowedFd) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::empty())?;
        Ok(Self(set))
    }
}

impl AsFd for Proof {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where sets are looked at, one after the other: each gets the same number for that, whose
/// `/proc/self/fdinfo` is open. (Opening it takes longer than all the rest.)
///
/// Each user's thread has its own: the owner of a set can make a thread that asks about it wait.
#[derive(Debug, Default)]
pub(crate) struct Looking(Option<Place>);

#[derive(Debug)]
struct Place {
    number: OwnedFd,
    info: OwnedFd,
    /// Has the number in between; and no set has it.
    nothing: OwnedFd,
    /// The file system of all sockets, as sets name it.
    sockets: u32,
}

impl Looking {
    /// One that works.
    ///
    /// # Errors
    /// Linux does not tell what is in a set: `/proc` is not there. Or no descriptor is left.
    pub fn open() -> Result<Self, Errno> {
        Place::open().map(|place| Self(Some(place)))
    }

    /// This socket is in this set. (No socket: 0.)
    ///
    /// # Errors
    /// EINVAL: that is no set. EMFILE, ENFILE: no descriptor is left.
    pub fn finds(&mut self, inode: u32, set: impl AsFd) -> Result<bool, Errno> {
        let place = match &mut self.0 {
            Some(place) => place,
            none => none.insert(Place::open()?),
        };
        let text = place.read(set)?;
        let found = inode != 0 && files(&text).any(|file| file == (inode.into(), place.sockets));
        if text.len() > TEXT / 2 {
            // (For one that has very many Linux keeps as much memory until this is closed.)
            self.0 = None;
        }
        Ok(found)
    }
}

impl Place {
    fn open() -> Result<Self, Errno> {
        let nothing = eventfd(0, EventfdFlags::CLOEXEC)?;
        let number = rustix::io::fcntl_dupfd_cloexec(&nothing, 0)?;
        let info = format!("/proc/self/fdinfo/{}", number.as_raw_fd());
        let info = rustix::fs::open(info, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        let mut place = Self { number, info, nothing, sockets: 0 };
        let text = place.read(Proof::of(socket.as_fd())?)?;
        let found = files(&text).find(|(found, _)| *found == inode);
        place.sockets = found.ok_or(Errno::NOENT)?.1;
        Ok(place)
    }

    /// Linux' text on a set.
    fn read(&mut self, set: impl AsFd) -> Result<String, Errno> {
        // Of other files something else is written down. (It says ENOENT of sets alone.)
        match epoll::delete(&set, &self.nothing) {
            Err(Errno::NOENT) => {}
            Err(Errno::BADF) => return Err(Errno::BADF),
            _ => return Err(Errno::INVAL),
        }
        let mut text = [0; TEXT];
        rustix::io::dup3(&set, &mut self.number, DupFlags::CLOEXEC)?;
        let length = rustix::io::pread(&self.info, &mut text, 0);
        rustix::io::dup3(&self.nothing, &mut self.number, DupFlags::CLOEXEC)?;
        let text = &text[..length?];
        // (The last line may be a part of one, whose numbers are others then.)
        let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        Ok(String::from_utf8_lossy(&text[..whole]).into_owned())
    }
}

/// `tfd: 5 events: 18 data: abcd  pos:0 ino:149d9 sdev:9`: inode, file system.
fn files(text: &str) -> impl Iterator<Item = (u64, u32)> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let inode = words.find_map(|word| word.strip_prefix("ino:"))?;
        let device = words.find_map(|word| word.strip_prefix("sdev:"))?;
        Some((u64::from_str_radix(inode, 16).ok()?, u32::from_str_radix(device, 16).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn socket() -> (UdpSocket, u32) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino as u32;
        (socket, inode)
    }

    #[test]
    fn lines_of_sets_are_read_and_others_are_none() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t1038\n\
            tfd:        4 events:       18 data:             abcd  pos:0 ino:149d9 sdev:9\n\
            tfd: data: ino:1 sdev:9\n\
            tfd: ino: sdev:9\n\
            utfd: data: ino:1 sdev:9";
        assert_eq!(files(text).collect::<Vec<_>>(), [(0x149d9, 9), (1, 9)]);
    }

    #[test]
    fn a_socket_in_a_set_is_seen_until_it_is_closed_and_is_not_held_open() {
        let mut looking = Looking::default();
        let ((a, of_a), (_b, of_b)) = (socket(), socket());
        let proof = Proof::of(a.as_fd()).unwrap();
        let mut has = |inode| looking.finds(inode, &proof).unwrap();
        assert_eq!([of_a, of_b, 0].map(&mut has), [true, false, false]);
        let at = a.local_addr().unwrap();
        drop(a);
        assert!(!has(of_a));
        let _again = UdpSocket::bind(at).unwrap();
    }

    #[test]
    fn of_a_set_that_has_very_many_no_part_of_a_line_is_taken_for_one() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let sockets: Vec<_> = (0..200).map(|_| socket()).collect();
        for (socket, _) in &sockets {
            let nothing = epoll::EventFlags::empty();
            epoll::add(&set, socket, epoll::EventData::new_u64(0), nothing).unwrap();
        }
        let mut place = Place::open().unwrap();
        let text = place.read(&set).unwrap();
        let known = |inode: u64| sockets.iter().any(|(_, of)| u64::from(*of) == inode);
        assert!(files(&text).count() > 10);
        assert!(files(&text).all(|(inode, device)| device == place.sockets && known(inode)));
    }

    /// A file of another file system may have a socket's number.
    #[test]
    fn a_file_that_is_no_socket_proves_none() {
        let file = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        let proof = Proof::of(file.as_fd()).unwrap();
        let text = Place::open().unwrap().read(&proof).unwrap();
        assert!(files(&text).any(|(found, _)| found == inode));
        assert!(!Looking::default().finds(inode as u32, &proof).unwrap());
    }

    #[test]
    fn a_process_without_a_descriptor_of_a_socket_cannot_prove_it() {
        let (socket, _) = socket();
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        // As any process of the same user may open it.
        let path = rustix::fs::open(path, OFlags::PATH, Mode::empty());
        assert_eq!(Proof::of(path.unwrap().as_fd()).unwrap_err(), Errno::BADF);
    }

    #[test]
    fn a_file_that_is_no_set_proves_nothing() {
        let mut looking = Looking::open().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (socket, inode) = socket();
        let proof = Proof::of(socket.as_fd()).unwrap();
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let path = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        for fd in [event, memory, path, socket.into()] {
            assert!(matches!(looking.finds(inode, fd), Err(Errno::INVAL | Errno::BADF)));
        }
        // (And it looks at others as before.)
        assert_eq!(looking.finds(inode, &proof), Ok(false));
    }
}
