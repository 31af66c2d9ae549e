//! An initiator that says exactly what a test wants it to say.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use iscsi_protocol::digest::digest_of;
use iscsi_protocol::pdu::{Bhs, flag, opcode, padded};
use iscsi_protocol::text::put;

pub const TARGET: &str = "iqn.2026-01.org.example:disk";
pub const INITIATOR: &str = "iqn.2026-01.org.example:host";

/// One received PDU.
#[derive(Debug)]
pub struct Pdu {
    pub bhs: Bhs,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn text(&self) -> Vec<(String, String)> {
        iscsi_protocol::text::parse(&self.data).expect("text")
    }
}

pub struct Initiator {
    pub stream: TcpStream,
    pub cmd_sn: u32,
    pub itt: u32,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub cid: u16,
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Initiator {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        Self {
            stream,
            cmd_sn: 1,
            itt: 1,
            isid: [0x40, 0, 0, 0, 0, 1],
            tsih: 0,
            cid: 0,
            header_digest: false,
            data_digest: false,
        }
    }

    pub fn send(&mut self, mut bhs: Bhs, data: &[u8]) {
        bhs.set_data_len(data.len());
        let mut out = bhs.0.to_vec();
        if self.header_digest {
            out.extend_from_slice(&digest_of(&bhs.0));
        }
        let mut body = data.to_vec();
        body.resize(padded(data.len()), 0);
        out.extend_from_slice(&body);
        if self.data_digest && !data.is_empty() {
            out.extend_from_slice(&digest_of(&body));
        }
        // The server may have closed already; the test sees that when it reads.
        let _ = self.stream.write_all(&out);
    }

    /// The next PDU; `None` when the server closed.
    pub fn try_receive(&mut self) -> Option<Pdu> {
        let mut head = [0; 48];
        self.stream.read_exact(&mut head).ok()?;
        let bhs = Bhs(head);
        if self.header_digest {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest).ok()?;
            assert_eq!(digest, digest_of(&head), "header digest");
        }
        let mut data = vec![0; padded(bhs.data_len())];
        self.stream.read_exact(&mut data).ok()?;
        if self.data_digest && !data.is_empty() {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest).ok()?;
            assert_eq!(digest, digest_of(&data), "data digest");
        }
        data.truncate(bhs.data_len());
        Some(Pdu { bhs, data })
    }

    pub fn receive(&mut self) -> Pdu {
        self.try_receive().expect("a PDU, not the end")
    }

    pub fn login_request(&mut self, flags: u8, keys: &[(&str, &str)]) -> Pdu {
        let mut bhs = Bhs::new(opcode::LOGIN | 0x40, flags);
        bhs.0[8..14].copy_from_slice(&self.isid);
        bhs.set_u16(14, self.tsih);
        bhs.set_u32(16, 0x77);
        bhs.set_u16(20, self.cid);
        bhs.set_u32(24, self.cmd_sn);
        let mut data = Vec::new();
        for (key, value) in keys {
            put(&mut data, key, value);
        }
        self.send(bhs, &data);
        self.receive()
    }

    /// Straight to full feature phase, with these further keys.
    pub fn login(&mut self, keys: &[(&str, &str)]) -> Pdu {
        let mut all = vec![("InitiatorName", INITIATOR), ("TargetName", TARGET)];
        all.extend_from_slice(keys);
        let response = self.login_request(0x87, &all);
        if response.bhs.u16_at(36) == 0 {
            self.tsih = response.bhs.tsih();
            let has = |key: &str| response.text().contains(&(key.into(), "CRC32C".into()));
            (self.header_digest, self.data_digest) = (has("HeaderDigest"), has("DataDigest"));
        }
        response
    }

    /// A SCSI command; `flags` has R/W/F.
    pub fn command(&mut self, flags: u8, cdb: &[u8], expected: u32, data: &[u8]) -> u32 {
        let bhs = self.command_bhs(flags, cdb, expected);
        let itt = bhs.itt();
        self.send(bhs, data);
        itt
    }

    pub fn command_bhs(&mut self, flags: u8, cdb: &[u8], expected: u32) -> Bhs {
        let mut bhs = self.request(opcode::SCSI_COMMAND, flags);
        bhs.set_u32(20, expected);
        bhs.0[32..32 + cdb.len()].copy_from_slice(cdb);
        bhs
    }

    /// A numbered request.
    pub fn request(&mut self, opcode: u8, flags: u8) -> Bhs {
        let mut bhs = Bhs::new(opcode, flags);
        bhs.set_u32(16, self.itt);
        bhs.set_u32(24, self.cmd_sn);
        self.itt += 1;
        self.cmd_sn += 1;
        bhs
    }

    pub fn data_out(&mut self, itt: u32, ttt: u32, (sn, offset): (u32, u32), last: bool, data: &[u8]) {
        let mut bhs = Bhs::new(opcode::DATA_OUT, if last { flag::FINAL } else { 0 });
        bhs.set_u32(16, itt);
        bhs.set_u32(20, ttt);
        bhs.set_u32(36, sn);
        bhs.set_u32(40, offset);
        self.send(bhs, data);
    }

    /// Reads blocks of 512.
    pub fn read(&mut self, lba: u32, blocks: u16) -> Vec<u8> {
        let len = u32::from(blocks) * 512;
        let itt = self.command(0xc1, &rw(0x28, lba, blocks), len, &[]);
        let mut out = Vec::new();
        loop {
            let pdu = self.receive();
            assert_eq!((pdu.bhs.opcode(), pdu.bhs.itt()), (opcode::DATA_IN, itt));
            assert_eq!(pdu.bhs.u32_at(40) as usize, out.len());
            out.extend_from_slice(&pdu.data);
            if pdu.bhs.flags() & flag::STATUS != 0 {
                assert_eq!(pdu.bhs.0[3], 0);
                return out;
            }
        }
    }
}

pub fn rw(op: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let (l, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [op, 0, l[0], l[1], l[2], l[3], 0, b[0], b[1], 0]
}
