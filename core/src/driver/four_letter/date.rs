//! Dates as ZooKeeper prints them, in UTC: `Sat Nov 21 15:22:00 UTC 2026`, and for its build
//! `2026-11-21 15:22 UTC`.
//!
//! Owns the calendar. Must not read clocks.

use crate::ids::WallMs;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

const MONTHS: [&str; 12] =
    ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];

/// The date of a point in time.
pub fn text(at: WallMs) -> String {
    let seconds = at.0.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = DAYS[index(days.rem_euclid(7))];
    let (year, month, day) = civil(days);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

/// The date and minute of a build.
pub(super) fn of_build(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let month = MONTHS.iter().position(|name| *name == month).expect("is one of them");
    // The list of months begins with March.
    let month = (month + 2) % 12 + 1;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

/// Year, month and day of a day since 1970. Years are counted from March on, so that the leap day
/// comes last.
fn civil(days: i64) -> (i64, &'static str, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    (era * 400 + year + i64::from(month >= 10), MONTHS[index(month)], day)
}

fn index(small: i64) -> usize {
    usize::try_from(small).expect("a remainder or a month is not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_java() {
        for (ms, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_399_999, "Mon Feb 28 23:59:59 UTC 2000"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (951_868_800_000, "Wed Mar 01 00:00:00 UTC 2000"),
            (1_795_274_520_000, "Sat Nov 21 15:22:00 UTC 2026"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (1_795_906_800_999, "Sat Nov 28 23:00:00 UTC 2026"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(text(WallMs(ms)), expected);
        }
    }

    #[test]
    fn dates_of_builds_are_those_of_zookeeper() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_755_633_180, "2025-08-19 19:53 UTC"),
            (1_798_761_540, "2026-12-31 23:59 UTC"),
        ] {
            assert_eq!(of_build(seconds), expected);
        }
    }
}
