//! `uncopy-bench loss`, `uncopy-bench incast` and `uncopy-bench bulk`: many flows over one link,
//! Linux' TCP and uncopy's on the same link (TAS, 3.3.2 and 3.3.5). The link is
//! `uncopy-tcp-link`'s, in real time: Linux is behind a TAP device, in a network namespace of its
//! own; uncopy's core is in this process.
//!
//! | file | one idea |
//! | --- | --- |
//! | `hosts` | whose TCP, and over what link |
//! | `loss` | what is left of the rate where frames are lost |
//! | `incast` | how evenly flows from several hosts share it |
//! | `bulk` | Linux and uncopy as sender and receiver, in all combinations |

pub mod bulk;
mod hosts;
pub mod incast;
pub mod loss;
