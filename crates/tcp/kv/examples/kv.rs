//! The key-value store as a program. `kv [--sockets] [--threads N] [ADDRESS]`: with --sockets the
//! same program over Linux' calls alone.

use std::net::SocketAddr;
use uncopy_tcp_events::{Context, Listen, Settings};
use uncopy_tcp_kv::{Server, Store};

fn main() -> std::io::Result<()> {
    let mut settings = Settings::default();
    let mut threads = 1;
    let mut address: SocketAddr = "127.0.0.1:11211".parse().expect("an address");
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--sockets" => settings = Settings::sockets(),
            "--threads" => {
                let number = words.next().and_then(|word| word.parse().ok());
                threads =
                    number.ok_or_else(|| std::io::Error::other("--threads wants a number"))?;
            }
            word => address = word.parse().map_err(std::io::Error::other)?,
        }
    }
    let store = Store::default();
    std::thread::scope(|scope| {
        let mut serving = vec![];
        for _ in 0..threads {
            // A context for each thread; they share the port.
            let mut context = Context::new(settings.clone())?;
            let listen = Listen { shared: threads > 1, ..Listen::default() };
            address = context.listen(address, listen)?.1;
            let store = &store;
            serving.push(scope.spawn(move || Server::new(store).serve(&mut context, None)));
        }
        println!("{address}");
        serving.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}
