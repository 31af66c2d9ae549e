//! Who has which rights (MS-LSAD 3.1.4.5): what built-in groups are made for, and nothing that could be changed.

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::policy_handle;
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};

/// Rights by who has them (MS-LSAD 3.1.1.2).
const RIGHTS: [(Sid, &[&str]); 4] = [
    (Sid::EVERYONE, &["SeChangeNotifyPrivilege", "SeNetworkLogonRight"]),
    (
        Sid::ADMINISTRATORS,
        &[
            "SeBackupPrivilege",
            "SeChangeNotifyPrivilege",
            "SeManageVolumePrivilege",
            "SeNetworkLogonRight",
            "SeRestorePrivilege",
            "SeSecurityPrivilege",
            "SeTakeOwnershipPrivilege",
        ],
    ),
    (Sid::USERS, &["SeChangeNotifyPrivilege", "SeNetworkLogonRight"]),
    (Sid::BACKUP_OPERATORS, &["SeBackupPrivilege", "SeChangeNotifyPrivilege", "SeRestorePrivilege"]),
];

/// LsarEnumerateAccounts: who has any, for administrators.
pub(super) fn enumerate_accounts(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = policy_handle(call, r)?;
    let (context, _preferred) = (r.u32()?, r.u32()?);
    let start = usize::try_from(context).unwrap_or(usize::MAX);
    let found = match handle {
        Err(status) => Err(status),
        Ok(()) if call.is_plain_user() => Err(NtStatus::ACCESS_DENIED),
        Ok(()) => RIGHTS.get(start..).filter(|rest| !rest.is_empty()).ok_or(NtStatus::NO_MORE_ENTRIES),
    };
    let mut out = NdrOut::new();
    let accounts = found.unwrap_or_default();
    out.count(start.saturating_add(accounts.len()));
    out.count(accounts.len());
    out.pointer(!accounts.is_empty());
    if !accounts.is_empty() {
        out.array(accounts, |out, (sid, _)| out.sid(Some(*sid)));
    }
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

/// LsarEnumerateAccountRights: which somebody has, for administrators, and for everybody who has none.
pub(super) fn enumerate_rights(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = policy_handle(call, r)?;
    let sid = r.sid()?;
    let rights = RIGHTS.iter().find(|(account, _)| *account == sid).map(|(_, rights)| *rights);
    let found = match handle {
        Err(status) => Err(status),
        Ok(()) => match rights {
            Some(_) if call.is_plain_user() => Err(NtStatus::ACCESS_DENIED),
            rights => rights.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND),
        },
    };
    let mut out = NdrOut::new();
    let rights = found.unwrap_or_default();
    out.count(rights.len());
    out.pointer(!rights.is_empty());
    if !rights.is_empty() {
        out.array(rights, |out, right| out.unicode(right));
    }
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}
