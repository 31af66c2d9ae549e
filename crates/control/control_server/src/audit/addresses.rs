//! Addresses, as the record has them.

/// A text that may be an address, without the secrets that addresses have in them: a name and password before the host, what follows a
/// question mark, and of one that is called on the web the path, too: whoever has it is let in.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // Also where a password has a slash in it that should have been written otherwise.
    let (authority, path) = match path.rsplit_once('@') {
        Some((_, after)) => after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len())),
        None => (authority, path),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = if scheme.to_ascii_lowercase().ends_with("iscsi") {
        match path.split_once(['?', '#']) {
            Some((path, _)) => format!("{path}?…"),
            None => path.to_owned(),
        }
    } else if path.is_empty() {
        String::new()
    } else {
        "/…".to_owned()
    };
    format!("{scheme}://{host}{path}")
}
