//! One damage in each structure of the tables, and how it must be named.

use redb::{ReadableTable, WriteTransaction};
use volume_format::{Entry, Inode, OtherName, SnapshotRecord, StreamRecord};

use crate::tables::{
    COUNTERS, ENTRIES, EXTENTS, FREED, INODES, LINKS, MAPS, NEXT_FILE, ORPHANS, SECURITY, SHARED, SHARES,
    SNAPSHOTS, USES, ZERO_UNTIL,
};

/// One case: what is damaged, and which finding must name it.
pub(super) struct Case {
    pub(super) structure: &'static str,
    /// Words of the place.
    pub(super) place: &'static [&'static str],
    /// Words of what is wrong.
    pub(super) detail: &'static str,
    pub(super) how: fn(&WriteTransaction),
}

pub(super) fn inode(txn: &WriteTransaction, file: u64, change: impl FnOnce(&mut Inode)) {
    let mut table = txn.open_table(INODES.definition).expect("table");
    let mut inode = Inode::decode(table.get(file).expect("get").expect("row").value()).expect("inode");
    change(&mut inode);
    table.insert(file, inode.encode().as_slice()).expect("insert");
}

pub(super) fn put_entry(txn: &WriteTransaction, directory: u64, key: &str, entry: &Entry) {
    let mut table = txn.open_table(ENTRIES.definition).expect("table");
    table.insert((directory, key), entry.encode().as_slice()).expect("insert");
}

pub(super) fn entry(file: u64, directory: bool, name: &str) -> Entry {
    Entry { file, directory, name: name.into() }
}

pub(super) fn extent(txn: &WriteTransaction, key: (u64, u32, u64), value: (u64, u64, u8)) {
    txn.open_table(EXTENTS.definition).expect("table").insert(key, value).expect("insert");
}

/// The first extent of a file.
pub(super) fn first(txn: &WriteTransaction, file: u64) -> (u64, u64, u8) {
    let table = txn.open_table(EXTENTS.definition).expect("table");
    let row = table.range((file, 0, 0)..).expect("range").next().expect("row").expect("row");
    row.1.value()
}

