//! Shares between the configuration and remote procedure calls: what clients are shown, and what of their changes can be
//! made.
//!
//! A descriptor of a share is made of its permissions and becomes permissions again. What these cannot say (entries that
//! deny, rights between the three) is refused or rounded down: never does anybody get more than the client has said.

use control_api::{
    Code, Problem, ShareCaching, ShareConfig, ShareCreate, SharePermission, ShareRight, ShareUpdate,
};
use rpc::Win32;
use rpc::view::{NewShare, Share, ShareChange, ShareKind, share_flag};
use smb_protocol::access::AccessMask;
use smb_protocol::security::ace::{AceData, AceType};
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor, Sid};
use smb_security::Level;

use super::Served;

/// The drive that volumes are shown on: paths of shares look as on Windows, because tools take them apart.
const DRIVE: &str = "C:\\";
/// Flags that say what the server does not do.
const UNSUPPORTED: u32 = share_flag::RESTRICT_EXCLUSIVE_OPENS
    | share_flag::FORCE_SHARED_DELETE
    | share_flag::ALLOW_NAMESPACE_CACHING
    | share_flag::FORCE_LEVEL_II
    | share_flag::ENABLE_HASH;

/// A share's folder as clients show it: `C:\volume\folder`.
pub(super) fn shown_path(config: &ShareConfig) -> String {
    let folder = config.folder.trim_matches('/').replace('/', "\\");
    let separator = if folder.is_empty() { "" } else { "\\" };
    format!("{DRIVE}{}{separator}{folder}", config.volume)
}

/// A volume and a folder from such a path.
fn place(path: &str) -> Option<(String, String)> {
    let path = path.replace('/', "\\");
    let (drive, rest) = path.split_at_checked(DRIVE.len())?;
    if !drive.eq_ignore_ascii_case(DRIVE) {
        return None;
    }
    let mut parts = rest.split('\\').filter(|part| !part.is_empty());
    let volume = parts.next()?.to_owned();
    let parts: Vec<&str> = parts.collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return None;
    }
    Some((volume, format!("/{}", parts.join("/"))))
}

/// A share as it is shown.
pub(super) fn shown(served: &Served, current_uses: u32) -> Share {
    let config = &served.config;
    Share {
        name: config.name.clone(),
        kind: match config.kind {
            control_api::ShareKind::ScaleOut => ShareKind::ScaleOutDisk,
            control_api::ShareKind::Clustered => ShareKind::ClusterDisk,
            control_api::ShareKind::Plain => ShareKind::Disk,
        },
        special: false,
        hidden: config.hidden,
        comment: config.comment.clone(),
        path: shown_path(config),
        max_uses: None,
        current_uses,
        flags: flags(config),
        security: Some(descriptor(&served.permissions).encode()),
    }
}

fn flags(config: &ShareConfig) -> u32 {
    let caching = match config.caching {
        ShareCaching::None => share_flag::CSC_NONE,
        ShareCaching::Manual => 0,
        ShareCaching::Documents => share_flag::CSC_AUTO,
        ShareCaching::Programs => share_flag::CSC_VDO,
    };
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    caching
        | flag(config.access_based_enumeration, share_flag::ACCESS_BASED_ENUMERATION)
        | flag(config.kind.is_continuously_available(), share_flag::CONTINUOUSLY_AVAILABLE)
        | flag(config.encrypt, share_flag::ENCRYPT_DATA)
}

fn descriptor(permissions: &[smb_server::SharePermission]) -> SecurityDescriptor {
    let ace = |permission: &smb_server::SharePermission| {
        let level = match permission.right {
            smb_server::ShareRight::Read => Level::Read,
            smb_server::ShareRight::Change => Level::Change,
            smb_server::ShareRight::Full => Level::Full,
        };
        Ace::allow(permission.who, level.rights(), AceFlags::NONE)
    };
    SecurityDescriptor {
        control: Control::SELF_RELATIVE | Control::DACL_PRESENT,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::SYSTEM),
        sacl: None,
        dacl: Some(Acl { aces: permissions.iter().map(ace).collect() }),
    }
}

