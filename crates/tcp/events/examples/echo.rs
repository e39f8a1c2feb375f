//! An echo server. `echo [--sockets] [ADDRESS]`: with --sockets the same program over Linux' calls
//! alone.

use std::net::SocketAddr;
use uncopy_tcp_events::{Context, Listen, Settings};

fn main() -> std::io::Result<()> {
    let mut settings = Settings::default();
    let mut address: SocketAddr = "127.0.0.1:7777".parse().expect("an address");
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--sockets" => settings = Settings::sockets(),
            word => address = word.parse().map_err(std::io::Error::other)?,
        }
    }
    let mut context = Context::new(settings)?;
    let (_, address) = context.listen(address, Listen::default())?;
    println!("{address}");
    loop {
        for i in 0..context.poll(None)? {
            let connection = context.event(i).connection;
            let Ok(sent) = context.send_bytes_of(i) else {
                context.close(connection);
                continue;
            };
            context.take(i, sent);
            if context.is_over(connection) && context.bytes(i).is_empty() {
                context.close(connection);
            }
        }
    }
}
