//! Targets that break the rules: the session ends with the reason, and nothing worse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use iscsi_client::{Buffers, ClientError, Command, Ended, Options, Session, Transfer};
use iscsi_protocol::keys::Offer;
use iscsi_protocol::login::{Access, Auth, LoginMachine, LoginPolicy, LoginSubject, Outcome, Refusal};
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode, padded};
use iscsi_protocol::url::Url;
use iscsi_protocol::{Bhs, IscsiName};
use scsi_defs::request;

struct Anybody;

impl LoginPolicy for Anybody {
    fn access(&self, _: &LoginSubject) -> Result<Access, Refusal> {
        Ok(Access { portal_group: 1, alias: None, auth: Auth::None })
    }
}

/// The target's end of a connection.
struct Peer(TcpStream);

impl Peer {
    fn receive(&mut self) -> Option<(Bhs, Vec<u8>)> {
        let mut head = [0; 48];
        self.0.read_exact(&mut head).ok()?;
        let bhs = Bhs(head);
        let mut data = vec![0; padded(bhs.data_len())];
        self.0.read_exact(&mut data).ok()?;
        data.truncate(bhs.data_len());
        Some((bhs, data))
    }

    fn send(&mut self, mut bhs: Bhs, data: &[u8]) {
        bhs.set_data_len(data.len());
        let mut out = bhs.0.to_vec();
        out.extend_from_slice(data);
        out.resize(48 + padded(data.len()), 0);
        let _ = self.0.write_all(&out);
    }

    /// Lets the initiator in.
    fn log_in(&mut self) {
        let mut machine =
            LoginMachine::new(Offer { initial_r2t: true, immediate_data: false, ..Offer::default() });
        loop {
            let (bhs, data) = self.receive().expect("a login request");
            let step = machine.request(&bhs, &data, &Anybody, &mut |out| out.fill(1));
            let mut answer = step.response.bhs;
            answer.set_sequence(0, 1, 64);
            self.send(answer, &step.response.data);
            if step.outcome == Outcome::Done {
                return;
            }
        }
    }
}

struct Memory([u8; 4096]);

impl Buffers for Memory {
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut self.0
    }
    fn output(&self, _: usize) -> &[u8] {
        &self.0
    }
}

/// A session of so many commands with a target that does `work` after the login.
fn against(
    depth: usize,
    work: impl FnOnce(&mut Peer) + Send + 'static,
) -> Result<(Session, JoinHandle<()>), ClientError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = std::thread::spawn(move || {
        let mut peer = Peer(listener.accept().unwrap().0);
        peer.log_in();
        work(&mut peer);
        // Until the initiator goes.
        while peer.receive().is_some() {}
    });
    let session = Session::open(&Options {
        url: Url::parse(&format!("iscsi://{address}/iqn.2026-01.org.example:t/0")).unwrap(),
        initiator: IscsiName::parse("iqn.2026-01.org.example:i").unwrap(),
        isid: [0x80, 0, 0, 1, 0, 1],
        user: None,
        target_user: None,
        depth,
    })?;
    Ok((session, target))
}

/// How one command ends against a target that does `answer` when it has come.
fn meet(
    write: bool,
    answer: impl FnOnce(&mut Peer, Bhs) + Send + 'static,
) -> Result<Vec<Ended>, ClientError> {
    let (mut session, target) = against(4, |peer| {
        let (bhs, _) = peer.receive().expect("a command");
        answer(peer, bhs);
    })?;
    let mut memory = Memory([7; 4096]);
    let cdb = if write { request::write(0, 8, false) } else { request::read(0, 8) };
    let transfer = if write { Transfer::Out(4096) } else { Transfer::In(4096) };
    assert!(session.start(1, &Command { lun: [0; 8], cdb: &cdb, transfer }, &memory)?);
    let mut ended = Vec::new();
    let result = (0..100).try_for_each(|_| {
        if ended.is_empty() {
            session.turn(Duration::from_millis(20), &mut memory, &mut ended)
        } else {
            Ok(())
        }
    });
    drop(session);
    target.join().unwrap();
    result.map(|()| ended)
}

