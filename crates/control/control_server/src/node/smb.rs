//! The SMB server as a whole, sessions of both protocols, and what clients have open.

use control_api::{
    Code, Done, Issue, Listener, Problem, Protocol, Session, Severity, Share, SmbConfig, SmbOpen, SmbStatus,
    SmbUpdate, many,
};
use health_rules::FindingCode;
use smb_protocol::security::Sid;

use super::{Node, confirm, missing};

/// For how long an attempt of SMB 1 is worth a line in the status, in seconds: somebody should look at that client.
const SMB1_NEWS: u64 = 24 * 3600;

impl Node {
    /// The SMB server now.
    pub fn smb_show(&self) -> SmbStatus {
        let (config, shares) = self.config.with(|config| (config.smb.clone(), config.shares.len()));
        let mut info = self.backends.smb.info();
        let listeners = self.smb_listeners(&config, std::mem::take(&mut info.listeners));
        SmbStatus {
            config,
            netbios_name: info.netbios_name,
            guid: info.guid,
            listeners,
            offered: info.offered,
            shares: shares as u64,
            sessions: self.backends.smb.sessions().len() as u64,
            opens: self.backends.smb.open_counts().values().sum(),
            smb1_count: info.smb1_count,
            smb1_attempts: info.smb1_attempts,
        }
    }

    /// What listens, and what was to.
    fn smb_listeners(&self, config: &SmbConfig, mut listeners: Vec<Listener>) -> Vec<Listener> {
        for address in &config.listen {
            if !listeners.iter().any(|there| there.address == *address) {
                let problem = self.why_unserved(&format!("SMB address {address}"));
                listeners.push(Listener { address: address.clone(), listening: None, problem });
            }
        }
        listeners
    }

    /// Changes the SMB server.
    pub async fn smb_update(&self, update: SmbUpdate) -> Result<SmbStatus, Problem> {
        let _changing = self.changes.lock().await;
        let mut before = SmbConfig::default();
        let mut written = SmbConfig::default();
        let added: Vec<String> = update.listen.iter().flatten().cloned().collect();
        self.change(|config| {
            let smb = &mut config.smb;
            before.clone_from(smb);
            let SmbUpdate {
                name,
                domain,
                listen,
                signing,
                encryption,
                multichannel,
                min_dialect,
                max_dialect,
                interfaces,
                constraints,
            } = update.clone();
            smb.name = name.unwrap_or_else(|| smb.name.clone());
            smb.domain = domain.unwrap_or_else(|| smb.domain.clone());
            smb.listen = listen.unwrap_or_else(|| smb.listen.clone());
            smb.signing = signing.unwrap_or(smb.signing);
            smb.encryption = encryption.unwrap_or(smb.encryption);
            smb.multichannel = multichannel.unwrap_or(smb.multichannel);
            smb.min_dialect = min_dialect.unwrap_or(smb.min_dialect);
            smb.max_dialect = max_dialect.unwrap_or(smb.max_dialect);
            smb.interfaces = interfaces.unwrap_or_else(|| smb.interfaces.clone());
            smb.constraints = constraints.unwrap_or_else(|| smb.constraints.clone());
            written.clone_from(smb);
            Ok(())
        })
        .await?;
        let now = self.smb_show();
        // An address that can't be had now is not kept: whoever asked is there to choose another.
        let refused = now.listeners.iter().find(|listener| {
            listener.listening.is_none()
                && added.contains(&listener.address)
                && !before.listen.contains(&listener.address)
        });
        if let Some(listener) = refused {
            let why = listener.problem.clone().unwrap_or_else(|| "it does not listen".into());
            let problem = Problem::new(Code::Io, format!("SMB address {}: {why}", listener.address)).todo(
                "Choose an address of this machine and a port that is free; ports below 1024 are for root. Nothing was changed.",
            );
            self.change(|config| {
                put_back(&mut config.smb, &written, &before);
                Ok(())
            })
            .await?;
            return Err(problem);
        }
        Ok(now)
    }

    /// Sessions of both protocols, iSCSI first, the oldest first.
    pub async fn session_list(&self) -> Result<Vec<Session>, Problem> {
        let mut sessions = self.backends.iscsi.sessions();
        sessions.extend(self.backends.smb.sessions());
        let since = |session: &Session| session.smb.as_ref().map_or(0, |smb| smb.since);
        sessions.sort_by_key(|session| (session.protocol, since(session), session.id));
        Ok(sessions)
    }

