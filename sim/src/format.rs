//! What a seed means. Whatever changes the draws of runs, or what the servers do with them, gives other runs to the same
//! seeds; the table of hashes that a test compares changes with it, so its fingerprint names what seeds mean here.
//!
//! Owns that name. Schedules have a version of their own: they mean the same for longer.

const TABLE: &str =
    include_str!("../tests/it/snapshots/it__determinism__runs_have_the_hashes_of_the_table.snap");

/// The name: eight hexadecimal digits.
pub fn current() -> String {
    // What comes before is of the tool that keeps the table.
    let table = TABLE.rsplit("---\n").next().unwrap_or(TABLE);
    // FNV-1a, because it is the same everywhere and for ever.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", table.bytes().fold(0x811c_9dc5, mix))
}

/// Are seeds of this name those of this build?
///
/// # Errors
/// Says what to do.
pub fn check(wanted: &str) -> Result<(), String> {
    let current = current();
    if wanted.eq_ignore_ascii_case(&current) {
        return Ok(());
    }
    Err(format!(
        "--format {wanted}: in this build seeds have the format {current}, and are other runs: check out the revision \
         that was printed with the failure, or use a schedule, which outlives changes of format"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_another_format_are_refused() {
        let name = current();
        assert_eq!(name.len(), 8);
        assert_eq!(check(&name.to_uppercase()), Ok(()));
        let why = check("00000000").expect_err("another format");
        assert!(why.contains(&name) && why.contains("schedule"), "{why}");
    }
}
