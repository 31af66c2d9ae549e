//! Ways to other machines, and what about them is wrong.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use control_api::Severity;
use network_facts::Network;
use network_paths::{Options, Tries, Way};
use serde::Serialize;
use shard_runtime::{Clock, SystemClock};

use super::target::{Target, addresses_of};
use crate::context::{Context, print_json};
use crate::error::CliResult;
use crate::finding::Finding;
use crate::table::Table;
use crate::units::many;

/// A latency of a local network that storage does not like, in microseconds.
const SLOW_US: u64 = 5_000;

/// The ways to a machine: one for each of its addresses.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ways {
    /// What was asked for.
    pub(super) target: String,
    /// Microseconds that looking the name up took.
    lookup_us: u64,
    /// Why it has no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    ways: Vec<Way>,
}

/// Looks at the ways to a machine.
pub(super) async fn look(target: &Target, tries: u32, network: &Network) -> Ways {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let begun = clock.now();
    let found = addresses_of(&target.host).await;
    let lookup_us = u64::try_from(clock.now().since(begun).as_micros()).unwrap_or(u64::MAX);
    let (addresses, problem) = match found {
        Ok(addresses) => (addresses, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let mtu = |from| network.interface_of(from).map(|interface| interface.mtu);
    let options = Options { tries, timeout: Duration::from_secs(1), ..Options::default() };
    let mut ways = Vec::new();
    for address in addresses {
        ways.push(network_paths::look(address, target.port, mtu, options, Arc::clone(&clock)).await);
    }
    Ways { target: target.to_string(), lookup_us, problem, ways }
}

impl Ways {
    /// What is wrong, the worst first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        if let Some(why) = &self.problem {
            all.push(self.finding(
                Severity::Error,
                None,
                format!("has no address: {why}"),
                "Look at the name, at /etc/hosts and at the name servers.",
            ));
        }
        for way in &self.ways {
            self.of_way(way, &mut all);
        }
        all.sort_by_key(|finding| finding.severity);
        all
    }

    fn finding(&self, severity: Severity, way: Option<&Way>, detail: String, todo: &str) -> Finding {
        let subject = match way {
            Some(way) if !self.target.contains(&way.address.to_string()) => {
                format!("{} ({})", self.target, way.address)
            }
            _ => self.target.clone(),
        };
        Finding { severity, subject, detail, todo: todo.to_owned() }
    }

    fn of_way(&self, way: &Way, all: &mut Vec<Finding>) {
        let mut say =
            |severity, detail: String, todo| all.push(self.finding(severity, Some(way), detail, todo));
        if way.from.is_none() {
            return say(
                Severity::Error,
                "there is no route to it".into(),
                "Give this machine an address in that network, or a gateway: ip route",
            );
        }
        if let Some(connect) = way.connect.as_ref().filter(|connect| connect.answered < connect.made) {
            let why = connect.problem.as_deref().unwrap_or("no answer");
            let severity = if connect.answered == 0 { Severity::Error } else { Severity::Warning };
            let detail = format!(
                "{} of {} failed: {why}",
                connect.made - connect.answered,
                many(u64::from(connect.made), "connection")
            );
            say(
                severity,
                detail,
                "Refused: nothing listens there. No answer: the machine is off, or a firewall drops what is sent to the port.",
            );
        }
        let Some(echo) = &way.echo else { return };
        let connects = way.connect.as_ref().is_some_and(|connect| connect.answered > 0);
        if echo.answered == 0 {
            let (severity, todo) = match connects {
                true => (Severity::Info, "Nothing, if a firewall drops them on purpose."),
                false => (
                    Severity::Error,
                    "Is the machine on, and its network? A firewall may drop echo requests: try with a port.",
                ),
            };
            let why = echo.problem.as_deref().unwrap_or("no answer");
            return say(severity, format!("echo requests are not answered: {why}"), todo);
        }
        if echo.answered < echo.made {
            say(
                Severity::Warning,
                format!(
                    "{} % of {} got lost",
                    echo.lost_percent(),
                    many(u64::from(echo.made), "echo request")
                ),
                "Look at cables, ports and switches on the way; more requests tell more: --count 200",
            );
        }
        if echo.median_us > SLOW_US {
            say(
                Severity::Info,
                format!("half of the answers take more than {}", milliseconds(echo.median_us)),
                "Every write waits at least as long; storage wants well below 1 ms.",
            );
        }
        if let Some(mtu) = way.mtu.filter(|mtu| way.passes != Some(*mtu)) {
            let passes = match way.passes {
                Some(length) => format!("those of {length} do"),
                None => "short ones only do".into(),
            };
            say(
                Severity::Error,
                format!(
                    "packets of {mtu} bytes, which this machine sends, do not come through; {passes}: connections are made and then hang"
                ),
                "Set one MTU on all interfaces and switches of the way, both ends included.",
            );
        }
    }
}

