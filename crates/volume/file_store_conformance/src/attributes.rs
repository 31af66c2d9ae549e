//! Times, attributes, security descriptors, and rows of durable state.

use file_store::{
    Attributes, FileInfo, FileKind, InfoChange, NewFile, SECURITY_MAX, STATE_KEY_MAX, STATE_VALUE_MAX,
    StateChange, StateRow, StoreErrorKind as Kind,
};

use crate::Outcome;
use crate::check::Probe;

pub(crate) async fn times(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let info = async |file| -> Outcome<FileInfo> { p.done("info", store.info(file).await) };
    let file = p.file("f").await?;
    let fresh = info(file).await?;
    p.equal("the attributes", fresh.attributes, Attributes(0x20))?;
    let times = fresh.times;
    p.equal("a fresh file has one time", [times.accessed, times.written, times.changed], [times.created; 3])?;
    let all = InfoChange {
        attributes: Some(Attributes(0xffff_ffff)),
        created: Some(1),
        accessed: Some(u64::MAX),
        written: Some(0),
        changed: Some(12_345_678_901_234_567_890),
    };
    p.done("set_info", store.set_info(file, all).await)?;
    let set = info(file).await?;
    p.equal("the attributes", set.attributes, Attributes(0xffff_ffff))?;
    let times = [set.times.created, set.times.accessed, set.times.written, set.times.changed];
    p.equal("the times", times, [1, u64::MAX, 0, 12_345_678_901_234_567_890])?;
    p.done("set_info", store.set_info(file, InfoChange { accessed: Some(77), ..Default::default() }).await)?;
    let set = info(file).await?;
    p.equal("other times stay", [set.times.created, set.times.accessed, set.times.written], [1, 77, 0])?;
    p.ensure("the time of change is now", set.times.changed >= fresh.times.changed)?;
    p.ensure("the time of change is now", set.times.changed != 12_345_678_901_234_567_890)?;
    p.equal("attributes stay", set.attributes, Attributes(0xffff_ffff))?;
    // Writing changes the time of writing, at once and for good.
    let open = p.open(file).await?;
    p.write(&open, 0, b"data").await?;
    let written = info(file).await?.times.written;
    p.ensure("a write moves the time of writing", written >= fresh.times.written)?;
    let early = InfoChange { written: Some(5), ..Default::default() };
    p.done("set_info", store.set_info(file, early).await)?;
    p.equal("a time that is set", info(file).await?.times.written, 5)?;
    p.write(&open, 0, b"DATA").await?;
    p.ensure("an overwrite moves it too", info(file).await?.times.written >= written)?;
    let before = info(file).await?.times.written;
    p.done("set_info", store.set_info(file, InfoChange { changed: Some(6), ..Default::default() }).await)?;
    let times = info(file).await?.times;
    p.equal("the time of change alone is set", [times.written, times.changed], [before, 6])?;
    drop(open);
    p.ensure("closing keeps it", info(file).await?.times.written >= written)?;
    // Directories: the names in them are their data.
    let early = InfoChange { written: Some(1), changed: Some(1), ..Default::default() };
    for step in 0..3 {
        p.done("set_info", store.set_info(root, early).await)?;
        let done = match step {
            0 => store.create(root, "x", crate::check::new(FileKind::Directory)).await.map(drop),
            1 => store.rename((root, "x"), (root, "y"), false).await,
            _ => store.remove(root, "y").await,
        };
        p.done("a change of names", done)?;
        let times = info(root).await?.times;
        p.ensure("a directory's times move with its names", times.written > 1 && times.changed > 1)?;
    }
    let kept = info(file).await?;
    drop(store);
    if p.reopen().await? {
        let again = p.done("info", p.store().info(file).await)?;
        p.equal("attributes after reopening", again.attributes, kept.attributes)?;
        p.equal("times after reopening", again.times, kept.times)?;
    }
    Ok(())
}

