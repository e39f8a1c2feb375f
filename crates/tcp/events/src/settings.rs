//! Over what a context's connections go, and how it waits.

use uncopy_tcp_service::{Options, Service};
use uncopy_tcp_socket::{Rendezvous, Waiting};

/// The way by which bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Shared memory, where the other end is under uncopy on this host; else Linux. The two ends
    /// are brought together by this service.
    Rings(Rendezvous),
    /// Linux alone, by libc's calls.
    Sockets,
}

/// How a context is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The way by which bytes go.
    pub carrier: Carrier,
    /// How [`Context::poll`](crate::Context::poll) waits.
    pub waiting: Waiting,
    /// Bytes that a connection may have received and not taken. Where there are so many, no more
    /// are received: the other end waits.
    pub window: usize,
    /// A thread of this process serves, where no service answers. Connections go on when this
    /// process has ended; the next one that is begun finds another service, or Linux.
    pub serves: bool,
}

impl Settings {
    /// Over rings, by the service of this name, which runs already.
    pub fn by_service(name: impl Into<Rendezvous>) -> Self {
        Self { carrier: Carrier::Rings(name.into()), serves: false, ..Self::default() }
    }

    /// Settings for Linux' sockets alone.
    pub fn sockets() -> Self {
        Self { carrier: Carrier::Sockets, serves: false, ..Self::default() }
    }
}

impl Default for Settings {
    /// Over rings, by this user's service, or the system's.
    fn default() -> Self {
        Self {
            carrier: Carrier::Rings(Rendezvous::OfUser),
            waiting: Waiting::Adaptive,
            window: 64 << 10,
            serves: true,
        }
    }
}

/// Serves this user until nobody has needed it for a while. Where another one was faster, that one
/// serves.
pub(crate) fn serve() {
    let serve = || {
        if let Ok(service) = Service::bind(Options::of_this_user()) {
            let _ = service.run();
        }
    };
    let _ = std::thread::Builder::new().name("uncopy-tcp".into()).spawn(serve);
}
