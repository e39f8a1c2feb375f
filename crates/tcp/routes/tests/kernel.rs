//! Against Linux itself, in two network namespaces with a veth between them: what `ip` changes is
//! known soon, and a neighbour that nobody has asked for is found.
//!
//! Needs root and `ip`; is left out, with the reason, where one is missing.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};
use uncopy_tcp_routes::{Routes, loopback};
use uncopy_tests::shell::shell;
use uncopy_tests::verdict::leave_out;

const PEER: Ipv4Addr = Ipv4Addr::new(10, 78, 8, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 99, 3, 4);
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 1];

struct Namespaces(String, String);

impl Namespaces {
    fn new() -> io::Result<Self> {
        let id = std::process::id();
        let both = Self(format!("ucti{id}"), format!("ucto{id}"));
        let Self(inner, outer) = &both;
        shell(&format!(
            "ip netns add {inner} && ip netns add {outer} && \
             ip -n {inner} link add inner address 02:00:00:00:00:02 type veth peer name outer address 02:00:00:00:00:01 netns {outer} && \
             ip -n {inner} addr add 10.78.8.2/24 dev inner && ip -n {inner} link set inner up && \
             ip -n {outer} addr add 10.78.8.1/24 dev outer && ip -n {outer} link set outer up && ip -n {inner} link set lo up"
        ))?;
        let namespace = File::open(format!("/run/netns/{inner}"))?;
        let network = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), network)?;
        Ok(both)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = shell(&format!("ip netns del {}; ip netns del {}", self.0, self.1));
    }
}

fn soon(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_change_is_known_soon_and_a_neighbour_that_nobody_asked_for_is_found() {
    let namespaces = match Namespaces::new() {
        Ok(both) => both,
        Err(reason) => return leave_out(&reason),
    };
    let inner = &namespaces.0;
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
            .unwrap();
    let index = rustix::net::netdevice::name_to_index(&socket, "inner").unwrap();
    let routes = Routes::of(index).unwrap();
    assert_eq!(routes.hardware(), OWN);
    assert_eq!((routes.device().mtu, routes.device().up), (1500, true));
    assert_eq!(routes.addresses(), [Ipv4Addr::new(10, 78, 8, 2)]);
    assert_eq!(routes.number(BEHIND), None, "no route");
    let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    std::thread::scope(|scope| {
        // (Also when an assertion fails.)
        struct Stop<'a>(&'a rustix::fd::OwnedFd);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                rustix::io::write(self.0, &1u64.to_ne_bytes()).unwrap();
            }
        }
        let _stop = Stop(&stop);
        scope.spawn(|| routes.keep(stop.as_fd(), || {}).unwrap());
        let number = routes.number(PEER).expect("on the link");
        soon("the neighbour", || routes.find(number) == Some(THERE));
        shell(&format!("ip -n {inner} route add 10.99.0.0/16 via 10.78.8.1")).unwrap();
        soon("a route", || routes.number(BEHIND) == Some(number));
        shell(&format!("ip -n {inner} route add blackhole 10.99.3.0/24")).unwrap();
        soon("a route that leads nowhere", || routes.number(BEHIND).is_none());
        shell(&format!("ip -n {inner} neigh replace 10.78.8.1 lladdr 02:00:00:00:00:77 dev inner"))
            .unwrap();
        soon("it has moved", || routes.find(number) == Some([2, 0, 0, 0, 0, 0x77]));
        shell(&format!("ip -n {inner} neigh del 10.78.8.1 dev inner")).unwrap();
        soon("it is gone", || routes.find(number).is_none());
        shell(&format!("ip -n {inner} addr add 10.78.8.9/24 dev inner")).unwrap();
        soon("an address", || routes.addresses().len() == 2);
        shell(&format!("ip -n {inner} link set inner down")).unwrap();
        soon("it is down", || !routes.device().up && routes.number(PEER).is_none());
    });
    // Made once, and found the next time.
    for _ in 0..2 {
        loopback::open(0x7fff_0001, 0x7fff_0001).unwrap();
    }
    let rules = Command::new("ip").args(["-n", inner, "rule"]).output().unwrap();
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    assert_eq!(rules.matches("fwmark 0x7fff0001").count(), 1, "{rules}");
}