    /// Ends a session.
    pub async fn session_end(&self, id: u64, confirmed: Option<String>) -> Result<Done, Problem> {
        let name = id.to_string();
        let session = self.session_list().await?.into_iter().find(|session| session.id == id);
        let session = session.ok_or_else(|| missing("session", &name, "holdfast session list"))?;
        confirm(&name, confirmed.as_deref(), || {
            vec![match &session.smb {
                None => format!(
                    "The session of {} with {} ends; commands under way are lost. The initiator may log in again.",
                    session.initiator, session.target
                ),
                Some(smb) => format!(
                    "The session of {} from {} ends, and what it has open is closed ({}). The client may log in again.",
                    smb.user,
                    session.address,
                    many(smb.opens, "open file")
                ),
            }]
        })?;
        let ended = match session.protocol {
            Protocol::Iscsi => self.backends.iscsi.end_session(id).await?,
            Protocol::Smb => self.backends.smb.end_session(id),
        };
        if ended {
            Ok(Done::new(format!("Session {id} has ended.")))
        } else {
            Err(missing("session", &name, "holdfast session list"))
        }
    }

    /// What clients of shares have open, by share and path.
    pub fn open_list(&self) -> Vec<SmbOpen> {
        let mut opens = self.backends.smb.opens();
        opens.sort_by(|a, b| (&a.share, &a.path, a.id).cmp(&(&b.share, &b.path, b.id)));
        opens
    }

    /// Closes what a client has open.
    pub async fn open_close(&self, id: u64, confirmed: Option<String>) -> Result<Done, Problem> {
        let name = id.to_string();
        let open = self.backends.smb.opens().into_iter().find(|open| open.id == id);
        let open = open.ok_or_else(|| missing("open", &name, "holdfast open list"))?;
        confirm(&name, confirmed.as_deref(), || {
            let who = by_whom(&open);
            vec![format!(
                "{} of share {}, open by {who}, is closed; what the client has not written is lost.",
                if open.path.is_empty() { "The folder" } else { &open.path },
                open.share
            )]
        })?;
        if self.backends.smb.close_open(id) {
            Ok(Done::new(format!("Open {id} is closed.")))
        } else {
            Err(missing("open", &name, "holdfast open list"))
        }
    }

