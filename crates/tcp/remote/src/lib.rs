//! Connections of unmodified programs to other hosts: the protocol is ours (`tcp/fast`), the wire
//! is a device's queues, and the program has a socket of Linux'.
//!
//! Of each connection that has come by the wire the service is the program's peer: it connects to
//! the program's listener by the loopback device, *from the peer's address and port*. So the
//! program accepts a TCP socket as any other, with the peer's name. The service registers its end
//! as any program does, and the bytes go through rings; between the rings and the wire they are
//! copied here.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`stand_in`] | a socket with a peer's name, connected to a listener of this host |
//! | [`bridge`] | one connection: between the wire's buffers and the stand-in |
//! | [`inward`] | what has come by the wire and did not go to the program yet |
//! | [`outward`] | what goes to the wire and lies in no program's ring |
//! | [`circle`] | places in such buffers |
//! | [`spare`] | the bytes that such buffers may have beside what each has by right |
//! | [`limit`] | how many bytes may be on the way to a peer |
//! | [`programs`] | the service's programs as the protocol's applications, with their limits |
//! | [`listeners`] | who listens, and whether that one still does |
//! | [`owner_lookup`] | the owner of the listener that a stand-in finds |
//! | [`active_opens`] | programs' sockets that connect, until they are connected |
//! | [`detour`] | where their segments go until then |
//! | [`packets`] | what these say |
//! | `opening` | such a connection, on the slow path |
//! | [`parts`] | what one user may have of them |
//! | [`options`] | options of sockets that rustix does not know |
//! | `report` | what is reported of connections, for `uncopy tcp flows` and TCP_INFO |
//! | [`connection_table`] | all connections, as the service's threads see them |
//! | [`privileges`] | what is given up once all is open |
//! | [`serve`] | a device: opened, and run |
//! | [`multi_device`] | the devices of a service, several of them |

pub mod active_opens;
pub mod bridge;
pub mod circle;
pub mod connection_table;
pub mod detour;
pub mod inward;
pub mod limit;
pub mod listeners;
pub mod multi_device;
mod opening;
pub mod options;
pub mod outward;
pub mod owner_lookup;
pub mod packets;
pub mod parts;
pub mod privileges;
pub mod programs;
mod report;
pub mod serve;
pub mod spare;
pub mod stand_in;

pub use multi_device::Remotes;
pub use serve::{Options, Remote};
pub use uncopy_tcp_fast::Wait;
pub use uncopy_tcp_proto::{Algorithm, Limits};
pub use uncopy_tcp_wire::over::Access;