/// Permissions that grant no more than a descriptor; `name` says what a SID is called here.
fn permissions(security: &[u8], name: impl Fn(Sid) -> Option<String>) -> Result<Vec<SharePermission>, Win32> {
    let descriptor = SecurityDescriptor::decode(security).map_err(|_| Win32::INVALID_PARAMETER)?;
    let Some(dacl) = &descriptor.dacl else {
        // No list at all lets everybody in; that is not said by accident of an absent field.
        return if descriptor.has_null_dacl() {
            permission(Sid::EVERYONE, ShareRight::Full, name).map(|one| vec![one])
        } else {
            Err(Win32::INVALID_PARAMETER)
        };
    };
    let mut all: Vec<SharePermission> = Vec::new();
    for ace in &dacl.aces {
        let AceData::Plain { mask, sid, .. } = &ace.data else { return Err(Win32::NOT_SUPPORTED) };
        if ace.kind != AceType::ACCESS_ALLOWED {
            return Err(Win32::NOT_SUPPORTED);
        }
        if ace.flags.contains(AceFlags::INHERIT_ONLY) {
            continue;
        }
        let right = right(*mask).ok_or(Win32::NOT_SUPPORTED)?;
        let new = permission(*sid, right, &name)?;
        match all.iter_mut().find(|known| known.who == new.who) {
            Some(known) => known.right = known.right.max(new.right),
            None => all.push(new),
        }
    }
    Ok(all)
}

fn permission(
    sid: Sid,
    right: ShareRight,
    name: impl Fn(Sid) -> Option<String>,
) -> Result<SharePermission, Win32> {
    let who = name(sid).filter(|name| !name.is_empty()).ok_or(Win32::NONE_MAPPED)?;
    Ok(SharePermission { who, right })
}

/// The most that these rights are enough for.
fn right(mask: AccessMask) -> Option<ShareRight> {
    /// GENERIC_READ, WRITE, EXECUTE, ALL, as access checks would map them for files.
    const GENERIC: [(u32, AccessMask); 4] = [
        (0x8000_0000, AccessMask::FILE_READ),
        (0x4000_0000, AccessMask::FILE_WRITE),
        (0x2000_0000, AccessMask::FILE_EXECUTE),
        (0x1000_0000, AccessMask::FILE_ALL),
    ];
    let mapped = GENERIC.iter().filter(|(bit, _)| mask.0 & bit != 0);
    let mask = mapped.fold(mask, |mask, (_, rights)| mask | *rights);
    let levels = [
        (Level::Full, ShareRight::Full),
        (Level::Change, ShareRight::Change),
        (Level::Read, ShareRight::Read),
    ];
    levels.into_iter().find(|(level, _)| mask.contains(level.rights())).map(|(_, right)| right)
}

/// What the node is asked for when a client wants a share.
pub(super) fn creation(share: &NewShare, name: impl Fn(Sid) -> Option<String>) -> Result<ShareCreate, Win32> {
    if share.max_uses.is_some() {
        return Err(Win32::NOT_SUPPORTED);
    }
    let (volume, folder) = place(&share.path).ok_or(Win32::UNKNOWN_DIRECTORY)?;
    let permissions = match &share.security {
        Some(security) => permissions(security, name)?,
        // As on Windows.
        None => vec![permission(Sid::EVERYONE, ShareRight::Read, name)?],
    };
    Ok(ShareCreate {
        name: share.name.clone(),
        volume: Some(volume),
        folder: Some(folder),
        comment: share.comment.clone(),
        kind: control_api::ShareKind::default(),
        encrypt: false,
        caching: ShareCaching::default(),
        access_based_enumeration: false,
        hidden: false,
        read_only: false,
        permissions,
        preset_folder: false,
    })
}

/// What the node is asked for when a client wants a share otherwise.
pub(super) fn update(
    before: &ShareConfig,
    change: &ShareChange,
    name: impl Fn(Sid) -> Option<String>,
) -> Result<ShareUpdate, Win32> {
    if change.max_uses.is_some_and(|uses| uses.is_some()) {
        return Err(Win32::NOT_SUPPORTED);
    }
    let mut update = ShareUpdate { comment: change.comment.clone(), ..ShareUpdate::default() };
    if let Some(flags) = change.flags {
        if flags & UNSUPPORTED != 0 {
            return Err(Win32::NOT_SUPPORTED);
        }
        let has = |flag: u32| Some(flags & flag != 0);
        update.caching = Some(match flags & share_flag::CSC_MASK {
            share_flag::CSC_NONE => ShareCaching::None,
            share_flag::CSC_AUTO => ShareCaching::Documents,
            share_flag::CSC_VDO => ShareCaching::Programs,
            _ => ShareCaching::Manual,
        });
        update.access_based_enumeration = has(share_flag::ACCESS_BASED_ENUMERATION);
        // The flag knows two kinds; who does not change it keeps the kind.
        let available = flags & share_flag::CONTINUOUSLY_AVAILABLE != 0;
        update.kind = (available != before.kind.is_continuously_available()).then_some(match available {
            true => control_api::ShareKind::default(),
            false => control_api::ShareKind::Plain,
        });
        update.encrypt = has(share_flag::ENCRYPT_DATA);
    }
    if let Some(security) = &change.security {
        update.grant = permissions(security, name)?;
        update.revoke = before.permissions.iter().map(|known| known.who.clone()).collect();
    }
    Ok(update)
}

