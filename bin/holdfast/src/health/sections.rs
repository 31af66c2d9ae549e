//! The sections of a report, each from its files of the bundle.

use control_api::{
    ClusterMemberState, Config, Disk, DiskState, Job, JobState, List, Lun, LunState, Pool, PoolState,
    RedundancyState, Session, Share, SmbStatus, Status, Volume,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::bundle::Bundle;
use super::machine::Machine;
use super::section::Section;
use crate::table::word;
use crate::units::{bytes, many, seconds};

/// All of them, in the order of the report.
pub(super) fn all(bundle: &Bundle, status: Option<&Status>) -> Vec<Section> {
    let config = bundle.text("config.toml").and_then(|text| toml::from_str::<Config>(&text).ok());
    vec![
        nodes(bundle, status),
        disks(bundle),
        pools(bundle, config.as_ref()),
        volumes(bundle),
        shares(bundle, config.as_ref()),
        luns(bundle, config.as_ref()),
        network(bundle),
        events(bundle, status),
        super::log::section(bundle),
    ]
}

/// One of the things that a section of this name is about, for people.
pub(super) fn one(name: &str) -> &str {
    if name == "luns" { "LUN" } else { name.trim_end_matches('s') }
}

fn list<T: DeserializeOwned>(bundle: &Bundle, name: &str) -> Result<Vec<T>, String> {
    bundle.json::<List<T>>(name).map(|list| list.items)
}

/// A section over things that are as they should be, or not.
fn of_things<T>(
    (name, title, one): (&'static str, &'static str, &'static str),
    things: Result<Vec<T>, String>,
    columns: Vec<&'static str>,
    healthy: impl Fn(&T) -> bool,
    row: impl Fn(&T) -> Vec<Value>,
) -> Section {
    let mut things = match things {
        Ok(things) => things,
        Err(why) => {
            let summary = format!("not known: {why}");
            return Section { name, title, summary, columns, ..Section::default() };
        }
    };
    // What needs attention is looked at first.
    things.sort_by_key(&healthy);
    let (count, well) = (things.len() as u64, things.iter().filter(|thing| healthy(thing)).count() as u64);
    let summary = match count {
        0 => format!("there is no {one}"),
        _ if well == count => format!("{}, all as they should be", many(count, one)),
        _ => format!("{}, {well} as they should be, {} not", many(count, one), count - well),
    };
    let rows = things.iter().map(row).collect();
    Section { name, title, summary, count: Some(count), healthy: Some(well), columns, rows }
}

fn nodes(bundle: &Bundle, status: Option<&Status>) -> Section {
    let names = ("nodes", "Cluster and nodes", "node");
    let columns = vec!["NODE", "STATE", "POOLS", "LAST HEARD OF", "RELEASE", "TROUBLE"];
    let Some(status) = status else {
        let machine = bundle.json::<Machine>("machine.json").unwrap_or_default();
        let summary = format!(
            "the node does not answer; its machine runs {}, kernel {}",
            machine.system, machine.kernel
        );
        return Section { name: names.0, title: names.1, summary, ..Section::default() };
    };
    let Some(cluster) = &status.cluster else {
        let machine = bundle.json::<Machine>("machine.json").unwrap_or_default();
        let memory = format!("{} of {}", bytes(machine.memory_available_bytes), bytes(machine.memory_bytes));
        return Section {
            name: names.0,
            title: names.1,
            summary: "one node, which is no part of a cluster: its loss takes all that it serves along"
                .into(),
            count: Some(1),
            healthy: Some(u64::from(status.ready)),
            columns: vec!["NODE", "VERSION", "UP", "SYSTEM", "KERNEL", "PROCESSORS", "LOAD", "MEMORY FREE"],
            rows: vec![vec![
                json!(status.node),
                json!(status.version),
                json!(seconds(status.uptime_seconds)),
                json!(machine.system),
                json!(machine.kernel),
                json!(machine.processors),
                json!(machine.load),
                json!(memory),
            ]],
        };
    };
    let mut section = of_things(
        names,
        Ok(cluster.nodes.clone()),
        columns,
        |node| node.state == ClusterMemberState::Up,
        |node| {
            let heard = node.beat_age_ms.map(|age| format!("{:.1} s ago", age as f64 / 1e3));
            vec![
                json!(node.name),
                json!(word(&node.state)),
                json!(node.pools),
                json!(heard),
                json!(node.release),
                json!(node.trouble),
            ]
        },
    );
    section.summary =
        format!("cluster {}: {}. {}", cluster.cluster, section.summary, cluster.summary.join(" "));
    section
}

fn disks(bundle: &Bundle) -> Section {
    // Disks that no pool has are the machine's own business.
    let disks = list::<Disk>(bundle, "disks.json").map(|mut disks| {
        disks.retain(|disk| disk.pool.is_some() && disk.state != DiskState::OtherPool);
        disks
    });
    of_things(
        ("disks", "Disks of pools", "disk"),
        disks,
        vec!["DISK", "STATE", "POOL", "SIZE", "MEDIA", "MODEL", "PLACE", "ERRORS", "WHY"],
        |disk| matches!(disk.state, DiskState::Online | DiskState::Spare),
        |disk| {
            let place = [&disk.enclosure, &disk.slot].into_iter().flatten().cloned().collect::<Vec<_>>();
            let io = serde_json::to_value(&disk.io).unwrap_or_default();
            vec![
                json!(disk.path.as_ref().unwrap_or(&disk.id)),
                json!(word(&disk.state)),
                json!(disk.pool),
                json!(bytes(disk.size_bytes)),
                json!(word(&disk.media)),
                json!(disk.model),
                json!(place.join(" slot ")),
                io.get("errors").cloned().unwrap_or_default(),
                json!(disk.reason),
            ]
        },
    )
}

fn percent(part: u64, whole: u64) -> Value {
    if whole == 0 { Value::Null } else { json!(format!("{:.0} %", part as f64 * 100.0 / whole as f64)) }
}

fn pools(bundle: &Bundle, config: Option<&Config>) -> Section {
    let columns =
        vec!["POOL", "STATE", "REDUNDANCY", "SIZE", "FREE", "USED", "DISKS", "MISSING", "TO COPY", "WHY"];
    let section = of_things(
        ("pools", "Pools", "pool"),
        list::<Pool>(bundle, "pools.json"),
        columns,
        // One that another node has is that node's to tell of.
        |pool| {
            pool.state == PoolState::Elsewhere
                || pool.state == PoolState::Online && pool.redundancy == RedundancyState::Full
        },
        |pool| {
            vec![
                json!(pool.name),
                json!(word(&pool.state)),
                json!(word(&pool.redundancy)),
                json!(bytes(pool.capacity_bytes)),
                json!(bytes(pool.free_bytes)),
                percent(pool.allocated_bytes, pool.capacity_bytes),
                json!(pool.disks),
                json!(pool.disks_missing),
                json!(bytes(pool.repair_bytes)),
                json!(pool.reason),
            ]
        },
    );
    or_configured(section, config.map(|config| config.pools.iter().map(|pool| pool.name.clone()).collect()))
}

/// Of a node that does not answer: the names that its configuration has.
fn or_configured(mut section: Section, names: Option<Vec<String>>) -> Section {
    if let (None, Some(names)) = (section.count, names) {
        section.summary =
            format!("{} configured; their state is not known", many(names.len() as u64, one(section.name)));
        section.columns.truncate(2);
        section.rows = names.into_iter().map(|name| vec![json!(name), json!("not known")]).collect();
    }
    section
}

fn volumes(bundle: &Bundle) -> Section {
    of_things(
        ("volumes", "Volumes", "volume"),
        list::<Volume>(bundle, "volumes.json"),
        vec![
            "VOLUME",
            "POOL",
            "STATE",
            "RESILIENCY",
            "REDUNDANCY",
            "SIZE",
            "USED",
            "FREE",
            "OF ITS SIZE",
            "WHY",
        ],
        |volume| volume.online && volume.redundancy == RedundancyState::Full,
        |volume| {
            vec![
                json!(volume.name),
                json!(volume.pool),
                json!(if volume.online { "online" } else { "offline" }),
                json!(word(&volume.resiliency)),
                json!(word(&volume.redundancy)),
                json!(bytes(volume.size_bytes)),
                json!(bytes(volume.used_bytes)),
                json!(bytes(volume.free_bytes)),
                percent(volume.used_bytes, volume.size_bytes),
                json!(volume.reason),
            ]
        },
    )
}

fn shares(bundle: &Bundle, config: Option<&Config>) -> Section {
    let section = of_things(
        ("shares", "Shares", "share"),
        list::<Share>(bundle, "shares.json"),
        vec!["SHARE", "STATE", "VOLUME", "KIND", "ENCRYPTED", "SESSIONS", "OPENS", "WHY"],
        |share| share.online && share.problem.is_none(),
        |share| {
            vec![
                json!(share.config.name),
                json!(if share.online { "online" } else { "offline" }),
                json!(share.config.volume),
                json!(word(&share.config.kind)),
                json!(if share.config.encrypt { "yes" } else { "no" }),
                json!(share.sessions),
                json!(share.opens),
                json!(share.problem),
            ]
        },
    );
    or_configured(
        section,
        config.map(|config| config.shares.iter().map(|share| share.name.clone()).collect()),
    )
}

fn luns(bundle: &Bundle, config: Option<&Config>) -> Section {
    let section = of_things(
        ("luns", "LUNs", "LUN"),
        list::<Lun>(bundle, "luns.json"),
        vec!["LUN", "STATE", "VOLUME", "SIZE", "WRITE CACHE", "WHY"],
        // One that was made read-only or offline on purpose has no problem.
        |lun| lun.problem.is_none() && (lun.serving == LunState::Online || lun.serving == lun.config.state),
        |lun| {
            vec![
                json!(lun.config.name),
                json!(word(&lun.serving)),
                json!(lun.config.volume),
                json!(bytes(lun.size_bytes)),
                json!(if lun.caching { "on" } else { "off" }),
                json!(lun.problem),
            ]
        },
    );
    or_configured(section, config.map(|config| config.luns.iter().map(|lun| lun.name.clone()).collect()))
}

fn network(bundle: &Bundle) -> Section {
    let machine = bundle.json::<Machine>("machine.json").unwrap_or_default();
    let sessions = list::<Session>(bundle, "sessions.json");
    let smb = bundle.json::<SmbStatus>("smb.json").ok();
    let mut summary = match sessions {
        Ok(sessions) => {
            let connections: u64 = sessions.iter().map(|session| session.connections).sum();
            format!("{} over {}", many(sessions.len() as u64, "session"), many(connections, "connection"))
        }
        Err(why) => format!("sessions are not known: {why}"),
    };
    if let Some(smb) = smb.filter(|smb| smb.smb1_count > 0) {
        summary += &format!("; clients spoke SMB 1 {} times, and were refused", smb.smb1_count);
    }
    let row = |interface: &network_facts::Interface| {
        let speed = interface.speed_mbit.map(|speed| format!("{speed} Mbit/s"));
        vec![
            json!(interface.name),
            json!(interface.state),
            json!(speed),
            json!(interface.mtu),
            json!(interface.receive_queues),
            json!(interface.errors),
        ]
    };
    Section {
        name: "network",
        title: "Network",
        summary,
        columns: vec!["INTERFACE", "STATE", "SPEED", "MTU", "RECEIVE QUEUES", "ERRORS, DROPS"],
        rows: machine.network.interfaces.iter().map(row).collect(),
        ..Section::default()
    }
}

/// Work that failed, and the last lines of the log that tell of trouble.
fn events(bundle: &Bundle, status: Option<&Status>) -> Section {
    let jobs: Vec<Job> = list(bundle, "jobs.json").unwrap_or_default();
    let failed = jobs.iter().filter(|job| job.state == JobState::Failed);
    let rows: Vec<Vec<Value>> =
        failed.map(|job| vec![json!("job failed"), json!(crate::job::line(job))]).collect();
    let running = status.map_or(0, |status| status.jobs.len() as u64);
    let summary = format!("{} under way, {} failed", many(running, "job"), rows.len());
    Section {
        name: "events",
        title: "Events",
        summary,
        columns: vec!["WHAT", "TEXT"],
        rows,
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_comes_first_and_is_counted() {
        let section = of_things(
            ("disks", "Disks", "disk"),
            Ok(vec![1, 2, 3]),
            vec!["N"],
            |n| *n != 3,
            |n| vec![json!(n)],
        );
        assert_eq!(section.rows[0], [json!(3)]);
        assert_eq!((section.count, section.healthy), (Some(3), Some(2)));
        assert_eq!(section.summary, "3 disks, 2 as they should be, 1 not");
    }

    #[test]
    fn what_could_not_be_asked_is_not_known_and_not_none() {
        let bundle = Bundle::new("1", 0);
        for section in all(&bundle, None) {
            assert_eq!(section.count, None, "{section:?}");
            assert!(!section.summary.contains("there is no"), "{section:?}");
        }
    }
}
