//! Many of something: sessions that do nothing, opens on one server, clients that open at the same time.

use std::time::Duration;

use shard_runtime::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use smb_client::Protection;
use smb_protocol::Guid;
use smb_protocol::access::{CreateDisposition, CreateOptions};

use crate::client::{Client, Failure, Place};
use crate::process::resident;

/// Opens of one session, below what a server lets it have.
const PER_SESSION: usize = 50_000;
/// How long sessions do nothing before memory is looked at.
const QUIET: Duration = Duration::from_secs(25);
/// Operations that are timed.
const TIMED: usize = 200;

pub(crate) fn run(
    place: &Place<'_>,
    mode: &str,
    count: usize,
    server: Option<u32>,
) -> Result<String, Failure> {
    let memory = || server.map_or(0.0, resident);
    let before = memory();
    match mode {
        "sessions" => {
            let connect = |_| Client::connect(place, Protection::Sign);
            let clients = (0..count).map(connect).collect::<Result<Vec<_>, _>>()?;
            // Receive buffers are given back by connections that have been quiet.
            std::thread::park_timeout(QUIET);
            Ok(format!("sessions={} rss_mib={:.0} before_mib={before:.0}", clients.len(), memory()))
        }
        "opens" => {
            let mut one = Client::connect(place, Protection::Sign)?;
            let alone = median(open_often(&mut one, TIMED)?);
            let mut clients = Vec::new();
            for at in 0..count {
                if at % PER_SESSION == 0 {
                    clients.push(Client::connect(place, Protection::Sign)?);
                }
                let Some(client) = clients.last_mut() else { continue };
                client.open(
                    &format!("o{}", at % 1000),
                    CreateDisposition::OPEN_IF,
                    CreateOptions::NONE,
                    None,
                )?;
            }
            let among = median(open_often(&mut one, TIMED)?);
            let mib = memory();
            Ok(format!(
                "opens={count} alone_us={alone:.1} among_us={among:.1} rss_mib={mib:.0} before_mib={before:.0}"
            ))
        }
        _ => {
            let each = |_| -> Result<Vec<Duration>, Failure> {
                open_often(&mut Client::connect(place, Protection::Sign)?, TIMED)
            };
            let all = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count).map(|at| scope.spawn(move || each(at))).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().map_err(|_| "a client gave up")?)
                    .collect::<Result<Vec<_>, _>>()
            })?;
            Ok(format!("openers={count} p50={:.1}", median(all.concat())))
        }
    }
}

/// Opens with a persistent handle, and closes; the times of the opening alone.
fn open_often(client: &mut Client, count: usize) -> Result<Vec<Duration>, Failure> {
    let (clock, normal) = (SystemClock::new(), CreateOptions::NON_DIRECTORY_FILE);
    let name = format!("p{}", SystemEntropy.next_u64());
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = clock.now();
        let guid = Guid(SystemEntropy.next_id());
        let file = client.open(&name, CreateDisposition::OPEN_IF, normal, Some(guid))?;
        times.push(clock.now().since(begin));
        client.close(file)?;
    }
    Ok(times)
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e6
}
