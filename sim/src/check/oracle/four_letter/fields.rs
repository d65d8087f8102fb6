//! Pieces of answers: named values, numbers, dates.
//!
//! Owns the grammar that answers share. Must not check values.

use std::collections::BTreeMap;
use std::fmt::Display;

use zabkeeper_core::SessionId;

use super::Found;
use crate::check::answers::Between;

/// Named values, each name once.
pub(super) struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    /// Lines of a name and a value with this mark between.
    pub(super) fn of(
        lines: impl IntoIterator<Item = &'a str>,
        mark: &str,
    ) -> Result<Fields<'a>, String> {
        let mut fields = BTreeMap::new();
        for line in lines {
            let (name, value) = cut(line, mark)?;
            if fields.insert(name, value).is_some() {
                return Err(format!("{name:?} is there twice"));
            }
        }
        Ok(Fields(fields))
    }

    /// Takes a value.
    pub(super) fn take(&mut self, name: &str) -> Result<&'a str, String> {
        self.0.remove(name).ok_or_else(|| format!("{name:?} is missing"))
    }

    /// Takes a value, which must be this one.
    pub(super) fn is(&mut self, name: &str, right: impl Display) -> Found {
        let (value, right) = (self.take(name)?, right.to_string());
        if value == right { Ok(()) } else { Err(format!("{name:?} is {value}, not {right}")) }
    }

    /// Takes a number, which must be within these bounds.
    pub(super) fn is_between(&mut self, name: &str, right: Between) -> Found {
        between(name, number(self.take(name)?)?, right)
    }

    /// All values that were not taken are numbers, none below -1.
    pub(super) fn end_in_numbers(self) -> Found {
        for (name, value) in self.0 {
            match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= -1.0 => {}
                _ => return Err(format!("{name:?} is {value}, no number")),
            }
        }
        Ok(())
    }

    /// All values were taken.
    pub(super) fn end(self) -> Found {
        if self.0.is_empty() { Ok(()) } else { Err(format!("what are {:?}?", self.0)) }
    }
}

/// The text before and after a mark.
pub(super) fn cut<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(mark).ok_or_else(|| format!("{mark:?} is missing in {text:?}"))
}

/// The text behind this beginning.
pub(super) fn behind<'a>(text: &'a str, begin: &str) -> Result<&'a str, String> {
    text.strip_prefix(begin).ok_or_else(|| format!("{text:?} does not begin with {begin:?}"))
}

/// The text before this end.
pub(super) fn before<'a>(text: &'a str, end: &str) -> Result<&'a str, String> {
    text.strip_suffix(end).ok_or_else(|| format!("{text:?} does not end with {end:?}"))
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

pub(super) fn session(text: &str) -> Result<SessionId, String> {
    let digits = behind(text, "0x")?;
    let id = u64::from_str_radix(digits, 16).map_err(|_| format!("{text:?} is no session"))?;
    Ok(SessionId(id.cast_signed()))
}

pub(super) fn between(name: &str, value: u64, right: Between) -> Found {
    if right.holds(value) {
        return Ok(());
    }
    Err(format!("{name:?} is {value}, not within {} and {}", right.0, right.1))
}

/// Shortest, mean and longest time: in order, and the longest one within bounds.
pub(super) fn latency([min, avg, max]: [&str; 3], right: Between) -> Found {
    let (min, max) = (number(min)?, number(max)?);
    let avg: f64 = avg.parse().map_err(|_| format!("{avg:?} is no number"))?;
    // Bounds are whole ms, rounded down; the mean has four digits.
    let whole = |ms: u64| u32::try_from(ms).map_or(f64::MAX, f64::from);
    if whole(min) > avg + 1e-3 || avg > whole(max) + 1.001 {
        return Err(format!("{min} <= {avg} <= {max} does not hold"));
    }
    between("max latency", max, right)
}

/// Seconds since 1970 of a date such as `Sat Nov 21 15:22:00 UTC 2026`.
pub(super) fn seconds(date: &str) -> Result<i64, String> {
    const MONTHS: [(&str, i64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let wrong = || format!("{date:?} is no date");
    let parts: Vec<&str> = date.split([' ', ':']).collect();
    let [weekday, month, day, hour, minute, second, "UTC", year] = parts[..] else {
        return Err(wrong());
    };
    let whole = |text: &str| text.parse::<i64>().map_err(|_| wrong());
    let (year, day) = (whole(year)?, whole(day)?);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<i64>();
    let at = MONTHS.iter().position(|(name, _)| *name == month).ok_or_else(wrong)?;
    days += MONTHS[..at].iter().map(|(_, days)| days).sum::<i64>();
    days += day - 1 + i64::from(at > 1 && is_leap(year));
    let known = usize::try_from(days % 7).ok().map(|day| DAYS[day]);
    if known != Some(weekday) {
        return Err(format!("{date:?} was another day of the week"));
    }
    Ok(((days * 24 + whole(hour)?) * 60 + whole(minute)?) * 60 + whole(second)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed() {
        for (date, right) in [
            ("Thu Jan 01 00:00:00 UTC 1970", 0),
            ("Tue Feb 29 00:00:00 UTC 2000", 951_782_400),
            ("Wed Mar 01 00:00:00 UTC 2000", 951_868_800),
            ("Sat Nov 21 15:22:00 UTC 2026", 1_795_274_520),
        ] {
            assert_eq!(seconds(date), Ok(right));
        }
        assert!(seconds("Sun Nov 21 15:22:00 UTC 2026").is_err());
    }

    #[test]
    fn latencies_are_in_order_and_within_bounds() {
        assert_eq!(latency(["0", "0.0", "0"], Between(0, 0)), Ok(()));
        assert_eq!(latency(["1", "2.3337", "3"], Between(3, 4)), Ok(()));
        assert!(latency(["1", "2.3337", "3"], Between(4, 5)).is_err());
        assert!(latency(["3", "2.3337", "3"], Between(3, 3)).is_err());
    }
}
