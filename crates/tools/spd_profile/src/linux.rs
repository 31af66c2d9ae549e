//! What Linux cannot do, with the reason: refused rather than ignored.

use crate::error::{ProfileError, refuse};
use crate::model::{CacheMode, Profile};

/// Refuses what has no counterpart on Linux; `remote` says whether a path lies on a server that is reached without a mount.
///
/// # Errors
/// The first option that cannot be carried out, and why.
pub fn check_linux(profile: &Profile, remote: impl Fn(&str) -> bool) -> Result<(), ProfileError> {
    if profile.etw {
        return refuse(
            "-e is event tracing for Windows, which Linux does not have: use perf or bpftrace beside the run",
        );
    }
    for span in &profile.spans {
        if span.completion_routines {
            return refuse(
                "-x asks for Windows' completion routines (ReadFileEx), which Linux does not have: leave -x out, I/O then completes through io_uring as it does through completion ports",
            );
        }
        if let Some(affinity) = span.affinity.iter().find(|affinity| affinity.group > 0) {
            return refuse(format!(
                "affinity assignment to group {}; system only has 1 groups",
                affinity.group
            ));
        }
        for target in &span.targets {
            if target.memory_mapped {
                return refuse(
                    "-Sm memory mapped I/O is not offered: a page fault's time is not an I/O's, and an error would end the program",
                );
            }
            if target.large_pages {
                return refuse(
                    "-l large pages are not offered: buffers are registered with the kernel once, so page size costs nothing per I/O",
                );
            }
            if target.hints.temporary {
                return refuse(
                    "-ft is Windows' FILE_ATTRIBUTE_TEMPORARY, which Linux does not have: put the file on tmpfs",
                );
            }
            if target.cache == CacheMode::DisableLocalCache && !remote(&target.path) {
                return refuse("-Sr is only valid for remote targets (\\\\server\\share\\file, smb://)");
            }
        }
    }
    Ok(())
}
