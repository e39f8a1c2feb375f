//! The service that is meant.

use clap::Args;
use uncopy_tcp_service::Rendezvous;

/// Which service.
#[derive(Args, Clone, Debug)]
pub struct Which {
    /// The service's name [default: this user's, else the system's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Which {
    /// Where it is found.
    pub fn rendezvous(&self) -> Rendezvous {
        Rendezvous::of(self.name.as_deref())
    }
}
