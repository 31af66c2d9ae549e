//! What the kernel says of the server's processes.

use std::collections::BTreeMap;

/// Ticks per second of the kernel's processor times (`getconf CLK_TCK`, 100 on Linux).
const TICKS: f64 = 100.0;

/// Resident memory of a process in MiB; 0 when it is gone.
pub(crate) fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Seconds of processor time of a process and its descendants, the ended ones among them.
pub(crate) fn processor_time(root: u32) -> f64 {
    let mut times: BTreeMap<u32, (u32, f64)> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may contain anything: fields are counted from behind it.
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        let own = number(11) + number(12);
        let waited = number(13) + number(14);
        times.insert(pid, (number(1) as u32, (own + waited) / TICKS));
    }
    let is_below = |mut pid: u32| {
        while pid != root {
            match times.get(&pid) {
                Some((parent, _)) if *parent != 0 => pid = *parent,
                _ => return false,
            }
        }
        true
    };
    times.iter().filter(|(pid, _)| is_below(**pid)).map(|(_, (_, seconds))| seconds).sum()
}
