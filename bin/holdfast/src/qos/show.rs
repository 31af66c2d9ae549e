//! Policies, flows and volumes of storage QoS, for people.

use control_api::{PolicyKind, QosBackground, QosFlow, QosPolicy, QosPolicyDetail, QosSettings, QosVolume};

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;
use crate::units::bytes;

/// In a cluster the second column says which node it is.
const NODE: usize = 1;
/// In place of a figure that nothing has shown.
const NOT_KNOWN: &str = "not known yet";

fn number(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn rate(value: Option<u64>) -> String {
    value.map(|value| format!("{}/s", bytes(value))).unwrap_or_default()
}

/// A time; in microseconds where of milliseconds nothing could be told from another.
fn duration(micros: u64) -> String {
    match micros {
        0..100 => format!("{micros} µs"),
        _ => format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10),
    }
}

/// How long a volume takes, once it has answered something.
fn known_duration(micros: u64) -> String {
    if micros == 0 { NOT_KNOWN.to_owned() } else { duration(micros) }
}

pub(super) fn print_settings(settings: &QosSettings, context: &Context) -> CliResult {
    context.show(settings, |settings| {
        outln!("one normalised I/O: {}", bytes(settings.unit_bytes.into()));
        outln!("requests at a volume at once: {}", settings.volume_depth);
        match settings.latency_target_us {
            0 => outln!("latency target: auto, twice that of a quiet volume"),
            micros => outln!("latency target: {}", duration(micros.into())),
        }
    })
}

pub(super) fn print_policies(policies: &[QosPolicy]) {
    let headings =
        ["POLICY", "TYPE", ">MIN IOPS", ">MAX IOPS", ">MAX BANDWIDTH", "STATUS", ">GIVEN TO", "GUID"];
    let mut table = Table::new(&headings, "There are no policies.");
    for QosPolicy { policy, luns, places, status } in policies {
        table.row([
            policy.name.clone(),
            policy.kind.to_string(),
            number(policy.min_iops),
            number(policy.max_iops),
            rate(policy.max_bandwidth),
            status.to_string(),
            (luns.len() + places.len()).to_string(),
            policy.guid.to_string(),
        ]);
    }
    table.print();
}

/// A policy with what it is given to and who uses it.
pub(super) fn print_detail(detail: &QosPolicyDetail, nodes: bool) {
    let QosPolicy { policy, luns, places, status } = &detail.policy;
    let kind = match policy.kind {
        PolicyKind::Dedicated => "dedicated: its numbers hold for each disk by itself",
        PolicyKind::Aggregated => {
            "aggregated: its numbers hold for all disks together, whichever nodes serve them"
        }
    };
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let iops = |value: Option<u64>| or_none(value.map(|value| format!("{value} IOPS")).unwrap_or_default());
    outln!("policy {}, {}", policy.name, policy.guid);
    outln!("  type:              {kind}");
    outln!("  minimum:           {}", iops(policy.min_iops));
    outln!("  maximum:           {}", iops(policy.max_iops));
    outln!("  maximum bandwidth: {}", or_none(rate(policy.max_bandwidth)));
    outln!("  status:            {status}");
    outln!();
    if luns.is_empty() && places.is_empty() {
        outln!("It is given to nothing.");
    } else {
        outln!("Given to:");
        luns.iter().for_each(|lun| outln!("  LUN {lun}"));
        places.iter().for_each(|place| outln!("  {place}"));
    }
    outln!();
    if detail.flows.is_empty() {
        outln!("Nobody uses it now.");
    } else {
        print_flows(&detail.flows, nodes);
    }
}

pub(super) fn print_flows(flows: &[QosFlow], nodes: bool) {
    let mut headings = vec![
        "STATUS",
        "DISK",
        "VOLUME",
        "CLIENT",
        "POLICY",
        ">MIN",
        ">MAX",
        ">MAX BANDWIDTH",
        ">IOPS",
        ">NORMALISED",
        ">BANDWIDTH",
        ">HELD BACK",
        ">ON DISK",
        ">WAITING",
    ];
    if nodes {
        headings.insert(NODE, "NODE");
    }
    let mut table = Table::new(&headings, "No initiator uses a LUN, and no client a file.");
    for flow in flows {
        let unknown = || flow.policy_guid.map(|guid| format!("({guid})")).unwrap_or_default();
        let mut cells = vec![
            flow.status.to_string(),
            if flow.lun.is_empty() { flow.file.clone() } else { flow.lun.clone() },
            flow.volume.clone(),
            flow.initiator.clone(),
            flow.policy.clone().unwrap_or_else(unknown),
            number(flow.min_iops),
            number(flow.max_iops),
            rate(flow.max_bandwidth),
            (flow.read_iops + flow.write_iops).to_string(),
            flow.normalized_iops.to_string(),
            rate(Some(flow.read_bandwidth + flow.write_bandwidth)),
            duration(flow.held_us),
            duration(flow.disk_us),
            flow.waiting.to_string(),
        ];
        if nodes {
            cells.insert(NODE, flow.node.clone());
        }
        table.cells(cells.into_iter());
    }
    table.print();
}

