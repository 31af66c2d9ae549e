//! What a look of a node at itself costs, which it takes each ten seconds: with LUNS LUNs of which each has its file or, with `lost`, none of
//! them has; SESSIONS sessions of SMB, and OPENS open files. Parts are in memory: what disks take is not in it.
//!
//! `cargo run --profile ci -p control_server --features memory --example status_cost -- 10000 1000 100000 [lost] [vhdx]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control_api::{Protocol, Session, SmbOpen, SmbSession};
use control_server::memory::{Machine, MemoryIscsi, MemorySmb};
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::{Value, json};
use shard_runtime::SystemClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Looks that are timed.
const LOOKS: u32 = 10;

async fn ask(node: &Running, method: &str, path: &str, body: &Value) -> Done<Value> {
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(node.socket()).await?;
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    if !head.starts_with("HTTP/1.1 2") {
        return Err(format!("{method} {path}: {answer}").into());
    }
    Ok(serde_json::from_str(body)?)
}

/// Processor time of this process.
fn processor() -> Done<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let words: Vec<&str> = stat.rsplit_once(") ").ok_or("no stat")?.1.split(' ').collect();
    let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).ok_or("no stat");
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
    let (Some(luns), Some(sessions), Some(opens)) = (count(0), count(1), count(2)) else {
        return Err("LUNS SESSIONS OPENS [lost] [vhdx]".into());
    };
    let said = |word: &str| words.iter().any(|said| said == word);
    let (machine, iscsi, smb) =
        (Arc::new(Machine::default()), Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let data = std::env::temp_dir().join(format!("holdfast-status-cost-{}", std::process::id()));
    let start = async || {
        let (machine, parts) = (machine.clone(), (iscsi.clone(), smb.clone()));
        let options = NodeOptions { data_dir: data.clone(), socket: None, shards: None, http: None };
        let node = Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| {
            let mut backends = machine.backends(data);
            (backends.iscsi, backends.smb) = parts;
            Ok(backends)
        });
        let node = node.await?;
        node.wait_ready().await;
        Done::Ok(node)
    };
    let node = start().await?;
    ask(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" })).await?;
    ask(&node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 1_u64 << 40 })).await?;
    ask(&node, "POST", "/v1/shares", &json!({ "name": "s", "volume": "v" })).await?;
    ask(&node, "POST", "/v1/luns", &json!({ "name": "l00000", "volume": "v", "size_bytes": 8192 })).await?;
    if !said("lost") {
        for number in 1..luns {
            let file = json!({ "path": format!("/luns/l{number:05}"), "kind": "file", "size_bytes": 8192, "parents": true });
            ask(&node, "POST", "/v1/volumes/v/files", &file).await?;
        }
    }
    node.stop().await?;
    // The configuration of so many as a file: made one after the other, each would write it anew.
    let path = data.join("config.toml");
    let mut config = std::fs::read_to_string(&path)?;
    let format = if said("vhdx") { "format = \"vhdx\"\n" } else { "" };
    for number in 1..luns {
        let name = format!("l{number:05}");
        config.push_str(&format!(
            "\n[[lun]]\nname = \"{name}\"\nvolume = \"v\"\npath = \"/luns/{name}\"\n{format}"
        ));
    }
    std::fs::write(&path, config)?;
    *smb.connected.lock() = (0..sessions as u64)
        .map(|id| Session {
            id,
            protocol: Protocol::Smb,
            smb: Some(SmbSession { user: "u".into(), shares: vec!["s".into()], ..SmbSession::default() }),
            ..Session::default()
        })
        .collect();
    *smb.open.lock() = (0..opens)
        .map(|number| SmbOpen { share: "s".into(), path: format!("f{number}"), ..SmbOpen::default() })
        .collect();
    let began = Instant::now();
    let node = start().await?;
    println!("start: {:.2} s", began.elapsed().as_secs_f64());
    let status = ask(&node, "GET", "/v1/status", &Value::Null).await?;
    let mut codes: BTreeMap<&str, u64> = BTreeMap::new();
    for issue in status["issues"].as_array().ok_or("no issues")? {
        *codes.entry(issue["code"].as_str().unwrap_or_default()).or_default() += 1;
    }
    println!("{} {codes:?}", status["summary"]);
    let (began, used) = (Instant::now(), processor()?);
    for _ in 0..LOOKS {
        ask(&node, "GET", "/v1/status", &Value::Null).await?;
    }
    println!(
        "a look: {:.1} ms, {:.1} ms of processors; {}",
        began.elapsed().as_secs_f64() * 1000.0 / f64::from(LOOKS),
        (processor()? - used).as_secs_f64() * 1000.0 / f64::from(LOOKS),
        status["counts"]
    );
    let list = Instant::now();
    ask(&node, "GET", "/v1/findings", &Value::Null).await?;
    println!("list of findings: {:.1} ms", list.elapsed().as_secs_f64() * 1000.0);
    node.stop().await?;
    std::fs::remove_dir_all(&data)?;
    Ok(())
}
