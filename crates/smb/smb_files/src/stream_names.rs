//! New names of streams: FileRenameInformation with a name that begins with a colon (MS-FSA 2.1.5.15.11.1).
//!
//! What opens of a stream share is under a key: the stream's folded name when it was first opened. A stream that is renamed
//! while it is in use keeps its key, and its state says what it is called now; who comes later is led there by
//! [`NodeState::key_of`].
//!
//! Opening a named stream in the store and renaming one take turns, so that nobody makes a stream of the old name under the key
//! of the renamed one.

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::fscc::notify::NotifyAction;

use crate::error::{FileError, Result, refuse};
use crate::file_system::{Core, Node, NodeState, Open, stream_key};
use crate::name_locks::NameGuard;

/// What stands for all streams of a file among the names that are being changed; no file can be called that.
const STREAMS: &str = ":";

impl NodeState {
    /// The key of what opens of the stream of that name share.
    pub(crate) fn key_of(&self, name: &str) -> String {
        let mut key = stream_key(name);
        if key.is_empty() {
            return key;
        }
        let called = |now: &Option<String>| now.as_ref().is_some_and(|now| stream_key(now) == key);
        if let Some((key, _)) = self.streams.iter().find(|(_, stream)| called(&stream.name)) {
            return key.clone();
        }
        // The key of one that was renamed meanwhile is another one's; NUL is in no name.
        while self.streams.get(&key).is_some_and(|stream| stream.name.is_some()) {
            key.push('\0');
        }
        key
    }
}

impl Core {
    /// The turn of whoever opens named streams of a file in the store, or renames one.
    pub(crate) async fn streams_turn(&self, node: &Node) -> NameGuard<'_> {
        self.names.lock(node.file, STREAMS).await
    }
}

/// The name in `:name:$DATA` or `:name`; empty for the unnamed stream.
fn target(text: &str) -> Result<String> {
    let wrong = |reason: &str| Err(FileError::new(NtStatus::INVALID_PARAMETER, reason.to_owned()));
    let Some(rest) = text.strip_prefix(':') else { return wrong("a stream's name begins with a colon") };
    let (name, kind) = rest.split_once(':').map_or((rest, None), |(name, kind)| (name, Some(kind)));
    match kind {
        Some("") => return wrong("a colon at the end"),
        Some(kind) if kind.contains(':') => return wrong("a third colon"),
        Some(kind) if !kind.eq_ignore_ascii_case("$DATA") => {
            return refuse(NtStatus::OBJECT_TYPE_MISMATCH, "a stream of data stays one");
        }
        None if name.is_empty() => return wrong("a colon without a stream"),
        _ => {}
    }
    if name.is_empty() {
        return Ok(String::new());
    }
    crate::path::stream_name(name).or_else(|_| wrong("a stream cannot have that name"))
}

impl Open {
    /// The name of its stream now; empty for the unnamed one and for directories.
    pub(crate) fn stream_now(&self) -> String {
        if self.stream.is_empty() {
            return String::new();
        }
        let state = self.node.state.lock();
        let renamed = state.streams.get(&self.stream).and_then(|stream| stream.name.clone());
        renamed.unwrap_or_else(|| self.stream_name.clone())
    }

    pub(crate) async fn rename_stream(
        self: &Arc<Self>,
        info: &RenameInformation<'_>,
        on_wait: &dyn Fn(bool),
    ) -> Result<()> {
        let Ok(text) = info.name.to_string() else {
            return refuse(NtStatus::INVALID_PARAMETER, "the stream's name is not UTF-16");
        };
        let name = target(&text)?;
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory's entries are no stream of data");
        }
        match (self.stream.is_empty(), name.is_empty()) {
            (true, true) => return Ok(()),
            (false, true) if self.node.is_directory() => {
                return refuse(NtStatus::INVALID_PARAMETER, "a directory has no unnamed stream");
            }
            (false, false) => {}
            _ => return refuse(NtStatus::NOT_SUPPORTED, "the unnamed stream keeps its name"),
        }
        self.core.break_handles(&self.node, &self.stream, &self.by(), on_wait).await?;
        let replace = info.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
        // To its end, once begun: the store and what is known of names here must not come apart when the connection goes.
        let open = Arc::clone(self);
        shard_runtime::finish_anyway(async move { open.try_rename_stream(&name, replace).await }).await
    }

    async fn try_rename_stream(self: &Arc<Self>, name: &str, replace: bool) -> Result<()> {
        let core = &self.core;
        let _turn = core.streams_turn(&self.node).await;
        let old = self.stream_now();
        let used = {
            let state = self.node.state.lock();
            let key = state.key_of(name);
            key != self.stream && state.opens_of(&key).next().is_some()
        };
        if stream_key(&old) != stream_key(name) {
            let streams = core.store.streams(self.node.file).await?;
            let there = streams.iter().find(|stream| stream_key(&stream.name) == stream_key(name));
            if there.is_some() && !replace {
                return refuse(NtStatus::OBJECT_NAME_COLLISION, "there is such a stream already");
            }
            if used {
                return refuse(NtStatus::INVALID_PARAMETER, "the stream to be replaced is open");
            }
            if there.is_some_and(|stream| stream.size > 0) {
                return refuse(NtStatus::INVALID_PARAMETER, "the stream to be replaced has data");
            }
        }
        self.store().rename_stream(self.node.file, &old, name, replace).await?;
        self.node.state.lock().stream(&self.stream).name = Some(name.to_owned());
        self.node.touched();
        let watches = &core.watches;
        watches.tell_stream(&self.node, &old, NotifyAction::REMOVED_STREAM, CompletionFilter::STREAM_NAME);
        watches.tell_stream(&self.node, name, NotifyAction::ADDED_STREAM, CompletionFilter::STREAM_NAME);
        // Its new name is in the records; who asked may be gone.
        self.node.record_soon(|open| open.stream == self.stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let status = |text: &str| target(text).map_err(|error| error.status);
        assert_eq!(status(":a"), Ok("a".into()));
        assert_eq!(status(":a:$data"), Ok("a".into()));
        assert_eq!(status("::$DATA"), Ok(String::new()));
        for wrong in [
            "a",
            ":",
            "::",
            ":a:",
            ":a:$DATA:",
            ":a:$DATA:x",
            ":.",
            ":a\\b",
            &format!(":{}", "x".repeat(256)),
        ] {
            assert_eq!(status(wrong), Err(NtStatus::INVALID_PARAMETER), "{wrong:?}");
        }
        assert_eq!(status(":a:$INDEX_ALLOCATION"), Err(NtStatus::OBJECT_TYPE_MISMATCH));
    }
}
