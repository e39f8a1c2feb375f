//! Frames in a pcapng file, with their time and direction.

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use std::io::{self, BufWriter, Write};
use std::time::Duration;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// It has arrived.
    In = 1,
    /// It leaves.
    Out = 2,
}

/// See above.
pub struct Capture<W: Write>(PcapNgWriter<BufWriter<W>>);

fn plain(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

impl<W: Write> Capture<W> {
    /// Of Ethernet frames of one wire, of which it tells the name.
    ///
    /// # Errors
    /// Those of writing.
    pub fn new(to: W, wire: &str) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::new(to)).map_err(plain)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            // (The crate writes nanoseconds whatever is said here; without a word readers take them
            // for microseconds.)
            options: vec![
                InterfaceDescriptionOption::IfName(wire.into()),
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(plain)?;
        Ok(Self(writer))
    }

    /// One frame; the time is since 1970.
    ///
    /// # Errors
    /// Those of writing.
    pub fn frame(&mut self, time: Duration, passes: Passes, frame: &[u8]) -> io::Result<()> {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: time,
            original_len: frame.len() as u32,
            data: frame.into(),
            options: vec![EnhancedPacketOption::Flags(passes as u32)],
        };
        self.0.write_pcapng_block(block).map_err(plain).map(drop)
    }

    /// All of it is in the file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

impl<W: Write> std::fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Capture")
    }
}
