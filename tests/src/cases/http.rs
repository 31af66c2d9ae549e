//! The API over the network for clients that are not ours: curl takes the node's authority and nothing else, openssl gets TLS 1.3
//! and nothing older, promtool finds nothing wrong with the metrics, the rules and the dashboard's queries. An alert's expressions
//! are evaluated by a Prometheus that has scraped the node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{Deadline, Running, command, need, run as run_program, run_with};
use crate::{Result, ensure};

/// A request, or a look at a file.
const STEP: Duration = Duration::from_secs(30);
/// Until a Prometheus that has just started has scraped twice.
const SCRAPED: Duration = Duration::from_secs(90);

pub(super) fn run(context: &Context) -> Result {
    need("curl", "curl")?;
    need("openssl", "openssl")?;
    need("promtool", "prometheus")?;
    need("prometheus", "prometheus")?;
    let node = Node::start(&context.folder, Options::default())?;
    let url = node.told("http_url");
    let address = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let web = Web { ca: node.told("http_ca_file").into(), url, folder: context.folder.clone() };
    versions(&address)?;
    login(&node, &web)?;
    let metrics = metrics(&node, &web)?;
    let packaging = home().join("../packaging");
    rules(&packaging, &metrics)?;
    scraped(&node, &web, &address, &packaging)?;
    ensure(!web.get("/", &[])?.body.is_empty(), || "there are no pages".into())?;
    node.finish()
}

/// A client that trusts the node's authority and no other.
struct Web {
    ca: PathBuf,
    url: String,
    folder: PathBuf,
}

struct Said {
    status: u16,
    body: String,
}

impl Web {
    fn curl(&self) -> Command {
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--write-out", "\n%{http_code}", "--cacert"]).arg(&self.ca);
        curl
    }

    fn ask(&self, path: &str, more: &[&str]) -> Result<Said> {
        let mut curl = self.curl();
        curl.args(more).arg(format!("{}{}", self.url.trim_end_matches('/'), path));
        let output = run_program(STEP, &curl)?.ok("curl")?;
        let (body, status) = output.rsplit_once('\n').unwrap_or(("", &output));
        let status = status.parse().map_err(|_| format!("no status in {output:?}"))?;
        Ok(Said { status, body: body.to_owned() })
    }

    fn get(&self, path: &str, more: &[&str]) -> Result<Said> {
        self.ask(path, more)
    }
}

/// TLS 1.3 is spoken; 1.2 and older are refused by the node.
fn versions(address: &str) -> Result {
    for (version, spoken) in [("-tls1_3", true), ("-tls1_2", false)] {
        let mut openssl = command("openssl");
        openssl.args(["s_client", "-connect", address, version]);
        let said = run_with(STEP, &openssl, "Q\n")?;
        let agreed = said.output.contains("Cipher is TLS_");
        ensure(agreed == spoken, || format!("{version}: {}", said.output))?;
    }
    Ok(())
}

/// A browser's way in, with curl's cookie jar, which keeps the rules of `__Host-`.
fn login(node: &Node, web: &Web) -> Result {
    let jar = web.folder.join("cookies").to_string_lossy().into_owned();
    let (user, password) = (node.told("http_user"), node.told("http_password"));
    let body = serde_json::json!({ "user": user, "password": password }).to_string();
    let change = ["--header", "X-Holdfast-Request: 1"];
    let nobody = web.get("/v1/status", &[])?;
    ensure(nobody.status == 401, || format!("nobody: {}", nobody.status))?;
    let said = web.ask("/v1/login", &[&change[..], &["--cookie-jar", &jar, "--data", &body]].concat())?;
    ensure(said.status == 200, || format!("login: {} {}", said.status, said.body))?;
    let me = web.get("/v1/me", &["--cookie", &jar])?;
    let me: Value = serde_json::from_str(&me.body).map_err(|error| format!("me: {error}: {}", me.body))?;
    ensure(me["user"] == *user && me["role"] == "administrator", || format!("me: {me}"))?;
    let rescan = ["--cookie", &jar, "--request", "POST"];
    let without = web.ask("/v1/disks/rescan", &rescan)?;
    ensure(without.status == 403, || format!("without the header: {}", without.status))?;
    let with = web.ask("/v1/disks/rescan", &[&rescan[..], &change].concat())?;
    ensure(with.status == 200, || format!("with the header: {} {}", with.status, with.body))?;
    let record = node.cli(&["audit", "--json"])?;
    ensure(record.contains("disk_rescan") && !record.contains(&password), || record)
}