    /// What is wrong with SMB.
    pub(super) fn smb_issues(&self, shares: &[Share], ready: bool) -> Vec<Issue> {
        let mut issues = Vec::new();
        // Where the users cannot be read, or not all of them are known here, nobody knows who is not there.
        let users = self.backends.users.as_ref().ok().filter(|users| !users.is_behind());
        if let Some(directory) = users.map(|users| users.snapshot()) {
            issues.extend(health_rules::of_shares_of_nobody(shares, &|who| match who.parse::<Sid>() {
                // A SID of another domain may be somebody's whom a directory service knows.
                Ok(sid) => directory.find_sid(sid).is_some() || sid.domain() != Some(directory.machine()),
                Err(_) => true,
            }));
        }
        let mut issue = |code, severity, subject: String, detail: String, todo: &str| {
            issues.push(health_rules::issue(code, severity, subject, detail, todo));
        };
        for share in shares {
            let subject = format!("share {}", share.config.name);
            match &share.problem {
                _ if !ready && !share.online => issue(
                    FindingCode::Starting,
                    Severity::Info,
                    subject,
                    "it is not served yet".into(),
                    "Wait until its volume is open.",
                ),
                // Its volume has lost a part of its data.
                Some(why) if share.online && self.why_unserved(&subject).is_none() => {
                    let todo = format!(
                        "`holdfast volume show {}` shows its volume; all of it is served again when its disks are back.",
                        share.config.volume
                    );
                    issue(FindingCode::ShareVolumeDamaged, Severity::Error, subject, why.clone(), &todo)
                }
                Some(why) if share.online => {
                    let todo = format!(
                        "Take the name out with `holdfast share set {} --revoke`, or make who it names (`holdfast user create`, `holdfast group create`).",
                        share.config.name
                    );
                    issue(FindingCode::ShareUnknownName, Severity::Warning, subject, why.clone(), &todo)
                }
                Some(why) => {
                    let (volume, folder) = (&share.config.volume, &share.config.folder);
                    let stranger = self.refuse_stranger(&share.config).err().and_then(|problem| problem.todo);
                    let todo = if let Some(todo) = stranger {
                        todo
                    } else if self.volume(volume).is_err() {
                        format!(
                            "`holdfast volume show {volume}` says why its volume is not open; it is served again with it."
                        )
                    } else {
                        format!(
                            "`holdfast file stat {volume}:{folder}` shows its folder, `holdfast file mkdir` makes it, `holdfast volume check {volume}` looks for damage; it is served again by itself."
                        )
                    };
                    issue(
                        FindingCode::ShareNotServed,
                        Severity::Error,
                        subject,
                        format!("it is not served: {why}"),
                        &todo,
                    )
                }
                None => {}
            }
        }
        let config = self.config.with(|config| config.smb.clone());
        let mut server = self.backends.smb.info();
        server.listeners = self.smb_listeners(&config, std::mem::take(&mut server.listeners));
        for listener in server.listeners {
            if let Some(why) = listener.problem {
                issue(
                    FindingCode::SmbNotServed,
                    Severity::Error,
                    format!("SMB address {}", listener.address),
                    why,
                    "Free the address or choose another one with `holdfast smb set --listen`.",
                );
            }
        }
        if let Err(problem) = &self.backends.users {
            issue(
                FindingCode::UsersUnreadable,
                Severity::Error,
                "users".into(),
                problem.detail.clone(),
                "Put `users.db` and `users.key` back from your backups and restart the node (`systemctl restart holdfast`); nobody can log in to shares meanwhile.",
            );
        }
        let (_, now) = self.times();
        if let Some(last) =
            server.smb1_attempts.first().filter(|last| now.saturating_sub(last.time) < SMB1_NEWS)
        {
            let word = if server.smb1_count == 1 { "attempt" } else { "attempts" };
            issue(
                FindingCode::SmbOneAttempt,
                Severity::Info,
                "SMB 1".into(),
                format!(
                    "{} {word} to speak it refused, the last one from {}",
                    server.smb1_count, last.address
                ),
                "Let them use SMB 2 or newer; `holdfast smb status` lists them.",
            );
        }
        issues
    }
}

/// Who has an open, in words.
pub(super) fn by_whom(open: &SmbOpen) -> String {
    let away = if open.session.is_none() { ", whose client is away" } else { "" };
    let user = if open.user.is_empty() { "an anonymous client" } else { &open.user };
    format!("{user}{away}")
}

/// Takes back what a change has `written` in place of what was there `before`, field by field: what somebody else has changed since stays.
fn put_back(now: &mut SmbConfig, written: &SmbConfig, before: &SmbConfig) {
    fn one<T: Clone + PartialEq>(now: &mut T, written: &T, before: &T) {
        if now == written {
            now.clone_from(before);
        }
    }
    let SmbConfig {
        name,
        domain,
        listen,
        signing,
        encryption,
        multichannel,
        min_dialect,
        max_dialect,
        interfaces,
        constraints,
    } = now;
    one(name, &written.name, &before.name);
    one(domain, &written.domain, &before.domain);
    one(listen, &written.listen, &before.listen);
    one(signing, &written.signing, &before.signing);
    one(encryption, &written.encryption, &before.encryption);
    one(multichannel, &written.multichannel, &before.multichannel);
    one(min_dialect, &written.min_dialect, &before.min_dialect);
    one(max_dialect, &written.max_dialect, &before.max_dialect);
    one(interfaces, &written.interfaces, &before.interfaces);
    one(constraints, &written.constraints, &before.constraints);
}

#[cfg(test)]
mod tests {
    use control_api::Demand;

    use super::*;

    #[test]
    fn what_is_put_back_is_only_what_was_written() {
        let before = SmbConfig { domain: "OLD".into(), ..SmbConfig::default() };
        let written =
            SmbConfig { domain: "NEW".into(), listen: vec!["192.0.2.1:445".into()], ..before.clone() };
        let mut now = SmbConfig { encryption: Demand::Required, ..written.clone() };
        put_back(&mut now, &written, &before);
        assert_eq!(now, SmbConfig { encryption: Demand::Required, ..before });
    }
}