pub(super) fn print_volumes(volumes: &[QosVolume], nodes: bool) {
    let mut headings = vec![
        "VOLUME",
        "STATUS",
        ">CAPACITY",
        ">PROMISED",
        ">USED",
        ">HEADROOM",
        ">LEARNT WITH",
        ">DEPTH",
        ">LATENCY",
        ">WHEN QUIET",
        ">WAITING",
        ">FLOWS",
    ];
    if nodes {
        headings.insert(NODE, "NODE");
    }
    let mut table = Table::new(&headings, "No volume has LUNs or shares.");
    let known = |value: Option<u64>| value.map_or_else(|| NOT_KNOWN.to_owned(), |value| value.to_string());
    for volume in volumes {
        let mut cells = vec![
            volume.volume.clone(),
            volume.status.to_string(),
            known(volume.capacity),
            volume.promised.to_string(),
            volume.used.to_string(),
            known(volume.headroom),
            volume.capacity_request_bytes.map(bytes).unwrap_or_default(),
            volume.depth.to_string(),
            known_duration(volume.latency_us),
            known_duration(volume.quiet_latency_us),
            volume.waiting.to_string(),
            volume.flows.to_string(),
        ];
        if nodes {
            cells.insert(NODE, volume.node.clone());
        }
        table.cells(cells.into_iter());
    }
    table.print();
    if volumes.iter().any(|volume| volume.capacity.is_some()) {
        outln!(
            "\nCAPACITY and HEADROOM are normalised I/Os a second, one for each unit of a request (`holdfast qos show`), learnt when more was wanted than was done, \
             with requests as large as LEARNT WITH says on the average: with smaller ones they are fewer."
        );
    }
    let mut pools: Vec<_> = volumes
        .iter()
        .filter_map(|volume| Some((&volume.node, volume.background.as_ref()?)))
        .filter(|(_, background)| background.all() > 0)
        .collect();
    // Several volumes are of one pool.
    pools.sort_by(|a, b| (&a.1.pool, a.0).cmp(&(&b.1.pool, b.0)));
    pools.dedup_by(|a, b| (a.0, &a.1.pool) == (b.0, &b.1.pool));
    for (_, background) in pools {
        outln!("\n{}", background_line(background));
    }
}

/// What a pool does in the background and how far that gives way, in a sentence.
fn background_line(background: &QosBackground) -> String {
    let QosBackground { restoring, rebalancing, scrubbing, destaging, .. } = *background;
    let parts = [
        (restoring, "restoring copies"),
        (rebalancing, "rebalancing"),
        (scrubbing, "scrubbing"),
        (destaging, "bringing logs to it"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(rate, _)| *rate > 0)
        .map(|(rate, what)| format!("{what} {}/s", bytes(rate)))
        .collect();
    let gives_way = if restoring + rebalancing > 0 {
        format!(" While clients wait, copying slows down to {}/s.", bytes(background.floor))
    } else {
        String::new()
    };
    format!(
        "Pool {} does {}/s in the background, on the disks of all its volumes: {}.{gives_way}",
        background.pool,
        bytes(background.all()),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pool_does_in_the_background_is_told_with_its_floor() {
        let scrubs = QosBackground {
            pool: "p".into(),
            scrubbing: 64 << 20,
            floor: 16 << 20,
            ..QosBackground::default()
        };
        assert_eq!(
            background_line(&scrubs),
            "Pool p does 64.0 MiB/s in the background, on the disks of all its volumes: scrubbing 64.0 MiB/s."
        );
        let both = background_line(&QosBackground { restoring: 32 << 20, ..scrubs });
        assert!(
            both.contains("does 96.0 MiB/s") && both.contains("restoring copies 32.0 MiB/s, scrubbing"),
            "{both}"
        );
        assert!(both.ends_with("copying slows down to 16.0 MiB/s."), "{both}");
    }

    #[test]
    fn a_short_time_is_told_in_microseconds() {
        assert_eq!(
            (duration(7), duration(99), duration(100)),
            ("7 µs".into(), "99 µs".into(), "0.10 ms".into())
        );
        assert_eq!((duration(12_345), known_duration(0)), ("12.34 ms".into(), NOT_KNOWN.into()));
    }
}
