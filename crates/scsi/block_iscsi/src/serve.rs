//! A lane's task: jobs become commands, and answers become ends of jobs; a session that breaks is replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockErrorKind;
use iscsi_client::{Buffers, ClientError, Command, CommandEnd, Ended, Transfer};
use scsi_defs::{asc, request};
use shard_runtime::{Monotonic, sleep};

use crate::connection::{Connection, slots_of};
use crate::greeting::{self, PAUSE};
use crate::lane::{ATTEMPTS, Data, Job, Lane};
use crate::shared::Shared;
use crate::verdict::{Verdict, tells_of_cut, tells_of_start, verdict};

/// Pauses between attempts to connect, up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// An idle session looks at its clock this often.
const IDLE: Duration = Duration::from_secs(5);

/// Why a write is refused that was let in before.
const FORGOTTEN: &str = "the target has forgotten this node's registration";

/// Jobs under way, by tag.
struct Slots {
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Jobs for which the target was busy.
    held: Vec<(Monotonic, Job)>,
}

impl Slots {
    fn new(depth: usize) -> Self {
        Self { jobs: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect(), held: Vec::new() }
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.jobs.len() && self.held.is_empty()
    }

    fn release(&mut self, tag: usize) -> Option<Job> {
        let job = self.jobs.get_mut(tag)?.take()?;
        self.free.push(tag);
        Some(job)
    }

    /// Everything that is under way, which ends here without an answer, or held.
    fn take_all(&mut self) -> Vec<Job> {
        let tags = 0..self.jobs.len();
        let mut jobs: Vec<Job> = tags.filter_map(|tag| self.release(tag)).collect();
        jobs.iter_mut().for_each(|job| job.cut = true);
        jobs.extend(self.held.drain(..).map(|(_, job)| job));
        jobs
    }

    /// When the oldest command was begun.
    fn oldest(&self) -> Option<Monotonic> {
        self.jobs.iter().flatten().map(|job| job.begun).min()
    }
}

/// Whether what is under way will be answered. A target that does not answer commands which another initiator has ended says so with its
/// next answer (a unit attention): where no other command goes there, a question does.
struct Doubt {
    /// The tag of the question.
    tag: usize,
    asking: bool,
    /// When the last one was begun.
    asked: Monotonic,
    /// Of [`Shared::doubts`], those that have been looked into.
    known: u64,
}

impl Doubt {
    fn new(shared: &Shared, tag: usize) -> Self {
        Self { tag, asking: false, asked: Monotonic(0), known: shared.doubts.load(Ordering::Acquire) }
    }

    /// Asks if there is a reason to: what is under way has been for a while, or other lanes have heard something.
    fn look(
        &mut self,
        shared: &Shared,
        connection: &mut Connection,
        slots: &Slots,
        now: Monotonic,
    ) -> Result<(), ClientError> {
        let Some(oldest) = slots.oldest() else { return Ok(()) };
        let doubts = shared.doubts.load(Ordering::Acquire);
        let long = now.since(oldest.max(self.asked)) >= shared.settings.times.ask;
        if self.asking || connection.state.is_full() || !(long || doubts != self.known) {
            return Ok(());
        }
        (self.asking, self.asked, self.known) = (true, now, doubts);
        let command = Command { lun: shared.lun, cdb: &request::TEST_UNIT_READY, transfer: Transfer::None };
        connection.start(now, self.tag, &command, slots)
    }
}

impl Buffers for Slots {
    fn input(&mut self, tag: usize) -> &mut [u8] {
        match self.jobs.get_mut(tag) {
            Some(Some(Job { order, .. })) => match &mut order.data {
                Data::In(buf) => buf,
                _ => &mut [],
            },
            _ => &mut [],
        }
    }

    fn output(&self, tag: usize) -> &[u8] {
        match self.jobs.get(tag) {
            Some(Some(Job { order, .. })) => match &order.data {
                Data::Out(buf) => buf,
                _ => &[],
            },
            _ => &[],
        }
    }
}

