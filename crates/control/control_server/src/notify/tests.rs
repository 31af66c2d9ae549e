//! Tests of notifications: bounds, tries, changes while a try is under way, and real sockets.

use super::*;

fn notifier(url: &str) -> Notifier {
    Notifier {
        name: "hook".into(),
        url: url.into(),
        severity: Severity::Warning,
        header: None,
        secret_file: None,
        ca_file: None,
        allow_local: true,
    }
}

fn news(severity: Severity, code: FindingCode) -> News {
    let mut book = health_rules::Book::default();
    book.look(100, &[issue(code, severity, "pool p", "d", "t")]).remove(0)
}

#[test]
fn who_is_away_costs_a_bounded_amount_and_is_told_of() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Notifications::open(dir.path().join("notifiers.json"));
    all.set(notifier("http://127.0.0.1:1/")).expect("kept");
    all.take("n1", &news(Severity::Info, FindingCode::PoolSpace), 1);
    assert_eq!(all.due(0).len(), 0, "it is not that bad");
    all.take("n1", &news(Severity::Warning, FindingCode::NotifyFailed), 1);
    assert_eq!(all.due(0).len(), 0, "of itself it is not told");
    for _ in 0..3 * QUEUE {
        all.take("n1", &news(Severity::Error, FindingCode::PoolSpace), 1);
    }
    assert_eq!(all.entries.lock()["hook"].queue.len(), QUEUE);
    let mut now = 0;
    for attempt in 1..=TRIES {
        let due = all.due(now);
        assert_eq!(due.len(), 1, "try {attempt}");
        assert_eq!(all.due(now).len(), 0, "one at a time");
        assert!(all.issues().is_empty(), "it is not given up yet");
        all.ended(&due[0], now, Err("nobody is there".into()));
        assert_eq!(all.due(now).len(), 0, "it waits before the next");
        now += LONGEST_PAUSE;
    }
    let told = all.issues();
    assert_eq!((told.len(), told[0].code.as_str()), (1, "notify-failed"));
    assert_eq!(all.entries.lock()["hook"].queue.len(), QUEUE - 1);
    let due = all.due(now);
    all.ended(&due[0], now, Ok(()));
    assert!(all.issues().is_empty(), "it takes them again");
}

#[test]
fn what_is_changed_meanwhile_is_not_what_has_ended() {
    let dir = tempfile::tempdir().expect("temp dir");
    let all = Notifications::open(dir.path().join("notifiers.json"));
    all.set(notifier("http://127.0.0.1:1/")).expect("kept");
    all.take("n1", &news(Severity::Error, FindingCode::PoolSpace), 1);
    all.take("n1", &news(Severity::Error, FindingCode::PoolSpace), 1);
    let before = all.due(0);
    // Also when it is set to the same again.
    all.set(notifier("http://127.0.0.1:1/")).expect("kept");
    assert_eq!(all.entries.lock()["hook"].queue.len(), 2, "what waits is sent to where it is now");
    let after = all.due(0);
    all.ended(&before[0], 0, Ok(()));
    assert_eq!(all.entries.lock()["hook"].queue.len(), 2, "this one has taken nothing");
    assert_eq!(all.due(0).len(), 0, "one at a time");
    all.ended(&after[0], 0, Ok(()));
    assert_eq!(all.entries.lock()["hook"].queue.len(), 1);
}

#[test]
fn who_is_told_outlives_the_node_and_there_are_only_so_many() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("notifiers.json");
    let all = Notifications::open(path.clone());
    for number in 0..MOST {
        let one = Notifier { name: format!("hook-{number}"), ..notifier("https://hooks.example.org/x") };
        all.set(one).expect("kept");
    }
    assert_eq!(all.set(notifier("https://hooks.example.org/x")).expect_err("one more").code, Code::TooMany);
    let changed = Notifier { name: "hook-0".into(), ..notifier("https://hooks.example.org/y") };
    all.set(changed.clone()).expect("one that is there is changed");
    all.remove("hook-1").expect("removed");
    assert_eq!(all.remove("hook-1").expect_err("again").code, Code::NotFound);
    let again = Notifications::open(path.clone()).configured();
    assert_eq!((again.len(), again.get("hook-0")), (MOST - 1, Some(&changed)));
    // What cannot be kept is not so.
    std::fs::remove_dir_all(dir.path()).expect("removed");
    assert_eq!(all.remove("hook-0").expect_err("no directory").code, Code::Io);
    assert_eq!(all.configured(), again);
}

