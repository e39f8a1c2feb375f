//! A service over a device, without the command around it: `serve DEVICE NAME`.

use std::process::ExitCode;
use std::time::Duration;
use uncopy_tcp_remote::{Options, Remotes, Wait};
use uncopy_tcp_service::{Limits, Service};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let [_, device, name] = &words[..] else {
        eprintln!("usage: serve DEVICE NAME");
        return ExitCode::from(2);
    };
    match serve(device, name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn serve(device: &str, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options { wait: Wait::For(Duration::ZERO), ..Options::over(device, name) };
    let remotes = Remotes::open(&options)?;
    let limits = Limits::default();
    let options = uncopy_tcp_service::Options { name: name.to_owned(), limits, ends_idle: None };
    let service = Service::bind(options)?;
    println!("serves @{name}");
    for remote in remotes.each() {
        println!("by {} on {device} ({} queues)", remote.way().name(), remote.queues());
        match remote.why_no_active_opens() {
            None => println!("and programs that connect"),
            Some(why) => println!("programs that connect stay with Linux: {why}"),
        }
    }
    let service = service.listening(remotes.listening());
    std::thread::spawn(move || service.run());
    Ok(remotes.run(|device, ended| eprintln!("{device}: {ended:?}"))?)
}
