//! What hosts have written to LUNs whose writes are given up, and lose when their pool goes to another node.

use control_api::{Code, Problem, many};
use uuid::Uuid;

use super::Node;

/// LUNs, and hosts of each, that are named at most: what another node is told has to fit into its answer.
const LUNS_NAMED: usize = 6;
const HOSTS_NAMED: usize = 3;

/// Whether it was agreed to what is lost by something that is done to what has this `name`.
///
/// # Errors
/// When it was agreed to for another one.
pub(super) fn agreed(name: &str, confirm: Option<&str>) -> Result<bool, Problem> {
    super::confirm(name, confirm, Vec::new).map(|()| true).or_else(|problem| match problem.code {
        Code::ConfirmationRequired => Ok(false),
        _ => Err(problem),
    })
}

/// What is lost with the write cache of a LUN.
fn lost(lun: &str, hosts: &[String]) -> String {
    let named: Vec<&str> = hosts.iter().take(HOSTS_NAMED).map(String::as_str).collect();
    let more = hosts.len().saturating_sub(HOSTS_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let anew = if hosts.len() == 1 { "it is" } else { "they are" };
    format!(
        "LUN {lun} loses all that {}{more} had written to its write cache, flushed or not; {anew} to be started anew.",
        named.join(", ")
    )
}

/// The same of several.
fn all_lost(wrote: &[(String, Vec<String>)]) -> Vec<String> {
    let mut told: Vec<String> = wrote.iter().take(LUNS_NAMED).map(|(lun, hosts)| lost(lun, hosts)).collect();
    let more = wrote.len().saturating_sub(LUNS_NAMED);
    if more > 0 {
        told.push(format!("So {} {}.", if more == 1 { "does" } else { "do" }, many(more as u64, "more LUN")));
    }
    told
}

impl Node {
    /// What hosts lose when a pool of this node goes to another one, or all of them do: a sentence for each LUN.
    pub(super) fn discards_of(&self, pool: Option<Uuid>) -> Vec<String> {
        let mut wrote = self.wrote();
        if let Some(pool) = pool.filter(|_| !wrote.is_empty()) {
            let places = self.places();
            wrote.retain(|(lun, _)| self.lun_config(lun).is_ok_and(|lun| places.of(&lun) == Some(pool)));
        }
        all_lost(&wrote)
    }

    /// The same when a volume is closed.
    pub(super) fn discards_of_volume(&self, volume: &str) -> Vec<String> {
        let mut wrote = self.wrote();
        wrote.retain(|(lun, _)| self.lun_config(lun).is_ok_and(|lun| upcase::same(&lun.volume, volume)));
        all_lost(&wrote)
    }

    /// Hosts that have written to write caches of LUNs which are served here.
    fn wrote(&self) -> Vec<(String, Vec<String>)> {
        let caches = self.backends.iscsi.caches().into_iter();
        let mut wrote: Vec<_> = caches.map(|(lun, now)| (lun, now.wrote)).collect();
        wrote.retain(|(_, hosts)| !hosts.is_empty());
        wrote.sort();
        wrote
    }

    /// Asks before hosts lose what they have written to LUNs of a pool, or of all pools of this node: by the `name` of what goes.
    ///
    /// # Errors
    /// When they do.
    pub(super) fn refuse_to_discard(&self, name: &str, pool: Option<Uuid>) -> Result<(), Problem> {
        let lost = self.discards_of(pool);
        if lost.is_empty() { Ok(()) } else { Err(Problem::confirmation(name, lost)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_what_is_named_within_bounds() {
        let hosts = |count: usize| (0..count).map(|number| format!("iqn.h{number}")).collect::<Vec<_>>();
        assert_eq!(
            lost("desk", &hosts(1)),
            "LUN desk loses all that iqn.h0 had written to its write cache, flushed or not; it is to be started anew."
        );
        assert!(lost("desk", &hosts(5)).contains("iqn.h0, iqn.h1, iqn.h2 and 2 more had written"));
        let wrote: Vec<_> = (0..300).map(|number| (format!("l{number}"), hosts(2))).collect();
        let told = all_lost(&wrote);
        assert_eq!((told.len(), &*told[LUNS_NAMED]), (LUNS_NAMED + 1, "So do 294 more LUNs."));
        // Names are as long as iSCSI lets them be; an answer of another node has 16 KiB, and says it twice.
        let long = vec![("l".repeat(64), vec!["n".repeat(223); 100]); 100];
        assert!(all_lost(&long).concat().len() < 7 << 10);
    }

    #[test]
    fn it_is_agreed_to_by_name() {
        assert_eq!(agreed("p", None), Ok(false));
        assert_eq!(agreed("p", Some("p")), Ok(true));
        assert_eq!(agreed("p", Some("q")).expect_err("another one").code, Code::InvalidRequest);
    }
}
