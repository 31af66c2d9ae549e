//! The machine, as a report names it.

use std::fs;
use std::path::Path;

use shard_runtime::Clock;
use spd_report::{CpuPlace, System};

/// Looks at the machine. What it does not say is 0 or `unknown`.
#[must_use]
pub fn system(clock: &dyn Clock, version: &str, version_date: &str) -> System {
    let computer = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    System {
        computer,
        version: version.to_owned(),
        version_date: version_date.to_owned(),
        start: clock.wall().0 / 1_000_000_000,
        cpus: processors(Path::new("/sys/devices/system")),
        power_scheme: governor.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned()),
    }
}

fn processors(root: &Path) -> Vec<CpuPlace> {
    let online = fs::read_to_string(root.join("cpu/online")).unwrap_or_default();
    let mut cpus: Vec<CpuPlace> = list(online.trim())
        .into_iter()
        .map(|id| {
            let topology = root.join(format!("cpu/cpu{id}/topology"));
            let number = |name: &str| {
                let text = fs::read_to_string(topology.join(name)).unwrap_or_default();
                text.trim().parse::<u32>().unwrap_or(0)
            };
            CpuPlace { id, socket: number("physical_package_id"), node: 0, core: number("core_id") }
        })
        .collect();
    for node in list(fs::read_to_string(root.join("node/online")).unwrap_or_default().trim()) {
        let text = fs::read_to_string(root.join(format!("node/node{node}/cpulist"))).unwrap_or_default();
        let members = list(text.trim());
        cpus.iter_mut().filter(|cpu| members.contains(&cpu.id)).for_each(|cpu| cpu.node = node);
    }
    // Cores are numbered within their socket; here they count over the machine.
    let mut cores: Vec<(u32, u32)> = cpus.iter().map(|cpu| (cpu.socket, cpu.core)).collect();
    cores.sort_unstable();
    cores.dedup();
    for cpu in &mut cpus {
        let place = (cpu.socket, cpu.core);
        cpu.core = cores.iter().position(|core| *core == place).unwrap_or(0) as u32;
    }
    cpus
}

/// `0-3,8` as numbers; at most 4096 of them.
fn list(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) {
            numbers.extend((low..=high).take(4096usize.saturating_sub(numbers.len())));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(list(""), Vec::<u32>::new());
        assert_eq!(list("0-4294967295").len(), 4096);
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(!processors(Path::new("/sys/devices/system")).is_empty());
    }
}
