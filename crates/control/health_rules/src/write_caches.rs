//! Write caches of LUNs that can take no more.

use control_api::{Issue, Lun, LunWriteCacheNow, Severity, WriteCachePlace, human_bytes, many};

use crate::{FindingCode, issue};

/// What a cache needs for one more write where it has nothing yet: 64 KiB, and what it knows of them.
const ONE_MORE: u64 = (64 << 10) + 256;

fn is_full(now: &LunWriteCacheNow) -> bool {
    now.ram_bytes.saturating_add(ONE_MORE) > now.ram_limit_bytes
}

/// LUNs whose writes are kept from their files, and find no room any more or will not soon.
#[must_use]
pub fn of_write_caches(luns: &[Lun]) -> Vec<Issue> {
    let of = |lun: &Lun| {
        let (wanted, now) = (lun.config.write_cache_in.as_ref()?, lun.write_cache_now.as_ref()?);
        let name = &lun.config.name;
        let refused = match now.refused {
            0 => String::new(),
            count => format!("; {} failed so far", many(count, "write")),
        };
        let (severity, detail, todo) = match (&now.problem, wanted.place) {
            (Some(problem), _) => (
                if is_full(now) { Severity::Error } else { Severity::Warning },
                format!(
                    "its write cache cannot use its overflow file ({problem}), and has {} of {} in memory{refused}",
                    human_bytes(now.ram_bytes),
                    human_bytes(now.ram_limit_bytes)
                ),
                if now.overflow_is_full {
                    "Its overflow file is as large as it may be, whatever room its volume has: shut its host down and make the LUN anew with a larger one (`--overflow-size`). What the host discards is room again. Nothing that was written is lost meanwhile, and when memory is full, writes wait and then fail.".to_owned()
                } else {
                    format!(
                    "Make room in volume {}, or bring it back: what waits goes on by itself. Nothing that was written is lost meanwhile, and when memory is full, writes wait and then fail.",
                    lun.config.volume
                )
                },
            ),
            (None, WriteCachePlace::Ram) if is_full(now) => (
                Severity::Error,
                format!(
                    "its write cache is full: {} in memory, and it has no overflow file{refused}",
                    human_bytes(now.ram_bytes)
                ),
                "Shut its host down and make the LUN anew with more memory or an overflow file (`holdfast lun create --write-cache-in ram-overflow`). What the host discards is room again.".to_owned(),
            ),
            (None, WriteCachePlace::RamOverflow | WriteCachePlace::OwnDisk) if now.refused > 0 => (
                if is_full(now) { Severity::Error } else { Severity::Warning },
                format!(
                    "its write cache found no memory in time, though its overflow file can be used: it has {} of {} in memory, what it knows of the {} in the file among them{refused}",
                    human_bytes(now.ram_bytes),
                    human_bytes(now.ram_limit_bytes),
                    human_bytes(now.overflow_bytes)
                ),
                "Look at its host, whose writes failed. Make the LUN anew with enough memory for all of its disk (`--cache-size`), give write caches more (`cache.write_bytes`), or look for disks that are slow. What the host discards is room again.".to_owned(),
            ),
            _ => return None,
        };
        Some(issue(FindingCode::LunWriteCache, severity, format!("LUN {name}"), detail, todo))
    };
    luns.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lun(cache: &str, now: LunWriteCacheNow) -> Lun {
        let cache: serde_json::Value = serde_json::from_str(cache).expect("a cache");
        let lun = serde_json::json!({
            "name": "l", "volume": "v", "path": "/l", "write_cache_in": cache, "write_cache_now": now,
            "size_bytes": 1, "allocated_bytes": 0, "serving": "online",
        });
        serde_json::from_value(lun).expect("a LUN")
    }

    #[test]
    fn a_cache_that_is_full_or_cannot_overflow_is_told() {
        let has = |ram_bytes, problem: Option<&str>| LunWriteCacheNow {
            ram_bytes,
            ram_limit_bytes: 16 << 20,
            problem: problem.map(str::to_owned),
            ..LunWriteCacheNow::default()
        };
        let ram = r#"{"place":"ram"}"#;
        let overflow = r#"{"place":"ram-overflow","overflow":"/c"}"#;
        let told = |cache, now| {
            of_write_caches(&[lun(cache, now)]).first().map(|issue| (issue.severity, issue.detail.clone()))
        };
        assert_eq!(told(ram, has(8 << 20, None)), None);
        assert_eq!(told(overflow, has(16 << 20, None)), None, "it overflows");
        let (severity, detail) = told(ram, has(16 << 20, None)).expect("told");
        assert!(severity == Severity::Error && detail.contains("no overflow file"), "{detail}");
        for (bytes, wanted) in [(8 << 20, Severity::Warning), (16 << 20, Severity::Error)] {
            let (severity, detail) = told(overflow, has(bytes, Some("no space left"))).expect("told");
            assert!(severity == wanted && detail.contains("(no space left)"), "{detail}");
        }
        for (overflow_is_full, advice) in [(false, "Make room in volume v"), (true, "(`--overflow-size`)")] {
            let now = LunWriteCacheNow { overflow_is_full, ..has(16 << 20, Some("no space left")) };
            let todo = of_write_caches(&[lun(overflow, now)])[0].todo.clone();
            assert!(todo.contains(advice), "{todo}");
        }
        let own_disk = r#"{"place":"own-disk","overflow":"/c"}"#;
        for (cache, bytes, wanted) in [
            (overflow, 8 << 20, Severity::Warning),
            (overflow, 16 << 20, Severity::Error),
            (own_disk, 16 << 20, Severity::Error),
        ] {
            let now = LunWriteCacheNow { refused: 121, overflow_bytes: 1 << 30, ..has(bytes, None) };
            let (severity, detail) = told(cache, now).expect("told");
            assert!(severity == wanted && detail.contains("1.00 GiB in the file"), "{detail}");
            assert!(detail.ends_with("; 121 writes failed so far"), "{detail}");
        }
    }
}
