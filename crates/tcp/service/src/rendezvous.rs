//! Which service a program uses: the one that it was given by name; else its user's, if that
//! answers; else the system's, if that does; else its user's, which is to be started.

use crate::client;
use rustix::io::Errno;

/// The name of the service of all users, which root starts. (Nobody else's is believed:
/// [`crate::client`].)
pub const OF_SYSTEM: &str = "uncopy-tcp";

/// The name of the service of the user of this number.
pub fn of_user(uid: u32) -> String {
    format!("{OF_SYSTEM}-{uid}")
}

/// See the module. Users are looked up when they are needed: a program may become another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rendezvous {
    /// The service of this name, and no other.
    Named(String),
    /// This user's, or the system's.
    #[default]
    OfUser,
}

impl Rendezvous {
    /// Of a name that may have been given.
    pub fn of(name: Option<&str>) -> Self {
        name.map_or(Self::OfUser, |name| Self::Named(name.to_owned()))
    }

    /// The name of the service that is started where none answers.
    pub fn own(&self) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::OfUser => of_user(rustix::process::geteuid().as_raw()),
        }
    }

    /// Asks by each name, in order, until somebody answers: the answer, and whose it is. Where
    /// nobody does: what came of the first name, which is [`own`](Self::own), or of the system's
    /// where that is there: ends that it serves would not meet those of another one.
    ///
    /// # Errors
    /// See above.
    pub fn ask<T>(
        &self,
        ask: impl Fn(&str) -> Result<T, Errno>,
    ) -> Result<(T, String), (Errno, String)> {
        let own = self.own();
        let error = match ask(&own) {
            Ok(answer) => return Ok((answer, own)),
            // It is there, and many have come before.
            Err(Errno::AGAIN) => return Err((Errno::AGAIN, own)),
            Err(error) => error,
        };
        if *self != Self::OfUser {
            return Err((error, own));
        }
        match ask(OF_SYSTEM) {
            Ok(answer) => Ok((answer, OF_SYSTEM.to_owned())),
            Err(error) if is_there(error) => Err((error, OF_SYSTEM.to_owned())),
            Err(_) => Err((error, own)),
        }
    }

    /// Somebody answers.
    pub fn is_running(&self) -> bool {
        self.ask(client::open).is_ok()
    }

    /// By which name somebody answers; where nobody does, [`own`](Self::own).
    pub fn name(&self) -> String {
        self.ask(client::open).map_or_else(|(_, own)| own, |(_, name)| name)
    }
}

/// Whether an error says that a service is there: it has not taken those that have come already;
/// does not answer in time; has sent this one away.
fn is_there(error: Errno) -> bool {
    matches!(
        error,
        Errno::AGAIN | Errno::TIMEDOUT | Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN
    )
}

/// A service answers under this name.
pub fn is_running(name: &str) -> bool {
    client::open(name).is_ok()
}

impl From<String> for Rendezvous {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<&str> for Rendezvous {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_given_is_asked_alone_then_comes_the_users_then_the_systems() {
        let own = of_user(rustix::process::geteuid().as_raw());
        let runs = |running: &[&str], which: &Rendezvous| {
            let ask = |name: &str| {
                if running.contains(&name) { Ok(()) } else { Err(Errno::CONNREFUSED) }
            };
            which.ask(ask).map(|((), name)| name)
        };
        let all = ["given", &own, OF_SYSTEM];
        let (given, user) = (Rendezvous::of(Some("given")), Rendezvous::of(None));
        assert_eq!(runs(&all, &given), Ok("given".to_owned()));
        assert_eq!(runs(&all[1..], &given), Err((Errno::CONNREFUSED, "given".to_owned())));
        assert_eq!(runs(&all, &user), Ok(own.clone()));
        assert_eq!(runs(&[OF_SYSTEM], &user), Ok(OF_SYSTEM.to_owned()));
        assert_eq!(runs(&["given"], &user), Err((Errno::CONNREFUSED, own.clone())));
        let busy = |name: &str| if name == own { Err(Errno::AGAIN) } else { Ok(()) };
        assert_eq!(user.ask(busy), Err((Errno::AGAIN, own.clone())));
    }

    #[test]
    fn where_the_systems_is_busy_none_is_started() {
        let own = of_user(rustix::process::geteuid().as_raw());
        let where_it_says = |error: Errno| {
            let ask = |name: &str| -> Result<(), Errno> {
                Err(if name == OF_SYSTEM { error } else { Errno::CONNREFUSED })
            };
            Rendezvous::OfUser.ask(ask)
        };
        // (A program that hears that nobody is there starts a service.)
        for busy in [Errno::AGAIN, Errno::TIMEDOUT, Errno::CONNRESET, Errno::PIPE, Errno::NOTCONN] {
            assert_eq!(where_it_says(busy), Err((busy, OF_SYSTEM.to_owned())));
        }
        for nobody in [Errno::CONNREFUSED, Errno::ACCESS, Errno::PROTO] {
            assert_eq!(where_it_says(nobody), Err((Errno::CONNREFUSED, own.clone())));
        }
    }
}
