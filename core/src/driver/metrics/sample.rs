//! One list of figures for every way in which operators read them: `mntr`, the admin server and
//! Prometheus.
//!
//! Owns the form of a figure, and the lines that `mntr` makes of it. Must not collect figures.

use std::borrow::Cow;
use std::fmt;

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
            SampleValue::Counter(count) => {
                LineValue::Number(Number::Integer(i64::try_from(*count).unwrap_or(i64::MAX)))
            }
        };
        vec![(name, value)]
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
