//! Sizes that LUNs can have, and what memory their write caches need for them.

use control_api::{Code, LunWriteCache, Problem, WriteCachePlace, human_bytes};

/// Refuses a size in bytes that is not one or more whole blocks of `block` bytes, of what is called `what`.
pub(super) fn whole_blocks(what: &str, size: u64, block: u32) -> Result<(), Problem> {
    let block = u64::from(block);
    if size == 0 {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("{what} has a size of 0, and a disk has at least one block."),
        )
        .todo("Say how large the LUN is, as --size 20G."));
    }
    if size.is_multiple_of(block) {
        return Ok(());
    }
    let detail =
        format!("{what} has a size of {size} bytes, and a LUN is made of whole blocks of {block} bytes.");
    let next = size.checked_next_multiple_of(block);
    let todo = next.map_or_else(
        || "Choose a smaller size.".to_owned(),
        |next| format!("The next larger size that it can have is {next} bytes."),
    );
    Err(Problem::new(Code::InvalidRequest, detail).todo(todo))
}

/// Refuses a write cache whose memory is too small for what it has to know of a disk of `size` bytes when all of it was written: it would be
/// full for good then, though its overflow file has room. One that keeps writes on disks has what it needs, and one in memory only no
/// overflow file.
pub(super) fn enough_memory(cache: Option<&LunWriteCache>, size: u64) -> Result<(), Problem> {
    let Some(cache) = cache.filter(|cache| cache.place == WriteCachePlace::RamOverflow) else {
        return Ok(());
    };
    let (has, needs) = (cache.memory(), write_cache::least_ram(size));
    if has >= needs {
        return Ok(());
    }
    let detail = format!(
        "A write cache with an overflow file needs {needs} bytes of memory for a disk of {}, and this one has {}.",
        human_bytes(size),
        human_bytes(has)
    );
    let whole = needs.div_ceil(1 << 20);
    Err(Problem::new(Code::InvalidRequest, detail).todo(format!("Give it more (`--cache-size {whole}MiB`).")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_size_is_said() {
        assert!(whole_blocks("LUN l", 4096, 512).is_ok());
        let none = whole_blocks("LUN l", 0, 512).expect_err("nothing");
        assert_eq!(none.detail, "LUN l has a size of 0, and a disk has at least one block.");
        let part = whole_blocks("LUN l", 1000, 512).expect_err("no whole blocks");
        assert!(
            part.detail.contains("1000 bytes") && part.todo.is_some_and(|todo| todo.contains("1024 bytes"))
        );
        assert!(whole_blocks("LUN l", u64::MAX, 4096).is_err());
    }

    #[test]
    fn a_cache_that_could_not_hold_the_index_of_the_disk_is_refused_with_what_it_needs() {
        let cache = |text: &str| serde_json::from_str::<LunWriteCache>(text).expect("a cache");
        let overflow = cache(r#"{"place":"ram-overflow","overflow":"/c","ram_bytes":16777216}"#);
        assert!(enough_memory(Some(&overflow), 16 << 30).is_ok());
        // 928 bytes for each of 153,600 blocks of 2 MiB, and 8 MiB.
        let refused = enough_memory(Some(&overflow), 300 << 30).expect_err("too little");
        assert!(refused.detail.contains("needs 150929408 bytes of memory for a disk of 300"), "{refused:?}");
        assert!(refused.todo.is_some_and(|todo| todo.contains("--cache-size 144MiB")));
        let unsaid = cache(r#"{"place":"ram-overflow","overflow":"/c"}"#);
        assert!(enough_memory(Some(&unsaid), 300 << 30).is_ok());
        assert!(enough_memory(Some(&unsaid), 1 << 40).is_err() && enough_memory(None, u64::MAX).is_ok());
        for other in [r#"{"place":"ram","ram_bytes":16777216}"#, r#"{"place":"own-disk","overflow":"/c"}"#] {
            assert!(enough_memory(Some(&cache(other)), 1 << 40).is_ok(), "{other}");
        }
    }
}
