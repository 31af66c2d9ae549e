//! Asks for everything: the node over its socket, the machine, and where the node does not answer its data directory.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_api::{Config, Lun, Pool, Share, Status, Volume};
use control_client::{ClientError, segment};
use serde_json::Value;
use shard_runtime::{Clock as _, SystemClock};

use super::bundle::Bundle;
use super::machine::{self, Machine};
use super::samples::{self, Place};
use crate::context::{Context, DEFAULT_DATA_DIR};

/// How long one question may take: a node that hangs is one that does not answer.
const ANSWER: Duration = Duration::from_secs(20);

/// The node's configuration, in its data directory and in a bundle.
const CONFIG: &str = "config.toml";

/// Files of a bundle that are one answer of the API each.
const ANSWERS: &[(&str, &str)] = &[
    ("disks.json", "/disks"),
    ("pools.json", "/pools"),
    ("volumes.json", "/volumes"),
    ("shares.json", "/shares"),
    ("luns.json", "/luns"),
    ("targets.json", "/targets"),
    ("initiator-groups.json", "/initiator-groups"),
    ("portals.json", "/portals"),
    ("sessions.json", "/sessions"),
    ("opens.json", "/opens"),
    ("users.json", "/users"),
    ("user-groups.json", "/user-groups"),
    ("smb.json", "/smb"),
    ("http.json", "/http"),
    ("cache.json", "/cache"),
    ("qos-policies.json", "/qos/policies"),
    ("qos-flows.json", "/qos/flows"),
    ("jobs.json", "/jobs"),
    ("audit.json", "/audit?limit=1000"),
    ("counters.json", "/counters?flows=true"),
    ("inspect.json", "/inspect"),
];

/// An answer within the time, or why there is none.
async fn within<T>(answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}

/// Everything there is, with so many samples.
pub(super) async fn everything(context: &Context, count: u64) -> Bundle {
    let made = SystemClock::new().wall().0 / 1_000_000_000;
    let mut bundle = Bundle::new(env!("CARGO_PKG_VERSION"), made);
    bundle.put_json("machine.json", &Machine::here());
    match machine::journal() {
        Ok(log) => bundle.put("log.txt", log),
        Err(why) => bundle.lacks("log.txt", why),
    }
    match within(context.client.get::<Status>("/status")).await {
        Ok(status) => {
            bundle.manifest.node.clone_from(&status.node);
            bundle.put_json("status.json", &status);
            ask(context, &mut bundle).await;
            take_samples(context, &mut bundle, count).await;
        }
        Err(why) => {
            bundle.manifest.unreachable = Some(why);
            from_data_directory(context.client.socket(), &mut bundle);
        }
    }
    bundle
}

async fn ask(context: &Context, bundle: &mut Bundle) {
    for (name, path) in ANSWERS {
        match within(context.client.get::<Value>(path)).await {
            Ok(answer) => bundle.put_json(name, &answer),
            Err(why) => bundle.lacks(name, why),
        }
    }
    match within(context.client.get::<Config>("/config?redact=true")).await {
        Ok(config) => put_config(bundle, &config),
        Err(why) => bundle.lacks(CONFIG, why),
    }
    // A pool's disks, spaces and rows are told for each pool.
    let mut details = Vec::new();
    for pool in list::<Pool>(bundle, "pools.json") {
        match within(context.client.get::<Value>(&format!("/pools/{}", segment(&pool.name)))).await {
            Ok(detail) => details.push(detail),
            Err(why) => bundle.lacks(&format!("pool-details.json: {}", pool.name), why),
        }
    }
    bundle.put_json("pool-details.json", &details);
}

fn put_config(bundle: &mut Bundle, config: &Config) {
    match toml::to_string_pretty(&config.redacted()) {
        Ok(text) => bundle.put(CONFIG, text),
        Err(error) => bundle.lacks(CONFIG, error),
    }
}

/// The items of a list; none where it is not there.
fn list<T: serde::de::DeserializeOwned>(bundle: &Bundle, name: &str) -> Vec<T> {
    bundle.json::<control_api::List<T>>(name).map(|list| list.items).unwrap_or_default()
}

async fn take_samples(context: &Context, bundle: &mut Bundle, count: u64) {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for volume in list::<Volume>(bundle, "volumes.json") {
        places.entry(volume.name).or_default().pool = volume.pool;
    }
    let shares = list::<Share>(bundle, "shares.json")
        .into_iter()
        .map(|share| (share.config.volume, share.config.name));
    let luns = list::<Lun>(bundle, "luns.json").into_iter().map(|lun| (lun.config.volume, lun.config.name));
    for (volume, name) in shares.chain(luns) {
        let served_as = &mut places.entry(volume).or_default().served_as;
        if !served_as.is_empty() {
            served_as.push(' ');
        }
        served_as.push_str(&name);
    }
    let samples = samples::take(context, count, &places).await;
    bundle.put("samples.csv", samples::csv(&samples));
    bundle.put_json("samples.json", &samples);
}

/// What a node that does not answer has left: its configuration, without secrets.
fn from_data_directory(socket: &Path, bundle: &mut Bundle) {
    let beside = socket.parent().map(Path::to_owned);
    let folders: Vec<PathBuf> = beside.into_iter().chain([DEFAULT_DATA_DIR.into()]).collect();
    let Some(file) = folders.iter().map(|folder| folder.join(CONFIG)).find(|file| file.exists()) else {
        let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        return bundle.lacks(
            CONFIG,
            format!(
                "there is none in {}; --node DIR says where the node keeps its data",
                looked.join(" and ")
            ),
        );
    };
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string());
    // Not the parser's own words: they may quote a secret.
    let parse = |text: String| {
        let line = |at: usize| text.get(..at).unwrap_or_default().lines().count().max(1);
        toml::from_str::<Config>(&text).map_err(|error| match error.span() {
            Some(span) => format!("line {} is not understood", line(span.end)),
            None => "it is not understood".to_owned(),
        })
    };
    match text.and_then(parse) {
        Ok(config) => put_config(bundle, &config),
        Err(why) => bundle.lacks(CONFIG, format!("{}: {why}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_is_down_leaves_its_configuration_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let config = "schema = 1\n[[target]]\nname = \"iqn.2026-01.x:a\"\n[[target.auth.chap]]\nuser = \"u\"\nsecret = \"seeded-secret-0001\"\n";
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        let bundle = everything(&Context::new(Some(folder.path()), true, false), 5).await;
        assert!(bundle.manifest.unreachable.is_some());
        let zip = bundle.to_zip().unwrap();
        assert!(!zip.is_empty());
        let kept = bundle.text(CONFIG);
        let missing = bundle.manifest.missing.get(CONFIG);
        assert!(kept.is_some(), "{missing:?}");
        assert!(kept.unwrap_or_default().contains("iqn.2026-01.x:a"));
        for name in ["machine.json", CONFIG, "log.txt"] {
            assert!(!bundle.text(name).unwrap_or_default().contains("seeded-secret"), "{name}");
        }
    }
}
