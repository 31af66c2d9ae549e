//! LUNs that get another file, and shares that get another folder: what they are made of changes, who sees them does not.

use control_api::{
    Code, FileKind, LunConfig, LunFormat, LunUpdate, Problem, Share, ShareConfig, ShareUpdate, human_bytes,
    many,
};
use uuid::Uuid;

use super::all_sessions::{AllSessions, first, more_sessions};
use super::luns::new_guid;
use super::mapping::masking::connected;
use super::{Node, confirm};
use crate::files;

/// What a LUN is made of from now on.
pub(super) struct LunPlace {
    volume: String,
    volume_guid: Option<Uuid>,
    path: String,
    guid: Option<Uuid>,
}

impl LunPlace {
    pub(super) fn put(&self, lun: &mut LunConfig) {
        (lun.volume, lun.volume_guid, lun.path, lun.guid) =
            (self.volume.clone(), self.volume_guid, self.path.clone(), self.guid);
    }
}

impl Node {
    /// Where a change puts a LUN; none where it stays. Changes nothing.
    ///
    /// # Errors
    /// When there is no such file or a LUN cannot be made of it, or initiators are connected and it was not confirmed.
    pub(super) async fn lun_place(
        &self,
        lun: &LunConfig,
        request: &LunUpdate,
        all: &AllSessions,
    ) -> Result<Option<LunPlace>, Problem> {
        let volume = request.volume.clone().unwrap_or_else(|| lun.volume.clone());
        let path = request.path.clone().unwrap_or_else(|| lun.path.clone());
        if request.volume.is_none() && request.path.is_none() {
            if request.keep_identity {
                let detail = "What keeps its identity gets another file.";
                return Err(Problem::new(Code::InvalidRequest, detail).todo("Say which: --volume, --path."));
            }
            return Ok(None);
        }
        let name = &lun.name;
        if request.size_bytes.is_some() {
            let detail = format!("LUN {name} can't get another file and another size at once.");
            return Err(Problem::new(Code::InvalidRequest, detail).todo("Do one after the other."));
        }
        self.volume(&volume)?;
        let volume_guid = self.volume_guid(&volume);
        if volume_guid == lun.volume_guid && path == lun.path {
            return Ok(None);
        }
        let file = self.file_stat(&volume, &path).await?;
        if file.kind == FileKind::Directory {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("{path} of volume {volume} is a directory."),
            ));
        }
        self.refuse_second_lun(&volume, &file, Some(name)).await?;
        let size = match lun.format {
            LunFormat::Raw => file.size_bytes,
            LunFormat::Vhdx => self.refuse_image(&volume, &path, lun).await?,
        };
        if size == 0 || !size.is_multiple_of(u64::from(lun.block_size)) {
            let detail = format!(
                "LUN {name} consists of whole blocks of {} bytes; the {size} bytes of {path} of volume {volume} do not.",
                lun.block_size
            );
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let users = self.users_of(lun, all);
        if !users.is_empty() {
            let is_now = format!("{volume}:{path}, {}", human_bytes(size));
            let mut told = vec![if request.keep_identity {
                format!(
                    "LUN {name} is made of {is_now}, and stays the disk that its initiators know: unless it has the same bytes as {}:{}, what they have in memory of it destroys it. Their reservations are not taken along.",
                    lun.volume, lun.path
                )
            } else {
                format!(
                    "LUN {name} becomes a new disk, made of {is_now}: the one that its initiators have is gone, with its reservations; its data stays in {}:{}. A host that has it in use goes on writing to what is under its number: it is to let go of it first.",
                    lun.volume, lun.path
                )
            }];
            told.extend(users);
            confirm(name, request.confirm.as_deref(), || told)?;
        }
        // What only says which of several volumes of that name was always meant moves nothing.
        let says_which = lun.volume_guid.is_none() && volume == lun.volume && path == lun.path;
        let guid = if request.keep_identity || says_which { lun.guid } else { Some(new_guid()?) };
        Ok(Some(LunPlace { volume, volume_guid, path, guid }))
    }

    /// Whose disk a LUN is now, in sentences.
    pub(super) fn users_of(&self, lun: &LunConfig, all: &AllSessions) -> Vec<String> {
        let groups = self.config.with(|config| config.groups.clone());
        let mut told = first(connected(lun, &groups, &all.items), more_sessions);
        // One that nobody is shown nobody uses.
        told.extend(all.unknown().filter(|_| !lun.map.is_empty()));
        told
    }

    /// Puts a share where a change says. Changes nothing but the share as it is to be.
    ///
    /// # Errors
    /// When there is no such folder, or clients are connected and it was not confirmed.
    pub(super) async fn move_share(
        &self,
        share: &mut ShareConfig,
        update: &ShareUpdate,
    ) -> Result<(), Problem> {
        let volume = update.volume.clone().unwrap_or_else(|| share.volume.clone());
        let folder = update.folder.clone().unwrap_or_else(|| share.folder.clone());
        if update.volume.is_none() && update.folder.is_none() {
            return Ok(());
        }
        self.volume(&volume)?;
        let volume_guid = self.volume_guid(&volume);
        if volume_guid == share.volume_guid && files::split(&folder)? == files::split(&share.folder)? {
            return Ok(());
        }
        if self.file_stat(&volume, &folder).await?.kind == FileKind::File {
            let detail = format!("{folder} of volume {volume} is a file, not a folder.");
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let now = self.share_show(&share.name).await?;
        if let Some(ends) = share_ends(&now) {
            confirm(&share.name, update.confirm.as_deref(), || {
                vec![format!("Share {} shows {volume}:{folder} from now on: {ends}.", share.name)]
            })?;
        }
        (share.volume, share.volume_guid, share.folder) = (volume, volume_guid, folder);
        Ok(())
    }
}

/// What ends with a share, or when it shows another folder; none where nobody uses it.
pub(super) fn share_ends(share: &Share) -> Option<String> {
    (share.sessions + share.opens > 0).then(|| {
        format!("{} and {} on it end", many(share.sessions, "session"), many(share.opens, "open file"))
    })
}