/// Two thirds of the commands write; what the target asks for and answers comes in few pieces.
#[test]
fn what_comes_together_is_given_in_parts() {
    const COMMANDS: usize = 24;
    let (mut session, target) = against(COMMANDS, |peer| {
        let commands: Vec<Bhs> = (0..COMMANDS).map(|_| peer.receive().expect("a command").0).collect();
        let (mut pieces, mut stat, mut data) = (Vec::new(), 1, 0);
        let mut put = |mut bhs: Bhs, data: &[u8]| {
            bhs.set_data_len(data.len());
            pieces.extend_from_slice(&bhs.0);
            pieces.extend_from_slice(data);
        };
        for (at, command) in commands.iter().enumerate() {
            if at % 3 == 0 {
                put(to(*command, opcode::DATA_IN, LAST, &[(24, stat)]), &[1; 4096]);
                stat += 1;
            } else {
                put(to(*command, opcode::R2T, flag::FINAL, &[(20, 7), (44, 4096)]), &[]);
                data += 1;
            }
        }
        peer.0.write_all(&pieces).unwrap();
        pieces = Vec::new();
        let answers = (0..data).map(|_| peer.receive().expect("data").0);
        for answer in answers.collect::<Vec<_>>() {
            pieces.extend_from_slice(&to(answer, opcode::SCSI_RESPONSE, flag::FINAL, &[(24, stat)]).0);
            stat += 1;
        }
        peer.0.write_all(&pieces).unwrap();
    })
    .unwrap();
    let mut memory = Memory([7; 4096]);
    for tag in 0..COMMANDS {
        let (read, write) = (request::read(0, 8), request::write(0, 8, false));
        let (cdb, transfer) =
            if tag % 3 == 0 { (read, Transfer::In(4096)) } else { (write, Transfer::Out(4096)) };
        assert!(session.start(tag, &Command { lun: [0; 8], cdb: &cdb, transfer }, &memory).unwrap());
    }
    let (mut ended, mut turns) = (Vec::new(), 0);
    while ended.len() < COMMANDS {
        let before = ended.len();
        session.turn(Duration::from_secs(20), &mut memory, &mut ended).unwrap();
        assert!(ended.len() - before <= COMMANDS / 4, "{} ends at once", ended.len() - before);
        turns += 1;
    }
    let mut tags: Vec<usize> = ended.iter().map(|ended| ended.tag).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..COMMANDS) && turns < 100, "{turns} turns");
    assert!(ended.iter().all(|ended| ended.end.status == 0 && ended.end.moved == 4096), "{ended:?}");
    drop(session);
    target.join().unwrap();
}

/// Fields of a header by their offset.
type Fields = &'static [(usize, u32)];

/// A PDU of the target to this command.
fn to(command: Bhs, opcode: u8, flags: u8, fields: &[(usize, u32)]) -> Bhs {
    let mut bhs = Bhs::new(opcode, flags);
    bhs.set_u32(16, command.itt());
    bhs.set_u32(20, RESERVED_TAG);
    bhs.set_sequence(1, 2, 65);
    fields.iter().for_each(|(at, value)| bhs.set_u32(*at, *value));
    bhs
}

const LAST: u8 = flag::FINAL | flag::STATUS;

#[test]
fn rules_are_what_we_think() {
    let ended = meet(false, |peer, command| {
        peer.send(to(command, opcode::DATA_IN, 0, &[]), &[1; 1024]);
        peer.send(to(command, opcode::DATA_IN, LAST, &[(36, 1), (40, 1024)]), &[2; 3072]);
    });
    let [Ended { tag: 1, end }] = ended.unwrap()[..] else { panic!("one has ended") };
    assert_eq!((end.status, end.moved), (0, 4096));
    let ended = meet(true, |peer, command| {
        peer.send(to(command, opcode::R2T, flag::FINAL, &[(20, 5), (44, 1024)]), &[]);
        let (bhs, data) = peer.receive().unwrap();
        assert_eq!((bhs.opcode(), bhs.ttt(), bhs.u32_at(40), data.len()), (opcode::DATA_OUT, 5, 0, 1024));
        peer.send(to(command, opcode::R2T, flag::FINAL, &[(20, 6), (36, 1), (40, 1024), (44, 3072)]), &[]);
        let (bhs, data) = peer.receive().unwrap();
        assert_eq!((bhs.ttt(), bhs.u32_at(40), bhs.is_final(), data.len()), (6, 1024, true, 3072));
        peer.send(to(command, opcode::SCSI_RESPONSE, flag::FINAL | flag::UNDERFLOW, &[(44, 96)]), &[]);
    });
    assert_eq!(ended.unwrap()[0].end.moved, 4000);
}

