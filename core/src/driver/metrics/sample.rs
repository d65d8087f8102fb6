//! One list of figures for every way in which operators read them: `mntr`, the admin server and
//! Prometheus.
//!
//! Owns the form of a figure, and the lines that `mntr` makes of it. Must not collect figures.

use std::borrow::Cow;
use std::fmt;

use super::summary::{QUANTILES, Summary, Totals};
use crate::ids::Instant;

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// ZooKeeper's name of it, without the prefix `zk_`.
    pub name: Cow<'static, str>,
    /// Which member of a set it is.
    pub key: Option<SampleKey>,
    /// Its kind and value.
    pub value: SampleValue,
}

/// The key of a member of a set. Prometheus has it as the label `key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SampleKey {
    /// `mntr` has it before the name, as ZooKeeper does: `1_ack_latency`.
    Prefix(String),
    /// `mntr` has it after the name. Figures that ZooKeeper does not have are of this form.
    Suffix(String),
}

/// The kind of a figure, with its value.
#[derive(Clone, PartialEq, Debug)]
pub enum SampleValue {
    /// A text, which Prometheus does not get.
    Text(String),
    /// A number that may rise and fall.
    Gauge(Number),
    /// A number that falls only when it begins anew.
    Counter(u64),
    /// Count, sum and distribution of measured values.
    Summary(SummaryValue),
}

/// The figures of a summary, in the unit in which they are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryValue {
    /// How the values are printed.
    pub unit: Unit,
    /// Which of them are printed.
    pub detail: Detail,
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The least; zero if there are none.
    pub min: u64,
    /// The largest; zero if there are none.
    pub max: u64,
    /// Their [`QUANTILES`]; `None` if no recent value is known.
    pub quantiles: Option<[u64; QUANTILES.len()]>,
}

/// The unit of a summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Times in microseconds, printed in milliseconds as in ZooKeeper.
    Time,
    /// Numbers or bytes.
    Number,
}

/// Which figures of a summary are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// No quantiles are known.
    Totals,
    /// `mntr` has no quantiles, Prometheus has the median.
    Basic,
    /// Both have quantiles.
    Advanced,
}

/// A number as `mntr` prints it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// A number that always has a decimal point, as Java prints it.
    Float(f64),
}

/// The value of a line of `mntr`, or of a field of the admin command `monitor`.
#[derive(Clone, PartialEq, Debug)]
pub enum LineValue {
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
}

impl Sample {
    /// A text.
    pub fn text(name: &'static str, text: impl fmt::Display) -> Sample {
        Sample::of(name, SampleValue::Text(text.to_string()))
    }

    /// A whole number that may rise and fall; one that is too large is the largest.
    pub fn gauge(name: &'static str, value: impl TryInto<i64>) -> Sample {
        let value = value.try_into().unwrap_or(i64::MAX);
        Sample::of(name, SampleValue::Gauge(Number::Integer(value)))
    }

    /// A fraction that may rise and fall.
    pub fn float(name: &'static str, value: f64) -> Sample {
        Sample::of(name, SampleValue::Gauge(Number::Float(value)))
    }

    /// A counter.
    pub fn counter(name: &'static str, value: u64) -> Sample {
        Sample::of(name, SampleValue::Counter(value))
    }

    /// A summary of times.
    pub fn times(name: &'static str, detail: Detail, of: &Summary, now: Instant) -> Sample {
        Sample::summary(name, Unit::Time, detail, of, now)
    }

    /// A summary of numbers.
    pub fn numbers(name: &'static str, of: &Summary, now: Instant) -> Sample {
        Sample::summary(name, Unit::Number, Detail::Basic, of, now)
    }

    /// A summary of numbers without quantiles.
    pub fn totals(name: &'static str, of: &Totals) -> Sample {
        let value = SummaryValue::new(Unit::Number, Detail::Totals, of, None);
        Sample::of(name, SampleValue::Summary(value))
    }

    fn summary(
        name: &'static str,
        unit: Unit,
        detail: Detail,
        of: &Summary,
        now: Instant,
    ) -> Sample {
        let value = SummaryValue::new(unit, detail, of.totals(), of.quantiles(now));
        Sample::of(name, SampleValue::Summary(value))
    }

    /// The same as a member of a set.
    #[must_use]
    pub fn with_key(self, key: SampleKey) -> Sample {
        Sample { key: Some(key), ..self }
    }

    fn of(name: &'static str, value: SampleValue) -> Sample {
        Sample { name: Cow::Borrowed(name), key: None, value }
    }

    /// Name and value of each line that `mntr` prints of it, without the prefix `zk_`.
    pub fn lines(&self) -> Vec<(String, LineValue)> {
        let Sample { name, key, value } = self;
        let name = match key {
            None => name.to_string(),
            Some(SampleKey::Prefix(key)) => format!("{key}_{name}"),
            Some(SampleKey::Suffix(key)) => format!("{name}_{key}"),
        };
        let value = match value {
            SampleValue::Text(text) => LineValue::Text(text.clone()),
            SampleValue::Gauge(number) => LineValue::Number(*number),
            SampleValue::Counter(count) => LineValue::whole(*count),
            SampleValue::Summary(summary) => return summary.lines(&name),
        };
        vec![(name, value)]
    }
}

impl SummaryValue {
    fn new(
        unit: Unit,
        detail: Detail,
        totals: &Totals,
        quantiles: Option<[u64; QUANTILES.len()]>,
    ) -> SummaryValue {
        let [sum, min, max] = totals.sum_min_max();
        SummaryValue { unit, detail, count: totals.count(), sum, min, max, quantiles }
    }

    /// A value of it, in the unit that is printed.
    pub fn printed(&self, value: u64) -> f64 {
        value as f64 / self.unit.divisor() as f64
    }

    /// The lines of `mntr`: whole numbers, except for the mean.
    fn lines(&self, name: &str) -> Vec<(String, LineValue)> {
        let whole = |value: u64| LineValue::whole(value / self.unit.divisor());
        let mean = self.printed(self.sum) / self.count.max(1) as f64;
        let mean = LineValue::Number(Number::Float((mean * 1e4).round() / 1e4));
        let mut lines = vec![
            (format!("avg_{name}"), mean),
            (format!("min_{name}"), whole(self.min)),
            (format!("max_{name}"), whole(self.max)),
            (format!("cnt_{name}"), LineValue::whole(self.count)),
            (format!("sum_{name}"), whole(self.sum)),
        ];
        if self.detail == Detail::Advanced {
            let [p50, _, p95, p99, p999] = self.quantiles.unwrap_or_default();
            for (quantile, value) in [("p50", p50), ("p95", p95), ("p99", p99), ("p999", p999)] {
                lines.push((format!("{quantile}_{name}"), whole(value)));
            }
        }
        lines
    }
}

impl Unit {
    /// How much of what is measured makes one of what is printed.
    fn divisor(self) -> u64 {
        match self {
            Unit::Time => 1_000,
            Unit::Number => 1,
        }
    }
}

impl LineValue {
    fn whole(number: u64) -> LineValue {
        LineValue::Number(Number::Integer(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(number) => write!(f, "{number}"),
            Number::Float(number) => write!(f, "{number:?}"),
        }
    }
}

impl fmt::Display for LineValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineValue::Number(number) => number.fmt(f),
            LineValue::Text(text) => f.write_str(text),
        }
    }
}
