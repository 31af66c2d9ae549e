//! QUERY_DIRECTORY (MS-FSA 2.1.5.6).

use std::collections::VecDeque;
use std::sync::Arc;

use file_store::{DirectoryCursor, DirectoryEntry, FileId, FileInfo, FileKind, StoreErrorKind};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, FileAttributes};
use smb_protocol::directory::QueryDirectoryFlags;
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::listing::{DirectoryEntry as Listed, DirectoryWriter, is_directory_class};
use smb_protocol::fsctl::reparse::ReparseTag;
use smb_protocol::wire::Wire;
use smb_security::Request;

use crate::error::{Result, refuse};
use crate::extras::{HAS_EA, shown};
use crate::file_system::{Core, DirectoryQuery, Open};
use crate::path::{to_client, to_store};
use crate::query::basic;
use crate::scan::Scan;
use crate::short_names::alias;
use crate::wildcard::Pattern;

/// Entries that are taken from the store at once: what fits into a common answer of 64 KiB.
const PAGE: usize = 256;
/// Longest pattern in units: names have 255, and DOS patterns are not much longer.
const PATTERN_UNITS_MAX: usize = 1024;

impl Open {
    /// QUERY_DIRECTORY. Appends entries to `out`. The pattern of the first request holds until a restart.
    ///
    /// # Errors
    /// NO_SUCH_FILE when nothing matches from the beginning, NO_MORE_FILES at the end, INFO_LENGTH_MISMATCH when not one
    /// entry fits, OBJECT_NAME_INVALID, INVALID_INFO_CLASS, ACCESS_DENIED.
    pub async fn query_directory(&self, query: DirectoryQuery<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a file has no entries");
        }
        if !is_directory_class(query.class) {
            return refuse(NtStatus::INVALID_INFO_CLASS, format!("{:?} is no form of entries", query.class));
        }
        self.needs(AccessMask::READ_DATA, "the open may not list")?;
        if query.pattern.units() > PATTERN_UNITS_MAX {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the pattern is too long");
        }
        let Ok(pattern) = query.pattern.to_string() else {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the pattern is not UTF-16");
        };
        if pattern.contains(['\\', '/', ':']) {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the pattern is no name");
        }
        let mut place = self.scan.lock().await;
        let restart =
            query.flags.intersects(QueryDirectoryFlags::RESTART_SCANS | QueryDirectoryFlags::REOPEN);
        if restart || place.is_none() {
            *place = Some(self.new_scan(&pattern));
        }
        let Some(scan) = place.as_mut() else { return refuse(NtStatus::INTERNAL_ERROR, "no scan") };
        self.fill(scan, &query, out).await
    }

    fn new_scan(&self, pattern: &str) -> Scan {
        let compiled = Pattern::new(&to_store(pattern));
        let exact = compiled.is_exact().then(|| to_store(pattern));
        let parent = self.node.place().map_or(self.node.file, |(parent, _)| {
            // Not above the share's folder.
            if self.node.file == self.caller.share.root { self.node.file } else { parent.file }
        });
        let dots = [(".".to_owned(), self.node.file), ("..".to_owned(), parent)];
        Scan {
            pattern: compiled,
            exact,
            ahead: VecDeque::from(dots),
            cursor: DirectoryCursor::default(),
            exhausted: false,
            gave: false,
        }
    }

    async fn fill(&self, scan: &mut Scan, query: &DirectoryQuery<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Some(mut writer) = DirectoryWriter::new(query.class, out, query.limit) else {
            return refuse(NtStatus::INVALID_INFO_CLASS, "no form of entries");
        };
        let single = query.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
        let with_short = matches!(query.class, FileClass::BOTH_DIRECTORY | FileClass::ID_BOTH_DIRECTORY);
        let mut full = false;
        while let Some((name, file)) = self.next_match(scan).await? {
            let Some(entry) = self.listed(&name, file).await? else { continue };
            let short = if with_short { alias(&name).unwrap_or_default() } else { String::new() };
            if !writer.push(&entry, &to_client(&name), &short) {
                scan.ahead.push_front((name, file));
                full = true;
                break;
            }
            scan.gave = true;
            if single {
                break;
            }
        }
        if !writer.is_empty() {
            return Ok(());
        }
        if full {
            return refuse(NtStatus::INFO_LENGTH_MISMATCH, "not one entry fits");
        }
        if scan.gave {
            return refuse(NtStatus::NO_MORE_FILES, "");
        }
        // Asked again, there are no more.
        scan.gave = true;
        refuse(NtStatus::NO_SUCH_FILE, "nothing matches the pattern")
    }

    /// The next entry whose name matches.
    async fn next_match(&self, scan: &mut Scan) -> Result<Option<(String, FileId)>> {
        loop {
            while let Some((name, file)) = scan.ahead.pop_front() {
                if scan.pattern.matches(&name) {
                    return Ok(Some((name, file)));
                }
            }
            if scan.exhausted {
                return Ok(None);
            }
            if let Some(exact) = &scan.exact {
                scan.exhausted = true;
                match self.core.store.lookup(self.node.file, exact).await {
                    Ok(DirectoryEntry { name, file, .. }) => scan.ahead.push_back((name, file)),
                    Err(error) if error.kind() == StoreErrorKind::NotFound => {
                        // Patterns with wildcards are for long names alone: `*.htm` would mean `*.html` too.
                        if let Some(found) = self.core.lookup_alias(self.node.file, exact).await? {
                            scan.pattern = Pattern::new(&found.name);
                            scan.ahead.push_back((found.name, found.file));
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            let page = self.core.store.read_directory(self.node.file, scan.cursor.clone(), PAGE).await?;
            scan.ahead.extend(page.entries.into_iter().map(|entry| (entry.name, entry.file)));
            match page.next {
                Some(next) => scan.cursor = next,
                None => scan.exhausted = true,
            }
        }
    }

    /// What an entry tells; `None` if it is gone, or hidden from the user.
    async fn listed(&self, name: &str, file: FileId) -> Result<Option<Listed>> {
        let info = match self.core.store.info(file).await {
            Ok(info) => info,
            Err(error) if error.kind() == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let dots = name == "." || name == "..";
        if self.caller.share.access_based_enumeration && !dots && !self.may_see(file).await? {
            return Ok(None);
        }
        self.core.entry(&info).await.map(Some)
    }

    /// Access-based enumeration: the user sees what it may read (MS-SMB2 3.3.5.18).
    async fn may_see(&self, file: FileId) -> Result<bool> {
        let node = self.core.nodes.lock().get(&file).cloned();
        let security = match &node {
            Some(node) => self.core.security(node).await?,
            None => Arc::new(crate::file_system::decode_security(&self.core.store.security(file).await?)),
        };
        let request = Request { desired: AccessMask::FILE_READ, ..Request::default() };
        Ok(smb_security::check(&security, &self.caller.token, &request).is_ok())
    }
}

impl Core {
    /// What is known of a file, as an entry.
    async fn entry(&self, info: &FileInfo) -> Result<Listed> {
        let times = basic(info);
        let attributes = FileAttributes(info.attributes.0);
        let mut reparse_tag = ReparseTag::NONE;
        if attributes.contains(FileAttributes::REPARSE_POINT)
            && let Some(data) = self.reparse_data(info.file).await?
        {
            reparse_tag = ReparseTag::decode(&data).unwrap_or_default();
        }
        let ea_size =
            if attributes.contains(HAS_EA) { self.ea_size(info.file, attributes).await? } else { 0 };
        let directory = info.kind == FileKind::Directory;
        Ok(Listed {
            file_index: 0,
            creation_time: times.creation_time,
            last_access_time: times.last_access_time,
            last_write_time: times.last_write_time,
            change_time: times.change_time,
            end_of_file: if directory { 0 } else { info.size },
            allocation_size: if directory { 0 } else { info.allocated },
            attributes: shown(info),
            ea_size,
            reparse_tag: reparse_tag.0,
            file_id: info.file.0,
        })
    }
}
