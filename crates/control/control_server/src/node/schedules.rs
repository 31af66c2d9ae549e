//! Schedules of snapshots: rows of the volume's durable state, so that they go where the volume goes.
//!
//! A schedule is due when the current period - the shortest one of which it keeps any - has none of its snapshots yet. Of
//! its snapshots those stay that are the first of one of the latest hours, days, weeks or months that have any, as many as
//! it says; so an outage costs none of what is kept. Snapshots that people took are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{Code, Done, Problem, SnapshotSchedule, check_name};
use file_store::{FileStore, Snapshot, StateChange};
use vhdx::Held;

use super::calendar::{civil, stamp};
use super::snapshots::take;
use super::{Node, confirm, missing};
use crate::files::problem;
use crate::files::snapshots::with_snapshots;

/// The table of durable state.
const TABLE: &str = "snapshot_schedule";
const NANOS: u64 = 1_000_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Period {
    Hour,
    Day,
    Week,
    Month,
}

impl Period {
    /// The number of the period that a time, in seconds since 1970, lies in.
    fn of(self, seconds: u64) -> u64 {
        match self {
            Self::Hour => seconds / HOUR,
            Self::Day => seconds / DAY,
            // 1970-01-01 was a Thursday.
            Self::Week => (seconds / DAY + 3) / 7,
            Self::Month => {
                let (year, month, _) = civil(seconds / DAY);
                year * 12 + month
            }
        }
    }
}

/// How many of each period stay; the shortest first.
fn kept(schedule: &SnapshotSchedule) -> Vec<(Period, usize)> {
    let all = [
        (Period::Hour, schedule.hourly),
        (Period::Day, schedule.daily),
        (Period::Week, schedule.weekly),
        (Period::Month, schedule.monthly),
    ];
    all.into_iter().filter(|(_, keep)| *keep > 0).map(|(period, keep)| (period, keep as usize)).collect()
}

/// Whether a snapshot is to be taken now, of a schedule that took some at `taken` (seconds since 1970).
fn is_due(schedule: &SnapshotSchedule, taken: &[u64], now: u64) -> bool {
    let Some((period, _)) = kept(schedule).first().copied() else { return false };
    // A clock that was set back makes none.
    !taken.iter().any(|at| period.of(*at) >= period.of(now))
}

/// Which of the times at which snapshots were taken are not kept any more.
fn overdue(schedule: &SnapshotSchedule, taken: &[u64]) -> BTreeSet<u64> {
    let mut keep = BTreeSet::new();
    for (period, count) in kept(schedule) {
        let mut firsts: BTreeMap<u64, u64> = BTreeMap::new();
        for at in taken {
            let first = firsts.entry(period.of(*at)).or_insert(*at);
            *first = (*first).min(*at);
        }
        keep.extend(firsts.into_values().rev().take(count));
    }
    taken.iter().copied().filter(|at| !keep.contains(at)).collect()
}

fn check(schedule: &SnapshotSchedule) -> Result<(), Problem> {
    check_name("schedule", &schedule.name)?;
    if schedule.name.len() > 100 {
        return Err(Problem::new(
            Code::InvalidRequest,
            "A schedule's name has at most 100 bytes: its snapshots get longer ones.",
        ));
    }
    let counts = kept(schedule);
    if counts.is_empty() {
        return Err(Problem::new(Code::InvalidRequest, "The schedule keeps no snapshot.")
            .todo("Say how many stay: --hourly, --daily, --weekly, --monthly."));
    }
    if counts.iter().any(|(_, keep)| *keep > SnapshotSchedule::KEEP_MAX as usize) {
        let most = SnapshotSchedule::KEEP_MAX;
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("A schedule keeps at most {most} of each kind."),
        ));
    }
    Ok(())
}

async fn schedules(store: &dyn FileStore) -> Result<Vec<SnapshotSchedule>, Problem> {
    let rows = store.state_scan(TABLE, &[]).await.map_err(|error| problem(&error))?;
    // What a newer release wrote and this one cannot read is left alone.
    Ok(rows.iter().filter_map(|row| serde_json::from_slice(&row.value).ok()).collect())
}

