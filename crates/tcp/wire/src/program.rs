//! The program that says which arriving frames are the service's: as an XDP program, or as a
//! classifier (tcx).
//!
//! A frame is, if it is a TCP segment over IPv4 and not a fragment, and either its four-tuple is in
//! the map of flows, or it opens a connection (SYN without ACK and RST) to an address and port, or
//! to any address and a port, that is in the map of listeners. It then goes to the AF_XDP socket of
//! the queue on which it arrived, if that has one; from a classifier, to a device. All else goes to
//! Linux, as without us.
//!
//! While SYN cookies are out, so does what acknowledges something (without SYN and RST) to such a
//! listener, if Linux has no socket for it but the one that listens: its own connections at that
//! port, and those that it has half open, go on being its.
//!
//! Registers: r6 the context; r2 the frame, then its IP header; r3 its end; r4, r5 at hand; r7 the
//! TCP flags, at last the state of Linux' socket; r8 the destination port. The stack holds the
//! keys: see [`FLOW_AT`] and [`LISTENER_AT`].
//!
//! A classifier sees what is not for this host too, and may find headers elsewhere than in a
//! frame's first piece of memory: it leaves the first to Linux, as it does what has a VLAN's tag,
//! and has the headers brought there.

use crate::bpf::Instruction;

/// Of each map, in bytes. Numbers are as they are in the frame (big-endian): remote address, local
/// address, remote port, local port.
pub const FLOW_KEY: usize = 12;
/// Local address (0: any), local port, two zeros.
pub const LISTENER_KEY: usize = 8;

/// Below the frame pointer.
const FLOW_AT: i16 = -(FLOW_KEY as i16);
const LISTENER_AT: i16 = FLOW_AT - 4 - LISTENER_KEY as i16;

/// Of headers of Ethernet, IPv4 and TCP without options; and with all that IPv4's may have.
const SHORT: i32 = 14 + 20 + 20;
const HEADERS: i32 = 14 + 60 + 20;

/// `XDP_PASS`; `TCX_NEXT`.
const PASS: i32 = 2;
const NEXT: i32 = -1;
/// `TCX_DROP`.
const DROP: i32 = 2;
const MAP_LOOKUP: i32 = 1;
const REDIRECT: i32 = 23;
const PULL_DATA: i32 = 39;
const REDIRECT_MAP: i32 = 51;
/// `bpf_sk_release`, `bpf_skc_lookup_tcp`.
const SOCKET_RELEASE: i32 = 86;
const SOCKET_LOOKUP: i32 = 99;
/// `BPF_F_CURRENT_NETNS`: the device's.
const OWN_NAMESPACE: i32 = -1;
/// Of `struct xdp_md`: `data`, `data_end`, `rx_queue_index`.
const XDP_DATA: i16 = 0;
const XDP_END: i16 = 4;
const XDP_QUEUE: i16 = 16;
/// Of `struct __sk_buff`: `len`, `pkt_type`, `vlan_present`, `data`, `data_end`. A `pkt_type` of 0
/// is for this host.
const SKB_LENGTH: i16 = 0;
const SKB_TYPE: i16 = 4;
const SKB_VLAN: i16 = 20;
const SKB_DATA: i16 = 76;
const SKB_END: i16 = 80;
/// Of `struct bpf_sock`: `state`; and `BPF_TCP_LISTEN` there.
const SOCKET_STATE: i16 = 72;
const LISTENS: i32 = 10;

/// Of the TCP flags: SYN, RST, ACK.
const SYN_RST_ACK: i32 = 0x16;
const SYN: i32 = 0x02;
const ACK: i32 = 0x10;

/// Numbers of the maps, as this process has them.
pub struct Maps {
    pub flows: i32,
    pub listeners: i32,
    /// An array of one number: not 0 while SYN cookies are out.
    pub cookies: i32,
}

