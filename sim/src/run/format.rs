//! The seed format: a fingerprint of what seeds mean. Any change of a run's draws, or of the
//! servers' behaviour, gives the same seeds different runs; a snapshot test's table of run hashes
//! changes with it, so the table's fingerprint serves as the name.
//!
//! Owns that name. Schedules have their own version, which changes less often.

const TABLE: &str = include_str!(
    "../../tests/it/snapshots/it__determinism__runs_have_the_hashes_of_the_table.snap"
);

/// The name: eight hexadecimal digits.
pub fn current() -> String {
    // The part before the last `---` belongs to insta.
    let table = TABLE.rsplit("---\n").next().unwrap_or(TABLE);
    // FNV-1a, because it is the same on all platforms and in all versions.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", table.bytes().fold(0x811c_9dc5, mix))
}

/// Checks that seeds of this format are those of this build.
///
/// # Errors
/// Says what to do.
pub fn check(wanted: &str) -> Result<(), String> {
    let current = current();
    if wanted.eq_ignore_ascii_case(&current) {
        return Ok(());
    }
    Err(format!(
        "--format {wanted}: in this build seeds have the format {current}, and are other runs: \
         check out the revision \
         that was printed with the failure, or use a schedule, which outlives changes of format"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_seed_format_is_refused() {
        let name = current();
        assert_eq!(name.len(), 8);
        assert_eq!(check(&name.to_uppercase()), Ok(()));
        let why = check("00000000").expect_err("another format");
        assert!(why.contains(&name) && why.contains("schedule"), "{why}");
    }
}