async fn put(store: &dyn FileStore, name: &str, value: Option<Vec<u8>>) -> Result<(), Problem> {
    let change = StateChange { table: TABLE.into(), key: name.as_bytes().to_vec(), value };
    store.state_write(vec![change]).await.map_err(|error| problem(&error))
}

/// The snapshots of a schedule.
async fn own(store: &dyn FileStore, schedule: &SnapshotSchedule) -> Result<Vec<Snapshot>, Problem> {
    let all = with_snapshots(store)?.snapshots().await.map_err(|error| problem(&error))?;
    Ok(all.into_iter().filter(|snapshot| snapshot.maker == schedule.name).collect())
}

/// When they were taken, in seconds since 1970.
fn times(own: &[Snapshot]) -> Vec<u64> {
    own.iter().map(|snapshot| snapshot.created / NANOS).collect()
}

/// Schedules of a store, each with whether a snapshot is to be taken of it now.
async fn with_due(store: &dyn FileStore, now: u64) -> Result<Vec<(SnapshotSchedule, bool)>, Problem> {
    let mut all = Vec::new();
    for schedule in schedules(store).await? {
        let due = is_due(&schedule, &times(&own(store, &schedule).await?), now);
        all.push((schedule, due));
    }
    Ok(all)
}

/// Takes and deletes what is due of a schedule; images are `held` until it is taken.
async fn run(
    store: &dyn FileStore,
    schedule: &SnapshotSchedule,
    now: u64,
    held: Vec<Held>,
) -> Result<(), Problem> {
    let snapshots = with_snapshots(store)?;
    let mut there = own(store, schedule).await?;
    if is_due(schedule, &times(&there), now) {
        let name = format!("{}-{}", schedule.name, stamp(now));
        take(store, name, &schedule.path, schedule.quiesce, &schedule.name).await?;
        there = own(store, schedule).await?;
    }
    drop(held);
    let gone = overdue(schedule, &times(&there));
    for snapshot in there.iter().filter(|snapshot| gone.contains(&(snapshot.created / NANOS))) {
        snapshots.delete_snapshot(snapshot.id).await.map_err(|error| problem(&error))?;
        tracing::debug!(snapshot = snapshot.name, "a snapshot is not kept any longer");
    }
    Ok(())
}

impl Node {
    /// Schedules of a volume.
    pub async fn schedule_list(&self, volume: &str) -> Result<Vec<SnapshotSchedule>, Problem> {
        self.with_store(volume, async move |store| schedules(&*store).await).await
    }

    /// Makes a schedule, or replaces it; what is due is taken soon.
    pub async fn schedule_set(
        &self,
        volume: &str,
        schedule: SnapshotSchedule,
    ) -> Result<SnapshotSchedule, Problem> {
        check(&schedule)?;
        let row = serde_json::to_vec(&schedule).map_err(|error| {
            Problem::new(Code::Internal, format!("the schedule can't be written: {error}"))
        })?;
        let written = schedule.clone();
        self.with_store(volume, async move |store| {
            with_snapshots(&*store)?;
            // What is not there cannot be meant.
            crate::files::resolve(&*store, &written.path).await?;
            put(&*store, &written.name, Some(row)).await
        })
        .await?;
        Ok(schedule)
    }

    /// Deletes a schedule; its snapshots stay.
    pub async fn schedule_delete(
        &self,
        volume: &str,
        name: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let there = self.schedule_list(volume).await?.into_iter().any(|schedule| schedule.name == name);
        if !there {
            return Err(missing("schedule", name, "holdfast snapshot schedule list"));
        }
        confirm(name, confirmed.as_deref(), || {
            vec![format!(
                "Schedule {name} of volume {volume} is deleted; its snapshots stay until you delete them."
            )]
        })?;
        let owned = name.to_owned();
        self.with_store(volume, async move |store| put(&*store, &owned, None).await).await?;
        Ok(Done::new(format!("Schedule {name} is deleted; its snapshots stay.")))
    }