/// Where what is the service's goes.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// An XDP program: to the AF_XDP sockets of this map.
    Sockets(i32),
    /// A classifier: to the device of this index, as if it were sent there.
    Device(u32),
}

/// Where a jump leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Pass,
    Redirect,
    /// Its headers lie where they can be read.
    Read,
    /// It may bring a cookie back.
    Cookie,
    /// It does, if Linux has nobody for it.
    Nobodys,
}

/// Instructions whose jumps are not known yet.
#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    jumps: Vec<(usize, To)>,
    places: Vec<(To, usize)>,
}

/// Codes of linux/bpf_common.h and linux/bpf.h, put together.
mod code {
    pub const MOV: u8 = 0xbf;
    pub const MOV_K: u8 = 0xb7;
    pub const ADD: u8 = 0x0f;
    pub const ADD_K: u8 = 0x07;
    pub const AND_K: u8 = 0x57;
    pub const LSH_K: u8 = 0x67;
    pub const LOAD_8: u8 = 0x71;
    pub const LOAD_16: u8 = 0x69;
    pub const LOAD_32: u8 = 0x61;
    pub const STORE_16: u8 = 0x6b;
    pub const STORE_32: u8 = 0x63;
    pub const STORE_32_K: u8 = 0x62;
    pub const STORE_16_K: u8 = 0x6a;
    pub const JUMP_ABOVE: u8 = 0x2d;
    pub const JUMP_BELOW_K: u8 = 0xa5;
    pub const JUMP_BELOW_EQ: u8 = 0xbd;
    pub const JUMP: u8 = 0x05;
    pub const JUMP_EQ_K: u8 = 0x15;
    pub const JUMP_NE_K: u8 = 0x55;
    pub const LOAD_64_K: u8 = 0x18;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}
use code::*;

/// `LOAD_64_K` of a map's descriptor.
const FROM_MAP: u8 = 1;
/// Of the value of an array's map.
const FROM_MAPS_VALUE: u8 = 2;

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    /// A jump if the register, compared with `from` or `immediate`, says so.
    fn jump(&mut self, code: u8, register: u8, from: u8, immediate: i32, to: To) {
        self.jumps.push((self.instructions.len(), to));
        self.put(code, register, from, 0, immediate);
    }

    fn map(&mut self, to: u8, number: i32) {
        self.put(LOAD_64_K, to, FROM_MAP, 0, number);
        self.put(0, 0, 0, 0, 0);
    }

    /// Where the first value of an array is.
    fn value(&mut self, to: u8, number: i32) {
        self.put(LOAD_64_K, to, FROM_MAPS_VALUE, 0, number);
        self.put(0, 0, 0, 0, 0);
    }

    fn here(&mut self, place: To) {
        self.places.push((place, self.instructions.len()));
    }

    fn done(mut self) -> Vec<Instruction> {
        for (at, to) in self.jumps {
            let place =
                self.places.iter().find(|(p, _)| *p == to).expect("each place is somewhere").1;
            // From the instruction behind the jump.
            self.instructions[at].offset = i16::try_from(place - at - 1).expect("a short program");
        }
        self.instructions
    }

    /// Looks up what lies at `at` on the stack; goes to `found` if it is there.
    fn look_up(&mut self, map: i32, at: i16, found: To) {
        self.map(1, map);
        self.put(MOV, 2, 10, 0, 0);
        self.put(ADD_K, 2, 0, 0, i32::from(at));
        self.put(CALL, 0, 0, 0, MAP_LOOKUP);
        self.jump(JUMP_NE_K, 0, 0, 0, found);
    }

    /// Leaves: what has arrived is sent by this device.
    fn redirect(&mut self, device: u32) {
        self.put(MOV_K, 1, 0, 0, device.cast_signed());
        self.put(MOV_K, 2, 0, 0, 0);
        self.put(CALL, 0, 0, 0, REDIRECT);
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// A classifier's r2 and r3, where it is to look at all.
    fn read_headers(&mut self) {
        self.put(LOAD_32, 4, 6, SKB_TYPE, 0);
        self.jump(JUMP_NE_K, 4, 0, 0, To::Pass);
        self.put(LOAD_32, 4, 6, SKB_VLAN, 0);
        self.jump(JUMP_NE_K, 4, 0, 0, To::Pass);
        self.put(LOAD_32, 2, 6, SKB_DATA, 0);
        self.put(LOAD_32, 3, 6, SKB_END, 0);
        self.put(MOV, 4, 2, 0, 0);
        self.put(ADD_K, 4, 0, 0, SHORT);
        self.jump(JUMP_BELOW_EQ, 4, 3, 0, To::Read);
        // (A shorter frame, or one in pieces: its headers are brought together, which copies them;
        // drivers have done so (`eth_get_headlen`). It is asked for no more than the frame has.)
        self.put(LOAD_32, 2, 6, SKB_LENGTH, 0);
        self.put(JUMP_BELOW_K, 2, 0, 1, HEADERS);
        self.put(MOV_K, 2, 0, 0, HEADERS);
        self.put(MOV, 1, 6, 0, 0);
        self.put(CALL, 0, 0, 0, PULL_DATA);
        // (No memory: Linux would say that it knows no such connection.)
        self.put(JUMP_EQ_K, 0, 0, 2, 0);
        self.put(MOV_K, 0, 0, 0, DROP);
        self.put(EXIT, 0, 0, 0, 0);
        self.put(LOAD_32, 2, 6, SKB_DATA, 0);
        self.put(LOAD_32, 3, 6, SKB_END, 0);
        self.here(To::Read);
    }

    /// Looks up who listens at the address, then at any.
    fn look_up_listener(&mut self, map: i32, found: To) {
        self.look_up(map, LISTENER_AT, found);
        self.put(STORE_32_K, 10, 0, LISTENER_AT, 0);
        self.look_up(map, LISTENER_AT, found);
    }
}

