//! The examples in C, built as a user would, over both stacks: every byte of their answers.

#![allow(missing_docs)]

#[path = "../../kv/tests/script/mod.rs"]
mod script;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uncopy_tcp_events::Settings;
use uncopy_tcp_service::server::Stop as StopService;
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::repository;
use uncopy_tests::verdict::Stop;

/// The directory of `libuncopy_tcp`, as `make build` leaves it; `None`: it was not built.
fn library() -> Option<PathBuf> {
    let directory = match std::env::var_os("UNCOPY_TEST_LIBRARY") {
        Some(preloaded) => PathBuf::from(preloaded).parent()?.to_owned(),
        None => repository().join("target/release"),
    };
    if ["libuncopy_tcp.so", "libuncopy_tcp.a"].iter().all(|name| directory.join(name).exists()) {
        return Some(directory);
    }
    let why = format!("no libuncopy_tcp in {}; `make build` makes it", directory.display());
    assert!(std::env::var_os("NO_SKIPS").is_none(), "{why}");
    eprintln!("skipped: {why}");
    None
}

/// The program; `None`: there is no compiler.
fn build(name: &str, link: &[&str]) -> Option<PathBuf> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut hasher = DefaultHasher::new();
    std::fs::read(header.join("uncopy_tcp.h")).unwrap().hash(&mut hasher);
    let include = format!("-I{}", header.display());
    // (The built program is kept; another header makes another program.)
    let of_header = format!("-DOF_HEADER={}", hasher.finish());
    let mut flags = vec!["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];
    flags.extend([&*include, &*of_header]);
    flags.extend(link);
    match compile(name, &[Part::named(&format!("/crates/tcp/c/examples/{name}.c"), name, &flags)]) {
        Ok(directory) => Some(directory.join(name)),
        Err(Stop::Skip(why)) if std::env::var_os("NO_SKIPS").is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(Stop::Skip(why) | Stop::Fail(why)) => panic!("{why}"),
    }
}

fn dynamic(name: &str) -> Option<PathBuf> {
    let directory = library()?;
    let directory = directory.display();
    let (place, run_path) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    build(name, &[&*place, "-luncopy_tcp", &*run_path])
}

/// A program that runs until it is dropped.
struct Running(Child, SocketAddr);

impl Running {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child =
            Command::new(program).args(arguments).arg("0").stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port: u16 = port.trim().parse().unwrap();
        Self(child, ([127, 0, 0, 1], port).into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A service of one test's own.
fn service(test: &str) -> (String, StopService) {
    let name = format!("uncopy-c-test-{}-{test}", std::process::id());
    let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
    let service = Service::bind(options).unwrap();
    let stop = service.stop();
    std::thread::spawn(|| service.run().unwrap());
    (name, stop)
}

fn echo(server: &Running, settings: Settings) -> bool {
    let mut client = script::Client::connect(settings, server.1);
    for round in 0..200usize {
        let bytes: Vec<u8> = (0..round * round).map(|at| (at * 7 + round) as u8).collect();
        client.asks(&bytes, &bytes);
    }
    client.is_by_ring()
}

#[test]
fn the_echo_server_sends_back_every_byte_over_both_stacks() {
    let Some(program) = dynamic("echo") else { return };
    let (name, stop) = service("echo");
    let server = Running::start(&program, &["--service", &name]);
    assert!(echo(&server, Settings::by_service(name)), "it stayed with Linux");
    // A client that knows nothing of rings.
    assert!(!echo(&server, Settings::sockets()));
    assert!(!echo(&Running::start(&program, &["--sockets"]), Settings::sockets()));
    stop.stop();
}

#[test]
fn the_key_value_store_answers_byte_for_byte_over_both_stacks() {
    let Some(program) = dynamic("kv") else { return };
    let (name, stop) = service("kv");
    let server = Running::start(&program, &["--service", &name]);
    assert!(script::run(&Settings::by_service(name), server.1), "it stayed with Linux");
    let server = Running::start(&program, &["--sockets"]);
    assert!(!script::run(&Settings::sockets(), server.1));
    stop.stop();
}

#[test]
fn an_example_can_be_linked_with_the_static_library() {
    let Some(directory) = library() else { return };
    let archive = directory.join("libuncopy_tcp.a");
    // (The built program is kept: but not with an older library.)
    let mut hasher = DefaultHasher::new();
    std::fs::metadata(&archive).unwrap().modified().unwrap().hash(&mut hasher);
    let of_library = format!("-DOF_LIBRARY={}", hasher.finish());
    let archive = archive.display().to_string();
    let Some(program) = build("echo", &[&*archive, &*of_library, "-lm", "-ldl"]) else { return };
    assert!(!echo(&Running::start(&program, &["--sockets"]), Settings::sockets()));
}