    /// Does what is due of the schedules of all open volumes.
    pub(super) async fn run_schedules(&self) {
        let open: Vec<String> = {
            let volumes = self.volumes.lock();
            volumes.iter().filter(|(_, slot)| slot.handle.is_some()).map(|(name, _)| name.clone()).collect()
        };
        let (_, now) = self.times();
        for volume in open {
            let found = self.with_store(&volume, async move |store: Arc<dyn FileStore>| {
                match store.snapshot_store() {
                    Some(_) => with_due(&*store, now).await,
                    None => Ok(Vec::new()),
                }
            });
            let found = match found.await {
                Ok(found) => found,
                // It is about to close, or says elsewhere why it does not serve.
                Err(problem) => {
                    tracing::debug!(volume, %problem, "schedules could not be looked at");
                    continue;
                }
            };
            for (schedule, due) in found {
                let name = schedule.name.clone();
                if let Err(problem) = self.run_schedule(&volume, schedule, due, now).await {
                    tracing::warn!(volume, schedule = name, %problem, "a scheduled snapshot was not taken");
                }
            }
        }
    }

    async fn run_schedule(
        &self,
        volume: &str,
        schedule: SnapshotSchedule,
        due: bool,
        now: u64,
    ) -> Result<(), Problem> {
        let quiesces = due && schedule.quiesce;
        let held = if quiesces { self.hold_images(volume, &schedule.path).await? } else { Vec::new() };
        self.with_store(volume, async move |store| run(&*store, &schedule, now, held).await).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_mondays() {
        // A Sunday and the Monday after it.
        assert_eq!(Period::Week.of(4 * DAY - 1) + 1, Period::Week.of(4 * DAY));
    }

    #[test]
    fn the_first_of_each_period_stays() {
        let schedule = SnapshotSchedule {
            name: "s".into(),
            hourly: 3,
            daily: 4,
            weekly: 2,
            monthly: 2,
            ..SnapshotSchedule::default()
        };
        let (mut taken, start) = (Vec::new(), 20_454 * DAY);
        for now in (start..start + 90 * DAY).step_by(600) {
            if is_due(&schedule, &taken, now) {
                taken.push(now);
            }
            let gone = overdue(&schedule, &taken);
            taken.retain(|at| !gone.contains(at));
            assert!(taken.len() <= 3 + 4 + 2 + 2);
        }
        let hours: Vec<u64> = taken.iter().rev().take(3).map(|at| (start + 90 * DAY - at) / HOUR).collect();
        assert_eq!(hours, [1, 2, 3]);
        let days = (86..90).map(|day| start + day * DAY);
        assert!(days.into_iter().all(|day| taken.contains(&day)), "{taken:?}");
        // March 1st and February 1st.
        assert!([59, 31].iter().all(|day| taken.contains(&(start + day * DAY))), "{taken:?}");
        // After an outage of a year, what there was stays.
        let before = taken.len();
        taken.push(start + 455 * DAY);
        assert!(overdue(&schedule, &taken).len() <= 4 && taken.len() > before);
    }

    #[test]
    fn nothing_is_due_twice_or_when_the_clock_goes_back() {
        let daily = SnapshotSchedule { name: "d".into(), daily: 2, ..SnapshotSchedule::default() };
        let now = 20_454 * DAY + 5 * HOUR;
        assert!(is_due(&daily, &[], now));
        assert!(is_due(&daily, &[now - DAY], now));
        assert!(!is_due(&daily, &[now - 3 * HOUR], now));
        assert!(!is_due(&daily, &[now + 2 * DAY], now));
        let none = SnapshotSchedule { name: "n".into(), ..SnapshotSchedule::default() };
        assert!(!is_due(&none, &[], now) && check(&none).is_err());
    }
}
