//! Findings: a lost disk is told to a webhook, somebody acknowledges it, and that outlives the node's process; the sentence about the data
//! stays what it is. The secret of the webhook is shown nowhere.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::{Node, Options};
use crate::process::{Deadline, Finished, Running, command, need};
use crate::{Outcome, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "Bearer seeded-secret-0815";
/// A server that says a line for each request: the secret that came with it, and the body.
const SERVER: &str = "
import http.server, json
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        print(json.dumps({'secret': self.headers['Authorization'], 'body': body}), flush=True)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Hook)
print(server.server_address[1], flush=True)
server.serve_forever()
";

fn told(server: &mut Running, deadline: Deadline) -> Result<Value> {
    let line =
        server.line(deadline)?.ok_or_else(|| Outcome::Fail("the webhook's server has ended".into()))?;
    let told: Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
    ensure(told["secret"] == SECRET, || line.clone())?;
    Ok(told["body"].clone())
}

fn finding(node: &Node, state: &str) -> Result<Option<Value>> {
    let list = node.json(&["health", "list", "--state", state, "--code", "disk-missing"])?;
    Ok(list["items"].get(0).cloned())
}

/// What the node does not do, with what it says.
fn asked(node: &Node, arguments: &[&str]) -> Result<Finished> {
    node.offline(&[&["--node", &node.told("api_socket")], arguments].concat())
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("python3", "python3")?;
    let mut node = Node::start(&context.folder, Options::default())?;
    node.expect_log("disk");
    node.wait_redundant()?;
    let fresh = node.json(&["status"])?;
    ensure(fresh["issues"] == serde_json::json!([]), || format!("a healthy node has findings: {fresh}"))?;

    let mut python = command("python3");
    python.args(["-c", SERVER]);
    let mut server = Running::start("webhook", python, &context.folder.join("webhook.log"))?;
    let port = server.line(Deadline::after(PATIENCE))?.unwrap_or_default();
    let secret = context.folder.join("hook.secret");
    std::fs::write(&secret, format!("{SECRET}\n"))?;
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
    let (url, secret) = (format!("http://127.0.0.1:{port}/hook"), secret.display().to_string());
    let refused = asked(&node, &["notify", "set", "hook", "--url", &url, "--secret", &secret])?;
    ensure(!refused.status.success() && refused.errors.contains("--allow-local"), || refused.errors.clone())?;
    node.cli(&["notify", "set", "hook", "--url", &url, "--secret", &secret, "--allow-local"])?;
    node.cli(&["notify", "test", "hook"])?;
    let test = told(&mut server, Deadline::after(PATIENCE))?;
    ensure(test["event"] == "test", || format!("what was refused before has come: {test}"))?;

    let lost = node.disk(0)?;
    node.cli(&["disk", "fault", &lost, "vanish"])?;
    let deadline = Deadline::after(PATIENCE);
    let news = deadline.poll("the webhook is told of the disk", || {
        let news = told(&mut server, deadline)?;
        Ok((news["finding"]["code"] == "disk-missing").then_some(news))
    })?;
    ensure(news["event"] == "new" && news["finding"]["subject"].to_string().contains(&lost), || {
        news.to_string()
    })?;

    let found = finding(&node, "active")?.ok_or_else(|| Outcome::Fail("no finding is listed".into()))?;
    let id = found["id"].as_str().unwrap_or_default().to_owned();
    ensure(found["state"] == "active" && news["finding"]["id"] == found["id"], || found.to_string())?;
    node.cli(&["health", "ack", &id, "--note", "it is ordered"])?;
    let status = node.json(&["status"])?;
    ensure(status["verdict"] != "fully-redundant", || format!("an acknowledgement mends nothing: {status}"))?;
    let issues = status["issues"].as_array().cloned().unwrap_or_default();
    let line = issues.iter().find(|issue| issue["id"] == *id);
    ensure(line.is_some_and(|line| line["acknowledged"]["note"] == "it is ordered"), || {
        format!("{issues:?}")
    })?;
    ensure(node.cli(&["status"])?.contains("it is ordered"), || "the note is not shown".into())?;
    let unknown = asked(&node, &["health", "ack", "0123456789abcdef"])?;
    ensure(!unknown.status.success() && unknown.errors.contains("no finding"), || unknown.errors.clone())?;

    // Faults are gone with the process, and so is the finding soon; who knew of it is known still.
    node.crash_and_restart()?;
    let after = Deadline::after(PATIENCE).poll("the finding is going", || {
        Ok(finding(&node, "active")?.filter(|found| found["state"] == "clearing"))
    })?;
    ensure(after["acknowledged"]["note"] == "it is ordered", || after.to_string())?;
    let (first, then) = (found["first_seen"].as_u64(), after["first_seen"].as_u64());
    ensure(first == then, || format!("{first:?} {then:?}"))?;
    node.cli(&["health", "unack", &id])?;
    let after = finding(&node, "active")?.unwrap_or_default();
    ensure(after["acknowledged"].is_null(), || after.to_string())?;

    let shown = [node.cli(&["--json", "notify", "list"])?, node.cli(&["config", "show"])?, node.log()?];
    ensure(shown.iter().all(|text| !text.contains("seeded-secret-0815")), || "the secret is shown".into())?;
    node.cli(&["notify", "remove", "hook"])?;
    node.wait_redundant()?;
    node.finish()
}
