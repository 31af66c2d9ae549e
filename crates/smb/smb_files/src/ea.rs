//! Extended attributes (MS-FSA 2.1.5.12.7, 2.1.5.15.6). Stored as they are listed: FILE_FULL_EA_INFORMATION.

use file_store::FileId;
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, FileAttributes};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::ea::{Ea, EaList, ea_writer, push_ea, wanted_names};
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::info::QueryInfoFlags;

use crate::error::{Result, refuse};
use crate::extras::{EA_TABLE, HAS_EA};
use crate::file_system::{Core, Node, Open};

/// Most bytes of all attributes of a file, as on NTFS.
const EA_BYTES_MAX: usize = 64 * 1024;

/// An attribute on its own: names are compared without regard to case.
type Owned = (u8, Vec<u8>, Vec<u8>);

fn owned(bytes: &[u8]) -> Vec<Owned> {
    let Ok(list) = EaList::new(bytes) else { return Vec::new() };
    list.iter().map(|ea| (ea.flags, ea.name.to_ascii_uppercase(), ea.value.to_vec())).collect()
}

fn encode(all: &[Owned]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut list = ea_writer(&mut out, EA_BYTES_MAX);
    let fits = all.iter().all(|(flags, name, value)| push_ea(&mut list, &Ea { flags: *flags, name, value }));
    fits.then_some(out)
}

impl Core {
    /// The attributes of a file, as a list; empty where there are none.
    pub(crate) async fn ea_list(&self, file: FileId, attributes: FileAttributes) -> Result<Vec<u8>> {
        if !attributes.contains(HAS_EA) {
            return Ok(Vec::new());
        }
        Ok(self.extra(EA_TABLE, file).await?.unwrap_or_default())
    }

    /// What FileEaInformation says: how long the attributes would be as OS/2 counted them, which is what clients get from
    /// Windows: four bytes more than the sum of four, name, value and one for each.
    pub(crate) async fn ea_size(&self, file: FileId, attributes: FileAttributes) -> Result<u32> {
        let all = owned(&self.ea_list(file, attributes).await?);
        let sum: usize = all.iter().map(|(_, name, value)| 4 + name.len() + 1 + value.len()).sum();
        Ok(if all.is_empty() { 0 } else { (sum + 4) as u32 })
    }

    /// Replaces all attributes of a file: it was overwritten, or made.
    pub(crate) async fn replace_ea(&self, node: &Node, bytes: &[u8]) -> Result<()> {
        let had = FileAttributes(self.store.info(node.file).await?.attributes.0).contains(HAS_EA);
        let all: Vec<Owned> = owned(bytes).into_iter().filter(|(_, _, value)| !value.is_empty()).collect();
        if !had && all.is_empty() {
            return Ok(());
        }
        self.store_ea(node, &all).await
    }

    async fn store_ea(&self, node: &Node, all: &[Owned]) -> Result<()> {
        if all.is_empty() {
            return self.set_extra(node, EA_TABLE, HAS_EA, None).await;
        }
        let Some(bytes) = encode(all) else {
            return refuse(NtStatus::EA_TOO_LARGE, "the extended attributes are too long together");
        };
        self.set_extra(node, EA_TABLE, HAS_EA, Some(bytes)).await
    }
}

impl Open {
    /// Sets and removes attributes, all or none of them.
    pub(crate) async fn set_ea(&self, buffer: &[u8]) -> Result<()> {
        self.needs(AccessMask::WRITE_EA, "the open may not write extended attributes")?;
        let Ok(list) = EaList::new(buffer) else {
            return refuse(NtStatus::EA_LIST_INCONSISTENT, "the extended attributes are no list");
        };
        let info = self.core.info(&self.node).await?;
        let mut all = owned(&self.core.ea_list(self.node.file, FileAttributes(info.attributes.0)).await?);
        for ea in list.iter() {
            if ea.name.iter().any(|c| *c < b' ' || b"\"*+,/:;<=>?[\\]|".contains(c)) {
                return refuse(NtStatus::INVALID_EA_NAME, "an extended attribute cannot have that name");
            }
            let name = ea.name.to_ascii_uppercase();
            all.retain(|(_, other, _)| *other != name);
            if !ea.value.is_empty() {
                all.push((ea.flags, name, ea.value.to_vec()));
            }
        }
        self.core.store_ea(&self.node, &all).await?;
        self.core.watches.tell(&self.node, NotifyAction::MODIFIED, CompletionFilter::EA);
        Ok(())
    }

    /// Lists attributes: all, those that are named, or from an index on.
    pub(crate) async fn query_ea(
        &self,
        input: &[u8],
        index: u32,
        flags: QueryInfoFlags,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<NtStatus> {
        self.needs(AccessMask::READ_EA, "the open may not read extended attributes")?;
        let info = self.core.info(&self.node).await?;
        let all = owned(&self.core.ea_list(self.node.file, FileAttributes(info.attributes.0)).await?);
        let single = flags.contains(QueryInfoFlags::RETURN_SINGLE_ENTRY);
        let mut list = ea_writer(out, limit);
        if !input.is_empty() {
            let Ok(names) = wanted_names(input) else {
                return refuse(
                    NtStatus::EA_LIST_INCONSISTENT,
                    "the names of extended attributes are no list",
                );
            };
            for wanted in names.iter().take(if single { 1 } else { usize::MAX }) {
                let wanted = wanted.to_ascii_uppercase();
                let found = all.iter().find(|(_, name, _)| *name == wanted);
                // Named ones that are not there are listed with an empty value.
                let (flags, value) = found.map_or((0, &[][..]), |(flags, _, value)| (*flags, &value[..]));
                if !push_ea(&mut list, &Ea { flags, name: &wanted, value }) {
                    return overflow(list.is_empty());
                }
            }
            return Ok(NtStatus::SUCCESS);
        }
        if all.is_empty() {
            return refuse(NtStatus::NO_EAS_ON_FILE, "");
        }
        let start = if flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
            // Counted from one (MS-FSA 2.1.5.12.7).
            match (index as usize).checked_sub(1).filter(|at| *at < all.len()) {
                Some(at) => at,
                None => {
                    return refuse(NtStatus::NONEXISTENT_EA_ENTRY, "no extended attribute has that index");
                }
            }
        } else if flags.contains(QueryInfoFlags::RESTART_SCAN) {
            0
        } else {
            self.state.lock().ea_index
        };
        if start >= all.len() {
            return refuse(NtStatus::NO_MORE_EAS, "");
        }
        let mut next = start;
        for (flags, name, value) in all.iter().skip(start).take(if single { 1 } else { usize::MAX }) {
            if !push_ea(&mut list, &Ea { flags: *flags, name, value }) {
                break;
            }
            next += 1;
        }
        let (empty, complete) = (list.is_empty(), single || next == all.len());
        // A scan that came to the end begins again: clients that never say RESTART see everything each time.
        self.state.lock().ea_index = if single && next < all.len() { next } else { 0 };
        if complete { Ok(NtStatus::SUCCESS) } else { overflow(empty) }
    }
}

fn overflow(nothing_fitted: bool) -> Result<NtStatus> {
    if nothing_fitted {
        return refuse(NtStatus::BUFFER_TOO_SMALL, "not one extended attribute fits");
    }
    Ok(NtStatus::BUFFER_OVERFLOW)
}