/// `holdfast net test`.
pub(super) async fn test(targets: &[Target], tries: u32, context: &Context) -> CliResult<ExitCode> {
    let network = super::network().await;
    let mut all = Vec::new();
    for target in targets {
        all.push(look(target, tries, &network).await);
    }
    let mut findings: Vec<Finding> = all.iter().flat_map(Ways::findings).collect();
    findings.sort_by_key(|finding| finding.severity);
    if context.json {
        print_json(&serde_json::json!({ "findings": findings, "targets": all }))?;
    } else {
        print(&all);
        findings.iter().for_each(Finding::print);
    }
    let works = findings.iter().all(|finding| finding.severity > Severity::Error);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A table with a line for each way.
pub(super) fn print(all: &[Ways]) {
    let headings =
        ["TARGET", "ADDRESS", "FROM", ">ECHO ms", ">LOST", ">LONGEST PACKET", ">CONNECT ms", ">FAILED"];
    let mut table = Table::new(&headings, "");
    for ways in all {
        if ways.ways.is_empty() {
            table.cells([ways.target.clone()].into_iter());
        }
        for way in &ways.ways {
            let lost = |tries: &Option<Tries>| {
                tries.as_ref().map(|tries| format!("{} %", tries.lost_percent())).unwrap_or_default()
            };
            table.row([
                ways.target.clone(),
                way.address.to_string(),
                way.from.map(|from| from.to_string()).unwrap_or_default(),
                times(way.echo.as_ref()),
                lost(&way.echo),
                way.passes.map(|length| length.to_string()).unwrap_or_default(),
                times(way.connect.as_ref()),
                lost(&way.connect),
            ]);
        }
    }
    table.print();
    for why in all.iter().flat_map(|ways| &ways.ways).filter_map(|way| way.no_echo.as_ref()).take(1) {
        outln!("No echo requests were sent: {why}. Run it as root.");
    }
}

/// The shortest, the middle and the longest time.
fn times(tries: Option<&Tries>) -> String {
    let answered = tries.filter(|tries| tries.answered > 0);
    answered.map_or_else(String::new, |tries| {
        let ms = |us: u64| us as f64 / 1000.0;
        format!("{:.2} {:.2} {:.2}", ms(tries.least_us), ms(tries.median_us), ms(tries.most_us))
    })
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(made: u32, answered: u32, median_us: u64) -> Option<Tries> {
        Some(Tries { made, answered, median_us, ..Tries::default() })
    }

    fn said(way: Way) -> Vec<(Severity, String)> {
        let ways = Ways { target: "h".into(), lookup_us: 0, problem: None, ways: vec![way] };
        ways.findings().into_iter().map(|finding| (finding.severity, finding.detail)).collect()
    }

    fn way() -> Way {
        Way {
            address: "192.0.2.2".parse().unwrap(),
            from: "192.0.2.1".parse().ok(),
            echo: tries(10, 10, 100),
            no_echo: None,
            mtu: Some(9000),
            passes: Some(9000),
            connect: tries(10, 10, 100),
        }
    }

    #[test]
    fn a_way_that_is_well_has_no_findings() {
        assert_eq!(said(way()), []);
        assert_eq!(said(Way { echo: None, mtu: None, passes: None, ..way() }), []);
    }

    #[test]
    fn what_is_wrong_with_a_way_is_told() {
        let one = |way: Way, severity: Severity, words: &str| {
            let said = said(way);
            let [(found, detail)] = said.as_slice() else { panic!("{said:?}") };
            assert!(*found == severity && detail.contains(words), "{said:?}");
        };
        one(Way { from: None, ..way() }, Severity::Error, "no route");
        one(Way { connect: tries(10, 0, 0), ..way() }, Severity::Error, "10 of 10 connections failed");
        one(Way { connect: tries(10, 9, 0), ..way() }, Severity::Warning, "1 of 10 connections");
        one(Way { echo: tries(10, 0, 0), ..way() }, Severity::Info, "not answered");
        one(Way { echo: tries(10, 0, 0), connect: None, ..way() }, Severity::Error, "not answered");
        one(Way { echo: tries(10, 9, 0), ..way() }, Severity::Warning, "10 % of 10 echo requests");
        one(Way { echo: tries(10, 10, 20_000), ..way() }, Severity::Info, "20.0 ms");
        one(Way { passes: Some(1500), ..way() }, Severity::Error, "9000 bytes");
        one(Way { passes: None, ..way() }, Severity::Error, "short ones only");
    }
}
