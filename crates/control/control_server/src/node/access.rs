//! Who may ask, and the API over the network, as the node knows them.

mod ends;
pub(super) mod roles;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use control_api::{
    ApiToken, ApiTokenCreate, ApiTokenCreated, Code, Done, HttpConfig, HttpStatus, HttpUpdate, Issue,
    Problem, Severity,
};
use health_rules::FindingCode;
use shard_runtime::Monotonic;

use super::serve::Part;
use super::{Node, confirm, missing};
use crate::access::{Asker, Known, NewToken};
use crate::audit::Audit;
use crate::events::Events;
use crate::network::ENDS_SOON_SECONDS;

/// How often sessions are looked at whose user may not come any more, and certificates.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Of which every so many-th time also certificates.
const RENEW_EVERY: u32 = 3600;

/// What problems of the listener are named by.
const CERTIFICATE: &str = "HTTP certificate";

impl Node {
    fn with_known<T>(&self, look: impl FnOnce(&Known<'_>) -> T) -> T {
        let config = self.config.with(|config| config.http.clone());
        look(&Known { users: self.backends.users.as_deref().ok(), config: &config })
    }

    /// The record of changes.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Now, for durations and in seconds since 1970.
    pub(crate) fn clocks(&self) -> (Monotonic, u64) {
        (self.clock.now(), self.clock.wall().0 / 1_000_000_000)
    }

    /// Who sends these headers.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Asker, Problem> {
        // What a page asks for by itself does not keep a session alive.
        let uses = !headers.contains_key(control_api::POLL_HEADER);
        self.with_known(|known| self.access.identify(headers, known, uses))
    }

    /// The same of who was let in before and is still there, which uses neither session nor token.
    pub(crate) fn identify_again(&self, headers: &HeaderMap) -> Result<Asker, Problem> {
        self.with_known(|known| self.access.identify(headers, known, false))
    }

    /// Those who listen to what changes.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Lets a user in: who it is from now on, and the secret of its session.
    pub(crate) fn log_in(
        &self,
        user: &str,
        password: &str,
        from: SocketAddr,
    ) -> Result<(Asker, String), Problem> {
        let answer = self.with_known(|known| self.access.log_in(user, password, from.ip(), known));
        match &answer {
            Ok((asker, _)) => {
                tracing::info!(user = asker.name, %from, role = %asker.role, "logged in to the API")
            }
            // What was typed as a name may be a password.
            Err(problem) => tracing::info!(%from, code = problem.code.as_str(), "not logged in to the API"),
        }
        answer
    }

    /// Ends the session of whoever asks; whether it had one.
    pub(crate) fn log_out(&self, asker: &Asker) -> bool {
        self.access.log_out(asker)
    }

    /// Tokens, the newest first.
    pub fn token_list(&self) -> Vec<ApiToken> {
        self.with_known(|known| self.access.token_list(known))
    }

