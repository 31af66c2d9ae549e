//! What etcd writes, as lines of the node's log.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// The longest line that is told; what is longer is cut.
const MAX_LINE: u64 = 8 << 10;

/// Tells what comes until nothing more does.
pub(crate) async fn tell(output: impl AsyncRead + Unpin) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match (&mut output).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let (grave, text) = line_of(&String::from_utf8_lossy(&line));
                if grave {
                    tracing::warn!("etcd: {text}");
                } else {
                    tracing::info!("etcd: {text}");
                }
            }
        }
    }
}

/// Whether a line is about more than etcd's daily life, and what it says. A member that does not answer, or a slow disk, is daily life.
fn line_of(line: &str) -> (bool, String) {
    let line = line.trim();
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return (false, line.chars().filter(|c| !c.is_control()).collect());
    };
    let mut take = |name: &str| match fields.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (level, mut text) = (take("level"), take("msg"));
    for known in ["ts", "caller", "stacktrace"] {
        take(known);
    }
    for (name, value) in &fields {
        text.push_str(&format!(" {name}={value}"));
    }
    let grave = matches!(level.as_str(), "fatal" | "panic" | "dpanic");
    (grave, text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn lines_are_told_with_what_matters() {
        let line = r#"{"level":"warn","ts":"2026-01-01","caller":"a/b.go:1","msg":"slow","took":"1s","error":"x\ny"}"#;
        assert_eq!(line_of(line), (false, r#"slow error="x\ny" took="1s""#.into()));
        assert_eq!(line_of(r#"{"level":"fatal","msg":"no"}"#), (true, "no".into()));
        assert_eq!(line_of("setpriv: \u{1b}[0mno\n"), (false, "setpriv: [0mno".into()));
        assert_eq!(line_of(""), (false, String::new()));
    }
}
