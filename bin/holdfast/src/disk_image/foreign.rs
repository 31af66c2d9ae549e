//! Formats of disk images that are neither read nor written here: found out, so that none is taken for a raw disk.

use std::path::Path;

use aligned_buffer::IoBuf;
use file_store::OpenFile;

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
pub(super) fn by_name(path: &Path) -> Option<&'static str> {
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
}
