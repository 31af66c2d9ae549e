//! QUERY_INFO about a file (MS-FSA 2.1.5.12).

use file_store::FileInfo;
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateOptions, FileAttributes};
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::file::{
    AccessInformation, AlignmentInformation, AllInformation, AttributeTagInformation, BasicInformation,
    CompressionInformation, EaInformation, IdInformation, InternalInformation, ModeInformation,
    NetworkOpenInformation, PositionInformation, StandardInformation, StandardLinkInformation,
};
use smb_protocol::fscc::names::{push_stream, put_name, stream_writer};
use smb_protocol::fsctl::reparse::ReparseTag;
use smb_protocol::info::QueryInfoFlags;
use smb_protocol::wire::Wire;

use crate::api::OpenInfo;
use crate::error::{Result, refuse};
use crate::extras::shown;
use crate::file_system::Open;
use crate::short_names::alias;
use crate::times::file_time;

/// Options that FileModeInformation shows (MS-FSCC 2.4.31).
pub(crate) const MODE: CreateOptions = CreateOptions(
    CreateOptions::WRITE_THROUGH.0
        | CreateOptions::SEQUENTIAL_ONLY.0
        | CreateOptions::NO_INTERMEDIATE_BUFFERING.0
        | CreateOptions::SYNCHRONOUS_IO_ALERT.0
        | CreateOptions::SYNCHRONOUS_IO_NONALERT.0
        | CreateOptions::DELETE_ON_CLOSE.0,
);

/// Least bytes of a buffer for answers that end with a name: the structure with its alignment, as Windows counts it, whether
/// the name needs as much or not (MS-FSA 2.1.5.12, "BlockAlign").
const ALL_FIXED: usize = 104;
const STREAM_FIXED: usize = 32;
const NAME_FIXED: usize = 4;
const ALTERNATE_FIXED: usize = 8;

pub(crate) fn basic(info: &FileInfo) -> BasicInformation {
    BasicInformation {
        creation_time: file_time(info.times.created),
        last_access_time: file_time(info.times.accessed),
        last_write_time: file_time(info.times.written),
        change_time: file_time(info.times.changed),
        attributes: shown(info),
    }
}

