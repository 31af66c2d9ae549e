//! Where an image is, and as whom it is opened: `rbd:POOL/[NAMESPACE/]IMAGE[?id=USER&conf=PATH&keyring=PATH]`.

use std::fmt;

/// What the address of an image begins with.
pub const PREFIX: &str = "rbd:";
/// Bytes of a name, and of a path. Ceph has no bound of its own that is as low as anybody's names are short.
const MAX_NAME: usize = 128;
const MAX_PATH: usize = 1024;
/// As whom an image is opened where nobody is named: Ceph's own default.
const ADMIN: &str = "admin";

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The pool's name.
    pub pool: String,
    /// The namespace in the pool; empty for none.
    pub namespace: String,
    /// The image's name.
    pub image: String,
    /// The user, as `client.USER`.
    pub user: String,
    /// Ceph's configuration file, where it is not the system's.
    pub conf: Option<String>,
    /// The user's keyring, where the configuration does not say it.
    pub keyring: Option<String>,
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(&'static str);

fn name(text: &str) -> Result<String, AddressError> {
    let fits = (1..=MAX_NAME).contains(&text.len());
    let bad = |byte: u8| !byte.is_ascii_graphic() || b"/?&=@#%".contains(&byte);
    match fits && !text.bytes().any(bad) {
        true => Ok(text.to_owned()),
        false => Err(AddressError(
            "the names of pool, namespace, image and user are 1 to 128 visible ASCII characters, none of / ? & = @ # %",
        )),
    }
}

fn path(text: &str) -> Result<Option<String>, AddressError> {
    let bad = |byte: u8| byte.is_ascii_control() || b"?&#%".contains(&byte);
    match text.starts_with('/') && text.len() <= MAX_PATH && !text.bytes().any(bad) {
        true => Ok(Some(text.to_owned())),
        false => Err(AddressError(
            "conf and keyring are absolute paths of at most 1024 bytes, without ? & # % and control characters",
        )),
    }
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(PREFIX).ok_or(AddressError("it does not begin with rbd:"))?;
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let mut parts = place.split('/');
        let (pool, image, namespace) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(pool), Some(image), None, None) => (pool, image, String::new()),
            (Some(pool), Some(namespace), Some(image), None) => (pool, image, name(namespace)?),
            _ => return Err(AddressError("there is no POOL/IMAGE in it")),
        };
        let mut address = Self {
            pool: name(pool)?,
            namespace,
            image: name(image)?,
            user: ADMIN.to_owned(),
            conf: None,
            keyring: None,
        };
        let mut seen = Vec::new();
        for option in query.into_iter().flat_map(|query| query.split('&')) {
            let (key, value) = option.split_once('=').ok_or(AddressError("an option has no value"))?;
            if seen.contains(&key) {
                return Err(AddressError("an option is there twice"));
            }
            seen.push(key);
            match key {
                "id" => address.user = name(value)?,
                "conf" => address.conf = path(value)?,
                "keyring" => address.keyring = path(value)?,
                _ => return Err(AddressError("the options are id, conf and keyring")),
            }
        }
        Ok(address)
    }
}

/// The one form that an image is known by.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.image)?;
        let user = (self.user != ADMIN).then_some(&self.user);
        let options = [("id", user), ("conf", self.conf.as_ref()), ("keyring", self.keyring.as_ref())];
        let there = options.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (at, (key, value)) in there.enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_each_image() {
        let known = |text: &str| Address::parse(text).map(|address| address.to_string());
        for (text, form) in [
            ("rbd:rbd/vm1", "rbd:rbd/vm1"),
            ("rbd:rbd/vm1?id=admin", "rbd:rbd/vm1"),
            (
                "rbd:p/n/vm1?keyring=/k&conf=/etc/ceph/c.conf&id=holdfast",
                "rbd:p/n/vm1?id=holdfast&conf=/etc/ceph/c.conf&keyring=/k",
            ),
        ] {
            assert_eq!(known(text).as_deref(), Ok(form));
            assert_eq!(known(form).as_deref(), Ok(form));
        }
        for wrong in [
            "rbd:",
            "rbd:p",
            "rbd:p/",
            "rbd:/i",
            "rbd:p/n/i/x",
            "rbd:p/i@snap",
            "rbd:p/i?id",
            "rbd:p/i?id=",
            "rbd:p/i?conf=relative",
            "rbd:p/i?id=a&id=b",
            "rbd:p/i?mon=1",
            "rbd:p/i j",
            "rbd:p/\u{e9}",
            "RBD:p/i",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Address::parse(&format!("rbd:p/{}", "i".repeat(129))).is_err());
    }
}