#[test]
fn data_where_none_belongs() {
    let wrong: [(u8, Fields, usize); 7] = [
        (LAST, &[(40, 4096)], 4),
        (LAST, &[(40, 512)], 512),
        (LAST, &[(40, u32::MAX)], 4),
        (LAST, &[], 4100),
        (LAST, &[(36, 1)], 512),
        (LAST, &[(16, 0x7fff_0001)], 512),
        (LAST, &[(24, 9)], 4096),
    ];
    for (flags, fields, len) in wrong {
        let result = meet(false, move |peer, command| {
            peer.send(to(command, opcode::DATA_IN, flags, fields), &vec![1; len]);
        });
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{fields:?}: {result:?}");
    }
    let result = meet(true, |peer, command| peer.send(to(command, opcode::DATA_IN, LAST, &[]), &[1; 512]));
    assert!(matches!(result, Err(ClientError::Protocol(_))), "{result:?}");
}

#[test]
fn asking_for_what_there_is_not() {
    let wrong: [Fields; 7] = [
        &[(20, 5), (44, 4097)],
        &[(20, 5), (44, 0)],
        &[(20, 5), (40, 512), (44, 512)],
        &[(20, 5), (40, u32::MAX), (44, 512)],
        &[(20, 5), (36, 3), (44, 512)],
        &[(20, RESERVED_TAG), (44, 512)],
        &[(20, 5), (16, 2), (44, 512)],
    ];
    for fields in wrong {
        let result =
            meet(true, move |peer, command| peer.send(to(command, opcode::R2T, flag::FINAL, fields), &[]));
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{fields:?}: {result:?}");
    }
    let result = meet(false, |peer, command| {
        peer.send(to(command, opcode::R2T, flag::FINAL, &[(20, 5), (44, 512)]), &[]);
    });
    assert!(matches!(result, Err(ClientError::Protocol(_))), "{result:?}");
}

#[test]
fn ends_and_nonsense() {
    let lost = |result: Result<Vec<Ended>, ClientError>| result.unwrap_err().is_lost();
    assert!(lost(
        meet(false, |peer, command| peer.send(to(command, opcode::REJECT, flag::FINAL, &[]), &[0; 48]))
    ));
    assert!(lost(meet(false, |peer, command| {
        let mut bhs = to(command, opcode::ASYNC, flag::FINAL, &[(16, RESERVED_TAG)]);
        bhs.0[36] = 1;
        peer.send(bhs, &[]);
    })));
    assert!(lost(meet(false, |peer, command| {
        let mut bhs = to(command, opcode::SCSI_RESPONSE, flag::FINAL, &[]);
        bhs.0[2] = 1;
        peer.send(bhs, &[]);
    })));
    assert!(lost(meet(false, |peer, _| drop(peer.0.shutdown(std::net::Shutdown::Both)))));
    let long = meet(false, |peer, command| {
        let mut bhs = to(command, opcode::DATA_IN, LAST, &[]);
        bhs.set_data_len((1 << 24) - 1);
        let _ = peer.0.write_all(&bhs.0);
    });
    assert!(matches!(long, Err(ClientError::Frame(_))), "{long:?}");
    for byte in
        [0x3e, opcode::LOGIN_RESPONSE, opcode::TEXT_RESPONSE, opcode::LOGOUT_RESPONSE, opcode::SCSI_COMMAND]
    {
        let result = meet(false, move |peer, command| peer.send(to(command, byte, 0x80, &[]), &[]));
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{byte:x}: {result:?}");
    }
    // A vendor's news ask for nothing, and an early refusal of a write ends it.
    let ended = meet(true, |peer, command| {
        let mut news = to(command, opcode::ASYNC, flag::FINAL, &[(16, RESERVED_TAG)]);
        news.0[36] = 255;
        peer.send(news, &[]);
        peer.send(to(command, opcode::R2T, flag::FINAL, &[(20, 5), (24, 2), (44, 4096)]), &[]);
        let mut refusal = to(command, opcode::SCSI_RESPONSE, flag::FINAL, &[(24, 2)]);
        refusal.0[3] = 2;
        peer.send(refusal, &[0, 18, 0x70, 0, 7, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x27, 0, 0, 0, 0, 0]);
    });
    let end = ended.unwrap()[0].end;
    assert_eq!((end.status, end.sense.unwrap().code), (2, 0x2700));
}
