//! The devices of one service. Each has its own connections, threads and stand-ins; programs
//! register their sockets with all of them at once, and a connection that a program opens is of the
//! device by which Linux would send it. Where one fails, the others go on.

use crate::active_opens::{self, freed};
use crate::connection_table::{Command, ConnectionTable, Withdrawn};
use crate::listeners::Listens;
use crate::options::chosen;
use crate::serve::{Failure, Opened, Options, Remote, give_up};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use uncopy_tcp_fast::Service;
use uncopy_tcp_service::diag::DiagSocket;
use uncopy_tcp_service::{Lent, Listening, Owner, Wires};
use uncopy_tcp_trace::Trace;
use uncopy_tcp_trace::chosen::{Chosen, FlowFilter};

/// How long the devices have to report their connections: half of what the asker waits.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// The devices' services; those that have failed are none any more.
type Running = RwLock<Vec<Arc<Service<ConnectionTable>>>>;

/// The devices, opened: connections over them are carried while [`run`](Self::run) runs.
pub struct Remotes {
    all: Vec<Remote>,
    running: Arc<Running>,
    trace: Arc<Trace>,
    names: String,
}

impl Remotes {
    /// Opens all that needs privileges, and gives those up that it needs no more. To be called
    /// before this process has other threads.
    ///
    /// # Errors
    /// Returns what is missing: a device, a right, something of the kernel's.
    pub fn open(options: &Options) -> Result<Self, Failure> {
        let trace = Arc::default();
        let opened = options.devices.iter().map(|device| Opened::of(device, options));
        let opened: Vec<Opened> = opened.collect::<Result<_, _>>()?;
        if let Some(twice) = (1..opened.len())
            .find(|&i| opened[..i].iter().any(|one| one.index() == opened[i].index()))
        {
            return Err(Failure::twice(&options.devices[twice]));
        }
        give_up(options)?;
        let all = opened.into_iter().map(|one| Remote::of(one, options, &trace));
        let all: Vec<Remote> = all.collect::<Result<_, _>>()?;
        let running = all.iter().map(|one| one.service().clone()).collect();
        let names = options.devices.join(",");
        Ok(Self { all, running: Arc::new(RwLock::new(running)), trace, names })
    }

    /// Each device.
    pub fn each(&self) -> impl Iterator<Item = &Remote> {
        self.all.iter()
    }

    /// The part that hears of programs' sockets.
    pub fn listening(&self) -> impl Listening + use<> {
        AllDevices {
            running: self.running.clone(),
            trace: self.trace.clone(),
            names: self.names.clone(),
            tracer: Mutex::default(),
        }
    }

    /// Carries connections until no device is left. `failed` hears of each that has failed, and
    /// why.
    ///
    /// # Errors
    /// No thread is left.
    pub fn run(self, failed: impl Fn(&str, io::Result<()>) + Sync) -> io::Result<()> {
        let Self { all, running, .. } = self;
        std::thread::scope(|scope| {
            for remote in all {
                let (running, failed) = (&running, &failed);
                let name = remote.device().to_owned();
                let own = remote.service().clone();
                std::thread::Builder::new().name("uncopy-device".into()).spawn_scoped(
                    scope,
                    move || {
                        let ended = remote.run();
                        // (With it go its programs' ends: they are reset.)
                        let mut left = running.write().unwrap_or_else(PoisonError::into_inner);
                        left.retain(|other| !Arc::ptr_eq(other, &own));
                        drop((left, own));
                        failed(&name, ended);
                    },
                )?;
            }
            Ok(())
        })
    }
}

/// Hears what programs do, and has each device do its part.
struct AllDevices {
    running: Arc<Running>,
    trace: Arc<Trace>,
    /// The devices' names, for readers of a trace.
    names: String,
    /// The program that has the frames written.
    tracer: Mutex<Option<u64>>,
}

