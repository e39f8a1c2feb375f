//! The key-value store over both stacks: every byte of its answers.

#![allow(missing_docs)]

mod script;

use std::sync::LazyLock;
use uncopy_tcp_events::{Context, Listen, Settings};
use uncopy_tcp_kv::{Server, Store};
use uncopy_tcp_service::{Limits, Options, Service};

fn serve(settings: Settings) -> std::net::SocketAddr {
    static STORE: LazyLock<Store> = LazyLock::new(Store::default);
    let mut context = Context::new(settings).unwrap();
    let (_, address) = context.listen("127.0.0.1:0".parse().unwrap(), Listen::default()).unwrap();
    std::thread::spawn(move || Server::new(&STORE).serve(&mut context, None));
    address
}

#[test]
fn requests_over_sockets_are_answered_byte_for_byte() {
    let settings = Settings::sockets();
    assert!(!script::run(&settings, serve(settings.clone())));
}

#[test]
fn requests_over_rings_are_answered_byte_for_byte() {
    let name = format!("uncopy-kv-test-{}", std::process::id());
    let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
    let service = Service::bind(options).unwrap();
    let stop = service.stop();
    std::thread::spawn(|| service.run().unwrap());
    let settings = Settings::by_service(name);
    assert!(script::run(&settings, serve(settings.clone())), "they stayed with Linux");
    stop.stop();
}
