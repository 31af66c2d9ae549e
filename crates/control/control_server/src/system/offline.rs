//! Checks without a node: disks are opened for reading only, by this process.

use std::path::PathBuf;
use std::sync::Arc;

use block_device::Device;
use block_local::{LocalDisk, OpenMode};
use control_api::{CheckFinding, CheckReport, Code, Problem, Severity};
use pool::{Guid, MemoryWitness, OpenOptions, Pool, Surroundings};
use shard_runtime::{SystemClock, SystemEntropy};

use super::pools::{finding, problem};
use super::shards::SystemShards;
use super::storage::Storage;
use super::volumes;
use crate::backend::{Repair, ShardBackend, log_name};
use crate::node::report;

fn surroundings() -> Surroundings {
    Surroundings {
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        // Nothing is written, so nothing has to be remembered.
        witness: Arc::new(MemoryWitness::default()),
    }
}

fn open(paths: &[PathBuf]) -> Result<Vec<Device>, Problem> {
    let open = |path: &PathBuf| -> Result<Device, Problem> {
        let disk = LocalDisk::open(path, OpenMode::ReadOnly).map_err(|error| {
            let code = if error.is_busy() { Code::InUse } else { Code::Io };
            let problem = Problem::new(code, format!("{}: {error}.", path.display()));
            match code {
                Code::InUse => {
                    problem.todo("A node has it open: ask that node (leave --offline out), or stop it.")
                }
                _ => problem,
            }
        })?;
        Ok(Arc::new(disk))
    };
    paths.iter().map(open).collect()
}

/// The pool on `disks`, for reading only, and which of them do not say that they belong to it. On a shard.
async fn open_pool(disks: &[PathBuf], devices: Vec<Device>) -> Result<(Pool, Vec<CheckFinding>), Problem> {
    let (mut guids, mut strangers): (Vec<Guid>, _) = (Vec::new(), Vec::new());
    for (path, device) in disks.iter().zip(&devices) {
        match pool::probe(device).await.map_err(|error| problem(&error))? {
            Some(probe) => guids.push(probe.superblock.pool),
            None => strangers.push(CheckFinding {
                severity: Severity::Error,
                structure: "superblock".into(),
                place: format!("disk {}", path.display()),
                detail: "neither its first nor its last block is the superblock of a pool".into(),
                action: Some("If it belongs to the pool, replace it as a lost disk.".into()),
            }),
        }
    }
    guids.sort();
    guids.dedup();
    let guid = match guids.as_slice() {
        [one] => *one,
        [] => return Err(Problem::new(Code::NotFound, "There is no pool on these disks.")),
        _ => {
            let names: Vec<String> = guids.iter().map(ToString::to_string).collect();
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("The disks belong to several pools: {}.", names.join(", ")),
            )
            .todo("Name the disks of one pool."));
        }
    };
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(guid, devices, options, surroundings()).await.map_err(|error| problem(&error))?;
    Ok((pool, strangers))
}

/// Runs a check on a shard that is there for it alone.
fn run<R>(check: impl FnOnce() -> R + Send + 'static) -> Result<Vec<CheckFinding>, Problem>
where
    R: Future<Output = Result<Vec<CheckFinding>, Problem>> + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Problem::new(Code::Io, error.to_string()))?;
    runtime.block_on(async {
        let shards = SystemShards::start(Some(1))?;
        let result = shards.run(0, check).await;
        shards.stop().await?;
        result
    })
}

/// Verifies the structures of the pool that is on `disks`.
pub(crate) fn offline_pool(disks: &[PathBuf], deep: bool) -> Result<CheckReport, Problem> {
    let devices = open(disks)?;
    let disks = disks.to_vec();
    let findings = run(move || async move {
        let (pool, mut findings) = open_pool(&disks, devices).await?;
        let place = format!("pool {}", pool.name());
        findings.extend(pool.check(deep).await.into_iter().map(|found| finding(found, &place)));
        Ok(findings)
    })?;
    Ok(report("pool".into(), findings))
}

/// Verifies the structures of `volume`, of the pool that is on `disks`.
pub(crate) fn offline_volume(volume: &str, disks: &[PathBuf], deep: bool) -> Result<CheckReport, Problem> {
    let devices = open(disks)?;
    let (name, disks) = (volume.to_owned(), disks.to_vec());
    let findings = run(move || async move {
        let (pool, _) = open_pool(&disks, devices).await?;
        let Some(space) = pool.space(&name) else {
            return Err(Problem::new(Code::NotFound, format!("pool {} has no volume {name}.", pool.name())));
        };
        let environment = volumes::environment(&surroundings());
        // A log in another pool is not looked for: what is only there would be missing.
        let log = pool.space(&log_name(&name, &space.guid().to_string()));
        let storage = Storage::new(space, log, &surroundings());
        volumes::verify(storage, environment, deep, Repair::No).await
    })?;
    Ok(report(format!("volume {volume}"), findings))
}
