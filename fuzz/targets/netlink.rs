//! Datagrams of routes and neighbours: none makes the reader panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let _ = uncopy_tcp_routes::messages::read(datagram);
});
