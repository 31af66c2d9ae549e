//! What a pool says of its disks, in the names that people know them by.

/// A text with sizes as people read them beside those in bytes.
pub(super) fn with_sizes(text: &str) -> String {
    const BYTES: &str = " bytes";
    /// Fewer are read as they are.
    const MANY: u64 = 10_000;
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BYTES) {
        let (before, after) = rest.split_at(at);
        let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (start, number) = before.split_at(before.len() - digits);
        out.push_str(start);
        match number.parse::<u64>() {
            Ok(count) if count >= MANY => {
                out.push_str(&format!("{} ({number} bytes)", control_api::human_bytes(count)));
            }
            _ => out.push_str(&format!("{number}{BYTES}")),
        }
        rest = &after[BYTES.len()..];
    }
    out.push_str(rest);
    out
}

/// A text with a name in place of each number in "disk 2"; numbers without one stay.
pub(super) fn with_names(text: &str, name: &dyn Fn(&str) -> Option<String>) -> String {
    const DISK: &str = "disk ";
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(DISK) {
        let (before, after) = rest.split_at(at + DISK.len());
        out.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, tail) = after.split_at(end);
        // The identity of a disk may begin with digits.
        let whole = !tail.starts_with(|c: char| c.is_alphanumeric() || c == '-');
        match name(number).filter(|_| whole) {
            Some(name) => out.push_str(&name),
            None => out.push_str(number),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{with_names, with_sizes};

    #[test]
    fn sizes_are_read_by_people() {
        let said = "2147483648 bytes would find no room; 512 bytes do, between bytes 4096 and 8192";
        let want =
            "2.00 GiB (2147483648 bytes) would find no room; 512 bytes do, between bytes 4096 and 8192";
        assert_eq!(with_sizes(said), want);
        assert_eq!(with_sizes(" bytes"), " bytes");
    }

    #[test]
    fn disks_are_called_what_people_call_them() {
        let name = |number: &str| (number == "2").then(|| "/dev/sdc".to_owned());
        let said = "disk 2 cannot leave: disk 21, disk 2a40-7 and disk 3 stay; not disk 2";
        let want = "disk /dev/sdc cannot leave: disk 21, disk 2a40-7 and disk 3 stay; not disk /dev/sdc";
        assert_eq!(with_names(said, &name), want);
        assert_eq!(with_names("no disk ", &name), "no disk ");
    }
}