impl AllDevices {
    fn each(&self) -> Vec<Arc<Service<ConnectionTable>>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives all devices a command.
    fn command(&self, command: impl Fn() -> Command) {
        for service in self.each() {
            service.applications().command(command());
            service.ask();
        }
    }
}

impl Listening for AllDevices {
    fn listens(&self, (program, owner): (u64, Owner), at: SocketAddrV4, found: &DiagSocket) {
        let inode = found.inode().into();
        let registered = Listens { at, user: owner.uid(), inode, signs: false };
        let congestion = found.congestion().and_then(chosen);
        self.command(|| Command::Listens((program, owner), registered, congestion));
    }

    fn withdraws(&self, at: SocketAddrV4, answer: Lent) {
        let answer = Arc::new(Withdrawn(answer));
        self.command(|| Command::Withdraw(at, Some(answer.clone())));
    }

    fn gone(&self, program: u64) {
        let _ = self.end_trace(program);
        self.command(|| Command::Gone(program));
    }

    fn trace(
        &self,
        program: u64,
        (address, port): (Option<Ipv4Addr>, Option<u16>),
        file: OwnedFd,
    ) -> Result<(), Errno> {
        let mut holder = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        if holder.is_some() {
            return Err(Errno::BUSY);
        }
        // A lane writes it, and must never wait.
        if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
            return Err(Errno::INVAL);
        }
        let all = address.is_none() && port.is_none();
        let flows = if all { vec![] } else { vec![FlowFilter::of(address, port)] };
        let begun = self.trace.begin(Chosen::new(flows), &self.names, Box::new(File::from(file)));
        begun.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        *holder = Some(program);
        Ok(())
    }

    fn end_trace(&self, program: u64) -> Result<u64, Errno> {
        let mut holder = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        holder.take_if(|holder| *holder == program).ok_or(Errno::INVAL)?;
        let ended = self.trace.end();
        ended.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(self.trace.frames())
    }

    fn wired(&self) -> Wires {
        let (to, reports) = channel();
        self.command(|| Command::ReportAll(to.clone()));
        drop(to);
        let end = Instant::now() + REPORT_TIMEOUT;
        let mut all = Wires::default();
        // (Where one is behind, who looks sees the rest.)
        while let Ok(one) = reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
            all.flows.extend(one.flows);
            all.refused.extend(one.refused);
        }
        all
    }

    fn info(&self, ends: [SocketAddrV4; 2], answer: Lent) {
        let answer = Arc::new(answer);
        self.command(|| Command::ReportOne(ends, answer.clone()));
    }

    fn carries_connects(&self) -> bool {
        self.each().iter().any(|service| service.applications().active_opens().is_some())
    }

    fn connects(&self, program: (u64, Owner), to: SocketAddrV4, socket: Lent, answer: OwnedFd) {
        let each = self.each();
        let had: Vec<_> = each
            .iter()
            .filter_map(|one| Some((one, one.applications().active_opens()?.had(&socket)?)))
            .collect();
        if !had.is_empty() && freed(&socket) {
            for (service, before) in had {
                service.applications().command(Command::Closes(before));
                service.ask();
            }
        }
        let chosen = match &each[..] {
            [only] => Some(only),
            // (Linux says by which it would go.)
            several => active_opens::source(to)
                .and_then(|from| several.iter().find(|one| one.applications().has_address(from))),
        };
        let Some(service) = chosen else { return };
        let taken = service.applications().takes(program, to, socket);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Some(cookie) = taken
            && rustix::net::send(&answer, &[1], flags).is_err()
        {
            // A program that has not waited connects by Linux. (Its segments are sent again.)
            self.closes(program.0, cookie);
        }
    }

    fn closes(&self, program: u64, cookie: u64) {
        for service in self.each() {
            if let Some(active_opens) = service.applications().active_opens() {
                let before = active_opens.before_of(program, cookie);
                service.applications().command(Command::Closes(before));
                service.ask();
            }
        }
    }
}