/// Serves a lane from its first connection until the disk is closed or gone.
pub(crate) async fn run(shared: Arc<Shared>, number: usize, mut connection: Connection) {
    let Some(lane) = shared.lanes.get(number).map(Arc::clone) else { return };
    let mut slots = Slots::new(slots_of(shared.settings.login.depth));
    loop {
        let error = match serve(&shared, &lane, &mut connection, &mut slots).await {
            Ok(()) => return connection.close(&shared.settings).await,
            Err(error) => error,
        };
        // The target's end of it ends before we log in anew, at the latest then.
        drop(connection);
        if shared.is_over() {
            // Whoever opened the disk anew has ended the session, which was on its way out.
            return slots.take_all().into_iter().for_each(|job| shared.fail_closed(job));
        }
        tracing::warn!("{}: the session {number} has broken, and is opened anew: {error}", shared.name);
        match reconnect(&shared, &lane, number).await {
            Some(again) => connection = again,
            None => {
                slots.take_all().into_iter().for_each(|job| shared.fail_closed(job));
                return;
            }
        }
        // The old session's commands have ended: they may be begun again. But where the target has forgotten our registration, the disk
        // may be another owner's by now, whom nothing keeps us from: no write of before is sent there.
        let lost = shared.registration.lock().lost;
        let (fenced, rest): (Vec<Job>, Vec<Job>) =
            slots.take_all().into_iter().partition(|job| lost && matches!(job.order.data, Data::Out(_)));
        fenced.into_iter().for_each(|job| {
            job.fail(BlockErrorKind::Fenced, FORGOTTEN);
        });
        let (again, over) = rest.into_iter().partition(|job: &Job| job.order.repeatable);
        lane.put_back(again);
        let over: Vec<Job> = over;
        over.into_iter().for_each(|job| {
            job.fail(
                BlockErrorKind::Io,
                "the session broke before it was answered, and it must not be done twice",
            );
        });
    }
}