pub(super) const CASES: &[Case] = &[
    Case {
        structure: "file record",
        place: &["file 7", "docs/notes"],
        detail: "says it has 3 names (hard links), of which 1 are there",
        how: |txn| {
            inode(txn, 7, |notes| {
                for parent in [2, 2] {
                    notes.others.push(OtherName { parent, name: "gone".into() });
                }
            });
        },
    },
    Case {
        structure: "file record",
        place: &["file 7", "docs/notes"],
        detail: "says it has 2 names (hard links), of which 1 are there",
        how: |txn| {
            inode(txn, 7, |notes| notes.others.push(OtherName { parent: 2, name: "other".into() }));
            put_entry(txn, 2, "OTHER", &entry(7, false, "other"));
            drop(txn.open_table(ENTRIES.definition).expect("t").remove((6, "NOTES")).expect("r"));
        },
    },
    Case {
        structure: "file record",
        place: &["file 3", "web in directory 2"],
        detail: "cannot be read",
        how: |txn| {
            drop(txn.open_table(INODES.definition).expect("t").insert(3, [1u8, 0].as_slice()).expect("i"))
        },
    },
    Case {
        structure: "file record",
        place: &["file 1 (/)"],
        detail: "no root directory",
        how: |txn| drop(txn.open_table(INODES.definition).expect("t").remove(1).expect("r")),
    },
    Case {
        structure: "file record",
        place: &["file 3", "web in file 2 (/luns)"],
        detail: "says it is other in directory 6",
        how: |txn| {
            inode(txn, 3, |inode| {
                inode.parent = 6;
                inode.name = "other".into();
            });
        },
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "two records",
        how: |txn| inode(txn, 7, |inode| inode.streams.push(inode.streams[1].clone())),
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 2"],
        detail: "name of another",
        how: |txn| {
            inode(txn, 7, |inode| {
                inode.streams.push(StreamRecord { id: 2, name: "MORE".into(), size: 0 });
                inode.next_stream = 3;
            });
        },
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "name that cannot be",
        how: |txn| inode(txn, 7, |inode| inode.streams[1].name = "a:b".into()),
    },
    Case {
        structure: "stream record",
        place: &["file 3 (/luns/web)", "stream 0"],
        detail: "size that cannot be",
        how: |txn| inode(txn, 3, |inode| inode.streams[0].size = u64::MAX),
    },
    Case {
        structure: "stream record",
        place: &["file 3 (/luns/web)", "stream 0"],
        detail: "is missing",
        how: |txn| inode(txn, 3, |inode| inode.streams.clear()),
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "given out again",
        how: |txn| inode(txn, 7, |inode| inode.next_stream = 1),
    },
    Case {
        structure: "directory entry",
        place: &["WEB in file 2 (/luns)"],
        detail: "cannot be read",
        how: |txn| {
            let mut table = txn.open_table(ENTRIES.definition).expect("table");
            table.insert((2, "WEB"), [1u8, 2, 3].as_slice()).expect("insert");
        },
    },
    Case {
        structure: "directory entry",
        place: &["ghost in file 2 (/luns)"],
        detail: "file 77, which does not exist",
        how: |txn| put_entry(txn, 2, "GHOST", &entry(77, false, "ghost")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "is filed under WRONG",
        how: |txn| {
            txn.open_table(ENTRIES.definition).expect("table").remove((2, "WEB")).expect("remove");
            put_entry(txn, 2, "WRONG", &entry(3, false, "web"));
        },
    },
    Case {
        structure: "directory entry",
        place: &["lost in file 3 (/luns/web)"],
        detail: "3 is no directory",
        how: |txn| put_entry(txn, 3, "LOST", &entry(7, false, "lost")),
    },
    Case {
        structure: "directory entry",
        place: &["file 3 (/luns/web)"],
        detail: "has no name",
        how: |txn| drop(txn.open_table(ENTRIES.definition).expect("t").remove((2, "WEB")).expect("r")),
    },
    Case {
        structure: "directory entry",
        place: &["second in file 6 (/docs)"],
        detail: "second name of file 3",
        how: |txn| put_entry(txn, 6, "SECOND", &entry(3, false, "second")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "disagree on whether it is a directory",
        how: |txn| put_entry(txn, 2, "WEB", &entry(3, true, "web")),
    },
    Case {
        structure: "directory entry",
        place: &["a/b in file 2 (/luns)"],
        detail: "no name that can be",
        how: |txn| put_entry(txn, 2, "A/B", &entry(3, false, "a/b")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "would be deleted",
        how: |txn| drop(txn.open_table(ORPHANS.definition).expect("t").insert(3, ()).expect("i")),
    },
    Case {
        structure: "directory entry",
        place: &["file 2"],
        detail: "its own ancestor",
        how: |txn| {
            // /luns goes into a directory below itself.
            txn.open_table(ENTRIES.definition).expect("table").remove((1, "LUNS")).expect("remove");
            inode(txn, 2, |inode| inode.parent = 6);
            put_entry(txn, 6, "LUNS", &entry(2, true, "luns"));
            txn.open_table(ENTRIES.definition).expect("table").remove((1, "DOCS")).expect("remove");
            inode(txn, 6, |inode| inode.parent = 2);
            put_entry(txn, 2, "DOCS", &entry(6, true, "docs"));
        },
    },
    Case {
        structure: "removed files",
        place: &["file 50"],
        detail: "nothing of it is left",
        how: |txn| drop(txn.open_table(ORPHANS.definition).expect("t").insert(50, ()).expect("i")),
    },
    Case {
        structure: "counter",
        place: &["next file"],
        detail: "too few numbers for new files",
        how: |txn| {
            drop(txn.open_table(COUNTERS.definition).expect("t").insert(NEXT_FILE, u64::MAX - 1).expect("i"))
        },
    },
    Case {
        structure: "counter",
        place: &["clusters that were zeroed"],
        detail: "says 3, but clusters up to ",
        how: |txn| drop(txn.open_table(COUNTERS.definition).expect("t").insert(ZERO_UNTIL, 3).expect("i")),
    },
    Case {
        structure: "counter",
        place: &["clusters that were zeroed"],
        detail: "says 1099511627776, the volume has ",
        how: |txn| {
            drop(txn.open_table(COUNTERS.definition).expect("t").insert(ZERO_UNTIL, 1 << 40).expect("i"))
        },
    },
    Case {
        structure: "table",
        place: &["security"],
        detail: "is missing",
        how: |txn| assert!(txn.delete_table(SECURITY.definition).expect("delete")),
    },
    Case {
        structure: "table",
        place: &["shares"],
        detail: "is missing",
        how: |txn| assert!(txn.delete_table(SHARES.definition).expect("delete")),
    },
    Case {
        structure: "security descriptor",
        place: &["file 50"],
        detail: "belongs to no file",
        how: |txn| {
            drop(txn.open_table(SECURITY.definition).expect("t").insert(50, [1u8].as_slice()).expect("i"))
        },
    },
    Case {
        structure: "counter",
        place: &["next file's number"],
        detail: "says 3, but file 12 is there",
        how: |txn| drop(txn.open_table(COUNTERS.definition).expect("t").insert(NEXT_FILE, 3).expect("i")),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "beyond the volume's",
        how: |txn| extent(txn, (3, 0, 100), (1 << 40, 5, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "beyond the volume's",
        how: |txn| extent(txn, (3, 0, 100), (u64::MAX - 1, u64::MAX, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "has no clusters",
        how: |txn| extent(txn, (3, 0, 100), (5, 0, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 327680"],
        detail: "overlaps the extent before it, which ends at byte",
        how: |txn| {
            // Free clusters at the end of the volume.
            extent(txn, (3, 0, 5), (500, 2, 0));
        },
    },
    Case {
        structure: "extent",
        place: &["clusters "],
        detail: "file 3 (/luns/web), from byte 6553600 and file 4 (/luns/golden), from byte 0",
        how: |txn| {
            let (device, ..) = first(txn, 4);
            extent(txn, (3, 0, 100), (device, 1, SHARED));
            txn.open_table(SHARES.definition).expect("table").remove(device).expect("remove");
            let value = first(txn, 4);
            extent(txn, (4, 0, 0), (value.0, value.1, 0));
        },
    },
    Case {
        structure: "extent",
        place: &["file 60", "stream 0"],
        detail: "space of a file that does not exist",
        how: |txn| extent(txn, (60, 0, 2), (500, 3, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 7 (/docs/notes)", "stream 5"],
        detail: "space of a stream that does not exist",
        how: |txn| extent(txn, (7, 5, 2), (500, 3, 0)),
    },
    Case {
        structure: "share count",
        place: &["clusters "],
        detail: "have 2 users (file 4 (/luns/golden), from byte 0 and file 5 (/luns/copy), from byte 0), 1 recorded",
        how: |txn| txn.open_table(SHARES.definition).expect("table").retain(|_, _| false).expect("retain"),
    },
    Case {
        structure: "share count",
        place: &["clusters "],
        detail: "2 users (file 4 (/luns/golden), from byte 0 and file 5 (/luns/copy), from byte 0), 7 recorded",
        how: |txn| {
            let (device, count, _) = first(txn, 4);
            txn.open_table(SHARES.definition).expect("table").insert(device, (count, 7)).expect("insert");
        },
    },
    Case {
        structure: "share count",
        place: &["clusters 500..502"],
        detail: "have 0 users (nobody), 2 recorded",
        how: |txn| drop(txn.open_table(SHARES.definition).expect("t").insert(500, (2, 2)).expect("i")),
    },
    Case {
        structure: "share count",
        place: &["clusters 500..502"],
        detail: "less than two users",
        how: |txn| drop(txn.open_table(SHARES.definition).expect("t").insert(500, (2, 1)).expect("i")),
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters "],
        detail: "are used by file 3 (/luns/web), from byte 0, and would be zeroed",
        how: |txn| {
            let (device, ..) = first(txn, 3);
            txn.open_table(FREED.definition).expect("table").insert(device, 1).expect("insert");
        },
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters 501..503"],
        detail: "are listed twice",
        how: |txn| {
            let mut table = txn.open_table(FREED.definition).expect("table");
            table.insert(500, 5).expect("insert");
            table.insert(501, 2).expect("insert");
        },
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters 600..18446744073709551615"],
        detail: "are no clusters of the volume",
        how: |txn| drop(txn.open_table(FREED.definition).expect("t").insert(600, u64::MAX).expect("i")),
    },
    Case {
        structure: "table",
        place: &["links"],
        detail: "is missing",
        how: |txn| {
            assert!(txn.delete_table(LINKS.definition).expect("delete"));
            // What the links were for is found in the map itself, which becomes a file.
            extent(txn, (8, 0, 0), first(txn, 8));
        },
    },
    Case {
        structure: "table",
        place: &["uses"],
        detail: "is missing",
        how: |txn| assert!(txn.delete_table(USES.definition).expect("delete")),
    },
    Case {
        structure: "use count",
        place: &["map 8"],
        detail: "links and their counts differ",
        how: |txn| drop(txn.open_table(USES.definition).expect("t").insert((8, 0, 0), (20, 1)).expect("i")),
    },
    Case {
        structure: "link",
        place: &["file 9 (/docs/linked)", "from cluster 3"],
        detail: "overlaps the link before it",
        how: |txn| {
            drop(txn.open_table(LINKS.definition).expect("t").insert((9, 0, 3), (8, 0, 4)).expect("i"))
        },
    },
    Case {
        structure: "link",
        place: &["file 8 (/docs/image)", "from cluster 2"],
        detail: "extent of its own",
        how: |txn| extent(txn, (10, 0, 2), (500, 1, 0)),
    },
    Case {
        structure: "map",
        place: &["file 8, stream 0"],
        detail: "which is another's",
        how: |txn| drop(txn.open_table(MAPS.definition).expect("t").insert((8, 0), (3, 0)).expect("i")),
    },
    Case {
        structure: "map",
        place: &["file 8, stream 0"],
        detail: "which others link to",
        how: |txn| drop(txn.open_table(MAPS.definition).expect("t").remove((8, 0)).expect("r")),
    },
    Case {
        structure: "map",
        place: &["file 60, stream 0"],
        detail: "belongs to no file",
        how: |txn| drop(txn.open_table(MAPS.definition).expect("t").insert((60, 0), (61, 0)).expect("i")),
    },
    Case {
        structure: "snapshot",
        place: &["snapshot 12"],
        detail: "which does not exist",
        how: |txn| {
            let record = SnapshotRecord { root: 40, name: "s".into(), ..SnapshotRecord::default() };
            txn.open_table(SNAPSHOTS.definition)
                .expect("t")
                .insert(12, record.encode().as_slice())
                .expect("i");
        },
    },
    Case {
        structure: "snapshot",
        place: &["snapshot 12"],
        detail: "cannot be read",
        how: |txn| {
            drop(txn.open_table(SNAPSHOTS.definition).expect("t").insert(12, [1u8, 9].as_slice()).expect("i"))
        },
    },
    Case {
        structure: "file record",
        place: &["file 9 (/docs/linked)"],
        detail: "disagree on whether they belong to a snapshot",
        how: |txn| inode(txn, 9, |inode| inode.frozen = true),
    },
];