/// The program that sends all that arrives on from there, to the device of this index: a
/// classifier.
pub fn onward(device: u32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.redirect(device);
    a.done()
}

/// The program.
pub fn program(maps: &Maps, goal: Goal) -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.put(MOV, 6, 1, 0, 0);
    match goal {
        Goal::Sockets(_) => {
            a.put(LOAD_32, 2, 6, XDP_DATA, 0);
            a.put(LOAD_32, 3, 6, XDP_END, 0);
        }
        Goal::Device(_) => a.read_headers(),
    }
    // Ethernet's header and IPv4's without options are there. (Numbers of two bytes are read as
    // this processor has them.)
    a.put(MOV, 4, 2, 0, 0);
    a.put(ADD_K, 4, 0, 0, 14 + 20);
    a.jump(JUMP_ABOVE, 4, 3, 0, To::Pass);
    a.put(LOAD_16, 5, 2, 12, 0);
    a.jump(JUMP_NE_K, 5, 0, i32::from(0x0800_u16.to_be()), To::Pass);
    a.put(ADD_K, 2, 0, 0, 14);
    // Version 4.
    a.put(LOAD_8, 5, 2, 0, 0);
    a.put(MOV, 4, 5, 0, 0);
    a.put(AND_K, 4, 0, 0, 0xf0);
    a.jump(JUMP_NE_K, 4, 0, 0x40, To::Pass);
    // Not a fragment: neither "more" nor an offset.
    a.put(LOAD_16, 4, 2, 6, 0);
    a.put(AND_K, 4, 0, 0, i32::from(0x3fff_u16.to_be()));
    a.jump(JUMP_NE_K, 4, 0, 0, To::Pass);
    a.put(LOAD_8, 4, 2, 9, 0);
    a.jump(JUMP_NE_K, 4, 0, libc::IPPROTO_TCP, To::Pass);
    a.put(LOAD_32, 4, 2, 12, 0);
    a.put(STORE_32, 10, 4, FLOW_AT, 0);
    a.put(LOAD_32, 4, 2, 16, 0);
    a.put(STORE_32, 10, 4, FLOW_AT + 4, 0);
    a.put(STORE_32, 10, 4, LISTENER_AT, 0);
    // r2: the TCP header, behind the options of the IP header; 20 bytes of it are there.
    a.put(AND_K, 5, 0, 0, 0xf);
    a.jump(JUMP_BELOW_K, 5, 0, 5, To::Pass);
    a.put(LSH_K, 5, 0, 0, 2);
    a.put(ADD, 2, 5, 0, 0);
    a.put(MOV, 4, 2, 0, 0);
    a.put(ADD_K, 4, 0, 0, 20);
    a.jump(JUMP_ABOVE, 4, 3, 0, To::Pass);
    a.put(LOAD_32, 4, 2, 0, 0);
    a.put(STORE_32, 10, 4, FLOW_AT + 8, 0);
    a.put(LOAD_16, 8, 2, 2, 0);
    a.put(LOAD_8, 7, 2, 13, 0);
    a.look_up(maps.flows, FLOW_AT, To::Redirect);
    a.put(STORE_16, 10, 8, LISTENER_AT + 4, 0);
    a.put(STORE_16_K, 10, 0, LISTENER_AT + 6, 0);
    a.put(AND_K, 7, 0, 0, SYN_RST_ACK);
    a.jump(JUMP_EQ_K, 7, 0, ACK, To::Cookie);
    a.jump(JUMP_NE_K, 7, 0, SYN, To::Pass);
    a.look_up_listener(maps.listeners, To::Redirect);
    a.jump(JUMP, 0, 0, 0, To::Pass);
    a.here(To::Cookie);
    a.value(1, maps.cookies);
    a.put(LOAD_32, 1, 1, 0, 0);
    a.jump(JUMP_EQ_K, 1, 0, 0, To::Pass);
    a.look_up_listener(maps.listeners, To::Nobodys);
    a.jump(JUMP, 0, 0, 0, To::Pass);
    a.here(To::Nobodys);
    // The key of a flow is a `struct bpf_sock_tuple`.
    a.put(MOV, 1, 6, 0, 0);
    a.put(MOV, 2, 10, 0, 0);
    a.put(ADD_K, 2, 0, 0, i32::from(FLOW_AT));
    a.put(MOV_K, 3, 0, 0, FLOW_KEY as i32);
    a.put(MOV_K, 4, 0, 0, OWN_NAMESPACE);
    a.put(MOV_K, 5, 0, 0, 0);
    a.put(CALL, 0, 0, 0, SOCKET_LOOKUP);
    a.jump(JUMP_EQ_K, 0, 0, 0, To::Redirect);
    a.put(LOAD_32, 7, 0, SOCKET_STATE, 0);
    a.put(MOV, 1, 0, 0, 0);
    a.put(CALL, 0, 0, 0, SOCKET_RELEASE);
    a.jump(JUMP_EQ_K, 7, 0, LISTENS, To::Redirect);
    a.here(To::Pass);
    a.put(MOV_K, 0, 0, 0, if matches!(goal, Goal::Sockets(_)) { PASS } else { NEXT });
    a.put(EXIT, 0, 0, 0, 0);
    a.here(To::Redirect);
    match goal {
        Goal::Sockets(sockets) => {
            a.map(1, sockets);
            a.put(LOAD_32, 2, 6, XDP_QUEUE, 0);
            // The answer where the queue has no socket.
            a.put(MOV_K, 3, 0, 0, PASS);
            a.put(CALL, 0, 0, 0, REDIRECT_MAP);
            a.put(EXIT, 0, 0, 0, 0);
        }
        Goal::Device(device) => a.redirect(device),
    }
    a.done()
}
