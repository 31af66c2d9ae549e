//! Sizes that LUNs can have, and what memory their write caches need for them.

use control_api::{Code, LunWriteCache, Problem, WriteCachePlace, human_bytes};

use crate::backend::CacheRoom;

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

/// Refuses a write cache that the node has not the memory for: the LUN would not be served, or never have what was said.
pub(super) fn room_in_memory(cache: &LunWriteCache, room: CacheRoom) -> Result<(), Problem> {
    let CacheRoom { total_bytes, left_bytes } = room;
    let put_by = write_cache::Options::put_by(cache.memory(), cache.place != WriteCachePlace::Ram);
    let detail = if cache.ram_bytes.is_some_and(|said| said > total_bytes) {
        format!(
            "This write cache is to have {} of memory, and all of this node together have {}.",
            human_bytes(cache.memory()),
            human_bytes(total_bytes)
        )
    } else if put_by > left_bytes {
        format!(
            "This write cache needs {} of memory for itself, and {} of the {} for write caches are left on this node.",
            human_bytes(put_by),
            human_bytes(left_bytes),
            human_bytes(total_bytes)
        )
    } else {
        return Ok(());
    };
    Err(Problem::new(Code::NoSpace, detail).todo(
        "Give write caches more memory (`cache.write_bytes` of the configuration), or this one less (`--cache-size`).",
    ))
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
    fn a_cache_that_the_node_has_no_memory_for_is_refused() {
        let cache = |text: &str| serde_json::from_str::<LunWriteCache>(text).expect("a cache");
        let room = |left_bytes| CacheRoom { total_bytes: 1 << 30, left_bytes };
        let ram = cache(r#"{"place":"ram","ram_bytes":536870912}"#);
        assert!(room_in_memory(&ram, room(1 << 29)).is_ok());
        let refused = room_in_memory(&ram, room((1 << 29) - 1)).expect_err("too little is left");
        assert!(refused.detail.contains("512 MiB of memory for itself"), "{refused}");
        let overflow = r#"{"place":"ram-overflow","overflow":"/c""#;
        let large = cache(&format!("{overflow},\"ram_bytes\":1099511627776}}"));
        let refused = room_in_memory(&large, room(1 << 30)).expect_err("more than there is");
        assert!(
            refused.detail.contains("1.00 TiB of memory, and all of this node together have 1.00 GiB"),
            "{refused}"
        );
        // What was not said is what it may have where there is so much.
        let unsaid = cache(&format!("{overflow}}}"));
        assert!(room_in_memory(&unsaid, CacheRoom { total_bytes: 64 << 20, left_bytes: 8 << 20 }).is_ok());
        assert!(room_in_memory(&unsaid, room(1 << 20)).is_err());
        let own_disk = cache(r#"{"place":"own-disk","overflow":"/c"}"#);
        assert!(
            room_in_memory(&own_disk, room(8 << 20)).is_ok() && room_in_memory(&own_disk, room(0)).is_err()
        );
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
