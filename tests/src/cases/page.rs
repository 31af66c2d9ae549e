//! Pages of the guide taken apart: their blocks of commands, and what those print.

/// Commands, and what they print.
pub(super) struct Block {
    /// The line of the page after which they end.
    pub(super) line: usize,
    /// The commands.
    pub(super) commands: String,
    /// What the page shows as their output, if anything.
    pub(super) said: Option<String>,
}

/// The page's blocks of commands, each with the block of text that follows it before the next.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside: Option<(&str, String)> = None;
    for (number, line) in page.lines().enumerate() {
        match (&mut inside, line.strip_prefix("```")) {
            (None, Some(kind)) => inside = Some((kind, String::new())),
            (None, None) => {}
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (Some(_), Some(_)) => match inside.take() {
                Some(("sh", commands)) => blocks.push(Block { line: number, commands, said: None }),
                Some(("text", text)) => {
                    if let Some(last) = blocks.last_mut().filter(|block| block.said.is_none()) {
                        last.said = Some(text);
                    }
                }
                _ => {}
            },
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::blocks;

    #[test]
    fn pages_are_taken_apart() {
        let page = "a\n```sh\nb\nc\n```\nd\n```text\ne\n```\n```text\nnot its\n```\n```sh\nf\n```\n";
        let blocks = blocks(page);
        assert_eq!(
            (blocks.len(), blocks[0].commands.as_str(), blocks[0].said.as_deref()),
            (2, "b\nc\n", Some("e\n"))
        );
        assert_eq!((blocks[1].line, blocks[1].said.is_none()), (14, true));
    }
}
