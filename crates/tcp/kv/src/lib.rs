//! A key-value store over the low-level API (`uncopy-tcp-events`): get, set and delete in
//! memcached's text protocol. Over rings or over Linux' sockets it is the same program; its
//! settings say which.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`store`] | the pairs, shared by threads |
//! | [`protocol`] | requests and answers as bytes |
//! | [`server`] | from events to answers |
#![forbid(unsafe_code)]

pub mod protocol;
pub mod server;
pub mod store;

pub use server::Server;
pub use store::Store;
