//! When a server can be loaded.

use std::net::{Ipv4Addr, TcpStream};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uncopy_measure::{Failure, failure};

use super::supervisor::Supervised;
use super::tree;

/// A server that is not ready by then never is.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The event to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Nothing.
    AtOnce,
    /// One of its processes listens.
    Listening,
    /// This port of 127.0.0.1 accepts connections.
    Port(u16),
}

impl FromStr for Ready {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text.parse() {
            _ if text == "none" => Ok(Self::AtOnce),
            Ok(port) if port > 0 => Ok(Self::Port(port)),
            _ => Err(failure!("'{text}' is neither a port (1..65535) nor none")),
        }
    }
}

impl Ready {
    /// Before a turn: nobody else may answer in the server's place.
    pub fn check_free(self) -> Result<(), Failure> {
        match self {
            Self::Port(port) if accepts(port) => {
                Err(failure!("port {port} is in use already, before the server is started")
                    .advise("end what listens there, or give another port"))
            }
            _ => Ok(()),
        }
    }

    /// Waits for it.
    pub fn wait(self, server: &mut Supervised) -> Result<(), Failure> {
        let since = Instant::now();
        while !self.is_now(server) {
            if server.has_ended() {
                return Ok(());
            }
            if since.elapsed() > TIMEOUT {
                return Err(self.never());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn is_now(self, server: &Supervised) -> bool {
        match self {
            Self::AtOnce => true,
            Self::Listening => tree::listens(&server.processes()),
            Self::Port(port) => accepts(port),
        }
    }

    fn never(self) -> Failure {
        let seconds = TIMEOUT.as_secs();
        match self {
            Self::Port(port) => {
                failure!("nothing accepts connections on 127.0.0.1:{port} after {seconds} s")
                    .advise("check the port that --ready names")
            }
            _ => failure!("no process of it listens on a TCP port after {seconds} s").advise(
                "if it serves otherwise, give --ready none (and let the load wait), and if it ends \
                 by itself, leave --load out",
            ),
        }
    }
}

fn accepts(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_or_none() {
        assert_eq!("none".parse(), Ok(Ready::AtOnce));
        assert_eq!("7777".parse(), Ok(Ready::Port(7777)));
        for bad in ["0", "70000", "soon", ""] {
            assert!(bad.parse::<Ready>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_in_use_is_found_before() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(Ready::Port(port).check_free().is_err());
        assert!(Ready::Listening.check_free().is_ok());
    }
}
