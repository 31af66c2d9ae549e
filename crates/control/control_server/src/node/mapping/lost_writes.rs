//! Hosts of LUNs that were to be told of writes which may be lost, and do not come back: an administrator ends the waiting for them.

use control_api::{Code, Done, LunForget, Problem};

use super::masking::seen_through;
use super::{Node, confirm};

/// Most hosts that a question or an answer names.
const NAMED: usize = 16;

impl Node {
    /// Forgets hosts that are to be told that writes to a LUN which they had cached may be lost: those that are not connected, or one of them.
    pub async fn lun_forget_lost_writes(&self, name: &str, asked: LunForget) -> Result<Done, Problem> {
        let lun = self.lun_config(name)?;
        let host = asked.host.map(|host| host.to_lowercase());
        let iscsi = &self.backends.iscsi;
        let all = iscsi.lost_writes().into_iter().find(|(lun, _)| lun == name).map(|(_, hosts)| hosts);
        let all = all.unwrap_or_default();
        let groups = self.config.with(|config| config.groups.clone());
        let sessions = self.all_sessions(self.sessions_elsewhere().await).items;
        // One that sees another target only is told of nothing.
        let seen = seen_through(&lun, &groups, &sessions);
        let is_connected =
            |host: &str| seen.iter().any(|session| session.initiator.eq_ignore_ascii_case(host));
        let meant = all.iter().filter(|known| host.as_ref().is_none_or(|host| host == *known));
        let (connected, gone): (Vec<&String>, Vec<&String>) = meant.partition(|known| is_connected(known));
        if gone.is_empty() {
            let detail = match (&*connected, &host) {
                ([], Some(host)) => format!("Host {host} waits for nothing to be told of LUN {name}."),
                ([], None) => {
                    format!("No host waits to be told of lost writes to LUN {name}, as far as is known here.")
                }
                (hosts, _) => format!("{} connected: its next flush tells a host.", are(hosts)),
            };
            return Err(Problem::new(Code::WrongState, detail).todo("Nothing was done."));
        }
        confirm(name, asked.confirm.as_deref(), || {
            vec![format!(
                "{} not told that writes to LUN {name} which a host had cached may be lost. One that comes back all the same takes them for durable.",
                are(&gone)
            )]
        })?;
        // None but those that the question has named: who has come or gone since is not agreed to.
        let mut forgotten = Vec::new();
        for host in gone {
            forgotten.extend(iscsi.forget_lost_writes(name, Some(host.clone())).await?);
        }
        if forgotten.is_empty() {
            let detail = format!("No host was forgotten: each is connected to LUN {name}, or was told.");
            return Err(Problem::new(Code::WrongState, detail).todo("Nothing was done."));
        }
        let hosts: Vec<&String> = forgotten.iter().collect();
        Ok(Done::new(format!("{} waited for no more.", are(&hosts))))
    }
}

/// These hosts are, or this one is.
fn are(hosts: &[&String]) -> String {
    let named: Vec<&str> = hosts.iter().take(NAMED).map(|host| host.as_str()).collect();
    let more = hosts.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let verb = if hosts.len() == 1 { "is" } else { "are" };
    format!("{}{more} {verb}", named.join(", "))
}
