//! The same claims for every real engine.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;

use super::*;

struct Fixture {
    target: IoTarget,
    path: std::path::PathBuf,
    guard: EngineGuard,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn engines() -> Vec<Rc<dyn Engine>> {
    vec![Rc::new(RingEngine::new().expect("io_uring")), Rc::new(BlockingEngine::new().expect("threads"))]
}

fn fixture(engine: Rc<dyn Engine>, name: &str) -> Fixture {
    let path =
        std::env::temp_dir().join(format!("io_engine-{}-{}-{name}", std::process::id(), engine.kind()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
    let target = IoTarget::File(Arc::new(file.expect("temporary file").into()));
    Fixture { target, path, guard: install(engine) }
}

impl Fixture {
    fn run(&self, offset: u64, op: IoOp) -> IoCompletion {
        let request = IoRequest { target: self.target.clone(), offset, op };
        block_on(&self.guard, submit(request)).expect("engine works")
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) {
        let op = IoOp::Write { data: IoBuf::copy_from(bytes).freeze(), durable };
        assert_eq!(self.run(offset, op).result.expect("write"), bytes.len());
    }

    fn read(&self, offset: u64, len: usize) -> (usize, IoBuf) {
        let completion = self.run(offset, IoOp::Read(IoBuf::zeroed(len)));
        let IoOp::Read(buf) = completion.op else { panic!("the read gives its buffer back") };
        (completion.result.expect("read"), buf)
    }
}

#[test]
fn what_was_written_is_read() {
    for engine in engines() {
        let f = fixture(engine, "rw");
        f.write(0, &[1; 8192], false);
        f.write(4096, &[2; 4096], true);
        assert_eq!(f.run(0, IoOp::Sync).result.expect("sync"), 0);
        let (count, buf) = f.read(0, 8192);
        assert_eq!(count, 8192);
        assert!(buf[..4096].iter().all(|b| *b == 1) && buf[4096..].iter().all(|b| *b == 2));
    }
}

#[test]
fn several_buffers_are_one_write() {
    for engine in engines() {
        let f = fixture(engine, "vectored");
        // More parts than one system call takes, and an empty one.
        let part = |n: usize| IoBuf::copy_from(&vec![n as u8; n % 5]).freeze();
        let parts: Vec<_> = (0..2500).map(part).collect();
        let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let written = f.run(10, IoOp::WriteVectored { parts, durable: true });
        assert_eq!(written.result.expect("write"), all.len());
        let (count, buf) = f.read(10, all.len() + 1);
        assert_eq!(count, all.len());
        assert!(buf[..count] == all[..]);
    }
}

#[test]
fn a_read_at_the_end_is_short_and_no_error() {
    for engine in engines() {
        let f = fixture(engine, "eof");
        f.write(0, &[9; 1000], false);
        assert_eq!(f.read(500, 4096).0, 500);
        assert_eq!(f.read(5000, 4096).0, 0);
    }
}

#[test]
fn holes_and_zeroes() {
    for engine in engines() {
        let f = fixture(engine, "holes");
        f.write(0, &[7; 16384], false);
        for op in [IoOp::PunchHole { len: 4096 }, IoOp::ZeroRange { len: 4096 }] {
            let at = if matches!(op, IoOp::PunchHole { .. }) { 4096 } else { 8192 };
            match f.run(at, op).result {
                Ok(_) => assert!(f.read(at, 4096).1.iter().all(|b| *b == 0)),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}"),
            }
        }
        assert!(f.read(0, 4096).1.iter().all(|b| *b == 7));
    }
}

#[test]
fn an_error_gives_the_buffer_back() {
    for engine in engines() {
        let mut f = fixture(engine, "errors");
        let read_only = std::fs::File::open(&f.path).expect("reopen");
        f.target = IoTarget::File(Arc::new(read_only.into()));
        let op = IoOp::Write { data: IoBuf::copy_from(b"x").freeze(), durable: false };
        let completion = f.run(0, op);
        assert_eq!(completion.result.expect_err("read-only").raw_os_error(), Some(libc::EBADF));
        assert!(matches!(completion.op, IoOp::Write { data, .. } if data[..] == *b"x"));
    }
}

#[test]
fn thousands_in_flight_and_some_abandoned() {
    for engine in engines() {
        let f = fixture(engine, "many");
        let count = 6000u64;
        let mut futures = Vec::new();
        for i in 0..count {
            let data = IoBuf::copy_from(&i.to_le_bytes()).freeze();
            let op = IoOp::Write { data, durable: false };
            let future = submit(IoRequest { target: f.target.clone(), offset: i * 8, op });
            if i % 7 == 3 {
                drop(future);
            } else {
                futures.push(future);
            }
        }
        for future in futures {
            assert_eq!(block_on(&f.guard, future).expect("engine works").result.expect("write"), 8);
        }
        // An abandoned request still runs: wait for those too, then all of them are there.
        while f.guard.engine().wait().expect("engine works") > 0 {}
        let (got, bytes) = f.read(0, count as usize * 8);
        assert_eq!(got as u64, count * 8);
        for i in 0..count {
            assert_eq!(bytes[i as usize * 8..][..8], i.to_le_bytes());
        }
    }
}

#[test]
fn dropping_the_engine_waits_for_its_requests() {
    for engine in engines() {
        let f = fixture(engine, "drop");
        for i in 0..64 {
            let op = IoOp::Write { data: IoBuf::copy_from(&[i; 4096]).freeze(), durable: true };
            drop(submit(IoRequest { target: f.target.clone(), offset: u64::from(i) * 4096, op }));
        }
        drop(f);
    }
}

#[test]
fn without_an_engine_requests_end_at_once() {
    let op = IoOp::Sync;
    let mut future = std::pin::pin!(submit(IoRequest { target: IoTarget::Simulated(0), offset: 0, op }));
    let waker = std::task::Waker::noop();
    match future.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
        std::task::Poll::Ready(end) => {
            assert_eq!(end.result.expect_err("none").kind(), io::ErrorKind::Unsupported);
        }
        std::task::Poll::Pending => panic!("must end"),
    }
}