/// What a client is told of a problem.
pub(super) fn error(problem: &Problem, creating: bool) -> Win32 {
    tracing::info!(reason = problem.detail, "a change of a share was refused");
    match problem.code {
        Code::InvalidRequest => Win32::INVALID_PARAMETER,
        Code::NotFound if creating => Win32::UNKNOWN_DIRECTORY,
        Code::NotFound => Win32::NET_NAME_NOT_FOUND,
        Code::AlreadyExists => Win32::DUPLICATE_SHARE,
        Code::Forbidden => Win32::ACCESS_DENIED,
        Code::Unsupported => Win32::NOT_SUPPORTED,
        Code::NoSpace => Win32::DISK_FULL,
        Code::WrongState | Code::Unavailable | Code::InUse => Win32::NOT_READY,
        _ => Win32::GEN_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sid: Sid) -> Option<String> {
        match sid {
            Sid::EVERYONE => Some("Everyone".into()),
            Sid::ADMINISTRATORS => Some("Administrators".into()),
            _ => None,
        }
    }

    fn with(aces: Vec<Ace>) -> Vec<u8> {
        SecurityDescriptor { dacl: Some(Acl { aces }), ..descriptor(&[]) }.encode()
    }

    #[test]
    fn paths_there_and_back() {
        assert_eq!(place("c:\\vm\\a\\b"), Some(("vm".into(), "/a/b".into())));
        assert_eq!(place("C:/vm/"), Some(("vm".into(), "/".into())));
        for bad in ["", "C:", "C:\\", "D:\\vm", "\\\\server\\share", "C:\\vm\\..\\x", "C:vm", "ü:\\x"] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    #[test]
    fn permissions_there_and_back_and_never_more() {
        let of = |who, right| smb_server::SharePermission { who, right };
        let all = [
            of(Sid::EVERYONE, smb_server::ShareRight::Read),
            of(Sid::ADMINISTRATORS, smb_server::ShareRight::Full),
        ];
        let back = permissions(&descriptor(&all).encode(), name).expect("permissions");
        let back: Vec<_> = back.iter().map(|one| (one.who.as_str(), one.right)).collect();
        assert_eq!(back, [("Everyone", ShareRight::Read), ("Administrators", ShareRight::Full)]);

        let allow = |mask| with(vec![Ace::allow(Sid::EVERYONE, AccessMask(mask), AceFlags::NONE)]);
        let one = |mask| permissions(&allow(mask), name).map(|all| all.first().map(|one| one.right));
        assert_eq!(one(0x1000_0000), Ok(Some(ShareRight::Full)));
        assert_eq!(one(0xe000_0000), Ok(Some(ShareRight::Read)), "it may not delete: no change");
        assert_eq!(one(0x001f_01fe), Err(Win32::NOT_SUPPORTED), "it may not read");
        assert_eq!(one(0x0013_01bf), Ok(Some(ShareRight::Change)));
        let deny = with(vec![Ace::deny(Sid::EVERYONE, AccessMask::FILE_ALL, AceFlags::NONE)]);
        assert_eq!(permissions(&deny, name), Err(Win32::NOT_SUPPORTED));
        let unknown = with(vec![Ace::allow(Sid::GUESTS, AccessMask::FILE_ALL, AceFlags::NONE)]);
        assert_eq!(permissions(&unknown, name), Err(Win32::NONE_MAPPED));
        assert_eq!(permissions(&with(Vec::new()), name), Ok(Vec::new()), "an empty list lets nobody in");
        assert_eq!(permissions(&[1, 2, 3], name), Err(Win32::INVALID_PARAMETER));
    }
}