impl Open {
    /// Times, sizes and attributes now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn info(&self) -> Result<OpenInfo> {
        let info = self.core.info(&self.node).await?;
        let (size, allocated) = self.core.stream_size(self).await?;
        let times = basic(&info);
        Ok(OpenInfo {
            creation_time: times.creation_time,
            last_access_time: times.last_access_time,
            last_write_time: times.last_write_time,
            change_time: times.change_time,
            allocation_size: allocated,
            end_of_file: size,
            attributes: times.attributes,
        })
    }

    /// QUERY_INFO about the file. `input`, `index` and `flags` are for extended attributes. Appends at most `limit` bytes
    /// to `out` and returns SUCCESS or BUFFER_OVERFLOW.
    ///
    /// # Errors
    /// INVALID_INFO_CLASS, INFO_LENGTH_MISMATCH when `limit` is below the fixed part, ACCESS_DENIED, and others.
    pub async fn query_info(
        &self,
        class: FileClass,
        input: &[u8],
        index: u32,
        flags: QueryInfoFlags,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<NtStatus> {
        if self.is_closed() {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        let start = out.len();
        let fixed = match class {
            FileClass::FULL_EA => return self.query_ea(input, index, flags, limit, out).await,
            FileClass::STREAM => return self.query_streams(limit, out).await,
            FileClass::BASIC => {
                self.needs(AccessMask::READ_ATTRIBUTES, "the open may not read attributes")?;
                basic(&*self.file_info().await?).put(out);
                BasicInformation::SIZE
            }
            FileClass::STANDARD => {
                self.standard().await?.put(out);
                StandardInformation::SIZE
            }
            FileClass::STANDARD_LINK => {
                let standard = self.standard().await?;
                StandardLinkInformation {
                    accessible_links: standard.links,
                    total_links: self.core.info(&self.node).await?.names,
                    delete_pending: standard.delete_pending,
                    directory: standard.directory,
                }
                .put(out);
                StandardLinkInformation::SIZE
            }
            FileClass::INTERNAL => {
                InternalInformation { index: self.node.file.0 }.put(out);
                InternalInformation::SIZE
            }
            FileClass::EA => {
                EaInformation { ea_size: self.ea_size().await? }.put(out);
                EaInformation::SIZE
            }
            FileClass::ACCESS => {
                AccessInformation { access: self.granted }.put(out);
                AccessInformation::SIZE
            }
            FileClass::POSITION => {
                PositionInformation { position: self.state.lock().position }.put(out);
                PositionInformation::SIZE
            }
            FileClass::MODE => {
                ModeInformation { mode: self.state.lock().mode & MODE }.put(out);
                ModeInformation::SIZE
            }
            FileClass::ALIGNMENT => {
                AlignmentInformation { requirement: 0 }.put(out);
                AlignmentInformation::SIZE
            }
            FileClass::NETWORK_OPEN => {
                self.needs(AccessMask::READ_ATTRIBUTES, "the open may not read attributes")?;
                self.network_open().await?.put(out);
                NetworkOpenInformation::SIZE
            }
            FileClass::ATTRIBUTE_TAG => {
                self.needs(AccessMask::READ_ATTRIBUTES, "the open may not read attributes")?;
                self.attribute_tag().await?.put(out);
                AttributeTagInformation::SIZE
            }
            FileClass::COMPRESSION => {
                let (size, _) = self.core.stream_size(self).await?;
                CompressionInformation { compressed_size: size, ..CompressionInformation::default() }
                    .put(out);
                CompressionInformation::SIZE
            }
            FileClass::ID => {
                let mut file_id = [0; 16];
                if let Some(place) = file_id.first_chunk_mut() {
                    *place = self.node.file.0.to_le_bytes();
                }
                IdInformation { volume: self.core.options.serial, file_id }.put(out);
                IdInformation::SIZE
            }
            FileClass::ALL => {
                self.needs(AccessMask::READ_ATTRIBUTES, "the open may not read attributes")?;
                self.all().await?.put(out);
                put_name(&format!("\\{}", self.path()), out);
                ALL_FIXED
            }
            FileClass::NAME => {
                put_name(&format!("\\{}", self.path()), out);
                NAME_FIXED
            }
            // Without a leading backslash (MS-SMB2 3.3.5.20.1).
            FileClass::NORMALIZED_NAME => {
                put_name(&self.path(), out);
                NAME_FIXED
            }
            FileClass::ALTERNATE_NAME => {
                put_name(&self.short_name()?, out);
                ALTERNATE_FIXED
            }
            FileClass::HARD_LINK => return self.query_links(limit, out).await,
            FileClass::PIPE | FileClass::PIPE_LOCAL | FileClass::PIPE_REMOTE => {
                return refuse(NtStatus::INVALID_PARAMETER, "a file is no pipe");
            }
            _ => return refuse(NtStatus::INVALID_INFO_CLASS, format!("{class:?} cannot be asked of a file")),
        };
        finish(out, start, fixed, limit)
    }

    /// Kept in a box only to be borrowed above.
    async fn file_info(&self) -> Result<Box<FileInfo>> {
        Ok(Box::new(self.core.info(&self.node).await?))
    }

    async fn standard(&self) -> Result<StandardInformation> {
        let (size, allocated) = self.core.stream_size(self).await?;
        let names = self.core.info(&self.node).await?.names;
        let delete_pending = {
            let state = self.node.state.lock();
            self.node.name.is_going() || state.streams.get(&self.stream).is_some_and(|s| s.delete_pending)
        };
        Ok(StandardInformation {
            allocation_size: allocated,
            end_of_file: size,
            links: self.links_left(names, delete_pending),
            delete_pending,
            directory: self.directory,
        })
    }

    async fn ea_size(&self) -> Result<u32> {
        let info = self.core.info(&self.node).await?;
        self.core.ea_size(self.node.file, FileAttributes(info.attributes.0)).await
    }

    async fn network_open(&self) -> Result<NetworkOpenInformation> {
        let info = self.info().await?;
        Ok(NetworkOpenInformation {
            creation_time: info.creation_time,
            last_access_time: info.last_access_time,
            last_write_time: info.last_write_time,
            change_time: info.change_time,
            allocation_size: info.allocation_size,
            end_of_file: info.end_of_file,
            attributes: info.attributes,
        })
    }

    async fn attribute_tag(&self) -> Result<AttributeTagInformation> {
        let attributes = shown(&self.core.info(&self.node).await?);
        let mut reparse_tag = ReparseTag::NONE;
        if self.core.is_reparse_point(self.node.file).await?
            && let Some(data) = self.core.reparse_data(self.node.file).await?
        {
            reparse_tag = ReparseTag::decode(&data).unwrap_or_default();
        }
        Ok(AttributeTagInformation { attributes, reparse_tag })
    }

    async fn all(&self) -> Result<AllInformation> {
        let basic = basic(&self.core.info(&self.node).await?);
        let standard = self.standard().await?;
        let ea = EaInformation { ea_size: self.ea_size().await? };
        let (position, mode) = {
            let state = self.state.lock();
            (state.position, state.mode & MODE)
        };
        Ok(AllInformation {
            basic,
            standard,
            internal: InternalInformation { index: self.node.file.0 },
            ea,
            access: AccessInformation { access: self.granted },
            position: PositionInformation { position },
            mode: ModeInformation { mode },
            alignment: AlignmentInformation { requirement: 0 },
        })
    }

    /// The name of the form 8.3 (MS-FSA 2.1.5.12.3).
    fn short_name(&self) -> Result<String> {
        match self.node.place().filter(|_| self.node.file != self.caller.share.root) {
            Some((_, name)) => Ok(alias(&name).unwrap_or_else(|| crate::path::to_client(&name))),
            None => refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "the root has no name"),
        }
    }

    async fn query_streams(&self, limit: usize, out: &mut Vec<u8>) -> Result<NtStatus> {
        if limit < STREAM_FIXED {
            return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the answer does not fit");
        }
        let mut streams = self.core.store.streams(self.node.file).await?;
        // The unnamed one first, as Windows does; the others in a stable order.
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        let mut list = stream_writer(out, limit);
        for stream in &streams {
            let name = format!(":{}:$DATA", crate::path::to_client(&stream.name));
            if !push_stream(&mut list, &name, stream.size, stream.allocated) {
                // What does not fit whole is left out, be it the first.
                return Ok(NtStatus::BUFFER_OVERFLOW);
            }
        }
        Ok(NtStatus::SUCCESS)
    }
}

/// Cuts an answer: what is fixed must fit, names may be cut (MS-SMB2 3.3.5.20.1).
pub(crate) fn finish(out: &mut Vec<u8>, start: usize, fixed: usize, limit: usize) -> Result<NtStatus> {
    let len = out.len() - start;
    if limit < fixed {
        out.truncate(start);
        return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the answer does not fit");
    }
    if len > limit {
        out.truncate(start + limit);
        return Ok(NtStatus::BUFFER_OVERFLOW);
    }
    Ok(NtStatus::SUCCESS)
}
