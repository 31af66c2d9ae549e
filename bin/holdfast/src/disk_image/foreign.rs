//! Formats of disk images that are neither read nor written here: found out, so that none is taken for a raw disk.

use std::path::Path;

use aligned_buffer::IoBuf;
use file_store::OpenFile;

use super::Format;
use super::files::format_of;
use crate::error::{CliError, CliResult};

/// How files of other formats begin.
const STARTS: [(&[u8], &str); 7] = [
    (b"QFI\xfb", "qcow2"),
    (b"QED\0", "QED"),
    (b"KDMV", "VMDK"),
    (b"COWD", "VMDK"),
    (b"# Disk DescriptorFile", "VMDK"),
    (VHD, "VHD"),
    (b"<<< ", "VDI"),
];
/// The cookie of a VHD file's footer: at the end of each, and at the beginning of those that grow.
const VHD: &[u8] = b"conectix";
/// Where the footer begins, in bytes before the end; that of old files lacks a byte.
const VHD_FOOTERS: [u64; 2] = [512, 511];

/// The other format that a name stands for.
fn by_name(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_string_lossy().to_ascii_lowercase();
    match ending.as_str() {
        "qcow" | "qcow2" => Some("qcow2"),
        "qed" => Some("QED"),
        "vmdk" => Some("VMDK"),
        "vhd" | "avhd" | "vpc" => Some("VHD"),
        "vdi" => Some("VDI"),
        _ => None,
    }
}

/// The other format that a file's content is in.
///
/// # Errors
/// When it cannot be read.
pub(super) async fn by_content(file: &dyn OpenFile) -> Result<Option<&'static str>, String> {
    let read = async |offset: u64, len: usize| {
        file.read(offset, IoBuf::new(len)).await.map_err(|error| error.to_string())
    };
    let start = read(0, 32).await?;
    if let Some((_, name)) = STARTS.iter().find(|(start_of, _)| start.starts_with(start_of)) {
        return Ok(Some(name));
    }
    for before in VHD_FOOTERS {
        if let Some(at) = file.size().checked_sub(before)
            && read(at, VHD.len()).await?.starts_with(VHD)
        {
            return Ok(Some("VHD"));
        }
    }
    Ok(None)
}

/// What a file that is to be made becomes: what was said, or what its name stands for.
///
/// # Errors
/// When its name stands for a format that is not written.
pub(super) fn target(to: &Path, said: Option<Format>) -> CliResult<Format> {
    match (said, by_name(to)) {
        (Some(said), _) => Ok(said),
        (None, None) => Ok(format_of(to)),
        (None, Some(other)) => Err(CliError::Usage(format!(
            "{} is the name of a {other} file, and only raw and VHDX files are written\nName it .vhdx or .raw; `qemu-img convert` makes a {other} file of either.",
            to.display()
        ))),
    }
}

/// A new image gets the name of one.
///
/// # Errors
/// When its name stands for something else than VHDX.
pub(super) fn new_image(image: &Path) -> CliResult {
    target(image, None)?;
    let ending = image.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("raw" | "img") => Err(CliError::Usage(format!(
            "{} is the name of a raw disk, and this makes VHDX files: name it .vhdx\nAn empty raw disk is a plain file of its size: truncate -s SIZE FILE.",
            image.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use local_file::{LocalFile, Purpose};
    use shard_runtime::Shards;

    use super::*;

    #[test]
    fn other_formats_are_known_by_their_content() {
        let folder = tempfile::tempdir().expect("temp dir");
        let mut cases: Vec<(Vec<u8>, Option<&str>)> = vec![
            (vec![], None),
            (vec![0; 511], None),
            (b"QFI".to_vec(), None),
            (b"conectix".to_vec(), Some("VHD")),
            ([&[0; 4096][..], b"conectix", &[0; 504]].concat(), Some("VHD")),
            ([&[0; 4096][..], b"conectix", &[0; 503]].concat(), Some("VHD")),
            ([&[0; 4096][..], b"conectix", &[0; 505]].concat(), None),
        ];
        cases.extend(STARTS.map(|(start, name)| ([start, &[0; 600]].concat(), Some(name))));
        for (content, wanted) in cases {
            let path = folder.path().join("disk");
            std::fs::write(&path, &content).expect("made");
            let shards = Shards::start(1).expect("a shard");
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let found = runtime.block_on(shards.next().run(move || async move {
                let file = LocalFile::open(&path, Purpose::Read).expect("opened");
                by_content(&*file).await
            }));
            shards.stop();
            assert_eq!(found.expect("done"), Ok(wanted), "{:?}", content.get(..8));
        }
    }

    #[test]
    fn what_is_written_has_the_name_of_it() {
        for name in ["a.qcow2", "a.QCOW2", "a.vhd", "a.avhd", "a.vmdk", "a.vdi"] {
            let refused = target(Path::new(name), None);
            assert!(matches!(refused, Err(CliError::Usage(told)) if told.contains("qemu-img")), "{name}");
            assert!(matches!(target(Path::new(name), Some(Format::Raw)), Ok(Format::Raw)), "{name}");
            assert!(new_image(Path::new(name)).is_err(), "{name}");
        }
        for (name, image) in
            [("a.vhdx", true), ("a.avhdx", true), ("a", true), ("a.raw", false), ("a.img", false)]
        {
            assert!(target(Path::new(name), None).is_ok(), "{name}");
            assert_eq!(new_image(Path::new(name)).is_ok(), image, "{name}");
        }
    }
}