/// Metrics as promtool wants them, for a token that reads nothing else.
fn metrics(node: &Node, web: &Web) -> Result<String> {
    let token = token(node)?;
    let bearer = format!("Authorization: Bearer {token}");
    let text = web.get("/metrics", &["--header", &bearer])?;
    ensure(text.status == 200, || format!("metrics: {} {}", text.status, text.body))?;
    let other = web.get("/v1/status", &["--header", &bearer])?;
    ensure(other.status == 403, || format!("a token for metrics sees the status: {}", other.status))?;
    let mut promtool = command("promtool");
    promtool.args(["check", "metrics"]);
    let said = run_with(STEP, &promtool, &format!("{}\n", text.body.trim_end()))?;
    let remarks = format!("{}{}", said.output, said.errors);
    ensure(said.status.success() && remarks.trim().is_empty(), || {
        format!("promtool check metrics: {remarks}")
    })?;
    Ok(text.body)
}

fn token(node: &Node) -> Result<String> {
    let made = node.json(&["api", "token", "create", "--role", "metrics", "--name", "scraper"])?;
    let secret = made.get("secret").and_then(Value::as_str);
    Ok(secret.ok_or_else(|| format!("no secret in {made}"))?.to_owned())
}

/// The rules parse, and speak of metrics that there are.
fn rules(packaging: &Path, metrics: &str) -> Result {
    let file = packaging.join("prometheus/holdfast.rules.yml");
    let mut promtool = command("promtool");
    promtool.args(["check", "rules"]).arg(&file);
    run_program(STEP, &promtool)?.ok("promtool check rules")?;
    let texts =
        [std::fs::read_to_string(&file)?, std::fs::read_to_string(packaging.join("grafana/holdfast.json"))?];
    for name in texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')) {
        let is_metric = name.starts_with("holdfast_") && name.len() > "holdfast_".len();
        ensure(!is_metric || metrics.contains(&format!("# TYPE {name} ")), || {
            format!("there is no metric {name}")
        })?;
    }
    Ok(())
}

/// A Prometheus scrapes the node; each of the dashboard's queries is one for it, and those of what is always there answer.
fn scraped(node: &Node, web: &Web, address: &str, packaging: &Path) -> Result {
    let folder = web.folder.join("prometheus");
    std::fs::create_dir_all(&folder)?;
    let secret = folder.join("token");
    std::fs::write(&secret, token(node)?)?;
    let rules = packaging.join("prometheus/holdfast.rules.yml").canonicalize()?;
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nrule_files: [{rules:?}]\nscrape_configs:\n  - job_name: holdfast\n    scheme: https\n    authorization: {{ credentials_file: {secret:?} }}\n    tls_config: {{ ca_file: {:?} }}\n    static_configs: [{{ targets: [{address:?}] }}]\n",
        web.ca
    );
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, config)?;
    // It takes no port 0; one that is free now is most likely free in a moment.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut prometheus = command("prometheus");
    prometheus
        .arg(format!("--config.file={}", path.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut prometheus = Running::start("prometheus", prometheus, &folder.join("log"))?;
    let query = |text: &str| -> Result<Value> {
        let mut curl = command("curl");
        curl.args(["--silent", "--get", "--data-urlencode"]).arg(format!("query={text}"));
        curl.arg(format!("http://127.0.0.1:{port}/api/v1/query"));
        let output = run_program(STEP, &curl)?.output;
        Ok(serde_json::from_str(&output).unwrap_or_default())
    };
    let count = |answer: &Value| answer["data"]["result"].as_array().map_or(0, Vec::len);
    Deadline::after(SCRAPED).poll("a Prometheus that has scraped the node", || {
        let twice = query("count_over_time(up{job=\"holdfast\"}[1m]) > 1 and up{job=\"holdfast\"} == 1")?;
        Ok((count(&twice) == 1).then_some(()))
    })?;
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(packaging.join("grafana/holdfast.json"))?)
            .map_err(|error| format!("the dashboard: {error}"))?;
    let panels = dashboard["panels"].as_array().cloned().unwrap_or_default();
    let mut asked = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default()) {
        let text = target["expr"].as_str().unwrap_or_default();
        let text = text.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let answer = query(&text)?;
        ensure(answer["status"] == "success", || format!("{text}: {answer}"))?;
        asked += 1;
    }
    ensure(asked > 10, || format!("only {asked} queries are in the dashboard"))?;
    for text in [
        "holdfast_redundancy_verdict == 1",
        "holdfast_pool_free_bytes",
        "holdfast_lun_serving == 1",
        "holdfast_share_online == 1",
    ] {
        let answer = query(text)?;
        ensure(count(&answer) == 1, || format!("{text}: {answer}"))?;
    }
    let firing = query("ALERTS{alertstate=\"firing\",severity=\"critical\"}")?;
    ensure(count(&firing) == 0, || format!("alerts of a sound node: {firing}"))?;
    prometheus.signal("TERM")?;
    prometheus.wait(Deadline::after(STEP))?;
    Ok(())
}