pub(crate) async fn security(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let plain = p.file("plain").await?;
    p.equal("no descriptor", p.done("security", store.security(plain).await)?, Vec::new())?;
    let blob = |len: usize, seed: u8| (0..len).map(|i| i as u8 ^ seed).collect::<Vec<u8>>();
    for kind in [FileKind::File, FileKind::Directory] {
        let with = NewFile { kind, attributes: Attributes(0), security: blob(SECURITY_MAX, 1) };
        let file = p.done("create", store.create(root, "with", with.clone()).await)?;
        p.equal("the descriptor", p.done("security", store.security(file).await)?, with.security.clone())?;
        for len in [1, 4096, SECURITY_MAX, 0, 300] {
            p.done("set_security", store.set_security(file, blob(len, 9)).await)?;
            p.equal("the descriptor", p.done("security", store.security(file).await)?, blob(len, 9))?;
        }
        let long = store.set_security(file, blob(SECURITY_MAX + 1, 1)).await;
        p.refused("a long descriptor", long, Kind::InvalidArgument)?;
        let long = NewFile { security: blob(SECURITY_MAX + 1, 1), ..with };
        let made = store.create(root, "long", long).await;
        p.refused("a file with a long descriptor", made, Kind::InvalidArgument)?;
        p.refused("and it is not there", store.lookup(root, "long").await, Kind::NotFound)?;
        p.equal("the descriptor", p.done("security", store.security(file).await)?, blob(300, 9))?;
        p.done("remove", store.remove(root, "with").await)?;
        p.equal("the neighbour", p.done("security", store.security(plain).await)?, Vec::new())?;
    }
    p.done("of the root", store.set_security(root, vec![7]).await)?;
    drop(store);
    p.reopen().await?;
    p.equal("the root's", p.done("security", p.store().security(root).await)?, vec![7])
}

pub(crate) async fn state(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let set = |table: &str, key: &[u8], value: &[u8]| StateChange {
        table: table.into(),
        key: key.to_vec(),
        value: Some(value.to_vec()),
    };
    let unset = |table: &str, key: &[u8]| StateChange { value: None, ..set(table, key, b"") };
    let row = |key: &[u8], value: &[u8]| StateRow { key: key.to_vec(), value: value.to_vec() };
    let write = async |changes| p.done("state_write", store.state_write(changes).await);
    write(vec![]).await?;
    let high = [0xffu8; 3];
    write(vec![
        set("a", b"1", b"one"),
        set("a", b"10", b"ten"),
        set("a", b"2", b""),
        set("a", b"", b"empty key"),
        set("a", &high, b"high"),
        set("ab", b"1", b"neighbour"),
        set("", b"x", b"no name"),
    ])
    .await?;
    let get = async |table: &str, key: &[u8]| p.done("state_get", store.state_get(table, key).await);
    p.equal("a row", get("a", b"1").await?, Some(b"one".to_vec()))?;
    p.equal("an empty value", get("a", b"2").await?, Some(Vec::new()))?;
    p.equal("no row", get("a", b"3").await?, None)?;
    p.equal("no table", get("zz", b"1").await?, None)?;
    let scan = async |table: &str, prefix: &[u8]| p.done("scan", store.state_scan(table, prefix).await);
    let all = vec![
        row(b"", b"empty key"),
        row(b"1", b"one"),
        row(b"10", b"ten"),
        row(b"2", b""),
        row(&high, b"high"),
    ];
    p.equal("a whole table", scan("a", b"").await?, all.clone())?;
    p.equal("a prefix", scan("a", b"1").await?, all[1..3].to_vec())?;
    p.equal("a high prefix", scan("a", &[0xff]).await?, all[4..].to_vec())?;
    p.equal("the table without a name", scan("", b"").await?, vec![row(b"x", b"no name")])?;
    p.equal("no rows", scan("a", b"9").await?, Vec::new())?;
    // In order, and all or nothing.
    write(vec![set("a", b"1", b"x"), unset("a", b"1"), set("b", b"1", b"y"), set("b", b"1", b"z")]).await?;
    p.equal("removed", get("a", b"1").await?, None)?;
    p.equal("the last one counts", get("b", b"1").await?, Some(b"z".to_vec()))?;
    write(vec![unset("a", b"never there")]).await?;
    let long = vec![0; STATE_VALUE_MAX + 1];
    for bad in [set("t", b"k", &long), set("t", &long[..STATE_KEY_MAX], b""), unset("t", &long)] {
        let refused = store.state_write(vec![set("a", b"2", b"changed"), bad]).await;
        p.refused("a long row", refused, Kind::InvalidArgument)?;
    }
    p.equal("nothing of it happened", get("a", b"2").await?, Some(Vec::new()))?;
    write(vec![set("t", &long[..STATE_KEY_MAX - 1], &long[..STATE_VALUE_MAX])]).await?;
    p.equal("no such key", get("t", &long).await?, None)?;
    drop(store);
    if p.reopen().await? {
        let again = p.done("scan", p.store().state_scan("a", b"1").await)?;
        p.equal("after reopening", again, vec![row(b"10", b"ten")])?;
        let large = p.done("get", p.store().state_get("t", &long[..STATE_KEY_MAX - 1]).await)?;
        p.equal("a large row", large.map(|value| value.len()), Some(STATE_VALUE_MAX))?;
    }
    Ok(())
}
