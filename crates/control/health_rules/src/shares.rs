//! Rules of shares: who may use them.

use control_api::{Issue, Severity, Share};

use crate::{FindingCode, issue};

/// Who is named at most: a share may have permissions of many who are gone.
const NAMED: usize = 5;

/// Shares that nobody may connect to: without permissions, or with permissions of users and groups that are gone only. `is_somebody` says
/// whether whom a permission is for is, or may be, there.
pub fn of_shares_of_nobody(shares: &[Share], is_somebody: &dyn Fn(&str) -> bool) -> Vec<Issue> {
    let of_nobody = shares.iter().filter(|share| {
        let mut who = share.config.permissions.iter().map(|permission| permission.who.as_str());
        !who.any(is_somebody)
    });
    let told = |share: &Share| {
        let (name, permissions) = (&share.config.name, &share.config.permissions);
        let detail = if permissions.is_empty() {
            "it has no permissions: nobody may connect to it".to_owned()
        } else {
            let gone: Vec<&str> =
                permissions.iter().take(NAMED).map(|permission| permission.who.as_str()).collect();
            let more = permissions.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "its permissions are for users and groups that are gone ({}{more}): nobody may connect to it",
                gone.join(", ")
            )
        };
        let todo = format!(
            "`holdfast share set {name} --full WHO` lets a user or group in, as do --change and --read; `holdfast share delete {name}` takes it away, and leaves its folder."
        );
        issue(FindingCode::ShareNobody, Severity::Warning, format!("share {name}"), detail, todo)
    };
    of_nobody.map(told).collect()
}

#[cfg(test)]
mod tests {
    use control_api::{ShareCaching, ShareConfig, ShareKind, SharePermission, ShareRight};

    use super::*;

    fn share(who: &[&str]) -> Share {
        let permission = |who: &&str| SharePermission { who: (*who).to_owned(), right: ShareRight::Read };
        Share {
            config: ShareConfig {
                name: "s".into(),
                volume: "v".into(),
                volume_guid: None,
                folder: "/".into(),
                comment: String::new(),
                kind: ShareKind::ScaleOut,
                encrypt: false,
                caching: ShareCaching::default(),
                access_based_enumeration: false,
                hidden: false,
                read_only: false,
                permissions: who.iter().map(permission).collect(),
            },
            online: true,
            problem: None,
            sessions: 0,
            opens: 0,
            traffic: control_api::ShareTraffic::default(),
        }
    }

    fn told(who: &[&str]) -> Vec<String> {
        let is_somebody = |who: &str| !who.starts_with("S-1-");
        of_shares_of_nobody(&[share(who)], &is_somebody).into_iter().map(|issue| issue.detail).collect()
    }

    #[test]
    fn a_share_of_nobody_is_told_of() {
        assert_eq!(told(&[]), ["it has no permissions: nobody may connect to it"]);
        assert_eq!(
            told(&["S-1-5-21-1-2-3-1000"]),
            [
                "its permissions are for users and groups that are gone (S-1-5-21-1-2-3-1000): nobody may connect to it"
            ]
        );
        assert!(
            told(&["S-1-1-1", "S-1-1-2", "S-1-1-3", "S-1-1-4", "S-1-1-5", "S-1-1-6"])[0]
                .contains("S-1-1-5 and 1 more)")
        );
        assert!(told(&["S-1-5-21-1-2-3-1000", "bob"]).is_empty());
    }
}