/// Connects again under the same name; `None` when the disk is closed, or gone.
async fn reconnect(shared: &Shared, lane: &Lane, number: usize) -> Option<Connection> {
    let settings = &shared.settings;
    let (begun, login) = (settings.clock.now(), settings.login_of(number));
    let mut pause = Duration::from_millis(5);
    loop {
        if shared.is_over() {
            return None;
        }
        let attempt = async {
            let mut connection = Connection::open(settings, &login).await?;
            shared.meet_again(&mut connection).await?;
            Ok::<_, ClientError>(connection)
        };
        let last = match attempt.await {
            Ok(connection) => return Some(connection),
            Err(error) => error,
        };
        let away = settings.clock.now().since(begun);
        if !last.is_lost() || away >= settings.times.away {
            shared.give_up(BlockErrorKind::Gone, &format!("the target stays away: {last}"));
            return None;
        }
        // Woken by a close of the disk, besides.
        let _ = shard_runtime::timeout(pause, lane.work.notified()).await;
        sleep(Duration::from_millis(1)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Works through the lane's jobs; ends with success when the disk is closed and nothing is under way.
async fn serve(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    connection: &mut Connection,
    slots: &mut Slots,
) -> Result<(), ClientError> {
    let settings = &shared.settings;
    let mut ended: Vec<Ended> = Vec::new();
    let mut doubt = Doubt::new(shared, slots.jobs.len());
    loop {
        let now = settings.clock.now();
        if shared.is_over() {
            slots.take_all().into_iter().for_each(|job| shared.fail_closed(job));
            return Ok(());
        }
        begin(shared, lane, connection, slots, now)?;
        doubt.look(shared, connection, slots, now)?;
        if slots.oldest().is_some_and(|begun| now.since(begun) > settings.times.command) {
            return Err(ClientError::Protocol(
                "it does not carry a command out in the time that one may take",
            ));
        }
        let patience = match (slots.held.is_empty(), slots.is_idle()) {
            (false, _) => PAUSE,
            (true, false) => settings.times.ask.min(IDLE),
            (true, true) => IDLE,
        };
        let called = lane.work.notified();
        connection.turn(settings, patience, called, slots, &mut ended).await?;
        let now = settings.clock.now();
        let mut cut = false;
        for Ended { tag, end } in ended.drain(..) {
            let job = slots.release(tag);
            doubt.asking &= tag != doubt.tag;
            match verdict(end) {
                Verdict::Again(attention) => {
                    hear(shared, attention);
                    cut |= tells_of_cut(attention);
                }
                Verdict::Failed(BlockErrorKind::Fenced, _) if tag != doubt.tag => shared.doubt(),
                // Registered as we were, the question would have been let through.
                Verdict::Failed(BlockErrorKind::Fenced, _) => cut |= shared.registration.lock().key.is_some(),
                _ => {}
            }
            if let Some(job) = job {
                finish(shared, lane, slots, job, end, now);
            }
        }
        if cut {
            // Of what still runs some may have been ended, of which nothing will be heard; what has not been is begun again.
            connection.abort_all(shared.lun)?;
            shared.doubt();
        }
    }
}

/// Begins jobs as long as there is place.
fn begin(
    shared: &Shared,
    lane: &Lane,
    connection: &mut Connection,
    slots: &mut Slots,
    now: Monotonic,
) -> Result<(), ClientError> {
    let (due, later) =
        std::mem::take(&mut slots.held).into_iter().partition(|(since, _)| now.since(*since) >= PAUSE);
    slots.held = later;
    let due: Vec<(Monotonic, Job)> = due;
    lane.put_back(due.into_iter().map(|(_, job)| job).collect());
    while !connection.state.is_full()
        && let Some(tag) = slots.free.pop()
    {
        let Some(mut job) = lane.take() else {
            slots.free.push(tag);
            return Ok(());
        };
        if job.order.changes && shared.registration.lock().lost {
            // It was let in before the target forgot who we are: nothing keeps us from a disk that may be another owner's by now.
            slots.free.push(tag);
            job.fail(BlockErrorKind::Fenced, FORGOTTEN);
            continue;
        }
        job.begun = now;
        job.attempts += 1;
        if job.attempts > ATTEMPTS {
            slots.free.push(tag);
            job.fail(BlockErrorKind::Io, "the target does not carry it out, however often it is asked to");
            continue;
        }
        let (cdb, len, transfer) = (job.order.cdb, job.order.cdb_len, job.order.data.transfer());
        if let Some(slot) = slots.jobs.get_mut(tag) {
            *slot = Some(job);
        }
        let command = Command { lun: shared.lun, cdb: cdb.get(..len).unwrap_or_default(), transfer };
        connection.start(now, tag, &command, slots)?;
    }
    Ok(())
}

/// What becomes of a job that has ended.
fn finish(
    shared: &Arc<Shared>,
    lane: &Lane,
    slots: &mut Slots,
    mut job: Job,
    end: CommandEnd,
    now: Monotonic,
) {
    let verdict = verdict(end);
    if job.order.cached && matches!(verdict, Verdict::Done | Verdict::Failed(..)) {
        // Here, not where the caller is told: the next thing this session hears may be that the target has started anew. Also what
        // has failed may be there in part.
        shared.written.fetch_add(1, Ordering::AcqRel);
    }
    match verdict {
        Verdict::Done => {
            let wanted = match &job.order.data {
                Data::None => 0,
                Data::In(buf) => buf.len(),
                Data::Out(buf) => buf.len(),
            };
            let moved = end.moved as usize;
            if moved == wanted || (job.order.may_be_short && moved < wanted) {
                job.end(Ok(moved));
            } else {
                let why = format!("the target moved {moved} bytes of {wanted} and called it done");
                job.fail(BlockErrorKind::Io, &why);
            }
        }
        Verdict::Again(_) => lane.put_back(vec![job]),
        Verdict::Cut(why) => {
            job.cut = true;
            match job.order.repeatable {
                true => lane.put_back(vec![job]),
                false => job.fail(BlockErrorKind::Io, &format!("{why}, and it must not be done twice")),
            }
        }
        Verdict::Busy(why) => {
            let since = *job.busy_since.get_or_insert(now);
            if now.since(since) > shared.settings.times.busy {
                job.fail(BlockErrorKind::Io, &why);
            } else {
                slots.held.push((now, job));
            }
        }
        Verdict::Failed(kind, why) => {
            if kind == BlockErrorKind::OutOfRange {
                shared.look_at_size();
            }
            job.fail(kind, &why);
        }
    }
}

/// What the target has to say.
fn hear(shared: &Arc<Shared>, attention: u16) {
    if attention == asc::CAPACITY_CHANGED {
        shared.look_at_size();
    } else if tells_of_start(attention) {
        shared.hear_of_start();
    }
}

/// Asks for the size anew.
pub(crate) async fn learn_size(shared: Arc<Shared>) {
    let order = crate::shared::order_in(&scsi_defs::request::READ_CAPACITY_16, 32).short();
    if let Ok((Data::In(buf), moved)) = shared.carry_out(order).await
        && let Some(capacity) = greeting::capacity(buf.get(..moved).unwrap_or_default())
    {
        shared.set_size(capacity);
    }
}
