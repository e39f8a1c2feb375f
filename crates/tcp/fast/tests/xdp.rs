//! The same over the queues of a veth device by AF_XDP, in a namespace whose address Linux has too:
//! clients of Linux in another namespace get every byte back from the service, while a server of
//! Linux' own answers at another port of the same address.
//!
//! Needs root, `ip` and `python3`; is left out, with the reason, where one is missing.

// (Each test uses a part of it.)
#[allow(dead_code)]
mod echo;

use echo::{ALONE, LANES, PORT, Stop, clients, config, said, serves_sleeps_and_wakes, service};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use uncopy_tcp_wire::queues;
use uncopy_tcp_wire::steer::Steer;
use uncopy_tcp_wire::xsk::Xsk;
use uncopy_tests::shell::shell;
use uncopy_tests::verdict::leave_out;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 2);

/// Checksums are left to the device unless it is told not to, and between two ends of a veth nobody
/// computes them (ethtool -K outer tx off).
const NO_OFFLOAD: &str = r#"
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", b"outer", ctypes.addressof(value)))
"#;

/// Linux' own server: a line for each who comes.
const BESIDE: &str = r#"
import socket
s = socket.create_server(("10.78.1.2", 7008))
print("listening", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"linux"); c.close()
"#;

const VISIT: &str = r#"
import socket
s = socket.create_connection(("10.78.1.2", 7008), timeout=10)
print(s.recv(100).decode(), flush=True)
"#;

/// Two namespaces with a device of two queues between them: `inner`, `outer`.
struct Namespaces {
    inner: String,
    outer: String,
}

impl Namespaces {
    fn new(which: &str) -> io::Result<Namespaces> {
        let of = |end| format!("ucx{end}{which}{}", std::process::id());
        let (inner, outer) = (of("i"), of("o"));
        let both = Namespaces { inner: inner.clone(), outer: outer.clone() };
        shell(&format!(
            "ip netns add {inner} && ip netns add {outer} && \
             ip -n {inner} link add inner address 02:02:02:02:02:02 numrxqueues {LANES} numtxqueues {LANES} type veth \
                peer name outer address 04:04:04:04:04:04 numrxqueues {LANES} numtxqueues {LANES} netns {outer} && \
             ip -n {inner} addr add 10.78.1.2/24 dev inner && ip -n {inner} link set inner up && \
             ip -n {outer} addr add 10.78.1.1/24 dev outer && ip -n {outer} link set outer up && \
             ip netns exec {outer} python3 -c '{NO_OFFLOAD}'"
        ))?;
        Ok(both)
    }

    /// The calling thread goes to where the service is.
    fn enter(&self) {
        let namespace = File::open(format!("/run/netns/{}", self.inner)).expect("it was made");
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .expect("root may");
    }

    fn python(&self, namespace: &str, program: &str) -> Child {
        Command::new("ip")
            .args(["netns", "exec", namespace, "python3", "-c", program])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    fn clients(&self, count: usize, size: usize) -> Child {
        clients(&self.outer, ADDRESS, count, size)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = shell(&format!("ip netns del {}; ip netns del {}", self.inner, self.outer));
    }
}

fn open(namespaces: &Namespaces) -> io::Result<(Arc<Steer>, Vec<Xsk>)> {
    namespaces.enter();
    let (steer, wires) = queues::open("inner", config().flows as u32, 16)?;
    assert_eq!(wires.len(), LANES, "a wire for each queue");
    Ok((Arc::new(steer), wires))
}

/// A server that never ends.
struct Beside(Child);

impl Beside {
    fn start(namespaces: &Namespaces) -> Beside {
        let mut child = namespaces.python(&namespaces.inner, BESIDE);
        assert_eq!(echo::line(&mut child), "listening");
        Beside(child)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn linux_gets_every_byte_back_over_af_xdp_while_lanes_come_and_go_and_linux_serves_beside_it() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let opened = Namespaces::new("a").and_then(|both| Ok((open(&both)?, both)));
    let ((steer, wires), namespaces) = match opened {
        Ok(opened) => opened,
        Err(reason) => return leave_out(&reason),
    };
    let beside = Beside::start(&namespaces);
    let service = service(ADDRESS, Duration::ZERO, Some(steer.clone()));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| service.run(wires));
        let stopped = Stop(&service);
        // (Else Linux would answer that nobody listens.)
        service.applications().await_opened();
        serves_sleeps_and_wakes(
            &service,
            |count, size| namespaces.clients(count, size),
            || assert_eq!(said(&mut namespaces.python(&namespaces.outer, VISIT)), "linux"),
        );
        drop(stopped);
        running.join().expect("no thread panics").expect("no wire fails");
    });
    drop((service, steer, beside));
}

#[test]
fn a_service_that_ended_leaves_the_address_and_its_queues_to_who_comes_next() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let namespaces = match Namespaces::new("b") {
        Ok(both) => both,
        Err(reason) => return leave_out(&reason),
    };
    for _ in 0..3 {
        // (The queues are bound anew at once.)
        let (steer, wires) = match open(&namespaces) {
            Ok(opened) => opened,
            Err(reason) => return leave_out(&reason),
        };
        let service = service(ADDRESS, Duration::ZERO, Some(steer));
        std::thread::scope(|scope| {
            let running = scope.spawn(|| service.run(wires));
            let stopped = Stop(&service);
            // (Else Linux would answer that nobody listens.)
            service.applications().await_opened();
            assert_eq!(said(&mut namespaces.clients(2, 100_000)), "right []");
            drop(stopped);
            running.join().expect("no thread panics").expect("no wire fails");
        });
    }
    // Linux answers: nobody listens there.
    let refused = format!(
        "import socket\ntry: socket.create_connection((\"10.78.1.2\", {PORT}), timeout=10)\nexcept ConnectionRefusedError: print(\"refused\")"
    );
    assert_eq!(said(&mut namespaces.python(&namespaces.outer, &refused)), "refused");
}
