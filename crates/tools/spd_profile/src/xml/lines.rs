//! XML as DiskSpd writes it: an element a line, two spaces a level.

/// Lines at a depth.
#[derive(Debug, Default)]
pub struct Lines {
    /// What has been written.
    pub out: String,
    depth: usize,
}

impl Lines {
    /// Lines that begin `depth` levels in.
    #[must_use]
    pub fn at(depth: usize) -> Self {
        Self { out: String::new(), depth }
    }

    /// How many levels in the next line begins.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// A line of text that is XML already.
    pub fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n(' ', self.depth * 2));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// An element with a value that needs no escaping.
    pub fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        self.line(&format!("<{name}>{value}</{name}>"));
    }

    /// An element around others. `start` is its name, perhaps with attributes.
    pub fn inside(&mut self, start: &str, content: impl FnOnce(&mut Self)) {
        self.line(&format!("<{start}>"));
        self.depth += 1;
        content(self);
        self.depth -= 1;
        let name = start.split(' ').next().unwrap_or(start);
        self.line(&format!("</{name}>"));
    }
}