#[test]
fn a_damaged_file_is_set_aside_and_told_of() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("notifiers.json");
    std::fs::write(&path, "[{\"name\": \"hook\", \"url").expect("written");
    let all = Notifications::open(path.clone());
    let told = all.issues();
    assert_eq!((told.len(), told[0].code.as_str()), (1, "notify-failed"));
    all.set(notifier("https://hooks.example.org/x")).expect("kept");
    assert_eq!(all.issues(), []);
    let aside = std::fs::read_to_string(dir.path().join("notifiers.damaged")).expect("it is there still");
    assert!(aside.contains("hook"), "{aside}");
    assert_eq!(Notifications::open(path).configured().len(), 1);
}

/// Real sockets: what is sent is what a server sees, and what it answers counts.
#[tokio::test]
async fn a_server_sees_the_body_and_the_secret() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("secret");
    crate::data_dir::replace_file(&path, b"Bearer hunter2\n").expect("written");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in ["204 No Content", "500 Broken", "302 Found\r\nLocation: http://169.254.169.254/"] {
            let (mut socket, _) = listener.accept().await.expect("a client");
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"}") {
                let mut some = [0; 1024];
                let count = socket.read(&mut some).await.expect("bytes");
                bytes.extend(&some[..count]);
            }
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
            socket.write_all(answer.as_bytes()).await.expect("answered");
            seen.push(String::from_utf8(bytes).expect("text"));
        }
        seen
    });
    let secret_file = Some(path.to_string_lossy().into_owned());
    let hook = Notifier { secret_file, ..notifier(&format!("http://{at}/a?b=c")) };
    let refused = Notifier { allow_local: false, ..hook.clone() };
    assert!(send::send(&refused, "{}".into()).await.expect_err("local").contains("--allow-local"));
    send::send(&hook, "{\"event\":\"test\"}".into()).await.expect("taken");
    assert!(send::send(&hook, "{}".into()).await.expect_err("500").contains("500"));
    assert!(send::send(&hook, "{}".into()).await.expect_err("a redirection is not followed").contains("302"));
    let seen = server.await.expect("served");
    let first = seen[0].to_lowercase();
    assert!(
        first.starts_with("post /a?b=c http/1.1") && first.contains("authorization: bearer hunter2"),
        "{first}"
    );
    assert!(
        first.contains("content-type: application/json") && first.ends_with("{\"event\":\"test\"}"),
        "{first}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fine = notifier("https://hooks.example.org/x");
    assert!(check(&fine).is_ok());
    for wrong in [
        Notifier { name: "../x".into(), ..fine.clone() },
        Notifier { name: String::new(), ..fine.clone() },
        Notifier { url: "gopher://x/".into(), ..fine.clone() },
        Notifier { header: Some("Host".into()), ..fine.clone() },
        Notifier { secret_file: Some("relative".into()), ..fine.clone() },
        Notifier { url: "https://169.254.169.254/".into(), allow_local: false, ..fine.clone() },
        Notifier { url: "http://[::1]/".into(), allow_local: false, ..fine.clone() },
    ] {
        assert!(check(&wrong).is_err(), "{wrong:?}");
    }
    // A secret that will not be sent is refused when it is set, and nothing is kept.
    let dir = tempfile::tempdir().expect("temp dir");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "x\n").expect("written");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("set");
    let all = Notifications::open(dir.path().join("notifiers.json"));
    let readable =
        Notifier { secret_file: Some(secret.display().to_string()), ..notifier("http://127.0.0.1/") };
    assert!(all.set(readable).expect_err("others may read it").detail.contains("chmod"));
    assert!(all.list().is_empty());
}
