//! Pipes: what they show, whose they are, and what of failed logins in them goes into the log.

use rpc::RpcClient;

use super::*;

/// An administrator.
pub(super) fn alice_from(sid: Sid) -> RpcClient {
    let from = "smb 192.0.2.1:50000".into();
    RpcClient { user: "alice".into(), domain: "NODE1".into(), from, sid, is_administrator: true }
}

#[tokio::test]
async fn pipes_answer_apart_and_show_what_is_served() {
    use rpc::view::NewShare;
    use rpc::{ServerView as _, Win32};
    use smb_server::{PipeClient, PipeService as _};

    let bench = Bench::new();
    let alice = bench.user("alice");
    bench.folder("vms").await;
    let mut config = config();
    config.shares[0].hidden = true;
    bench.apply(&config, true).await;
    let who = alice_from(alice.sid);
    let view = bench.smb.view.clone();
    let shares = view.shares(&who);
    let shown: Vec<_> =
        shares.iter().map(|share| (share.path.as_str(), share.hidden, share.special)).collect();
    assert_eq!(shown, [("C:\\v\\vms", true, false), ("", false, true)]);
    assert_eq!(view.find_name("NODE1\\alice").map(|found| found.sid), Some(alice.sid));
    for (kind, told) in [
        (ShareKind::Plain, rpc::view::ShareKind::Disk),
        (ShareKind::Clustered, rpc::view::ShareKind::ClusterDisk),
        (ShareKind::ScaleOut, rpc::view::ShareKind::ScaleOutDisk),
    ] {
        config.shares[0].kind = kind;
        bench.apply(&config, true).await;
        assert_eq!(view.shares(&who)[0].kind, told);
    }
    // Nobody changes shares before the node has said that it does.
    let new = NewShare { name: "new".into(), path: "C:\\v\\vms".into(), ..NewShare::default() };
    let asked = tokio::task::spawn_blocking(move || view.add_share(&who, &new)).await;
    assert_eq!(asked.expect("no panic"), Err(Win32::NOT_READY));

    let client = PipeClient {
        user: "alice".into(),
        remote: ([192, 0, 2, 1], 50_000).into(),
        sid: alice.sid,
        is_administrator: true,
        session_key: Vec::new(),
    };
    let pipes = Pipes::new(bench.smb.view.clone(), Handle::current());
    assert!(pipes.open("spoolss", &client).is_err());
    let pipe = pipes.open("srvsvc", &client).expect("a pipe");
    assert_eq!(pipe.read(100).await, None, "nothing was asked");
    // A bind of another version is refused, and that waits to be read.
    let mut bind = vec![4, 0, 11, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
    pipe.write(bind.clone()).await.expect("taken");
    let (all, first) = pipe.available();
    assert!(all > 0 && all == first);
    let (nak, more) = pipe.read(all).await.expect("an answer");
    assert_eq!((nak.get(2), more), (Some(&13), false));
    bind[0] = 5;
    assert!(pipe.write(bind).await.is_err(), "the pipe is given up");
}

#[tokio::test]
async fn an_open_pipe_is_its_users_as_long_as_it_is_one() {
    use rpc::Authenticator as _;

    let bench = Bench::new();
    let alice = bench.user("alice");
    let who = alice_from(alice.sid);
    let now = || bench.smb.view.current(&who).map(|client| client.is_administrator);
    assert_eq!(now(), Some(false), "she was an administrator when she opened it");
    bench.users.change(|all| all.add_member("Administrators", alice.sid)).expect("added");
    assert_eq!(now(), Some(true));
    let change = UserChange { disabled: Some(true), ..UserChange::default() };
    bench.users.change_user(alice.sid, &change).expect("disabled");
    assert_eq!(now(), None);
    bench.users.remove_user(alice.sid).expect("removed");
    assert_eq!(now(), None);
}

/// A user fills the log neither by logins in pipes that fail.
#[tokio::test]
async fn failed_logins_in_pipes_do_not_fill_the_log() {
    use rpc::Authenticator as _;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let bench = Bench::new();
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let failure = smb_auth::Failure::from(smb_auth::AuthError::WrongPassword);
    tracing::subscriber::with_default(log, || {
        for _ in 0..500 {
            bench.smb.view.refused(&failure);
        }
    });
    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    assert_eq!(text.lines().count(), 100, "{text}");
}
