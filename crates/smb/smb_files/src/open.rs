//! An open file, directory or stream.

use std::sync::Arc;

use smb_protocol::access::AccessMask;
use smb_protocol::directory::QueryDirectoryFlags;
use smb_protocol::fscc::FileClass;
use smb_protocol::fsctl::copy::ResumeKey;
use smb_protocol::Utf16;

/// An open: what CREATE made and CLOSE ends.
pub struct Open {
    pub(crate) granted: AccessMask,
}

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Durable when answered; also when the open or the share says so.
    pub write_through: bool,
}

/// A QUERY_DIRECTORY.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryQuery<'a> {
    /// In which form.
    pub class: FileClass,
    /// From where, and how many.
    pub flags: QueryDirectoryFlags,
    /// Where to go on, if the flags say so.
    pub file_index: u32,
    /// Which names.
    pub pattern: Utf16<'a>,
    /// Most bytes of the answer.
    pub limit: usize,
}

/// How a control finds the other open that it names; the server looks in the same session only.
pub trait OpenLookup {
    /// The open with a file identifier of DUPLICATE_EXTENTS.
    fn by_file_id(&self, id: smb_protocol::file::FileId) -> Option<Arc<Open>>;
    /// The open with a resume key of COPYCHUNK; see [`Open::resume_key`].
    fn by_resume_key(&self, key: ResumeKey) -> Option<Arc<Open>>;
}
