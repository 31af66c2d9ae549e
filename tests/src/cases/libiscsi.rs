//! libiscsi's test suite, suite by suite, over a LUN whose data it destroys.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Context, Server};
use crate::guest::home;
use crate::node::Options;
use crate::process::{command, need, run as run_program};
use crate::{Result, ensure};

/// Fewer means that something which used to be tested is no longer.
const MINIMUM_PASSED: usize = 200;

pub(super) fn run(context: &Context) -> Result {
    need("iscsi-test-cu", "libiscsi-bin")?;
    need("python3", "python3")?;
    let server = Server::start(context, Options::default())?;
    let csv = context.folder.join("libiscsi.csv");
    let mut suite = command("python3");
    // The second address is the same LUN over a second session, for the multipath suite.
    suite.arg(home().join("tools/libiscsi/run_iscsi_cu.py")).arg(server.url()).arg(&csv).arg(server.url());
    run_program(Duration::from_secs(900), &suite)?.ok("libiscsi's suite")?;
    let results = std::fs::read_to_string(&csv)?;
    if let Some(folder) = std::env::var_os("E2E_RESULTS") {
        std::fs::copy(&csv, std::path::Path::new(&folder).join("libiscsi.csv"))?;
    }
    let expected = expected_skips()?;
    let mut passed = 0;
    let mut wrong = Vec::new();
    for row in results.lines().skip(1) {
        // suite,test,result,seconds,reason (the reason may hold commas)
        let fields: Vec<&str> = row.splitn(5, ',').collect();
        let [suite, test, result, _, reason] = fields.as_slice() else {
            continue;
        };
        let name = format!("{suite}.{test}");
        match *result {
            "pass" => passed += 1,
            "skip" if expected.contains_key(&name) || expected.contains_key(*suite) => {}
            _ => wrong.push(format!("{name}: {result}: {reason}")),
        }
    }
    ensure(wrong.is_empty(), || format!("{passed} passed, {} not:\n{}", wrong.len(), wrong.join("\n")))?;
    ensure(passed >= MINIMUM_PASSED, || format!("{passed} passed, at least {MINIMUM_PASSED} wanted"))?;
    println!("     {passed} tests of libiscsi passed, {} skipped as expected", expected.len());
    server.finish()
}

/// Tests that may skip themselves, with the reason.
fn expected_skips() -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(home().join("tools/libiscsi/expected_skips.tsv"))?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    Ok(lines.filter_map(|l| l.split_once('\t')).map(|(name, why)| (name.into(), why.into())).collect())
}
