//! What agents prepare when another one cannot take part.

use super::*;

/// One prepares for as long as nobody ends it, the other cannot take part once the first one does that.
#[derive(Default)]
struct Pair {
    prepares: AtomicBool,
    has_let_go: AtomicBool,
}

struct Prepares<'a>(&'a Pair);

struct Cannot<'a>(&'a Pair);

impl Runner for Prepares<'_> {
    fn system(&self) -> System {
        System::default()
    }

    fn run(&self, _: &Job, _: &TimeSpan, control: &dyn Control) -> Result<SpanOutcome, EngineError> {
        self.0.prepares.store(true, Ordering::SeqCst);
        while !control.stop() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        // Letting go takes its time, too.
        std::thread::park_timeout(Duration::from_millis(200));
        self.0.has_let_go.store(true, Ordering::SeqCst);
        Err(EngineError("interrupted".into()))
    }
}

impl Runner for Cannot<'_> {
    fn system(&self) -> System {
        System::default()
    }

    fn run(&self, _: &Job, _: &TimeSpan, control: &dyn Control) -> Result<SpanOutcome, EngineError> {
        while !self.0.prepares.load(Ordering::SeqCst) && !control.stop() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Err(EngineError("it has no such volume".into()))
    }
}

#[test]
fn one_that_cannot_take_part_ends_what_the_others_prepare() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let (pair, secret, clock) = (Pair::default(), secret(), clock());
        let ((bad, failed), _) = with_runner(&secret, &Cannot(&pair), &clock, |bad| {
            let both = with_runner(&secret, &Prepares(&pair), &clock, |good| {
                let failed =
                    coordinate(&[good.to_owned(), bad.to_owned()], &job(dir.path(), 1), &Quiet::default()).1;
                assert!(pair.has_let_go.load(Ordering::SeqCst), "the next run finds it free");
                failed
            });
            (bad.to_owned(), both.0)
        });
        assert_eq!(failed.unwrap().0, format!("agent {bad}: it has no such volume"));
    });
}

/// An agent that takes no job, and says so late: once the other one prepares, or has not for half a second.
fn refuses(listener: &TcpListener, other: &Pair) {
    let (stream, _) = listener.accept().unwrap();
    let (mut sender, mut receiver) = accept(stream, &secret(), &SystemEntropy).unwrap();
    while let Ok(bytes) = receiver.receive() {
        if let ToAgent::Job(_) = ToAgent::decode(&bytes).unwrap() {
            let prepares = || {
                std::thread::park_timeout(Duration::from_millis(5));
                other.prepares.load(Ordering::SeqCst)
            };
            (0..100).any(|_| prepares());
            sender.send(&ToCoordinator::Failed("it runs another test".into()).encode()).unwrap();
        }
    }
}

#[test]
fn nobody_makes_anything_before_all_have_taken_the_job() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let (pair, secret, clock) = (Pair::default(), secret(), clock());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bad = listener.local_addr().unwrap().to_string();
        let (failed, lines) = with_runner(&secret, &Prepares(&pair), &clock, |good| {
            std::thread::scope(|scope| {
                scope.spawn(|| refuses(&listener, &pair));
                let names = [good.to_owned(), bad.clone()];
                coordinate(&names, &job(dir.path(), 1), &Quiet::default()).1
            })
        });
        assert_eq!(failed.unwrap().0, format!("agent {bad}: it runs another test"));
        assert!(!pair.prepares.load(Ordering::SeqCst), "a -c file was begun for nothing");
        assert!(lines[0].ends_with("ended before anything was prepared"), "{lines:?}");
    });
}
