//! Which flows: by an end, or by both.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// One end of a connection, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    address: Option<Ipv4Addr>,
    port: Option<u16>,
}

impl End {
    fn is(&self, address: Ipv4Addr, port: u16) -> bool {
        self.address.is_none_or(|own| own == address) && self.port.is_none_or(|own| own == port)
    }
}

/// A flow, or several: `ADDRESS`, `:PORT`, `ADDRESS:PORT`, or two of these with a `-` between, in
/// either order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFilter(End, Option<End>);

impl FlowFilter {
    /// Of one end, as far as it matters.
    pub fn of(address: Option<Ipv4Addr>, port: Option<u16>) -> Self {
        Self(End { address, port }, None)
    }
}

/// A text that names no flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFlow(String);

impl fmt::Display for NoFlow {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "'{}' is no flow: ADDRESS, :PORT, ADDRESS:PORT, or two of these with a '-' between",
            self.0
        )
    }
}

impl std::error::Error for NoFlow {}

impl FromStr for End {
    type Err = NoFlow;

    fn from_str(text: &str) -> Result<Self, NoFlow> {
        let wrong = || NoFlow(text.to_owned());
        let (address, port) = text.split_once(':').map_or((text, None), |(a, p)| (a, Some(p)));
        let address = match address {
            "" => None,
            address => Some(address.parse().map_err(|_| wrong())?),
        };
        let port = port.map(str::parse).transpose().map_err(|_| wrong())?;
        if address.is_none() && port.is_none() { Err(wrong()) } else { Ok(Self { address, port }) }
    }
}

impl FromStr for FlowFilter {
    type Err = NoFlow;

    fn from_str(text: &str) -> Result<Self, NoFlow> {
        let (one, other) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
        Ok(Self(one.parse()?, other.map(str::parse).transpose()?))
    }
}

/// Flows of which any will do; none: every frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen(Vec<FlowFilter>);

impl Chosen {
    /// These; none: every frame.
    pub fn new(flows: Vec<FlowFilter>) -> Self {
        Self(flows)
    }

    /// Whether an Ethernet frame is of one of them. (Of frames that are no TCP over IPv4 none is.)
    pub fn has(&self, frame: &[u8]) -> bool {
        self.0.is_empty()
            || ends(frame).is_some_and(|[from, to]| {
                self.0.iter().any(|FlowFilter(one, other)| {
                    let is = |end: &End, (address, port)| end.is(address, port);
                    let both = |a, b| is(one, a) && other.as_ref().is_none_or(|other| is(other, b));
                    both(from, to) || both(to, from)
                })
            })
    }
}

/// Where a TCP segment comes from, and where it goes.
fn ends(frame: &[u8]) -> Option<[(Ipv4Addr, u16); 2]> {
    // (Lax: frames that the wire will segment are longer than their header says, or it says
    // nothing.)
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (Some(LaxNetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
        (packet.net, packet.transport)
    else {
        return None;
    };
    let ip = ip.header();
    Some([(ip.source_addr(), tcp.source_port()), (ip.destination_addr(), tcp.destination_port())])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// A segment from 10.0.0.1:`from` to 10.0.0.2:`to`.
    pub(crate) fn segment(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(from, to, 7, 1000);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    fn chosen(flows: &[&str]) -> Chosen {
        Chosen::new(flows.iter().map(|flow| flow.parse().unwrap()).collect())
    }

    #[test]
    fn a_flow_is_chosen_by_what_is_said_of_its_ends_in_either_order() {
        let frame = segment(80, 4000, b"x");
        for flow in [
            ":80",
            ":4000",
            "10.0.0.1",
            "10.0.0.2:4000",
            "10.0.0.1:80-10.0.0.2:4000",
            "10.0.0.2:4000-10.0.0.1:80",
            ":4000-:80",
        ] {
            assert!(chosen(&[flow]).has(&frame), "{flow}");
        }
        for flow in [":81", "10.0.0.3", "10.0.0.1:4000", ":80-:80", "10.0.0.1:80-10.0.0.2:1"] {
            assert!(!chosen(&[flow]).has(&frame), "{flow}");
        }
        assert!(chosen(&[":81", ":80"]).has(&frame), "any of them");
        assert!(Chosen::default().has(&frame) && Chosen::default().has(&[]), "none: every frame");
    }

    #[test]
    fn a_frame_that_is_no_tcp_over_ipv4_is_of_no_flow() {
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let whole = segment(80, 80, b"x");
        let all = chosen(&[":80"]);
        assert!(all.has(&whole) && !all.has(&arp));
        for length in 0..54 {
            assert!(!all.has(&whole[..length]), "cut off after {length}");
        }
    }

    #[test]
    fn a_word_that_is_no_flow_is_refused_by_name() {
        for text in ["", ":", "x", "10.0.0.1:", "10.0.0.1:99999", "1.2.3", ":80-", "::1"] {
            assert!(text.parse::<FlowFilter>().is_err(), "{text}");
        }
        assert!(NoFlow("x".into()).to_string().starts_with("'x' is no flow"));
    }
}