    /// Makes a token.
    pub(crate) fn token_create(
        &self,
        request: ApiTokenCreate,
        asker: &Asker,
    ) -> Result<ApiTokenCreated, Problem> {
        let ApiTokenCreate { name, role, expires_seconds } = request;
        let wall = self.clocks().1;
        let expires = expires_seconds.map(|seconds| wall.saturating_add(seconds));
        let new = NewToken { name, role, expires };
        self.with_known(|known| self.access.token_create(new, asker, known))
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// When there is none, or that cannot be made durable.
    pub fn token_revoke(&self, id: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let none = || missing("token", id, "holdfast api token list");
        let token = self.access.token(id).ok_or_else(none)?;
        confirm(id, confirmed.as_deref(), || {
            vec![format!("Whatever shows the token {} ({}) is not let in any more.", id, token.name)]
        })?;
        if self.access.token_revoke(id)? {
            Ok(Done::new(format!("Token {id} is revoked.")))
        } else {
            Err(none())
        }
    }

    /// The API over the network now.
    pub fn http_show(&self) -> HttpStatus {
        let config = self.config.with(|config| config.http.clone());
        let mut listeners = self.network.listeners(&config);
        for listener in &mut listeners {
            listener.problem = self.why_unserved(&format!("HTTP address {}", listener.address));
        }
        HttpStatus {
            config: self.with_group_names(config),
            listeners,
            in_use: self.network.certificate(),
            sessions: self.access.session_count() as u64,
            connections: self.network.connections() as u64,
        }
    }

    /// Changes how the API is served over the network.
    ///
    /// # Errors
    /// When it makes no sense, a certificate cannot be used, or an address that is new cannot be had; nothing has changed then.
    pub async fn http_update(&self, update: HttpUpdate) -> Result<HttpStatus, Problem> {
        let _changing = self.changes.lock().await;
        let before = self.config.with(|config| config.http.clone());
        let HttpUpdate { listen, names, certificate, key, operators, viewers, confirm: confirmed } = update;
        let groups = |names: Option<Vec<String>>, kept: &[String]| {
            names.map(|names| self.role_groups(&names, kept)).transpose()
        };
        let (operators, viewers) = (groups(operators, &before.operators)?, groups(viewers, &before.viewers)?);
        // Roles can be taken away also where the users cannot be read: nobody's session counts then.
        if let (true, Ok(users)) = (operators.is_some() || viewers.is_some(), self.users()) {
            let after = HttpConfig {
                operators: operators.clone().unwrap_or_else(|| before.operators.clone()),
                viewers: viewers.clone().unwrap_or_else(|| before.viewers.clone()),
                ..before.clone()
            };
            let told = self.api_sessions_ending(&users.snapshot(), &after);
            if !told.is_empty() {
                confirm("roles", confirmed.as_deref(), || told)?;
            }
        }
        self.change(|config| {
            let http = &mut config.http;
            *http = HttpConfig {
                listen: listen.clone().unwrap_or_else(|| http.listen.clone()),
                names: names.clone().unwrap_or_else(|| http.names.clone()),
                certificate: certificate.clone().unwrap_or_else(|| http.certificate.clone()),
                key: key.clone().unwrap_or_else(|| http.key.clone()),
                operators: operators.clone().unwrap_or_else(|| http.operators.clone()),
                viewers: viewers.clone().unwrap_or_else(|| http.viewers.clone()),
            };
            Ok(())
        })
        .await?;
        let now = self.http_show();
        let refused = now.listeners.iter().find(|listener| {
            listener.listening.is_none()
                && now.config.listen.contains(&listener.address)
                && !before.listen.contains(&listener.address)
        });
        let certificate = self.why_unserved(CERTIFICATE);
        let other_certificate =
            (&before.certificate, &before.key) != (&now.config.certificate, &now.config.key);
        let problem = match (refused, certificate.filter(|_| other_certificate || refused.is_some())) {
            (_, Some(why)) => Problem::new(Code::InvalidRequest, why)
                .todo("Name files in PEM on the node that belong together. Nothing was changed."),
            (Some(listener), None) => {
                let why = listener.problem.clone().unwrap_or_else(|| "it does not listen".into());
                Problem::new(Code::Io, format!("HTTP address {}: {why}", listener.address)).todo(
                    "Choose an address of this machine and a port that is free; ports below 1024 are for root. Nothing was changed.",
                )
            }
            (None, None) => return Ok(now),
        };
        // What can't be had now is not kept: whoever asked is there to choose another. Who may ask as what is all nodes', and may have been
        // changed by another one since: that goes back only where it is still what was asked for here.
        let tried = self.config.with(|config| config.http.clone());
        self.change(|config| {
            let http = &mut config.http;
            let before = before.clone();
            (http.listen, http.names) = (before.listen, before.names);
            (http.certificate, http.key) = (before.certificate, before.key);
            if http.operators == tried.operators {
                http.operators = before.operators;
            }
            if http.viewers == tried.viewers {
                http.viewers = before.viewers;
            }
            Ok(())
        })
        .await?;
        Err(problem)
    }

    /// From now on the API is served over the network too, on `always` whatever the configuration says.
    ///
    /// # Errors
    /// When `always` cannot be had.
    pub(crate) fn start_network(&self, router: Router, always: Option<SocketAddr>) -> Result<(), Problem> {
        self.network.start(router, always)?;
        let trouble = self.serve_network();
        let own = always.map(|address| format!("HTTP address {address}"));
        let failed = trouble.iter().find(|(subject, _)| Some(subject) == own.as_ref());
        if let Some((subject, why)) = failed {
            let why = trouble.iter().find(|(subject, _)| subject == CERTIFICATE).map_or(why, |(_, why)| why);
            return Err(Problem::new(Code::Io, format!("{subject}: {why}."))
                .todo("Choose an address of this machine and a port that is free with --http."));
        }
        self.unserved.lock().entry(Part::Node).or_default().extend(trouble);
        Ok(())
    }

    /// Nothing is served over the network any more, and nobody listens to events.
    pub(crate) async fn stop_network(&self) {
        self.network.stop().await;
    }

    /// Makes what is served over the network equal to the configuration; returns what could not be.
    pub(super) fn serve_network(&self) -> Vec<(String, String)> {
        let config = self.config.with(|config| config.http.clone());
        self.network.apply(&config, &[self.name()], self.clocks().1)
    }

    /// Ends sessions that are over and renews certificates, until the node stops.
    pub(crate) async fn sweep(self: std::sync::Arc<Self>) {
        let mut round: u32 = 0;
        loop {
            tokio::select! {
                () = self.stopped() => return,
                () = tokio::time::sleep(SWEEP_EVERY) => {}
            }
            self.with_known(|known| self.access.sweep(known));
            self.tell_news().await;
            self.tell_quotas().await;
            round = round.wrapping_add(1);
            if round.is_multiple_of(RENEW_EVERY) {
                for (subject, why) in self.serve_network() {
                    tracing::warn!(subject, why, "the API over the network");
                }
            }
        }
    }

    /// What is not as it should be with the API over the network: an address that is not served, a certificate that cannot be
    /// used, or a given one that ends soon.
    pub(super) fn http_issues(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        let mut issue = |code, severity, subject: String, detail: String, todo: &str| {
            issues.push(health_rules::issue(code, severity, subject, detail, todo));
        };
        let files = "Put a new certificate and key in their files, or name others with `holdfast api set --certificate FILE --key FILE`.";
        for listener in self.http_show().listeners {
            if let Some(why) = listener.problem {
                let todo = "Free the address or choose another one with `holdfast api set --listen`.";
                issue(
                    FindingCode::HttpNotServed,
                    Severity::Error,
                    format!("HTTP address {}", listener.address),
                    why,
                    todo,
                );
            }
        }
        if let Some(why) = self.why_unserved(CERTIFICATE) {
            issue(FindingCode::CertificateUnusable, Severity::Error, CERTIFICATE.into(), why, files);
        }
        if let Some(certificate) = self.network.certificate().filter(|certificate| !certificate.own) {
            let left = certificate.not_after.saturating_sub(self.clocks().1);
            let days = format!("The certificate of the API ends in {} days.", left / 86_400);
            match left {
                0 => {
                    let ended = "The certificate of the API has ended: clients refuse to connect.";
                    issue(
                        FindingCode::CertificateEnds,
                        Severity::Error,
                        CERTIFICATE.into(),
                        ended.into(),
                        files,
                    );
                }
                left if left <= ENDS_SOON_SECONDS => {
                    issue(FindingCode::CertificateEnds, Severity::Warning, CERTIFICATE.into(), days, files)
                }
                _ => {}
            }
        }
        issues
    }
}
