//! Sizes that LUNs can have.

use control_api::{Code, Problem};

/// Refuses a size in bytes that is not one or more whole blocks of `block` bytes, of what is called `what`.
pub(super) fn whole_blocks(what: &str, size: u64, block: u32) -> Result<(), Problem> {
    let block = u64::from(block);
    if size == 0 {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("{what} has a size of 0, and a disk has at least one block."),
        )
        .todo("Say how large the LUN is, as --size 20G."));
    }
    if size.is_multiple_of(block) {
        return Ok(());
    }
    let detail =
        format!("{what} has a size of {size} bytes, and a LUN is made of whole blocks of {block} bytes.");
    let next = size.checked_next_multiple_of(block);
    let todo = next.map_or_else(
        || "Choose a smaller size.".to_owned(),
        |next| format!("The next larger size that it can have is {next} bytes."),
    );
    Err(Problem::new(Code::InvalidRequest, detail).todo(todo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_size_is_said() {
        assert!(whole_blocks("LUN l", 4096, 512).is_ok());
        let none = whole_blocks("LUN l", 0, 512).expect_err("nothing");
        assert_eq!(none.detail, "LUN l has a size of 0, and a disk has at least one block.");
        let part = whole_blocks("LUN l", 1000, 512).expect_err("no whole blocks");
        assert!(
            part.detail.contains("1000 bytes") && part.todo.is_some_and(|todo| todo.contains("1024 bytes"))
        );
        assert!(whole_blocks("LUN l", u64::MAX, 4096).is_err());
    }
}
