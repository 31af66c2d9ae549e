//! Checks of volumes, and their repair.
//!
//! ```text
//!   check             open volume: beside its users      one that does not open: by itself
//!   check --repair    sound? done.  LUNs online? refused.  else: close, plan, open again ──► explain, ask
//!     confirmed                                            close, repair, open again     ──► tell
//! ```

use control_api::{CheckFinding, CheckReport, CheckRequest, Code, LunState, Problem};

use super::status::report;
use super::{Node, VolumeSlot, confirm};
use crate::backend::Repair;

/// Changes of a repair that are listed one by one before it: more than people read.
const LISTED_REPAIRS: usize = 100;

/// What is done about what cannot be repaired.
const NOT_REPAIRED: &str = "this cannot be repaired without guessing: copy what can be read to another volume, or restore it from elsewhere";

/// What a repair would do, for whoever has to agree to it.
fn plan(name: &str, findings: &[CheckFinding]) -> Vec<String> {
    let planned: Vec<&CheckFinding> = findings.iter().filter(|finding| finding.action.is_some()).collect();
    let mut lines = vec![format!("Volume {name} is repaired: {}.", changes(planned.len()))];
    lines.extend(planned.iter().take(LISTED_REPAIRS).map(|finding| {
        let action = finding.action.as_deref().unwrap_or_default();
        format!("{} at {}: {} - {action}.", finding.structure, finding.place, finding.detail)
    }));
    if planned.len() > LISTED_REPAIRS {
        lines.push(format!("And {} more.", planned.len() - LISTED_REPAIRS));
    }
    let left = findings.len() - planned.len();
    if left > 0 {
        lines.push(format!("What cannot be repaired stays as it is: {left} of what a check finds."));
    }
    lines
}

fn changes(count: usize) -> String {
    if count == 1 { "1 change".into() } else { format!("{count} changes") }
}

/// A report on a repair: what has an action is done, the rest is still wrong.
fn repaired(subject: String, mut findings: Vec<CheckFinding>) -> CheckReport {
    let done = findings.iter().filter(|finding| finding.action.is_some()).count();
    let left = findings.len() - done;
    for finding in &mut findings {
        finding.action.get_or_insert_with(|| NOT_REPAIRED.to_owned());
    }
    let sound = findings.is_empty();
    let mut report = report(subject.clone(), findings);
    report.clean = left == 0;
    if !sound {
        report.summary = match left {
            0 => format!("{subject}: {done} repaired, nothing else is wrong."),
            _ => format!("{subject}: {done} repaired, {left} cannot be repaired."),
        };
    }
    report
}

impl Node {
    /// Verifies all structures of a volume, and repairs them when that is asked for and confirmed.
    pub async fn volume_check(&self, name: &str, request: CheckRequest) -> Result<CheckReport, Problem> {
        let (_, pool, _) = self.space(name)?;
        let subject = format!("volume {name}");
        // A volume that does not open is looked at too.
        let findings = match self.volume(name) {
            Ok(handle) => handle.check(request.deep).await?,
            Err(_) => {
                // Looking replays its log, so nobody may open it meanwhile. It may have been opened by now.
                let _turns = self.turn_of_volume(name).await?;
                match self.volume(name) {
                    Ok(handle) => handle.check(request.deep).await?,
                    Err(_) => pool.verify_volume(name, request.deep, Repair::No).await?,
                }
            }
        };
        if !request.repair {
            return Ok(report(subject, findings));
        }
        // A sound volume is not taken away from anybody.
        if findings.is_empty() {
            return Ok(repaired(subject, findings));
        }
        if request.confirm.is_some() {
            confirm(name, request.confirm.as_deref(), Vec::new)?;
            return Ok(repaired(subject, self.closed_volume(name, request.deep, Repair::Apply).await?));
        }
        let planned = self.closed_volume(name, request.deep, Repair::Plan).await?;
        if planned.iter().any(|finding| finding.action.is_some()) {
            confirm(name, None, || plan(name, &planned))?;
        }
        Ok(repaired(subject, planned))
    }

    /// Looks at a volume that nobody uses meanwhile, and opens it again.
    async fn closed_volume(
        &self,
        name: &str,
        deep: bool,
        repair: Repair,
    ) -> Result<Vec<CheckFinding>, Problem> {
        let _turns = self.turn_of_volume(name).await?;
        let (guid, pool, space) = self.space(name)?;
        self.refuse_if_used(name)?;
        let away = VolumeSlot::closed(guid, space.guid, "it is being repaired");
        let away = VolumeSlot { kept_closed: true, ..away };
        let slot = self.volumes.lock().insert(name.to_owned(), away);
        self.serve_pool(Some(guid)).await;
        if let Some(handle) = slot.and_then(|slot| slot.handle) {
            // What a volume with damage cannot write any more is not a reason to leave it as it is.
            if let Err(problem) = handle.close().await {
                tracing::warn!(volume = name, %problem, "volume can't be closed cleanly before its repair");
            }
        }
        let verified = pool.verify_volume(name, deep, repair).await;
        if let Some(slot) = self.volumes.lock().get_mut(name) {
            slot.kept_closed = false;
        }
        self.open_volumes(guid).await;
        self.serve_pool(Some(guid)).await;
        verified
    }

    /// An open volume with LUNs that are served, or files that clients of shares have open, is not closed behind its users'
    /// backs.
    fn refuse_if_used(&self, name: &str) -> Result<(), Problem> {
        if self.volume(name).is_err() {
            return Ok(());
        }
        let online: Vec<String> = self.config.with(|config| {
            let used =
                |lun: &&control_api::LunConfig| self.is_on(*lun, name) && lun.state != LunState::Offline;
            config.luns.iter().filter(used).map(|lun| lun.name.clone()).collect()
        });
        let shares = self.shares_of(name);
        let opens = self.open_list();
        if let Some(open) = opens.iter().find(|open| shares.contains(&open.share)) {
            let detail = format!(
                "volume {name} can't be repaired while clients of share {} have files open.",
                open.share
            );
            return Err(Problem::new(Code::InUse, detail)
                .todo("`holdfast open list` shows who; let them close their files, or close them with `holdfast open close`."));
        }
        let Some(first) = online.first() else { return Ok(()) };
        let detail =
            format!("volume {name} can't be repaired while its LUNs are served: {}.", online.join(", "));
        Err(Problem::new(Code::InUse, detail).todo(format!(
            "Take them offline first (`holdfast lun offline {first} --reason repair`), and online afterwards."
        )))
    }
}
