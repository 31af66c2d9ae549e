//! The part of XML that profiles use: elements, attributes, text, comments, a declaration. No DTD, no namespaces.
//!
//! The input is hostile: its length, depth and number of elements are bounded before memory is taken, and no entity
//! but the five predefined ones and characters by number is expanded.

use crate::error::{ProfileError, refuse};
use crate::limits;

/// An element.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) children: Vec<Element>,
    /// All text directly inside, without spaces around it.
    pub(super) text: String,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Text as it stands between tags or in an attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push_str(&format!("&#{};", c as u32)),
            // Not allowed in XML 1.0, not even by number.
            c if (c as u32) < 0x20 || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Reads a document; returns its one element.
pub(super) fn parse(text: &str) -> Result<Element, ProfileError> {
    if text.len() > limits::XML_BYTES {
        return refuse(format!("an XML profile has at most {} bytes", limits::XML_BYTES));
    }
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), whole: text.len(), text };
    let mut open: Vec<Element> = Vec::new();
    let mut elements = 0;
    let mut root = None;
    loop {
        let before = reader.until('<');
        match open.last_mut() {
            Some(element) => element.text.push_str(&unescape(before, &reader)?),
            None if !before.trim().is_empty() => {
                return reader.wrong("text outside of the document's element");
            }
            None => {}
        }
        if reader.rest.is_empty() {
            break;
        }
        if let Some(rest) = reader.rest.strip_prefix("<!--") {
            reader.skip_past(rest, "-->")?;
        } else if let Some(rest) = reader.rest.strip_prefix("<?") {
            reader.skip_past(rest, "?>")?;
        } else if reader.rest.starts_with("<!") {
            return reader.wrong("neither DTDs nor CDATA sections are taken");
        } else if let Some(rest) = reader.rest.strip_prefix("</") {
            reader.rest = rest;
            let name = reader.name()?;
            reader.spaces();
            reader.expect('>')?;
            let Some(mut element) = open.pop().filter(|element| element.name == name) else {
                return reader.wrong(&format!("</{name}> closes nothing"));
            };
            element.text = element.text.trim().to_owned();
            place(element, &mut open, &mut root, &reader)?;
        } else {
            reader.expect('<')?;
            elements += 1;
            if elements > limits::XML_ELEMENTS || open.len() >= limits::XML_DEPTH {
                return reader.wrong("too many or too deeply nested elements");
            }
            let (element, closed) = reader.start_tag()?;
            if closed {
                place(element, &mut open, &mut root, &reader)?;
            } else {
                open.push(element);
            }
        }
    }
    match (open.last(), root) {
        (Some(element), _) => reader.wrong(&format!("<{}> is not closed", element.name)),
        (None, Some(root)) => Ok(root),
        (None, None) => reader.wrong("there is no element"),
    }
}

fn place(
    element: Element,
    open: &mut [Element],
    root: &mut Option<Element>,
    reader: &Reader<'_>,
) -> Result<(), ProfileError> {
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None if root.is_some() => return reader.wrong("a second element"),
        None => *root = Some(element),
    }
    Ok(())
}

struct Reader<'a> {
    rest: &'a str,
    whole: usize,
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn wrong<T>(&self, what: &str) -> Result<T, ProfileError> {
        let at = self.whole.saturating_sub(self.rest.len());
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        refuse(format!("the XML profile is malformed in line {line}: {what}"))
    }

    /// What comes before `stop`, or all of the rest.
    fn until(&mut self, stop: char) -> &'a str {
        let (before, rest) = self.rest.split_at(self.rest.find(stop).unwrap_or(self.rest.len()));
        self.rest = rest;
        before
    }

    fn skip_past(&mut self, from: &'a str, end: &str) -> Result<(), ProfileError> {
        match from.split_once(end) {
            Some((_, rest)) => {
                self.rest = rest;
                Ok(())
            }
            None => self.wrong(&format!("`{end}` is missing")),
        }
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expect(&mut self, c: char) -> Result<(), ProfileError> {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.wrong(&format!("`{c}` is missing")),
        }
    }

    fn name(&mut self) -> Result<String, ProfileError> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() || name.len() > 200 {
            return self.wrong("a name is missing or too long");
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// What follows `<`; whether the element has no content.
    fn start_tag(&mut self) -> Result<(Element, bool), ProfileError> {
        let mut element = Element { name: self.name()?, ..Element::default() };
        loop {
            self.spaces();
            if let Some(rest) = self.rest.strip_prefix("/>") {
                self.rest = rest;
                return Ok((element, true));
            }
            if let Some(rest) = self.rest.strip_prefix('>') {
                self.rest = rest;
                return Ok((element, false));
            }
            let name = self.name()?;
            self.spaces();
            self.expect('=')?;
            self.spaces();
            let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
                return self.wrong("an attribute's value has no quotes");
            };
            self.expect(quote)?;
            let value = unescape(self.until(quote), self)?;
            self.expect(quote)?;
            if element.attribute(&name).is_some() || element.attributes.len() >= 32 {
                return self.wrong("an attribute is given twice, or there are too many");
            }
            element.attributes.push((name, value));
        }
    }
}

fn unescape(text: &str, reader: &Reader<'_>) -> Result<String, ProfileError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let Some((entity, next)) = after.split_once(';') else {
            return reader.wrong("`&` without `;`");
        };
        let c = match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => {
                let number = match entity.strip_prefix("#x") {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => entity.strip_prefix('#').and_then(|number| number.parse().ok()),
                };
                number.and_then(char::from_u32)
            }
        };
        match c {
            Some(c) => out.push(c),
            None => return reader.wrong(&format!("unknown entity &{entity};")),
        }
        rest = next;
    }
    out.push_str(rest);
    Ok(out)
}
